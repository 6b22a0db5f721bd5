"""Fair shares, flavor by flavor: deserved first, then the surplus by priority and weight; the tree from its roots down.

Status, order and reclaim all read this one number. Victims, devices and clocks play no part. Among siblings:
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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from fairlead.engine.queues.tree import Queue, Tree
from fairlead.engine.types.values import Amount

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


def divide_tree(tree: Tree, totals: Mapping[str, Amount], *, k: float = 0.0) -> None:
    """Set `fair` and `weights` on every queue that asks for something, from `demand`, quotas and past use."""
    for flavor in sorted(totals):
        _divide(tree, None, tree.roots, totals[flavor], flavor, k)


def _divide(tree: Tree, parent: Queue | None, siblings: Sequence[Queue], pool: Amount, flavor: str, k: float) -> None:
    asking = [queue for queue in siblings if queue.demand.get(flavor) or queue.kept(flavor)]
    # What was worked out for the same queues is right as long as they ask for the same.
    asks = [
        (queue.name, queue.demand.get(flavor, 0), queue.wanted(flavor), queue.allocation_units.get(flavor, 1))
        for queue in asking
    ]
    key = (pool, k, tuple(asks))
    known = tree.divided.get((parent, flavor))
    if known is None or known[0] != key:
        known = tree.divided[parent, flavor] = (key, *_among(asking, pool, flavor, k, tree.totals.get(flavor, pool)))
    _, shares, weights = known
    for queue, share, weight in zip(asking, shares, weights, strict=True):
        queue.weights[flavor] = weight
        queue.fair[flavor] = min(share, queue.demand.get(flavor, 0)) if queue.tree.lending_limited else share
        if queue.children and share:
            _divide(tree, queue, queue.children, share, flavor, k)


def _among(
    asking: Sequence[Queue], pool: Amount, flavor: str, k: float, total: Amount
) -> tuple[list[Amount], list[float]]:
    # Past use is known as a part of the cluster; among the children of a queue it counts as a part of what they divide.
    # Together it is all of that at most: else queues that used more than twice their part would leave the pool undivided.
    past = [queue.spec.past_usage.get(flavor, 0.0) for queue in asking]
    scale = min(float(total) / float(pool), 1.0 / (sum(past) or 1.0)) if k and pool else 0.0
    used = [part * scale for part in past]
    plain = [max(queue.weight(flavor), 0.0) for queue in asking]
    whole = sum(plain)
    weights = [max(0.0, weight + k * (weight - own * whole)) for weight, own in zip(plain, used, strict=True)]
    if len(asking) == 1:  # as most often below a queue: it may have all that it asks for
        queue = asking[0]
        ask = min((queue.wanted(flavor), *queue.bounds(flavor)))
        first = min(ask, queue.deserved(flavor))
        more = weights[0] > 0
        return [max(first, min(ask, pool)) if more else first], weights
    claimants = [
        Claimant(
            name=queue.name,
            demand=queue.wanted(flavor),
            deserved=queue.deserved(flavor),
            limit=min(queue.bounds(flavor), default=None),
            weight=weight,
            priority=queue.spec.priority,
            usage=own,
            kept=queue.kept(flavor),
            unit=Fraction(1, queue.allocation_units.get(flavor, 1)),
        )
        for queue, weight, own in zip(asking, plain, used, strict=True)
    ]
    shares, _ = divide(pool, claimants, k=k)
    return [_plain(share) for share in shares], weights


def _plain(value: Fraction) -> Amount:
    return int(value) if value.denominator == 1 else value
