"""`fairlead queues`: the tree of queues with what each uses, its fair share, what it deserves, and how much is requested."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from fairlead.cli.printer import say
from fairlead.cli.views import printing, reading
from fairlead.cli.views.table import Cell, Column
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


def show(*, kubeconfig: Path | None, context: str | None, output: str) -> int:
    """Print the tree; returns the exit code."""
    code, found = reading.run(lambda cluster: cluster.list(resources.QUEUES), kubeconfig=kubeconfig, context=context)
    if found is None:
        return code
    lines = tree(found)
    if output != "table":
        printing.structured([asdict(each) for each in lines], output)
        return 0
    if not lines:
        say("no queues: every gang waits in one line, without quota; see docs/queues.md", file=sys.stderr)
        return 0
    printing.table(COLUMNS, rows(lines))
    for each in lines:
        if each.problem:
            printing.paragraph(f"queue {each.name}: {each.problem}")
    for each in lines:
        if each.hold.startswith(f"queue {each.name} "):  # else it is that of a queue above
            printing.paragraph(each.hold)
    for each in lines:
        if each.schedule:
            printing.paragraph(f"schedule of queue {each.name}: {'; '.join(each.schedule)}")
    for each in lines:
        if each.budget:
            printing.paragraph(f"budget of queue {each.name}: {each.budget}")
    unlimited = [each.name for each in lines if each.open_to_all]
    if unlimited:
        shown = ", ".join(unlimited[:3]) + (f" and {len(unlimited) - 3} more" if len(unlimited) > 3 else "")
        printing.paragraph(
            f"open to every namespace that names it, for want of a namespaceSelector: {shown}; see docs/queues.md"
        )
    return 0
