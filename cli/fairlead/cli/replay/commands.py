"""`replay` and `snapshot`. What they do is imported when they run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.cli.options import OfCluster
from fairlead.cli.printer import say
from fairlead.kube.flags import DRIVERS, ManagedDrivers


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Decide recorded decisions again and compare them bit by bit.

    Exit code 0: all are the same. 1: one differs. 2: the recording cannot be read.
    """

    recordings: Annotated[
        tuple[Path, ...],
        typer.Argument(metavar="FILE|DIR…", help="Segments, or the directory of `controller --record`."),
    ]
    every: Annotated[bool, typer.Option("--all", help="Name every decision that differs, not the first alone.")] = False
    afresh: Annotated[
        bool, typer.Option("--afresh", help="Forget between decisions what the engine remembers of the last.")
    ] = False
    dump: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the inputs of the first decision that differs as a snapshot."),
    ] = None
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="A table for people; json for programs.")
    ] = "table"

    def run(self) -> int:
        from fairlead.cli.replay.compare import compare
        from fairlead.history.facts.form import FactsError
        from fairlead.history.recording.records import RecordingError

        try:
            return compare(self.recordings, every=self.every, afresh=self.afresh, dump=self.dump, output=self.output)
        except (RecordingError, FactsError, OSError) as error:
            say(error, file=sys.stderr)
            return 2


@dataclass(frozen=True, kw_only=True)
class Snapshot(OfCluster):
    """Write what a decision would start from now, for support and for what-if: `fairlead snapshot > FILE`. Reads only."""

    managed_drivers: ManagedDrivers = DRIVERS

    def run(self) -> int:
        from fairlead.cli.replay.take import take

        return take(self.kubeconfig, self.context, self.managed_drivers)
