"""`fairlead simulate --mig`: makes the trace, lets each policy place it, prints and writes the figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import process_time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlead.cli.printer import console as console_of
from fairlead.cli.simulate.mig import report
from fairlead.cli.simulate.mig.hardware import Cluster, parse_cluster
from fairlead.cli.simulate.mig.requests import arrivals, mix_of, timed_arrivals
from fairlead.cli.simulate.mig.run import LOADS, MEASURED, POLICIES, START, Figures, churn, fill, fleet
from fairlead.cli.simulate.trace import TraceError

INTERRUPTED = 130


def simulate_mig(
    nodes: Sequence[str],
    *,
    mix: str,
    seeds: Sequence[int],
    static: bool,
    departures: bool,
    policy: str | None,
    json_file: Path | None,
) -> int:
    """The exit status: 0, 2 for input that can't be used, 130 when interrupted. `policy` None: all, beside one another."""
    out, err = console_of(), console_of(stderr=True)
    if json_file is not None and not json_file.absolute().parent.is_dir():
        err.print(f"{json_file}: there is no directory {json_file.absolute().parent}", markup=False)
        return 2
    try:
        cluster = parse_cluster(nodes)
    except TraceError as error:
        err.print(str(error), markup=False, soft_wrap=True)
        return 2
    policies = POLICIES if policy is None else (policy,)
    cut = "cut beforehand, requests for a profile or a larger one" if static else "cut on demand"
    listed = ", ".join(f"{number} {name}" for name, number in cluster.counts().items())
    out.print(
        f"{listed}: {cluster.gpus:,} GPUs, {cluster.capacity:,} compute slices, {cut}; mix {mix}, "
        f"{'with' if departures else 'without'} departures",
        highlight=False,
        soft_wrap=True,
    )
    results: dict[str, dict[int, list[Figures]]] = {each: {load: [] for load in LOADS} for each in policies}
    spent = dict.fromkeys(policies, 0.0)
    number = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=err, transient=True, disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task("runs", total=len(seeds) * len(policies))
            for seed in seeds:
                for each in policies:
                    began = process_time()
                    figures, came = measure(cluster, mix, seed, each, static=static, departures=departures)
                    spent[each] += process_time() - began
                    number += came if each == policies[0] else 0
                    for load, found in figures.items():
                        results[each][load].append(found)
                    progress.advance(task)
    except KeyboardInterrupt:
        err.print("interrupted: nothing is shown, for policies are compared on the same seeds", highlight=False)
        return INTERRUPTED
    for title, table in report.tables(results, len(seeds)):
        out.print(title, highlight=False, soft_wrap=True)
        out.print(table)
    times = ", ".join(f"{each} {1000 * time / max(number, 1):.2f} ms" for each, time in spent.items())
    out.print(f"{number:,} arrivals each; processor time an arrival: {times}", highlight=False, soft_wrap=True)
    if json_file is not None:
        body = {
            "nodes": cluster.counts(),
            "slices": cluster.capacity,
            "mig": "static" if static else "dynamic",
            "mix": mix,
            "departures": departures,
            "seeds": list(seeds),
            "policies": report.as_json(results),
        }
        try:
            json_file.write_text(json.dumps(body, indent=1) + "\n")
        except OSError as error:
            err.print(f"{error.filename}: can't be written: {error.strerror}", markup=False)
            return 2
    return 0


def measure(
    cluster: Cluster, mix: str, seed: int, policy: str, *, static: bool, departures: bool
) -> tuple[dict[int, Figures], int]:
    """One seed and policy: figures by load, and how many requests arrived."""
    weights = mix_of(mix, seed)
    if not departures:
        requests = arrivals(cluster, weights, seed, dynamic=not static)
        return fill(fleet(cluster, policy, weights, static=static), cluster.capacity, requests), len(requests)
    found: dict[int, Figures] = {}
    number = 0
    for load in LOADS:
        timed = timed_arrivals(cluster, weights, seed, dynamic=not static, load=load / 100, until=START + MEASURED)
        number += len(timed)
        found[load] = churn(fleet(cluster, policy, weights, static=static), cluster.capacity, timed)
    return found, number
