"""`fairlead queues`: the tree of queues with what each uses, its fair share, what it deserves, and how much is requested."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from fairlead.cli import printer
from fairlead.cli.printer import Cell, Column, say
from fairlead.cli.reading import Shown
from fairlead.kube import resources
from fairlead.kube.quantity import amount
from fairlead.ui.model.queues import Line, Share, tree

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
    """A row for each flavor of a queue; its name and counts are in the first."""
    made = []
    for each in lines:
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
class Queues(Shown):
    """Show the tree of queues: what each uses, its fair share, what it deserves, and how many gangs wait in it."""

    def run(self) -> None:
        lines = tree(self.ask(lambda cluster: cluster.list(resources.QUEUES)))
        if self.output != "table":
            printer.structured([asdict(each) for each in lines], self.output)
            return
        if not lines:
            say("no queues: every gang waits in one line, without quota; see docs/queues.md", file=sys.stderr)
            return
        printer.table(COLUMNS, rows(lines))
        for each in lines:
            if each.problem:
                printer.paragraph(f"queue {each.name}: {each.problem}")
        for each in lines:
            if each.hold.startswith(f"queue {each.name} "):  # else it is that of a queue above
                printer.paragraph(each.hold)
        for each in lines:
            if each.schedule:
                printer.paragraph(f"schedule of queue {each.name}: {'; '.join(each.schedule)}")
        for each in lines:
            if each.budget:
                printer.paragraph(f"budget of queue {each.name}: {each.budget}")
        unlimited = [each.name for each in lines if each.open_to_all]
        if unlimited:
            shown = ", ".join(unlimited[:3]) + (f" and {len(unlimited) - 3} more" if len(unlimited) > 3 else "")
            printer.paragraph(
                f"open to every namespace that names it, for want of a namespaceSelector: {shown}; see docs/queues.md"
            )
