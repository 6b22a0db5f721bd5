"""`fairlead simulate`. What it does is imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer


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
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the plot there, as SVG.")] = None

    def run(self) -> int:
        from fairlead.cli.simulate.command import simulate
        from fairlead.cli.simulate.protocol import parse_seeds

        try:
            seeds = parse_seeds(self.seed)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--seed") from None
        return simulate(self, seeds)
