"""What a queue is charged for the pods of its gangs: flavors with measure Resource, such as the cpu that pods request.

Counted are effective requests (`types.pods.PodNeeds`: init containers, sidecars, overhead) of all pods of a gang, so a gang's charge is known
before it is placed. A flavor with node labels counts only pods on nodes that have them: there the placement decides.
What can be divided is what nodes that take pods have free, and what gangs hold; what other pods request is no part of it.
Example: 2 nodes of 64 cores, 4 of each requested by daemons, gangs hold 30: total 128, usable 90 free + 30 held = 120.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import inf

from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.types.gangs import RefusedNode, RunningGang
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.settings import FlavorSpec
from fairlead.engine.types.values import Amount

KNOWN_MAX = 20_000  # charges of pods, and flavors of nodes, remembered

Flavors = tuple[FlavorSpec, ...]


class PodCharges:
    """Of one list of flavors; False where there are none. `nodes` None: pods that run are not known."""

    def __init__(self, flavors: Iterable[FlavorSpec], nodes: NodeTable | None) -> None:
        self.flavors: Flavors = tuple(flavors)
        self.labelled = frozenset(flavor.name for flavor in self.flavors if flavor.node_selector)
        self._nodes = nodes
        self._charges: dict[tuple[PodNeeds, Flavors], dict[str, Amount]] = {}
        self._at: dict[NodeInfo, Flavors] = {}
        self._cursor = -1
        self._of_node: dict[str, tuple[tuple[int, int], ...]] = {}  # by flavor: allocatable and free, thousandths
        self._sums = [[0, 0] for _ in self.flavors]

    def __bool__(self) -> bool:
        return bool(self.flavors)

    @property
    def cursor(self) -> int:
        """Of the log of pods that changed."""
        return -1 if self._nodes is None or not self.flavors else self._nodes.pod_changes.cursor

    def changed_since(self, cursor: int) -> list[str] | None:
        """UIDs of pods that may count otherwise than at the cursor; None: all may."""
        return [] if self._nodes is None or not self.flavors else self._nodes.pod_changes.since(cursor)

    def at(self, node: NodeInfo | None) -> Flavors:
        """Those that count pods on this node; None: a node that is gone, whose labels are not known."""
        if not self.labelled:
            return self.flavors
        if node is None:
            return tuple(flavor for flavor in self.flavors if not flavor.node_selector)
        known = self._at.get(node)
        if known is None:
            if len(self._at) >= KNOWN_MAX:
                self._at.clear()
            known = self._at[node] = tuple(flavor for flavor in self.flavors if _selects(flavor, node.labels))
        return known

    def of(self, needs: PodNeeds, at: Flavors) -> Mapping[str, Amount]:
        """One pod on a node whose pods these flavors count."""
        known = self._charges.get((needs, at))
        if known is None:
            if len(self._charges) >= KNOWN_MAX:
                self._charges.clear()
            requests = dict(needs.requests)
            amounts = ((flavor.name, requests.get(flavor.resource_name or "", 0)) for flavor in at)
            known = self._charges[needs, at] = {name: plain(value) for name, value in amounts if value}
        return known

    def of_pods(self, uids: Iterable[str]) -> dict[str, Amount]:
        """Pods by UID, as far as they count on nodes: those that are bound, pinned or in commit."""
        alike: Counter[tuple[PodNeeds, Flavors]] = Counter()
        if self._nodes is None or not self.flavors:
            return {}
        for uid in uids:
            found = self._nodes.pod(uid)
            if found is not None:
                alike[found[1], self.at(self._nodes.get(found[0]))] += 1
        return self.together(alike)

    def of_gang(self, gang: RunningGang) -> dict[str, Amount]:
        return self.of_pods(pods_of(gang)) if self.flavors else {}

    def together(self, alike: Mapping[tuple[PodNeeds, Flavors], int]) -> dict[str, Amount]:
        """So many of each."""
        total: dict[str, Amount] = {}
        for (needs, at), count in alike.items():
            for flavor, value in self.of(needs, at).items():
                total[flavor] = total.get(flavor, 0) + count * value
        return total

    def total(self) -> dict[str, Amount]:
        """What all nodes have."""
        self._look()
        return {flavor.name: plain(sums[0]) for flavor, sums in zip(self.flavors, self._sums, strict=True)}

    def usable(self, held: Mapping[str, Amount]) -> dict[str, Amount]:
        """What can be divided where gangs hold so much."""
        self._look()
        free = ((flavor.name, plain(sums[1])) for flavor, sums in zip(self.flavors, self._sums, strict=True))
        return {name: value + held.get(name, 0) for name, value in free}

    def refused(self, flavors: Iterable[str]) -> tuple[RefusedNode, ...]:
        """The nodes on which pods are charged to one of these."""
        names = set(flavors)
        nodes = () if self._nodes is None else self._nodes.all()
        return tuple(
            RefusedNode(node=node.name, until=inf) for node in nodes if any(one.name in names for one in self.at(node))
        )

    def _look(self) -> None:
        """At the nodes that changed."""
        if not self.flavors or self._nodes is None:
            return
        changed = self._nodes.changes.since(self._cursor)
        self._cursor = self._nodes.changes.cursor
        names = self._of_node.keys() | {node.name for node in self._nodes.all()} if changed is None else set(changed)
        for name in names:
            self._add(self._of_node.pop(name, ()), -1)
            node = self._nodes.get(name)
            if node is not None:
                self._of_node[name] = amounts = tuple(_amounts(flavor, node) for flavor in self.flavors)
                self._add(amounts, 1)

    def _add(self, amounts: Iterable[tuple[int, int]], times: int) -> None:
        for sums, (has, free) in zip(self._sums, amounts, strict=False):
            sums[0] += times * has
            sums[1] += times * free


def pods_of(gang: RunningGang) -> list[str]:
    """UIDs of the pods that it is charged for."""
    return [*(member.pod.uid for member in gang.members), *gang.pods]


def plain(thousandths: int) -> Amount:
    return Fraction(thousandths, 1000) if thousandths % 1000 else thousandths // 1000


def _selects(flavor: FlavorSpec, labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in flavor.node_selector)


def _amounts(flavor: FlavorSpec, node: NodeInfo) -> tuple[int, int]:
    """What the node has of the flavor's resource, and what of it is free for pods; thousandths."""
    if not _selects(flavor, node.labels):
        return 0, 0
    name = flavor.resource_name or ""
    has = node.allocatable.get(name, 0)
    return has, max(has - node.used.get(name, 0), 0) if node.open else 0
