"""Fair share of one flavor among sibling queues: deserved first, then the surplus by priority and weight.

Status, order and reclaim all read this one number. Victims, devices, trees and clocks play no part.
    ask(q)    = min(demand, limit)
    first     share(q) = min(deserved, ask), even where that is more than the pool; what q keeps unlent is no surplus
    then      band by band, highest priority first, over queues that ask for more:
              W = weight / sum of weights; P = max(0, W + k (W - U)), U = past use of the cluster, 0..1 and above
              each gets min(what it asks, floor(surplus * P / sum P)), in its units: whole devices, or the slices
              that it asks for; again while one was satisfied with less
    last      the units left over, one each, by largest fraction lost to the floor, then by the order given
Keeps: share <= ask; sum of shares <= pool unless deserved alone exceeds it; exact fractions, so the same input gives the
same output. Weight 0 never gets surplus. O(queues^2) at most per band.
Source: KAI-Scheduler resource_division.go (d5bc503), DESIGN 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Number = int | float | Fraction


class QuotaError(ValueError):
    """A negative number where there can be none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """The numbers of a queue that the division depends on. `deserved` and `limit` None: without bound. `kept`: not lent even while unused.

    `unit` is the least of which it can make use: a whole device, or a part of one.
    """

    name: str
    demand: Number
    deserved: Number | None = 0
    limit: Number | None = None
    weight: Number = 1
    priority: int = 0
    usage: Number = 0
    kept: Number = 0
    unit: Number = 1

    @property
    def ask(self) -> Fraction:
        return _exact(self.demand) if self.limit is None else min(_exact(self.demand), _exact(self.limit))


def _exact(value: Number) -> Fraction:
    """0.1 means a tenth, not the float beside it."""
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def divide(pool: Number, queues: Sequence[Claimant], *, k: Number = 0) -> tuple[list[Fraction], Fraction]:
    """One share per queue, in order, and what is left over: no queue asks for it, or may have it. Older queues first.

    Raises QuotaError.
    """
    for queue in queues:
        for what, value in (("demand", queue.demand), ("deserved", queue.deserved), ("weight", queue.weight)):
            if value is not None and value < 0:
                raise QuotaError(f"Queue {queue.name}: {what} {value} is negative")
    total = _exact(pool)
    shares = [min(queue.ask, total if queue.deserved is None else _exact(queue.deserved)) for queue in queues]
    guaranteed = sum(max(share, _exact(queue.kept)) for queue, share in zip(queues, shares, strict=True))
    surplus = max(Fraction(0), total - guaranteed)
    for priority in sorted({queue.priority for queue in queues}, reverse=True):
        band = [number for number, queue in enumerate(queues) if queue.priority == priority and queue.weight > 0]
        surplus = _divide_surplus(surplus, band, queues, shares, _exact(k))
    return shares, surplus


def _divide_surplus(
    surplus: Fraction, band: list[int], queues: Sequence[Claimant], shares: list[Fraction], k: Fraction
) -> Fraction:
    """Divide the surplus among the queues of one priority band; returns what is left."""
    lost: dict[int, Fraction] = {}
    again = True
    while again and surplus > 0:
        again = False
        open_ = [number for number in band if shares[number] < queues[number].ask]
        parts = _parts([queues[number] for number in open_], k)
        whole = sum(parts)
        if not whole:
            break
        given = Fraction(0)
        for number, part in zip(open_, parts, strict=True):
            offer = surplus * part / whole
            missing = queues[number].ask - shares[number]
            if missing <= offer:
                granted, again = missing, again or missing < offer
                lost.pop(number, None)
            else:
                unit = _exact(queues[number].unit)
                granted = int(offer / unit) * unit
                lost[number] = offer - granted
            shares[number] += granted
            given += granted
        surplus -= given
    for number in sorted(lost, key=lambda number: (-lost[number], number)):
        granted = min(_exact(queues[number].unit), queues[number].ask - shares[number], surplus)
        if granted <= 0:
            continue
        shares[number] += granted
        surplus -= granted
    return surplus


def _parts(queues: Sequence[Claimant], k: Fraction) -> list[Fraction]:
    weights = [_exact(queue.weight) for queue in queues]
    whole = sum(weights)
    if not whole:
        return [Fraction(0)] * len(queues)
    return [
        max(Fraction(0), weight / whole + k * (weight / whole - _exact(queue.usage)))
        for weight, queue in zip(weights, queues, strict=True)
    ]
