"""Flags of `replay` and `snapshot`. Each module is imported when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.cli.options import ManagedDrivers, drivers
from fairlead.cli.printer import say

PANEL = "Recorded decisions"
Output = Annotated[
    Literal["table", "json"], typer.Option("--output", "-o", help="A table for people; json for programs.")
]


def register(app: typer.Typer) -> None:
    for command in (replay, snapshot):
        app.command(rich_help_panel=PANEL)(command)


def replay(
    recordings: Annotated[
        list[Path], typer.Argument(metavar="FILE|DIR…", help="Segments, or the directory of `controller --record`.")
    ],
    every: Annotated[
        bool, typer.Option("--all", help="Name every decision that differs, not the first alone.")
    ] = False,
    afresh: Annotated[
        bool, typer.Option("--afresh", help="Forget between decisions what the engine remembers of the last.")
    ] = False,
    dump: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the inputs of the first decision that differs as a snapshot."),
    ] = None,
    output: Output = "table",
) -> None:
    """Decide recorded decisions again and compare them bit by bit.

    Exit code 0: all are the same. 1: one differs. 2: the recording cannot be read.
    """
    from fairlead.cli.replay.compare import compare
    from fairlead.history.facts.errors import FactsError
    from fairlead.history.recording.errors import RecordingError

    try:
        code = compare(recordings, every=every, afresh=afresh, dump=dump, output=output)
    except (RecordingError, FactsError, OSError) as error:
        say(error, file=sys.stderr)
        code = 2
    raise typer.Exit(code)


def snapshot(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="Cluster to ask. Default: $KUBECONFIG, ~/.kube/config.", exists=True, dir_okay=False),
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig. Default: its current one.")] = None,
    managed_driver: ManagedDrivers = None,
) -> None:
    """Write what a decision would start from now, for support and for what-if: `fairlead snapshot > FILE`. Reads only."""
    from fairlead.cli.replay.take import take

    raise typer.Exit(take(kubeconfig, context, drivers(managed_driver)))
