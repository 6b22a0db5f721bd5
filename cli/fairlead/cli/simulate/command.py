"""`fairlead simulate`: reads the trace, replays each seed, prints and writes the results."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fairlead.cli.printer import console
from fairlead.cli.simulate.replay import POINTS, Run, drawn_arrivals, mean_and_sd, parse_seeds, replay
from fairlead.cli.simulate.trace import Trace, TraceError, read_arrivals, read_trace, shown

INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class Simulate:
    """Replay a placement trace through the controller's placement, beside other policies."""

    nodes: Annotated[Path, typer.Option(help="CSV of the nodes: sn, cpu_milli, memory_mib, gpu, model.")]
    pods: Annotated[
        Path, typer.Option(help="CSV of the pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec.")
    ]
    arrivals: Annotated[
        Path | None,
        typer.Option(help="CSV of recorded arrivals, a column per seed. Default: draw them by the protocol."),
    ] = None
    seed: Annotated[tuple[str, ...], typer.Option(metavar="N|N-M", help="Run to replay; may be repeated.")] = ("42",)
    policy: Annotated[
        Literal["fairlead", "best-fit", "fgd", "random"],
        typer.Option(help="The rule of placement: ours, or one to compare with."),
    ] = "fairlead"
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write all figures there.")] = None

    def run(self) -> int:
        """The exit status: 0, 2 for input that can't be used, 130 when interrupted (what was finished is shown)."""
        try:
            seeds = parse_seeds(self.seed)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--seed") from None
        out, err = console(), console(stderr=True)
        if self.json_file is not None and not self.json_file.absolute().parent.is_dir():
            err.print(f"{self.json_file}: there is no directory {self.json_file.absolute().parent}", markup=False)
            return 2
        try:
            trace = read_trace(self.nodes, self.pods)
            if not trace.capacity:
                raise TraceError(f"{self.nodes}: no node has a GPU; there is nothing to allocate")
            recorded = None if self.arrivals is None else read_arrivals(self.arrivals, seeds, len(trace.pods))
        except TraceError as error:
            err.print(str(error), markup=False, soft_wrap=True)
            return 2
        orders = {seed: drawn_arrivals(trace, seed) for seed in seeds} if recorded is None else recorded
        source = "drawn by the protocol, not the published orders" if self.arrivals is None else "as recorded"
        out.print(
            f"{len(trace.nodes):,} nodes, {trace.capacity // 1000:,} GPUs, {len(trace.pods):,} pods in the list; "
            f"arrivals {source}; policy {self.policy}",
            highlight=False,
            soft_wrap=True,
        )
        if trace.unplaceable:
            out.print(_unplaceable(trace), highlight=False, soft_wrap=True, markup=False)
        runs, interrupted = _replay(trace, orders, self.policy, err)
        if interrupted:
            done = ", ".join(str(run.seed) for run in runs) or "none"
            err.print(f"interrupted; seeds that were finished: {done}", highlight=False)
        if not runs:
            return INTERRUPTED
        _print(self.policy, runs, trace, out)
        try:
            if self.json_file is not None:
                body = as_json(self.policy, runs, trace, arrivals=source)
                self.json_file.write_text(json.dumps(body, indent=1) + "\n")
        except OSError as error:
            err.print(f"{error.filename}: can't be written: {error.strerror}", markup=False)
            return 2
        return INTERRUPTED if interrupted else 0


def _replay(trace: Trace, orders: Mapping[int, Sequence[int]], policy: str, err: Console) -> tuple[list[Run], bool]:
    """A run for each seed, with progress on a terminal; and whether Ctrl-C ended it early."""
    runs: list[Run] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not sys.stderr.isatty()) as progress:
        try:
            for seed, arrivals in orders.items():
                task = progress.add_task(f"seed {seed}", total=len(arrivals))
                runs.append(replay(trace, arrivals, policy, seed, partial(progress.advance, task)))
        except KeyboardInterrupt:
            return runs, True
    return runs, False


def _unplaceable(trace: Trace) -> str:
    """Which pods fail whatever is free, with the first as an example."""
    row = trace.unplaceable[0]
    pod = trace.pods[row]
    return (
        f"{len(trace.unplaceable):,} of the {len(trace.pods):,} pods in the list fit on no node even when all are empty: they "
        f"fail when they arrive (the first is row {row + 1}, pod {pod.name}: {shown(pod.request)})"
    )


def _print(policy: str, runs: Sequence[Run], trace: Trace, out: Console) -> None:
    known = published(trace.digest)
    out.print(table(policy, runs, known))
    if not known:
        out.print("nothing is published of these two lists: published figures are left out", highlight=False)
    out.print(chart(policy, runs, known), highlight=False)
    failed, never = (sum(each) for each in zip(*((run.failed, run.unplaceable) for run in runs), strict=True))
    note = f", {never:,} of them on no node even when all are empty" if never else ""
    out.print(f"{failed:,} of {sum(run.pods for run in runs):,} arrivals failed{note}", highlight=False)
    slowest = max(run.seconds for run in runs)
    placed = sum(run.pods for run in runs) / sum(run.seconds for run in runs)
    out.print(f"{slowest:.1f} s for the slowest seed, {placed:,.0f} arrivals/s of processor time", highlight=False)


