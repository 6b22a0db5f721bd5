"""Flags of `fairlead import`. Modules are imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.cli.options import Kubeconfig

PANEL = "Moving to Fairlead"


def register(app: typer.Typer) -> None:
    app.command("import", rich_help_panel=PANEL)(import_)


def import_(
    system: Annotated[
        Literal["kueue", "volcano", "yunikorn", "runai"],
        typer.Option("--from", help="Whose queues: Kueue, Volcano, YuniKorn, or KAI-Scheduler and Run:ai (runai)."),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files, directories, or - for standard input. Default: what the cluster has.", metavar="[FILE…]"
        ),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig. Default: its current one.")] = None,
    output: Annotated[
        Literal["yaml", "json"], typer.Option("--output", "-o", help="YAML with comments, or JSON with notes.")
    ] = "yaml",
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 when something has no equal.")] = False,
) -> None:
    """Print another system's queues as Queues, Flavors and TenancyPolicies, and what has no equal. Applies nothing.

    Look at the result, then: kubectl apply -f FILE. What has no equal is a comment at its object, and a line on standard error.
    Exit code 0: printed. 1: printed, with --strict, and something has no equal. 2: refused, or not to be read.
    """
    from fairlead.cli.imports.command import run

    if files and (kubeconfig is not None or context is not None):
        raise typer.BadParameter("files and a cluster cannot be read together: leave out one", param_hint="FILE")
    raise typer.Exit(run(system, files or (), kubeconfig=kubeconfig, context=context, output=output, strict=strict))
