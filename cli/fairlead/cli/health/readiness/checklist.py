"""`fairlead check readiness`: reads the cluster, asks every item, prints a table or JSON, and says by its exit status whether one failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer

from fairlead.cli import printer
from fairlead.cli.health import reading
from fairlead.cli.health.readiness import infrastructure, monitoring, platform, scheduling
from fairlead.cli.health.readiness.model import KINDS, LOOK_INTO, OPTIONAL, Answer, Group, Item, Status
from fairlead.cli.health.reading import Looking
from fairlead.cli.health.seen import Seen
from fairlead.cli.printer import Cell, Column
from fairlead.ui.reading.cluster import Cluster

READY, FAILED, NOT_REACHED = 0, 1, 3
GROUPS: tuple[Group, ...] = (
    infrastructure.INFRASTRUCTURE,
    scheduling.SCHEDULING,
    scheduling.AUTOSCALING,
    monitoring.MONITORING,
    platform.SECURITY,
    platform.STORAGE,
    platform.MLOPS,
    monitoring.COST,
    platform.VALIDATION,
)
STATUSES: tuple[Status, ...] = ("pass", "fail", "not checkable here")
COLUMNS = (
    Column(title="GROUP", dispensable=1),
    Column(title="ITEM"),
    Column(title="STATUS"),
    Column(title="WHY", least=30, sentence=True),
)
_COLOURS: dict[Status, str] = {"pass": "green", "fail": "red", "not checkable here": ""}

Answered = list[tuple[Group, Item, Answer]]


class GroupKey(StrEnum):
    """A group of the checklist."""

    INFRASTRUCTURE = "infrastructure"
    SCHEDULING = "scheduling"
    AUTOSCALING = "autoscaling"
    MONITORING = "monitoring"
    SECURITY = "security"
    STORAGE = "storage"
    MLOPS = "mlops"
    COST = "cost"
    VALIDATION = "validation"


@dataclass(frozen=True, kw_only=True)
class Readiness(Looking):
    """Check what a GPU cluster needs before production, item by item: pass, fail, or not checkable here, with the fix.

    It reads with your own rights and changes nothing. What it may not read, or what no API shows, is not checkable here.

    Exit status 0: every item passes or is not checkable. 1: an item fails. 2: wrong flags. 3: the cluster cannot be reached.
    """

    groups: Annotated[
        tuple[GroupKey, ...], typer.Option("--group", "-g", help="Only this group; may be repeated. Default: all.")
    ] = ()
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False

    def run(self) -> int:
        chosen = [group for group in GROUPS if not self.groups or group.key in self.groups]
        platform_too = infrastructure.INFRASTRUCTURE in chosen

        async def work(cluster: Cluster) -> Seen:
            return await reading.read(
                cluster,
                KINDS,
                drivers=self.managed_drivers,
                shared_drivers=self.shared_claim_drivers,
                look_into=LOOK_INTO,
                optional=OPTIONAL,
                parts=("gates", "kubelets") if platform_too else (),
                try_slices=platform_too and self.try_slices,
            )

        seen = self.ask(work, unread=NOT_REACHED)
        answered = answers(seen, chosen)
        output = "json" if self.as_json else self.output
        if output == "table":
            _print(answered)
        else:
            printer.structured(structured(seen, answered), output)
        return FAILED if any(answer.status == "fail" for _, _, answer in answered) else READY


def answers(seen: Seen, groups: Sequence[Group] = GROUPS) -> Answered:
    return [(group, item, item.answer(seen)) for group in groups for item in group.items]


def structured(seen: Seen, answered: Answered) -> dict[str, Any]:
    counts = Counter(answer.status for _, _, answer in answered)
    return {
        "kubernetes": seen.release,
        "counts": {status: counts[status] for status in STATUSES},
        "items": [item.structured(group.key, answer) for group, item, answer in answered],
    }


def _print(answered: Answered) -> None:
    rows = [
        [Cell(group.key), Cell(item.key), Cell(answer.status, _COLOURS[answer.status]), Cell(answer.why)]
        for group, item, answer in answered
    ]
    printer.table(COLUMNS, rows)
    for status in ("fail", "not checkable here"):
        found = [(item, answer) for _, item, answer in answered if answer.status == status]
        if found:
            printer.paragraph("")
            printer.paragraph("what failed:" if status == "fail" else "what was not checkable here:", bold=True)
        for item, answer in found:
            printer.paragraph(f"{item.key}: {item.title}")
            printer.paragraph(f"seen: {answer.why}", indent=2)
            printer.paragraph(f"fix: {item.fix}", indent=2)
    counts = Counter(answer.status for _, _, answer in answered)
    printer.paragraph("")
    printer.paragraph(", ".join(f"{counts[status]} {status}" for status in STATUSES))
