"""`fairlead check readiness`: reads the cluster, asks every item, prints a table or JSON, and says by its exit status whether one failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fairlead.cli.health import reading as clusters
from fairlead.cli.health.commands import Readiness
from fairlead.cli.health.readiness import infrastructure, monitoring, platform, scheduling
from fairlead.cli.health.readiness.kinds import KINDS, LOOK_INTO, OPTIONAL
from fairlead.cli.health.readiness.model import Answer, Group, Item, Status
from fairlead.cli.health.seen import Seen
from fairlead.cli.views import printing, reading
from fairlead.cli.views.table import Cell, Column
from fairlead.ui.reading.cluster import Cluster

READY, FAILED, NOT_REACHED = 0, 1, 3
GROUPS: tuple[Group, ...] = (
    infrastructure.GROUP,
    scheduling.GROUP,
    scheduling.AUTOSCALING,
    monitoring.GROUP,
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


def readiness(asked: Readiness) -> int:
    """The exit status: 0 where no item failed, 1 where one did, 3 where the cluster was not reached."""
    chosen = [group for group in GROUPS if not asked.groups or group.key in asked.groups]

    async def work(cluster: Cluster) -> Seen:
        platform_too = infrastructure.GROUP in chosen
        return await clusters.read(
            cluster,
            KINDS,
            drivers=asked.managed_drivers,
            look_into=LOOK_INTO,
            optional=OPTIONAL,
            parts=("gates", "kubelets") if platform_too else (),
            try_slices=platform_too and asked.try_slices,
        )

    _, seen = reading.run(work, kubeconfig=asked.kubeconfig, context=asked.context)
    if seen is None:
        return NOT_REACHED
    answered = answers(seen, chosen)
    output = "json" if asked.as_json else asked.output
    if output == "table":
        _print(answered)
    else:
        printing.structured(structured(seen, answered), output)
    return FAILED if any(answer.status == "fail" for _, _, answer in answered) else READY


def answers(seen: Seen, groups: Sequence[Group] = GROUPS) -> Answered:
    return [(group, item, item.check(seen)) for group in groups for item in group.items]


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
    printing.table(COLUMNS, rows)
    for status in ("fail", "not checkable here"):
        found = [(item, answer) for _, item, answer in answered if answer.status == status]
        if found:
            printing.paragraph("")
            printing.paragraph("what failed:" if status == "fail" else "what was not checkable here:", bold=True)
        for item, answer in found:
            printing.paragraph(f"{item.key}: {item.title}")
            printing.paragraph(f"seen: {answer.why}", indent=2)
            printing.paragraph(f"fix: {item.fix}", indent=2)
    counts = Counter(answer.status for _, _, answer in answered)
    printing.paragraph("")
    printing.paragraph(", ".join(f"{counts[status]} {status}" for status in STATUSES))
