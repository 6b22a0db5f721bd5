"""`fairlead queues`: the tree of queues with what each uses, its fair share, what it deserves, and how much is requested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

import typer

from fairlead.cli import completion
from fairlead.cli.listing import Listing, Row
from fairlead.cli.printer import Cell, Column
from fairlead.kube import resources
from fairlead.kube.quantity import amount
from fairlead.kube.resources import Resource
from fairlead.ui.model.queues import Line, Share, tree
from fairlead.ui.reading.cluster import Cluster

COLUMNS = (
    Column(title="QUEUE", least=16, most=48),
    Column(title="FLAVOR", least=8, most=32),
    Column(title="USED", right=True),
    Column(title="FAIR SHARE", right=True),
    Column(title="DESERVED", right=True),
    Column(title="LIMIT", right=True, dispensable=2),
    Column(title="ASKED", right=True, dispensable=3),
    Column(title="PAST", right=True, dispensable=1),
    Column(title="RUNNING", right=True),
    Column(title="WAITING", right=True),
)


def rows(lines: Sequence[Line]) -> list[list[Cell]]:
    return [row for each in lines for row in _rows(each)]


def _rows(each: Line) -> list[list[Cell]]:
    """A row for each flavor; the queue's name and counts are in the first."""
    made = []
    for number, share in enumerate(each.shares or (None,)):
        first = number == 0
        name, counts = (
            ("  " * each.depth + each.name, (str(each.running), str(each.waiting))) if first else ("", ("", ""))
        )
        figures = (Cell("-"), *[Cell("")] * 6) if share is None else _figures(share)
        made.append([Cell(name), *figures, *map(Cell, counts)])
    return made


def _figures(share: Share) -> tuple[Cell, ...]:
    over = amount(share.used) > amount(share.fair_share)
    past = "-" if share.past_usage is None else f"{share.past_usage:.3g}"
    others = (share.fair_share, share.deserved, share.limit or "-", share.demand, past)
    return (Cell(share.flavor), Cell(share.used, "yellow" if over else ""), *map(Cell, others))


@dataclass(frozen=True, kw_only=True)
class Queues(Listing):
    """Show the tree of queues: what each uses, its fair share, what it deserves, and how many gangs wait in it."""

    kind: ClassVar[str] = "queue"
    watches: ClassVar[tuple[Resource[Any], ...]] = (resources.QUEUES,)

    names: Annotated[
        tuple[str, ...], typer.Argument(metavar="[NAME]...", help="Only these.", autocompletion=completion.queues)
    ] = ()

    def columns(self) -> Sequence[Column]:
        return COLUMNS

    async def rows(self, cluster: Cluster) -> list[Row]:
        found = await cluster.list(resources.QUEUES)
        labels = {raw["metadata"]["name"]: raw["metadata"].get("labels") or {} for raw in found}
        lines = tree(found)
        if self.names or self.selector.requirements:  # no tree, but some of its queues
            lines = [replace(each, depth=0) for each in lines]
        return [
            Row(
                name=each.name,
                reference=f"queue.fairlead.dev/{each.name}",
                lines=_rows(each),
                value=asdict(each),
                labels=(labels[each.name],),
            )
            for each in lines
        ]

    def none(self) -> str:
        return "no queues: every gang waits in one line, without quota; see docs/queues.md"

    def notes(self, rows: Sequence[Row]) -> Iterator[str]:
        values = [row.value for row in rows]
        yield from (f"queue {each['name']}: {each['problem']}" for each in values if each["problem"])
        # A hold that does not begin with the queue's name is that of a queue above.
        yield from (each["hold"] for each in values if each["hold"].startswith(f"queue {each['name']} "))
        yield from (
            f"schedule of queue {each['name']}: {'; '.join(each['schedule'])}" for each in values if each["schedule"]
        )
        yield from (f"budget of queue {each['name']}: {each['budget']}" for each in values if each["budget"])
        unlimited = [each["name"] for each in values if each["open_to_all"]]
        if unlimited:
            shown = ", ".join(unlimited[:3]) + (f" and {len(unlimited) - 3} more" if len(unlimited) > 3 else "")
            yield f"open to every namespace that names it, for want of a namespaceSelector: {shown}; see docs/queues.md"
