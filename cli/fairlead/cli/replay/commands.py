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
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Live the recorded time under these Queues and Flavors (YAML) instead of comparing.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    usage_weight: Annotated[
        float | None, typer.Option(min=0, help="With --policy: another weight of past use.")
    ] = None,
    usage_half_life: Annotated[
        str, typer.Option(help="With --policy: after this long, what a queue used counts half.")
    ] = "7d",
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="With --policy: draw it there.")] = None,
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
    """Decide recorded decisions again and compare them bit by bit; or live the recorded time under another policy.

    Exit code 0: all are the same. 1: one differs. 2: the recording, or the policy, cannot be read.
    """
    from fairlead.api.durations import duration_s
    from fairlead.history.facts.errors import FactsError
    from fairlead.history.recording.errors import RecordingError

    try:
        half_life_s = duration_s(usage_half_life)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--usage-half-life") from None
    try:
        if policy is None and usage_weight is None:
            from fairlead.cli.replay.compare import compare

            code = compare(recordings, every=every, afresh=afresh, dump=dump, output=output)
        else:
            from fairlead.cli.replay.policy import live

            code = live(
                recordings, policy, usage_weight=usage_weight, half_life_s=half_life_s, svg_file=svg, output=output
            )
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
