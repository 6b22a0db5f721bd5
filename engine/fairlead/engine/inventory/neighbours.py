"""Which pods run where, as far as terms of other pods select them, counted by node.

A *mark* is something that a pod counts for: being selected by a term, or having an anti-affinity term of its own. Marks are live
where a pending member or a counted pod has the term; pods count for live marks only, so a cluster without terms costs nothing.
A *facet* is what of a pending pod matters here: its own terms, the marks it would count for, and the terms of others that
repel it. Pods without terms that no term selects have none.
What a decision places or counts as gone is `neighbour_counts`', which judges a pod on a node.

Example: eight pods with anti-affinity to themselves by host. Their facet has the marks "selected by the term" and "has the term"; a
node takes one of them when its host has no pod with the first mark.
Source: kube-scheduler's interpodaffinity and podtopologyspread filters, 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.types.pods import (
    NOT_KNOWN,
    Constraints,
    Neighbours,
    PodIdentity,
    PodNeeds,
    PodSelector,
    SpreadTerm,
)


class Selected(NamedTuple):
    """Pods that all of these select. `leaving`: whether deleted ones count."""

    pods: tuple[PodSelector, ...]
    leaving: bool


class Repelling(NamedTuple):
    """Pods that have this anti-affinity term."""

    topology_key: str
    pods: PodSelector


MARKS_MAX = 20_000  # remembered


class Mark:
    """What pods count for. One per content and table, compared by identity: it is looked up for every node."""

    __slots__ = ("of",)

    def __init__(self, of: Selected | Repelling) -> None:
        self.of = of


class Facet:
    """Compared by identity; equal content is one facet."""

    def __init__(self, table: NeighbourTable, content: _Content) -> None:
        own, self.marks = content.own, content.marks
        self.constraints = content.constraints  # of a pod with spread: which nodes count
        self.repelled_by = _by_key(content.repelled_by)
        attracting = None if own is None else _attracting(own)
        self.affinity = None if attracting is None else table.mark(attracting)
        self.affinity_keys: tuple[str, ...] = ()
        self.anti_affinity: tuple[tuple[str, Mark], ...] = ()
        self.spread: tuple[tuple[SpreadTerm, Mark, bool], ...] = ()  # with whether it counts for its own term
        if own is not None:
            self.affinity_keys = tuple(dict.fromkeys(term.topology_key for term in own.affinity))
            self.anti_affinity = tuple((t.topology_key, table.mark(_alone(t.pods))) for t in own.anti_affinity)
            marks = [(term, table.mark(Selected((term.pods,), False))) for term in own.spread]
            self.spread = tuple((term, mark, mark in self.marks) for term, mark in marks)
        self.attracts_itself = self.affinity in self.marks
        self.loosens = bool(self.affinity or self.spread)  # whether a pod more can make a node take it


def _by_key(marks: Iterable[Mark]) -> tuple[tuple[str, Mark], ...]:
    """In the order of topology keys: which of two reasons is told must not depend on what came first."""
    found = [(mark.of.topology_key, mark) for mark in marks if isinstance(mark.of, Repelling)]
    return tuple(sorted(found, key=lambda each: each[0]))


class _Content(NamedTuple):
    marks: frozenset[Mark]
    repelled_by: frozenset[Mark]
    own: Neighbours | None
    constraints: Constraints | None


def _attracting(own: Neighbours) -> Selected | None:
    """A pod counts for affinity where every term selects it."""
    return Selected(tuple(term.pods for term in own.affinity), True) if own.affinity else None


def _alone(pods: PodSelector) -> Selected:
    return Selected((pods,), True)


def _of_terms(own: Neighbours) -> Iterable[Selected | Repelling]:
    """What other pods count for, or are repelled by, because of a pod with these terms."""
    attracting = _attracting(own)
    if attracting is not None:
        yield attracting
    for term in own.anti_affinity:
        yield _alone(term.pods)
        yield Repelling(term.topology_key, term.pods)
    for each in own.spread:
        yield Selected((each.pods,), False)


class NeighbourTable:
    """The live marks, and how many counted pods of each node have them. Kept from decision to decision; memory only.

    `version` grows when other marks are live, `changes` when counts change.
    """

    def __init__(self, nodes: NodeTable) -> None:
        self.nodes = nodes
        self.version = 0
        self.changes = 0
        self.counts: dict[Mark, dict[str, int]] = {}  # by live mark: by node
        self._of_pod: dict[str, tuple[str, list[Mark]]] = {}  # UID: node, marks; of pods that have some
        self._marks: dict[Selected | Repelling, Mark] = {}
        self._facets: dict[object, Facet | None] = {}
        self._interned: dict[_Content, Facet] = {}
        self._cursor = -1

    def mark(self, of: Selected | Repelling) -> Mark:
        found = self._marks.get(of)
        if found is None:
            found = self._marks[of] = Mark(of)
        return found

    def begin(self, pending: Iterable[Neighbours]) -> None:
        """`pending`: the terms of the members that wait."""
        wanted: dict[Selected | Repelling, None] = {}
        for own in pending:
            wanted |= dict.fromkeys(_of_terms(own))
        for own in self.nodes.repelling:
            wanted |= dict.fromkeys(Repelling(term.topology_key, term.pods) for term in own.anti_affinity)
        if not wanted and not self.counts:
            return
        if len(self._marks) > MARKS_MAX:
            for known in (self._marks, self._interned, self.counts, self._of_pod):
                known.clear()
        self._catch_up()
        live = dict.fromkeys(self.mark(of) for of in wanted)
        if live.keys() != self.counts.keys():
            self._renew(live)

    def _catch_up(self) -> None:
        log = self.nodes.pod_changes
        changed = log.since(self._cursor) if self.counts else None
        self._cursor = log.cursor
        if changed is None:
            self.counts.clear()
            self._of_pod.clear()
            return
        for uid in dict.fromkeys(changed):
            before = self._of_pod.pop(uid, None)
            if before is not None:
                for mark in before[1]:
                    add(self.counts[mark], before[0], -1)
            self._count(uid, self.counts)
            self.changes += before is not None or uid in self._of_pod

    def _renew(self, live: Iterable[Mark]) -> None:
        """Other marks are live: pods are counted for those that were not."""
        self.version += 1
        self.changes += 1
        self._facets.clear()
        kept = {mark: self.counts[mark] for mark in live if mark in self.counts}
        added: dict[Mark, dict[str, int]] = {mark: {} for mark in live if mark not in self.counts}
        if len(kept) < len(self.counts):
            self._of_pod = {
                uid: (node, left)
                for uid, (node, marks) in self._of_pod.items()
                if (left := [mark for mark in marks if mark in kept])
            }
        self.counts = {**kept, **added}
        for uid in self.nodes.pods() if added else ():
            self._count(uid, added)

    def _count(self, uid: str, marks: Iterable[Mark]) -> None:
        found = self.nodes.pod(uid)
        if found is None:
            return
        where, needs = found
        has = self._had_by(self.nodes.identities.get(uid, NOT_KNOWN), needs, marks)
        for mark in has:
            add(self.counts[mark], where, 1)
        if has:
            self._of_pod.setdefault(uid, (where, []))[1].extend(has)

    def _had_by(self, pod: PodIdentity, needs: PodNeeds, marks: Iterable[Mark]) -> list[Mark]:
        """Those of the marks that the pod counts for."""
        own = needs.neighbours
        repels = set() if own is None else {Repelling(term.topology_key, term.pods) for term in own.anti_affinity}
        found = []
        for mark in marks:
            of = mark.of
            if isinstance(of, Repelling):
                if of in repels:
                    found.append(mark)
            elif (of.leaving or not pod.leaving) and all(e.selects(pod.namespace, pod.labels) for e in of.pods):
                found.append(mark)
        return found

    def of_pod(self, uid: str) -> tuple[str, list[Mark]] | None:
        """Node and marks of a counted pod that has some."""
        return self._of_pod.get(uid)

    def facet(self, namespace: str, labels: Mapping[str, str], needs: PodNeeds) -> Facet | None:
        """The facet of a pod that does not exist yet; None where neither it nor another has a term that concerns it."""
        if not self.counts:
            return None
        key = (namespace, tuple(sorted(labels.items())), needs.neighbours, needs.constraints)
        if key not in self._facets:
            self._facets[key] = self._facet(PodIdentity(namespace=namespace, labels=dict(labels)), needs)
        return self._facets[key]

    def _facet(self, pod: PodIdentity, needs: PodNeeds) -> Facet | None:
        marks = frozenset(self._had_by(pod, needs, self.counts))
        repelled = frozenset(
            mark
            for mark in self.counts
            if isinstance(mark.of, Repelling) and mark.of.pods.selects(pod.namespace, pod.labels)
        )
        own = needs.neighbours
        if own is None and not marks and not repelled:
            return None
        constraints = needs.constraints if own is not None and own.spread else None
        content = _Content(marks, repelled, own, constraints)
        found = self._interned.get(content)
        if found is None:
            found = self._interned[content] = Facet(self, content)
        return found


def add(counts: dict[str, int], key: str, number: int, *, keep: bool = False) -> None:
    """`keep`: zero is a count, too."""
    left = counts.get(key, 0) + number
    if left or keep:
        counts[key] = left
    else:
        counts.pop(key, None)
