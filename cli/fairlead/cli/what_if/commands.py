"""`fairlead what-if`. What it does is imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import Shown, Snapshot
from fairlead.kube.flags import DRIVERS, ManagedDrivers


@dataclass(frozen=True, kw_only=True)
class WhatIf(Shown):
    """Forecast what a change would do: what starts when, what is evicted, fair shares, utilisation. Writes nothing."""

    add_nodes: Annotated[
        tuple[str, ...],
        typer.Option(metavar="NxNAME", help="Add N nodes like the node NAME, or of the simulated profile NAME."),
    ] = ()
    remove: Annotated[tuple[str, ...], typer.Option(metavar="NODE", help="Remove this node.")] = ()
    queue: Annotated[
        tuple[str, ...],
        typer.Option(
            metavar="QUEUE[.FLAVOR].FIELD=VALUE",
            help="Set deserved, limit or weight of a queue's quota, or its priority.",
        ),
    ] = ()
    files: Annotated[
        tuple[Path, ...],
        typer.Option("--filename", "-f", metavar="FILE", help="Submit these manifests now; - reads standard input."),
    ] = ()
    horizon: Annotated[str, typer.Option(help="How far to look ahead, such as 90m or 24h.")] = "24h"
    samples: Annotated[
        int, typer.Option(min=1, max=64, help="Futures to draw; with 1 every run lasts its median, more give a p90.")
    ] = 1
    snapshot: Snapshot = None
    managed_drivers: ManagedDrivers = DRIVERS

    def run(self) -> int:
        from fairlead.cli.what_if.command import run

        return run(self)
