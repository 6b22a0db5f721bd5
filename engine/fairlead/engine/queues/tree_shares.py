"""Fair shares of a tree of queues, flavor by flavor, from the roots down.

A queue's share is a part of its parent's. The division among siblings is `fair_share`'s. Sets what order, reclaim and status
read: `fair`, what a queue may hold now, and `weights`, corrected by past use in the same way as the
division: max(0, w + k (w - U * sum of w)) with U the queue's part of the past use of what is being divided.
Queues that ask for nothing take no part, so that a thousand idle ones cost little.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from fairlead.engine.queues.fair_share import Claimant, divide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead.engine.queues.tree import Queue, Tree
    from fairlead.engine.types.amounts import Amount


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
