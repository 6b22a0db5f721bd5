"""The bar of a queue in one flavor: what it uses of what it may, with marks for its fair share and what it deserves. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead.kube.quantity import amount
from fairlead.ui.model.queues import Line, Share

WIDTH = 100.0
ROOM = 1.1  # so that the longest bar does not end at the edge


@dataclass(frozen=True, slots=True)
class Bar:
    """Lengths and places on a scale of 0 to `WIDTH`, the same for the queues of one parent. `limit` None: none, or beyond the scale."""

    own: float  # used, up to what it deserves
    borrowed: float  # used beyond that
    demand: float  # where used and requested together end
    fair: float
    deserved: float
    limit: float | None
    over: str  # what it borrows, as an amount; "" for nothing
    label: str


def bars(lines: Sequence[Line]) -> Mapping[tuple[str, str], Bar]:
    """The bars by queue and flavor. Queues of one parent have one scale."""
    scales: dict[tuple[str | None, str], float] = {}
    for line in lines:
        for share in line.shares:
            most = max(amount(text) for text in (share.used, share.demand, share.fair_share, share.deserved))
            key = (line.parent, share.flavor)
            scales[key] = max(scales.get(key, 0.0), most)
    return {
        (line.name, share.flavor): _bar(share, scales[line.parent, share.flavor] * ROOM or 1.0)
        for line in lines
        for share in line.shares
    }


def _bar(share: Share, scale: float) -> Bar:
    used, deserved = amount(share.used), amount(share.deserved)

    def place(value: float) -> float:
        return round(WIDTH * min(value, scale) / scale, 2)

    over = used - deserved
    said = f"{share.used} used, fair share {share.fair_share}, deserved {share.deserved}"
    return Bar(
        own=place(min(used, deserved)),
        borrowed=round(place(used) - place(min(used, deserved)), 2),
        demand=place(amount(share.demand)),
        fair=place(amount(share.fair_share)),
        deserved=place(deserved),
        limit=None if share.limit is None or amount(share.limit) > scale else place(amount(share.limit)),
        over=f"{over:g}" if over > 0 else "",
        label=said + (f", limit {share.limit}" if share.limit is not None else ""),
    )
