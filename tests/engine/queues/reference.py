"""Fair shares once more: slow, in exact fractions, written down from the published formula as plainly as it can be said.

Exists so that the division is held by something that shares no line with it. `reference` does what KAI-Scheduler's page
describes, round by round; `shares_of` divides a whole tree and knows queues only as their specifications.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from fairlead.engine.queues.fair_share import Claimant
from fairlead.engine.types.settings import FlavorQuota, QueueSpec


def exact(value: object) -> Fraction:
    return Fraction(str(value))


def reference(total: Fraction, queues: Sequence[Claimant], k: Fraction) -> dict[str, Fraction]:
    """Step by step. Queues come oldest first; names are unique."""
    units = {queue.name: exact(queue.unit) for queue in queues}
    ask: dict[str, Fraction] = {}
    fair: dict[str, Fraction] = {}
    for queue in queues:
        ask[queue.name] = exact(queue.demand)
        if queue.limit is not None:
            ask[queue.name] = min(ask[queue.name], exact(queue.limit))
        fair[queue.name] = min(total if queue.deserved is None else exact(queue.deserved), ask[queue.name])
    pool = total
    for queue in queues:
        pool -= max(fair[queue.name], exact(queue.kept))
    for priority in sorted({queue.priority for queue in queues}, reverse=True):
        remembered: dict[str, Fraction] = {}
        somebody_took_less = True
        while somebody_took_less and pool > 0:
            somebody_took_less = False
            hungry = [q for q in queues if q.priority == priority and q.weight and fair[q.name] < ask[q.name]]
            weights = sum((exact(q.weight) for q in hungry), Fraction(0))
            points = {}
            for queue in hungry:
                part = exact(queue.weight) / weights
                points[queue.name] = max(Fraction(0), part + k * (part - exact(queue.usage)))
            if not sum(points.values()):
                break
            there = pool
            for queue in hungry:
                name = queue.name
                share = there * points[name] / sum(points.values())
                left_to_ask = ask[name] - fair[name]
                if left_to_ask <= share:
                    give = left_to_ask
                    somebody_took_less = somebody_took_less or left_to_ask < share
                    remembered.pop(name, None)
                else:
                    give = math.floor(share / exact(queue.unit)) * exact(queue.unit)
                    remembered[name] = share - give
                fair[name] += give
                pool -= give
        by_remembered = sorted(remembered, key=lambda name: remembered[name], reverse=True)  # stable: oldest first
        for name in by_remembered:
            give = max(Fraction(0), min(units[name], ask[name] - fair[name], pool))
            fair[name] += give
            pool -= give
    return fair


# ------------------------------------------------------------------------------------------------------------ trees


def quota_of(spec: QueueSpec, flavor: str) -> FlavorQuota | None:
    return next((quota for quota in spec.quotas if quota.flavor == flavor), None)


def shares_of(
    specs: Sequence[QueueSpec], demands: Mapping[str, int], total: int, flavor: str, k: float
) -> dict[str, Fraction]:
    """Of every queue in one flavor; `demands` are those of the leaves."""
    below: dict[str | None, list[QueueSpec]] = {}
    for spec in sorted(specs, key=lambda spec: spec.name):
        below.setdefault(spec.parent, []).append(spec)

    def demand(spec: QueueSpec) -> int:
        children = below.get(spec.name)
        return sum(map(demand, children)) if children else demands.get(spec.name, 0)

    def deserved(spec: QueueSpec) -> Fraction:
        quota = quota_of(spec, flavor)
        if quota is not None:
            return exact(quota.deserved)
        return sum((deserved(child) for child in below.get(spec.name, [])), Fraction(0))

    def kept(spec: QueueSpec) -> Fraction:
        quota = quota_of(spec, flavor)
        inside = sum((kept(child) for child in below.get(spec.name, [])), Fraction(0))
        if quota is None or quota.lending_limit is None:
            return inside
        return max(inside, exact(quota.deserved) - exact(quota.lending_limit), Fraction(0))

    def wanted(spec: QueueSpec) -> Fraction:
        inside = sum((max(wanted(child), kept(child)) for child in below.get(spec.name, [])), Fraction(0))
        return max(exact(demand(spec)), inside)

    def most(spec: QueueSpec) -> Fraction | None:
        quota = quota_of(spec, flavor)
        bounds = [] if quota is None or quota.limit is None else [exact(quota.limit)]
        if quota is not None and quota.borrowing_limit is not None:
            bounds.append(exact(quota.deserved) + exact(quota.borrowing_limit))
        return min(bounds, default=None)

    found = {spec.name: Fraction(0) for spec in specs}

    def pour(parent: str | None, pool: Fraction) -> None:
        here = [spec for spec in below.get(parent, []) if demand(spec) or kept(spec)]
        past = sum(spec.past_usage.get(flavor, 0.0) for spec in here)
        claimants = []
        for spec in here:
            quota = quota_of(spec, flavor)
            # A part of the cluster is a larger part of what the queue above has; together it is all of it at most.
            scale = min(total / float(pool), 1.0 / (past or 1.0)) if k and pool else 0.0
            claimants.append(
                Claimant(
                    name=spec.name,
                    demand=wanted(spec),
                    deserved=deserved(spec),
                    limit=most(spec),
                    weight=1.0 if quota is None else quota.weight,
                    priority=spec.priority,
                    usage=spec.past_usage.get(flavor, 0.0) * scale,
                    kept=kept(spec),
                )
            )
        shares = reference(pool, claimants, exact(k))
        for spec in here:
            found[spec.name] = min(shares[spec.name], exact(demand(spec)))  # what is kept idle is nobody's share
            pour(spec.name, shares[spec.name])

    pour(None, Fraction(total))
    return found
