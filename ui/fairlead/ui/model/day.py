"""What became of all device time in the last day, and what idle devices cost in the last hour: the ledger's sums, as a bill has them; pure.

A day is `BINS` equal parts that begin at whole half hours, so that a part that is over never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, Literal

from fairlead.history.cost.usage import Money, Priced, add_money
from fairlead.history.ledger.entries import WHOLE_PPM, Bucket, Sum
from fairlead.kube import timestamps
from fairlead.kube.timestamps import SECOND_US
from fairlead.ui.model.scope import Scope

BIN_S: Final = 1800
BINS: Final = 48
Group = Literal["used", "idle", "starting", "free", "unavailable"]
GROUPS: Final[Mapping[Group, tuple[Bucket, ...]]] = {
    "used": ("used",),
    "idle": ("idle",),
    "starting": ("starting",),
    "free": ("free", "nominated", "fragmented"),
    "unavailable": ("drained", "broken", "unknown"),
}
"""As the overview has them, from the bottom up."""
NOT_ALL: Final = "what all devices did is shown to those who may list nodes, and gangs in all namespaces"


@dataclass(frozen=True, kw_only=True)
class Day:
    """`parts`: mean devices by bucket, in order of time from `since` on (unix seconds); of a part of which nothing is known, none.

    `known_from`: since when the ledger knows, where that is within the day. `idle_cost`: by namespace, of the last hour. `missing`: why
    there are no parts; "" where there are some.
    """

    since: float = 0.0
    parts: tuple[Mapping[Bucket, float], ...] = ()
    known_from: float | None = None
    idle_cost: Mapping[str, Money] = field(default_factory=dict)
    missing: str = ""

    def of(self, group: Group) -> tuple[float, ...]:
        return tuple(sum(part.get(bucket, 0.0) for bucket in GROUPS[group]) for part in self.parts)

    def idle_cost_for(self, scope: Scope) -> dict[str, Fraction]:
        """By currency, of what the viewer may see."""
        found = dict[str, Fraction]()
        for namespace, money in self.idle_cost.items():
            if scope.sees(namespace):
                add_money(found, money)
        return found


def begins(now: float) -> float:
    """When a day begins whose last part is the one of now."""
    return float((int(now) // BIN_S + 1 - BINS) * BIN_S)


def means(sums: Iterable[Sum], lasts_us: int) -> dict[Bucket, float]:
    """Mean devices by bucket over so long."""
    weighed = dict[Bucket, int]()
    for each in sums:
        weighed[each.bucket] = weighed.get(each.bucket, 0) + each.time_us * each.measure.share_ppm
    return {bucket: weight / WHOLE_PPM / lasts_us for bucket, weight in weighed.items()}


def idle_costs(priced: Iterable[Priced]) -> dict[str, Money]:
    """By namespace, the only key of the sums."""
    found = dict[str, dict[str, Fraction]]()
    for each in priced:
        money = each.figures().money(buckets=("idle",))
        if any(money.values()):
            add_money(found.setdefault(each.sum.keys[0], {}), money)
    return dict(found)


def as_json(day: Day) -> dict[str, Any]:
    return {
        "from": timestamps.seconds(day.since),
        "partSeconds": BIN_S,
        "missing": day.missing,
        "knownFrom": None if day.known_from is None else timestamps.seconds(day.known_from),
        "devices": [{bucket: round(mean, 4) for bucket, mean in part.items()} for part in day.parts],
    }


def window_us(since: float, place: int) -> tuple[int, int]:
    """From when to when part number `place` lasts, in unix microseconds."""
    begin = int(since) + place * BIN_S
    return begin * SECOND_US, (begin + BIN_S) * SECOND_US