Published = Mapping[str, Mapping[int, float]]  # by policy: percent allocated by percent of load
_OPENB_DEFAULT: Published = {
    "Random": {80: 78.66, 90: 85.02, 100: 86.30, 110: 86.88, 120: 87.28, 130: 87.47},
    "DotProd": {80: 80.02, 90: 89.98, 100: 90.62, 110: 90.70, 120: 90.77, 130: 90.85},
    "GPUClustering": {80: 80.02, 90: 89.98, 100: 91.65, 110: 91.73, 120: 91.80, 130: 91.88},
    "GPUPacking": {80: 80.02, 90: 89.98, 100: 91.78, 110: 91.86, 120: 91.92, 130: 92.00},
    "BestFit": {80: 80.02, 90: 89.99, 100: 92.86, 110: 92.94, 120: 93.00, 130: 93.08},
    "FGD": {80: 80.02, 90: 89.98, 100: 95.23, 110: 95.30, 120: 95.35, 130: 95.39},
}
PUBLISHED: Mapping[str, Published] = {
    # openb_node_list_gpu_node.csv with openb_pod_list_default.csv
    "b34f5a68b35230a70679d4b3892c391a90ed3137298acb1ff8c63948cddbf9bf": _OPENB_DEFAULT
}
ROWS, COLUMNS = 16, 61
LEAST, MOST = 70, 130  # percent of load that is drawn


def mean_curve(runs: Sequence[Run]) -> dict[int, float]:
    """The mean over runs at the points that every run reached."""
    points = set.intersection(*(set(run.curve) for run in runs))
    return {point: mean_and_sd([run.curve[point] for run in runs])[0] for point in sorted(points)}


def published(digest: str) -> Published:
    """What was published of these lists; empty where nothing was."""
    return PUBLISHED.get(digest, {})


def table(policy: str, runs: Sequence[Run], known: Published) -> Table:
    """`known`: what was published of the same lists."""
    seeds = f"{len(runs)} seeds" if len(runs) > 1 else f"seed {runs[0].seed}"
    shown = Table(title=f"GPUs allocated, % of the cluster, by load that arrived ({seeds})", title_justify="left")
    shown.add_column("policy", no_wrap=True)
    for point in POINTS:
        shown.add_column(f"{point} %", justify="right")
    means, sds = [], []
    for point in POINTS:
        values = [run.curve[point] for run in runs if point in run.curve]
        mean, sd = mean_and_sd(values) if values else (None, None)
        means.append("–" if mean is None else f"[bold]{mean:.2f}[/]")
        sds.append("" if sd is None else f"±{sd:.2f}")
    shown.add_row(f"[bold]{policy}[/], now", *means)
    if any(sds):
        shown.add_row("", *sds)
    if known:
        shown.add_section()
    for name, figures in known.items():
        shown.add_row(f"{name}, published", *(f"{figures[point]:.2f}" for point in POINTS))
    return shown


def chart(policy: str, runs: Sequence[Run], known: Published) -> Text:
    """Allocated by arrived load, with FGD's and BestFit's published points if there are any: the part where policies differ."""
    lines: dict[str, Mapping[int, float]] = {"*": mean_curve(runs)}
    lines |= {mark: known[name] for mark, name in (("f", "FGD"), ("b", "BestFit")) if name in known}
    values = [value for line in lines.values() for point, value in line.items() if LEAST <= point <= MOST]
    low, high = min(values, default=0.0), max(values, default=100.0)
    grid = [[" "] * COLUMNS for _ in range(ROWS)]
    for mark in [mark for mark in "bf*" if mark in lines]:
        for point, value in lines[mark].items():
            if LEAST <= point <= MOST:
                row = round((value - low) / (high - low) * (ROWS - 1)) if high > low else 0
                grid[ROWS - 1 - row][round((point - LEAST) / (MOST - LEAST) * (COLUMNS - 1))] = mark
    text = Text()
    for number, row_of in enumerate(grid):
        level = high - (high - low) * number / (ROWS - 1)
        text.append(f"{level:6.1f} |{''.join(row_of)}\n")
    text.append(f"       +{'-' * COLUMNS}\n")
    ticks = "".join(f"{point:<10}" for point in range(LEAST, MOST + 1, 10))
    keys = "".join(f"   {mark} {name} (published)" for mark, name in (("f", "FGD"), ("b", "BestFit")) if name in known)
    text.append(f"        {ticks.rstrip()}\n        load that arrived, %   * {policy}{keys}\n")
    return text


def as_json(policy: str, runs: Sequence[Run], trace: Trace, *, arrivals: str) -> dict[str, Any]:
    """Everything that was measured."""
    points: dict[str, Any] = {}
    for point in POINTS:
        values = [run.curve[point] for run in runs if point in run.curve]
        if values:
            mean, sd = mean_and_sd(values)
            points[str(point)] = {"mean": mean, "sd": sd, "n": len(values)}
    return {
        "policy": policy,
        "arrivals": arrivals,
        "nodes": len(trace.nodes),
        "gpuMilli": trace.capacity,
        "lists": trace.digest,
        "unplaceable": len(trace.unplaceable),
        "allocationRatio": points,
        "published": {name: {str(p): v for p, v in line.items()} for name, line in published(trace.digest).items()},
        "seeds": [
            {
                "seed": run.seed,
                "arrivals": run.pods,
                "failed": run.failed,
                "unplaceable": run.unplaceable,
                "seconds": round(run.seconds, 3),
                "allocationRatio": {str(point): value for point, value in run.curve.items()},
            }
            for run in runs
        ],
    }
