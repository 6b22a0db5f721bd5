"""`fairlead import`. What it does is imported when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.cli.options import OfCluster


@dataclass(frozen=True, kw_only=True)
class Import(OfCluster):
    """Print another system's queues as Queues, Flavors and TenancyPolicies, and what has no equal. Applies nothing.

    Look at the result, then: kubectl apply -f FILE. What has no equal is a comment at its object, and a line on standard error.
    Exit code 0: printed. 1: printed, with --strict, and something has no equal. 2: refused, or not to be read.
    """

    system: Annotated[
        Literal["kueue", "volcano", "yunikorn", "runai"],
        typer.Option("--from", help="Whose queues: Kueue, Volcano, YuniKorn, or KAI-Scheduler and Run:ai (runai)."),
    ]
    files: Annotated[
        tuple[Path, ...],
        typer.Argument(
            help="Files, directories, or - for standard input. Default: what the cluster has.", metavar="[FILE…]"
        ),
    ] = ()
    output: Annotated[
        Literal["yaml", "json"], typer.Option("--output", "-o", help="YAML with comments, or JSON with notes.")
    ] = "yaml"
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when something has no equal.")] = False

    def run(self) -> int:
        from fairlead.cli.imports.command import run

        if self.files and (self.kubeconfig is not None or self.context is not None):
            raise typer.BadParameter("files and a cluster cannot be read together: leave out one", param_hint="FILE")
        return run(self)
