"""`fairlead simulate`: reads the trace, replays each seed, prints and writes the results."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairlead.cli.printer import console
from fairlead.cli.simulate import report
from fairlead.cli.simulate.replay import Run, drawn_arrivals, parse_seeds, replay
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
                body = report.as_json(self.policy, runs, trace, arrivals=source)
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
    known = report.published(trace.digest)
    out.print(report.table(policy, runs, known))
    if not known:
        out.print("nothing is published of these two lists: published figures are left out", highlight=False)
    out.print(report.chart(policy, runs, known), highlight=False)
    failed, never = (sum(each) for each in zip(*((run.failed, run.unplaceable) for run in runs), strict=True))
    note = f", {never:,} of them on no node even when all are empty" if never else ""
    out.print(f"{failed:,} of {sum(run.pods for run in runs):,} arrivals failed{note}", highlight=False)
    slowest = max(run.seconds for run in runs)
    placed = sum(run.pods for run in runs) / sum(run.seconds for run in runs)
    out.print(f"{slowest:.1f} s for the slowest seed, {placed:,.0f} arrivals/s of processor time", highlight=False)
