"""Before anything is decided: pending gangs are compiled, and counted as demand of their queues.

What is known of a pending gang is kept in the scheduler cache for the next decision.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.plan.gang import failed, gathering, invalid
from fairlead.engine.plan.pending_kinds import SHAPES, Known, PendingKinds
from fairlead.engine.queues.charges import add
from fairlead.engine.queues.gangs import Cost, PendingGang
from fairlead.engine.queues.holds import on_hold
from fairlead.engine.types.reasons import Reason
from fairlead.kube.containment import contained, described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fairlead.engine.plan.search_turns import SearchTurns
    from fairlead.engine.queues.cache import SchedulerCache
    from fairlead.engine.queues.gangs import AssumedGang
    from fairlead.engine.queues.tree import Queue, Tree
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.gangs import GangRequest


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
