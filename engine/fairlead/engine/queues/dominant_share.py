"""Dominant share: how far beyond what it deserves a queue goes, as a part of what could be lent to it.

It ranks queues with different flavors by one number. Use within deserved never counts, and what is unused of one flavor
does not make up for another; each flavor is a resource of its own. Weight 0 with surplus: infinite.
Example: a queue holds 6 of 8 a100 and deserves 2, and holds 1 of 8 h100 and deserves 1: (6 - 2) / 8 = 0.5 if all 8 could be lent.
Source: Kueue's fair sharing (KEP 1714), with the cluster itself as the root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.engine.queues.queue import Queue
    from fairlead.engine.queues.tree import Tree
    from fairlead.engine.types.amounts import Amount


def dominant_share(queue: Queue, tree: Tree, ask: Mapping[str, Amount]) -> tuple[float, str]:
    """The share with this ask, and the flavor that makes it; (0, "") within deserved."""
    largest, flavor = 0.0, ""
    for name in sorted(queue.used.keys() | ask.keys()):
        over = queue.surplus(name, ask.get(name, 0))
        lend = lendable(queue.parent, tree, name) if over else 0
        if lend and (not flavor or over / float(lend) > largest):
            largest, flavor = over / float(lend), name
    return largest, flavor


def lendable(parent: Queue | None, tree: Tree, flavor: str) -> Amount:
    """The most that the queues below `parent` (None: the roots) could hold together, but for what some keep unlent."""
    known = tree.lendable.get((parent, flavor))
    if known is None:
        below = tree.roots if parent is None else parent.children
        known = _reachable(parent, tree, flavor) - sum(queue.kept(flavor) for queue in below)
        known = tree.lendable[parent, flavor] = max(known, 0)
    return known


def _reachable(queue: Queue | None, tree: Tree, flavor: str) -> Amount:
    """What one queue could hold if all others were idle."""
    if queue is None:
        return tree.totals.get(flavor, 0)
    return min((queue.kept(flavor) + lendable(queue.parent, tree, flavor), *queue.bounds(flavor)))
