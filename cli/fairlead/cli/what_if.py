"""`fairlead what-if`: what a change of a cluster would do, computed here by the controller's own decision. Writes nothing.

Reads a snapshot (a file, or the cluster with the user's rights), changes it, compares, prints. Exit status: 0 printed, 1 the cluster or the
change cannot be read.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlead.cli import printer
from fairlead.cli.limits import TooLongError, cpu_at_most
from fairlead.cli.options import Snapshot
from fairlead.cli.printer import Cell, Column, say
from fairlead.cli.reading import Shown
from fairlead.engine.forecast.what_if import ChangeError, Comparison
from fairlead.history.facts import snapshot_file
from fairlead.kube.flags import DRIVERS, ManagedDrivers, SharedClaimDrivers
from fairlead.ui.reading.cluster import NotReadError
from fairlead.ui.what_if import world as worlds
from fairlead.ui.what_if import written
from fairlead.ui.what_if.answer import answer
from fairlead.ui.what_if.question import Question, horizon_s
from fairlead.ui.what_if.world import World
from fairlead.ui.what_if.written import as_json

COMPARE_S = 300.0  # of CPU
LARGE = 300  # gangs from which on there may be a first version of the table


COLUMNS = (
    Column(title="GANG", least=16, most=64),
    Column(title="QUEUE", least=8, most=32),
    Column(title="BEFORE", right=True),
    Column(title="AFTER", right=True),
    Column(title="CHANGE", right=True),
)
SHARES = (
    Column(title="QUEUE", least=8, most=40),
    Column(title="FLAVOR", least=6, most=32),
    *(Column(title=name.upper(), right=True) for name in written.SHARES[2:]),
)
_COLOURS = {True: "green", False: "red", None: ""}


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
    shared_claim_drivers: SharedClaimDrivers = ()

    def run(self) -> int:
        if self.snapshot is not None and (self.kubeconfig is not None or self.context):
            say(
                "--snapshot: what-if asks a file or a cluster, and --kubeconfig or --context names one: leave out either",
                file=sys.stderr,
            )
            return 1
        try:
            question = Question(
                add_nodes=self.add_nodes,
                remove=self.remove,
                queue=self.queue,
                submit=_documents(self.files),
                horizon_s=horizon_s(self.horizon),
                samples=self.samples,
                drivers=self.managed_drivers,
                shared_drivers=self.shared_claim_drivers,
                own_profiles=True,
            )
        except OSError as error:
            say(f"-f {error.filename}: {error.strerror}", file=sys.stderr)
            return 1
        except (ChangeError, ValueError) as error:
            say(error, file=sys.stderr)
            return 1
        gc.disable()  # of what is read nothing becomes free: each collection would look at all of it in vain, a fifth of the time
        try:
            return _compared(self, question)
        finally:
            gc.enable()


def _compared(asked: WhatIf, question: Question) -> int:
    try:
        world = _read(asked, question)
        with cpu_at_most(COMPARE_S):
            return _compare(asked, question, world)
    except (ChangeError, NotReadError) as error:
        say(error, file=sys.stderr)
    except TooLongError:
        say(
            f"it took more than {COMPARE_S:g} s of CPU time and was ended: submit less, or ask for fewer samples or a shorter horizon",
            file=sys.stderr,
        )
    return 1


def _compare(asked: WhatIf, question: Question, world: World) -> int:
    """Raises ChangeError."""
    large = asked.output == "table" and len(world.snapshot.gangs) + len(world.snapshot.running) > LARGE
    if large and not world.data:
        world.data = snapshot_file.dump(world.snapshot, world.now)
    comparison = answer(question, world, quick=large)
    if large:
        _show(comparison)
        gc.freeze()
        gc.enable()  # the simulations that follow may be long
        say("\nThat was a first look. With every gang decided on:\n", flush=True)
        world.snapshot = snapshot_file.load(world.data).snapshot  # the comparison changed it
        comparison = answer(question, world)
    if asked.output == "table":
        _show(comparison)
    else:
        printer.structured(as_json(comparison, world.now), asked.output)
    return 0


def _documents(files: Sequence[Path]) -> list[dict[str, Any]]:
    if not files:
        return []
    from fairlead.cli.checks.manifests import documents_of  # with the webhook: half a second

    return list(documents_of(files))


def _read(asked: WhatIf, question: Question) -> World:
    """Raises NotReadError for a file."""
    if asked.snapshot is not None:
        return worlds.of_file(asked.snapshot)
    return asked.ask(lambda cluster: worlds.of_cluster(cluster, question))


def _show(found: Comparison) -> None:
    shown = written.shown(found)
    say(shown.headline)
    if shown.starts:
        printer.table(
            COLUMNS,
            [
                [
                    Cell(row.gang),
                    Cell(row.queue),
                    Cell(row.before),
                    Cell(row.after),
                    Cell(row.change, _COLOURS[row.better]),
                ]
                for row in shown.starts
            ],
        )
    if shown.more:
        say(f"(and {shown.more} more; -o json shows all)")
    for line in shown.evicted:
        printer.paragraph(line)
    if shown.shares:
        printer.paragraph("Fair shares that change:")
        printer.table(SHARES, [[Cell(value) for value in row] for row in shown.shares])
    for name, line in shown.figures:
        say(f"{name + ':':<14} {line}")
    printer.paragraph(shown.note)
