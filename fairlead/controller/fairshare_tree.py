"""Fair shares of a tree of queues, flavor by flavor, from the roots down.

Exists so that a queue's share is a part of its parent's. The division among siblings is `fairshare`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.controller.fairshare import Claimant, divide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from fairlead.controller.model import Amount
    from fairlead.controller.order_tree import Queue, Tree


def divide_tree(tree: Tree, totals: Mapping[str, Amount]) -> None:
    """Set `fair` on every queue, from `used`, `demand` and the quotas."""
    for flavor in sorted(totals):
        _divide(tree.roots, totals[flavor], flavor)


def _divide(siblings: Sequence[Queue], pool: Amount, flavor: str) -> None:
    claimants = []
    for queue in siblings:
        quota = queue.quotas.get(flavor)
        claimants.append(
            Claimant(
                name=queue.name,
                demand=queue.demand.get(flavor, 0),
                deserved=queue.deserved(flavor),
                limit=None if quota is None else quota.limit,
                weight=max(queue.weight(flavor), 0),
                priority=queue.spec.priority,
            )
        )
    shares, _ = divide(pool, claimants)
    for queue, share in zip(siblings, shares, strict=True):
        if share:
            queue.fair[flavor] = _plain(share)
        if queue.children:
            _divide(queue.children, _plain(share), flavor)


def _plain(value: Fraction) -> Amount:
    return int(value) if value.denominator == 1 else value
