"""Which slices count as a pool's: those of the node whose pool it is, and of no other; and how many devices of a node it may have.

A driver's token is bound to a node, and slices are read by pool. So a slice of one node that names another node's pool, with a
higher generation, would put that node's devices away and its own in their place. The apiserver refuses that of our driver
(policy `fairlead-driver-slices`); here is the same rule for readers, who see slices of every driver, and of before the policy.

- A pool that is called like a node which publishes in it is that node's: slices of other nodes, and of no single node, are
  ignored, whatever their generation.
- So is a slice of our driver with a `nodeName` that is not its pool's name, also where that node publishes nothing.
- Other pools span nodes or are network attached, and have one generation, the highest, as in Kubernetes.

- A pool with more than DEVICES_MAX devices and counter sets of one node does not count, and none of them is looked at: one node's
  driver slows no decision about the others.

Example: pool `n1` has a slice of node n1, generation 3, and one of node n2, generation 9: its devices are those of generation 3.
Pure; every reader of pools asks here (the inventory, the evidence, the command line).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fairlead.api import names

DEVICES_MAX: Final = 1024
"""Of one node in a pool, with its counter sets. Sixteen GPUs with all their MIG devices are 432."""
NONE: Final[frozenset[str]] = frozenset()


def strangers(driver: str, pool: str, nodes: Mapping[str, str | None]) -> frozenset[str]:
    """The slices of a pool that do not count, by name. `nodes`: the `spec.nodeName` of each, None without one."""
    if len(nodes) == 1 and driver != names.DRIVER:
        return NONE
    if pool in nodes.values():
        return frozenset(name for name, node in nodes.items() if node != pool)
    if driver == names.DRIVER:
        return frozenset(name for name, node in nodes.items() if node and node != pool)
    return NONE


def stranger_text(name: str, node: str | None, driver: str, pool: str) -> str:
    """Why that slice is ignored, and what to do."""
    return (
        f"ResourceSlice {name} of {f'node {node}' if node else 'no single node'} is ignored: pool {driver}/{pool} is node {pool}'s; "
        f"find out what wrote it, and delete it: kubectl delete resourceslice {name}"
    )


def crowded_node(slices: Iterable[tuple[str | None, int]]) -> str | None:
    """The node of which a pool has more than DEVICES_MAX; the first by name. `slices`: node, and devices and counter sets, of each."""
    counts: dict[str, int] = {}
    for node, count in slices:
        if node:
            counts[node] = counts.get(node, 0) + count
    return min((node for node, count in counts.items() if count > DEVICES_MAX), default=None)


def crowded_text(node: str, driver: str, pool: str) -> str:
    """Why no device of the pool counts, and what to do."""
    return (
        f"pool {driver}/{pool} is ignored: more than {DEVICES_MAX} devices and counter sets of node {node}; find out what published "
        f"them: kubectl get resourceslices --field-selector spec.nodeName={node}"
    )
