"""Before anything is decided: which pending gangs a decision considers, compiled and counted as demand of their queues.

Gangs of one kind cost little more than one of them. A tenant with thousands of gangs that all differ would make decisions take
minutes, and everybody waits for the next decision. So each namespace has a limit of kinds, for each of three sorts:
    selectors   of devices: each is compiled once, and evaluated on every device of the cluster
    filters     what else tells devices apart: tolerations and requests for capacity
    shapes      all that a gang asks for: what is compiled, placed and explained for it alone; only where `namespace_steps` are given
First are those whose oldest gang has waited longest. Where kinds are left, those that had their turn in vain (`turns`) come last: so a gang
that never fits delays no other of its namespace for good.
Example: 1,600 devices: 62 kinds of short selectors of each namespace. The 63rd is considered in the next turn, or when the last
gang of one of them has started or gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from functools import partial
from heapq import nsmallest

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.inventory.selectors import selector_weight
from fairlead.engine.plan.gang import failed, gathering, invalid
from fairlead.engine.plan.turns import SearchTurns
from fairlead.engine.queues.cache import SchedulerCache
from fairlead.engine.queues.charges import add
from fairlead.engine.queues.gangs import AssumedGang, Cost, PendingGang
from fairlead.engine.queues.limits import on_hold
from fairlead.engine.queues.tree import Queue, Tree
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.pods import Neighbours
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube.containment import contained, described
from fairlead.kube.spec_key import spec_key

EVALUATIONS = 100_000  # selectors times devices, of one namespace
KINDS_MIN = 16
FILTERS_MIN = 256  # without a selector a device costs little; as many as one claim can name
SHAPES = 250  # a tenth of a second or more
ALTERNATIVES_ONE = 16  # of a gang's requests that count as one more kind

Kind = tuple[object, ...]
Kinds = frozenset[Kind]  # of one gang, of one sort
Terms = tuple["Neighbours", ...]  # of one gang: what its members need of the pods around them
Rank = tuple[bool, float, str]  # of a gang among those of its namespace
Known = tuple["GangRequest", Kinds, Kinds, Kinds, Terms, Rank]


class PendingKinds:
    """The kinds of pending gangs of one decision. `known` is kept between decisions, by gang UID; memory only."""

    def __init__(
        self,
        gangs: Iterable[GangRequest],
        devices: int,
        known: dict[str, Known],
        *,
        searched: Container[str] = (),
        shapes: int | None = None,
    ) -> None:
        """`searched`: UIDs of gangs that had their turn; `shapes`: how many of one namespace; None: no such limit."""
        possible = EVALUATIONS // max(1, devices)
        self._sorts = (
            _Considered(
                max(KINDS_MIN, possible),
                "device selector",
                lambda kind: selector_weight(map(str, kind)),
                searched,
            ),
            _Considered(max(FILTERS_MIN, possible), "toleration or capacity", lambda _: 1, searched),
            _Considered(shapes, "gang", _shape_weight, searched),
        )
        before, kept = dict(known), known
        kept.clear()
        for gang in gangs:
            found = before.get(gang.uid)
            if found is None or found[0] is not gang:
                rank = (not (gang.preemptor or gang.replaces), gang.created, gang.id)  # first those others go for
                found = (gang, frozenset(), frozenset(), frozenset(), (), rank)
                with contained(lambda _: None):  # it fails again where it is compiled, and is named there
                    found = (gang, *_kinds(gang), _neighbours(gang), rank)
            kept[gang.uid] = found
            for considered, kinds in zip(self._sorts, found[1:4], strict=True):
                if kinds:
                    considered.add(gang, kinds, found[5])
        self._many = [considered for considered in self._sorts if considered.choose()]
        self.neighbours = [
            term for found in kept.values() if found[4] and self.refusal(found[0]) is None for term in found[4]
        ]
        """What pods of the gangs that are considered need of others."""

    def refusal(self, gang: GangRequest) -> Reason | None:
        """Why the gang is not considered now; None if it is."""
        for considered in self._many:
            why = considered.refusal(gang)
            if why is not None:
                return why
        return None

    @property
    def missed(self) -> set[str]:
        """Namespaces of which a kind has not had its turn."""
        return set().union(*(considered.missed for considered in self._sorts))


class _Considered:
    """Kinds of one sort: of each namespace the first that weigh `most` together, by the oldest gang that has them."""

    def __init__(self, most: int | None, name: str, weigh: Callable[[Kind], int], searched: Container[str]) -> None:
        self.missed: set[str] = set()
        self._most = most
        self._name = name
        self._weigh = weigh
        self._searched = searched
        self._had: set[tuple[str, Kind]] = set()  # namespaces and their kinds that had a turn
        self._kinds: dict[str, Kinds] = {}  # by gang UID, where there are any
        self._oldest: dict[str, dict[Kind, Rank]] = {}
        self._considered: dict[
            str, tuple[Kinds, Reason]
        ] = {}  # by namespace, where there are too many; and why no other is

    def add(self, gang: GangRequest, kinds: Kinds, rank: Rank) -> None:
        if self._most is None:
            return
        self._kinds[gang.uid] = kinds
        ranks = self._oldest.setdefault(gang.namespace, {})
        for kind in kinds:
            before = ranks.get(kind)
            if before is None or rank < before:
                ranks[kind] = rank
        if rank[0] and gang.uid in self._searched:
            self._had.update((gang.namespace, kind) for kind in kinds)

    def choose(self) -> bool:
        """After the last `add`; whether there are too many in a namespace."""
        for namespace, ranks in self._oldest.items():
            order = self._first(namespace, ranks)
            chosen: list[Kind] = []
            weight = 0
            for kind in order:
                weight += self._weigh(kind)
                if chosen and weight > (self._most or 0):
                    break
                chosen.append(kind)
            if len(chosen) < len(order):
                self._considered[namespace] = (frozenset(chosen), self._passed_by(namespace))
                if (namespace, order[len(chosen)]) not in self._had:
                    self.missed.add(namespace)
        return bool(self._considered)

    def _first(self, namespace: str, ranks: dict[Kind, Rank]) -> list[Kind]:
        """In order, one more than can be considered: none weighs less than one."""
        had = {kind for name, kind in self._had if name == namespace}
        return nsmallest((self._most or 0) + 1, ranks, key=lambda kind: (kind in had, ranks[kind], kind))

    def refusal(self, gang: GangRequest) -> Reason | None:
        found = self._considered.get(gang.namespace)
        if found is None or self._kinds.get(gang.uid, frozenset()) <= found[0]:
            return None
        return found[1]

    def _passed_by(self, namespace: str) -> Reason:
        return Reason(
            code=Code.SEARCH_ENDED,
            message=f"more kinds of {self._name} wait in namespace {namespace} than a decision has time for, and those that came "
            "first are considered first",
            advice="ask for the same with equal claims and pods: gangs that are alike are decided on together; and use short selectors",
        )


def _shape_weight(kind: Kind) -> int:
    parts, alternatives = kind[:2]
    assert isinstance(parts, frozenset)
    assert isinstance(alternatives, int)
    return max(1, len(parts) + alternatives // ALTERNATIVES_ONE)


def _neighbours(gang: GangRequest) -> Terms:
    return tuple(dict.fromkeys(own for member in gang.members if (own := member.needs.neighbours) is not None))


def _kinds(gang: GangRequest) -> tuple[Kinds, Kinds, Kinds]:
    """The selectors of its requests, what else tells devices apart, and the one kind of all that it asks for."""
    if len(gang.members) + len(gang.placed_nodes) < gang.size:
        return frozenset(), frozenset(), frozenset()  # it is not considered yet
    selectors: set[Kind] = set()
    filters: set[Kind] = set()
    for claim in gang.claims:
        for request in claim.spec.devices.requests:
            for each in (request.exactly, *request.first_available):
                if each is None:
                    continue
                texts = tuple(item.cel.expression for item in each.selectors if item.cel)
                if texts:
                    selectors.add(texts)
                if each.tolerations or each.capacity is not None:
                    filters.add((each.device_class_name, texts, spec_key((each.tolerations, each.capacity))))
    return frozenset(selectors), frozenset(filters), frozenset({_shape(gang)})


def _shape(gang: GangRequest) -> Kind:
    """What its members need and their claims ask for, with the number of alternatives; and what else keeps gangs from being alike."""
    specs = {claim.key: spec_key(claim.spec) for claim in gang.claims}
    parts = frozenset((member.needs, tuple(specs.get(key) for key in member.claims)) for member in gang.members)
    alternatives = sum(
        max(1, len(request.first_available)) for claim in gang.claims for request in claim.spec.devices.requests
    )
    others = (
        len(gang.members),
        gang.topology,
        gang.subgroup_topology,
        gang.align,
        gang.queue,
        gang.priority,
        gang.run_s,
    )
    return (parts, alternatives, *others)


class PendingGangs:
    """Gangs that are pending: those that can be considered, and the others with why not."""

    def __init__(
        self,
        snapshot: Snapshot,
        cache: SchedulerCache,
        tree: Tree,
        devices: int,
        turns: SearchTurns,
        known_kinds: dict[str, Known],
    ) -> None:
        """`devices`: how many the cluster has; `turns`: notes those that had one, where not all are considered."""
        self.gangs: list[PendingGang] = []
        self.refused: list[tuple[GangRequest, Queue | None, Reason]] = []
        self.failures: dict[str, str] = {}  # by gang id: what was raised
        known, cache.pending = cache.pending, {}
        shapes = None if snapshot.namespace_steps is None else SHAPES
        kinds = PendingKinds(snapshot.gangs, devices, known_kinds, searched=snapshot.searched, shapes=shapes)
        turns.crowded(kinds.missed)
        cache.neighbours.begin(kinds.neighbours)
        version = cache.neighbours.version
        for gang in snapshot.gangs:
            too_many = kinds.refusal(gang)
            if too_many is not None:
                queue = tree.resolve(gang)
                self.refused.append((gang, None, queue) if isinstance(queue, Reason) else (gang, queue, too_many))
                turns.passed_by(gang)
                continue
            before = known.get(gang.uid)
            if (
                before is None
                or before[0].source is not gang
                or before[1] is not tree
                or before[2] is not cache.charges
            ):
                pending = None
                with contained(partial(self._failed, gang)):
                    pending = self._compile(gang, cache, tree)
                if pending is None:
                    turns.had(gang)
                    continue
                before = (pending, tree, cache.charges, version)
            elif before[3] != version:
                before = (self._renewed(before[0], cache), tree, cache.charges, version)
            cache.pending[gang.uid] = before
            self.gangs.append(before[0])
        self.by_id = {pending.id: pending for pending in self.gangs}
        self._first = {pending.equivalence: pending for pending in reversed(self.gangs)}
        self._alike = Counter(pending.equivalence for pending in self.gangs)

    def _failed(self, gang: GangRequest, error: Exception) -> None:
        self.failures[gang.id] = described(error)
        self.refused.append((gang, None, failed(error)))

    def _renewed(self, pending: PendingGang, cache: SchedulerCache) -> PendingGang:
        """Where other terms about pods are live than when it was compiled: they may concern its pods."""
        units = cache.shapes.units(pending.gang)
        if all(new.shape is old.shape for new, old in zip(units, pending.units, strict=True)):
            return pending
        return PendingGang(pending.source, pending.queue, units, pending.cost, cache.equivalence_classes)

    def _compile(self, gang: GangRequest, cache: SchedulerCache, tree: Tree) -> PendingGang | None:
        queue = tree.resolve(gang)
        if isinstance(queue, Reason):
            self.refused.append((gang, None, queue))
            return None
        hold = on_hold(gang, queue)
        if hold is not None:
            self.refused.append((gang, queue, hold))
            return None
        present = len(gang.members) + len(gang.placed_nodes)
        if present < gang.size or not gang.members:
            self.refused.append((gang, queue, gathering(gang, present)))
            return None
        try:
            units = cache.shapes.units(gang)
        except InvalidClaimError as error:
            self.refused.append((gang, queue, invalid(error)))
            return None
        charges, nodes = cache.charges, cache.node_snapshot
        cost = Cost(charges.least(units, nodes), charges.choices(units, nodes), charges.flavors_of(units, nodes))
        return PendingGang(gang, queue, units, cost, cache.equivalence_classes)

    def admit(self, gangs: Iterable[AssumedGang]) -> None:
        """The decision is made: these are pending no more."""
        self._alike.subtract(each.pending.equivalence for each in gangs)

    def demand(self, wanted: Callable[[PendingGang], bool]) -> None:
        """Add to the demand of their queues what so many like each of these ask for at least."""
        for equivalence, count in self._alike.items():
            pending = self._first[equivalence]
            if count and wanted(pending):
                pending.queue.note_allocation_unit(pending.charge)
                for step in pending.queue.path():
                    add(step.demand, pending.charge, count)
