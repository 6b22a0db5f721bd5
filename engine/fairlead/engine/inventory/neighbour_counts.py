"""Whether a node takes a pod beside the pods that are there: the counts of the table with what a decision changed, by topology domain.

Of one ledger. `add` and `release` are undone by `times` -1. Nodes are looked at again only when `epoch` is another: a pod that is placed
closes nodes to others, which shows when they are tried, and seldom opens some.
Example: pods with a skew of 1 over zones a and b. One in a closes a; one in b raises the least, and opens a again.
Source: kube-scheduler's interpodaffinity and podtopologyspread filters, 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.engine.inventory import node_selector
from fairlead.engine.inventory.neighbours import Facet, Mark, NeighbourTable, add
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.types.pods import Constraints, SpreadTerm


class _Domains:
    """Counts of one mark by value of one node label. `among` None: on all nodes."""

    __slots__ = ("among", "by_value", "least")

    def __init__(self, among: frozenset[str] | None) -> None:
        self.by_value: dict[str, int] = {}
        self.among = among
        self.least: int | None = None  # None: not known

    def rises(self, before: int) -> bool:
        """After a change of a value that was `before`: whether nodes elsewhere may take pods now that they did not take.

        By affinity where there was none of them, by spread where the least rises.
        """
        if self.among is None:
            return before == 0
        least, self.least = self.least, None
        if least is None:
            return True
        self.least = least if before > least else min(self.by_value.values(), default=0)
        return self.least > least


class NeighbourCounts:
    """The counts of one ledger: the table's counts with what a decision changes. `add` and `release` are undone by `times` -1."""

    def __init__(self, table: NeighbourTable) -> None:
        self.table = table
        self.opened = 0  # grows when a pod that is placed may open other nodes to pods with affinity or spread
        self.loosened = 0  # and when a pod is taken away
        self._delta: dict[Mark, dict[str, int]] = {}
        self._domains: dict[object, _Domains] = {}
        self._by_mark: dict[Mark, list[tuple[str, _Domains]]] = {}
        self._as_of: tuple[int, int, int] | None = None  # what of the table the domains were counted from

    def clear(self) -> None:
        """As the table is now: nodes and pods may have changed, too."""
        if self._delta:
            self.loosened += 1
        self._delta.clear()
        self._domains.clear()
        self._by_mark.clear()

    def epoch(self, facets: Iterable[Facet | None]) -> tuple[int, ...]:
        """As long as it is the same, no node takes a pod that it refused because of its neighbours."""
        loosens = any(facet is not None and facet.loosens for facet in facets)
        table = self.table
        return (table.changes, table.nodes.structure, self.loosened, self.opened if loosens else 0)

    def add(self, facet: Facet, node: NodeInfo, times: int) -> None:
        """A pod of this facet on the node."""
        self._change(facet.marks, node, times)

    def release(self, uid: str, node: NodeInfo, times: int) -> None:
        found = self.table.of_pod(uid)
        if found is not None:
            self._change(found[1], node, -times)

    def _change(self, marks: Iterable[Mark], node: NodeInfo, times: int) -> None:
        for mark in marks:
            add(self._delta.setdefault(mark, {}), node.name, times)
            for key, domains in self._by_mark.get(mark, ()):
                value = node.labels.get(key)
                if value is not None and (domains.among is None or node.name in domains.among):
                    before = domains.by_value.get(value, 0)
                    add(domains.by_value, value, times, keep=domains.among is not None)
                    self.opened += domains.rises(before)
        self.loosened += times < 0

    # ------------------------------------------------------------------------------------------------ judging

    def refusal(self, facet: Facet, node: NodeInfo) -> str | None:
        """Why the node does not take a pod of this facet beside those that are there; None when it does."""
        table = self.table
        if self._as_of != (stamp := (table.version, table.changes, table.nodes.structure)):
            self._as_of = stamp  # nodes may be scored before the table has caught up
            self._domains.clear()
            self._by_mark.clear()
        labels = node.labels
        for term, mark, counts_itself in facet.spread:
            value = labels.get(term.topology_key)
            if value is None:
                return f"topology spread over {term.topology_key}: the node has no such label"
            here = self._spread(facet, term, mark)
            most = here.by_value.get(value, 0) + counts_itself
            if most - self._least(here, term) > term.max_skew:
                return f"topology spread over {term.topology_key}"
        if facet.affinity is not None:
            refused = self._too_far(facet, facet.affinity, labels)
            if refused is not None:
                return refused
        for key, mark in facet.anti_affinity:
            if self._there(mark, key, labels):
                return f"pod anti-affinity over {key}"
        for key, mark in facet.repelled_by:
            if self._there(mark, key, labels):
                return f"anti-affinity of other pods over {key}"
        return None

    def _too_far(self, facet: Facet, mark: Mark, labels: Mapping[str, str]) -> str | None:
        for key in facet.affinity_keys:
            if key not in labels:
                return f"pod affinity over {key}: the node has no such label"
        counts = [self._all(mark, key) for key in facet.affinity_keys]
        if not any(each.by_value for each in counts) and facet.attracts_itself:
            return None  # the first of its kind
        for key, each in zip(facet.affinity_keys, counts, strict=True):
            if not each.by_value.get(labels[key]):
                return f"pod affinity over {key}"
        return None

    def _there(self, mark: Mark, key: str, labels: Mapping[str, str]) -> bool:
        value = labels.get(key)
        return value is not None and self._all(mark, key).by_value.get(value, 0) > 0

    def _all(self, mark: Mark, key: str) -> _Domains:
        """By value, where there are any."""
        known = self._domains.get((mark, key))
        if known is not None:
            return known
        found = self._made((mark, key), mark, key, None)
        for counts in (self.table.counts.get(mark, {}), self._delta.get(mark, {})):
            for name, number in counts.items():
                node = self.table.nodes.get(name)
                value = None if node is None else node.labels.get(key)
                if value is not None:
                    add(found.by_value, value, number)
        return found

    def _spread(self, facet: Facet, term: SpreadTerm, mark: Mark) -> _Domains:
        """How many pods each domain has that counts for the pod: also those without any."""
        keys = tuple(each.topology_key for each, _, _ in facet.spread)
        identity = (mark, term, keys, facet.constraints)
        known = self._domains.get(identity)
        if known is not None:
            return known
        among = [node for node in self.table.nodes.all() if _counts_for(node, keys, term, facet.constraints)]
        found = self._made(identity, mark, term.topology_key, frozenset(node.name for node in among))
        counts, delta = self.table.counts.get(mark, {}), self._delta.get(mark, {})
        for node in among:
            value = node.labels[term.topology_key]
            number = counts.get(node.name, 0) + delta.get(node.name, 0)
            found.by_value[value] = found.by_value.get(value, 0) + number
        return found

    def _least(self, domains: _Domains, term: SpreadTerm) -> int:
        if len(domains.by_value) < term.min_domains:
            return 0
        if domains.least is None:
            domains.least = min(domains.by_value.values(), default=0)
        return domains.least

    def _made(self, identity: object, mark: Mark, key: str, among: frozenset[str] | None) -> _Domains:
        found = self._domains[identity] = _Domains(among)
        self._by_mark.setdefault(mark, []).append((key, found))
        return found


def _counts_for(node: NodeInfo, keys: Iterable[str], term: SpreadTerm, constraints: Constraints | None) -> bool:
    """Whether the pods of a node count for a pod's spread: it has all keys, and what the term honours takes it."""
    if not all(key in node.labels for key in keys):
        return False
    if constraints is None:
        return True
    if term.honors_affinity:
        if any(node.labels.get(key) != value for key, value in constraints.node_selector):
            return False
        affinity = constraints.affinity
        if affinity is not None and not node_selector.matches(affinity, node.name, node.labels):
            return False
    return not (term.honors_taints and node.untolerated(constraints.tolerations) is not None)
