"""Before anything is decided: who runs and what that is charged to, and who waits and what that asks for.

Exists so that the decision itself begins with queues that know their use and with gangs that can be considered. What is known
of a waiting gang is kept on the board for the next decision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.plan.gang import gathering, invalid
from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.queues.order import PendingGang
from fairlead.engine.queues.tree import Queue
from fairlead.engine.types.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead.engine.queues.cache import SchedulerCache
    from fairlead.engine.queues.tree import Tree
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.gangs import GangRequest, RunningGang
    from fairlead.engine.types.plan import Eviction


class RunningGangs:
    """Gangs that hold devices, with their queues; these are charged."""

    def __init__(self, snapshot: Snapshot, board: SchedulerCache, tree: Tree) -> None:
        self.gangs: list[tuple[RunningGang, Queue]] = []
        self.owners: dict[str, tuple[str, str]] = {}  # claim UID: gang, queue
        self.allocated: Charge = {}  # to gangs of any queue, or of none
        inventory, charges, owners = snapshot.inventory, board.charges, self.owners
        for gang in snapshot.running:
            queue = tree.resolve(gang)
            owner = (gang.id, queue.name if isinstance(queue, Queue) else gang.queue or "")
            devices = 0
            total: Charge = {}
            for uid in gang.claims:
                claim = inventory.claim(uid)
                if claim is None or uid in owners:
                    continue
                owners[uid] = owner
                devices += claim.counted
                if charges.flavors:
                    charge = charges.of_held(claim, inventory)
                    if total:
                        total = dict(total)
                        add(total, charge)
                    else:
                        total = charge  # read only
            if total:
                add(self.allocated, total)
            if isinstance(queue, Queue):
                if total or devices:
                    queue.charge(total, devices)
                    queue.note_parts(total)
                queue.admitted += 1
                self.gangs.append((gang, queue))

    def with_queue(self, eviction: Eviction) -> Eviction:
        """Under the name of the queue that is charged for the gang."""
        name = next((queue for gang, queue in self.owners.values() if gang == eviction.id), eviction.queue)
        return replace(eviction, queue=name)


class PendingGangs:
    """Gangs that wait: those that can be considered, and the others with why not."""

    def __init__(self, snapshot: Snapshot, board: SchedulerCache, tree: Tree) -> None:
        self.entries: list[PendingGang] = []
        self.refused: list[tuple[GangRequest, Queue | None, Reason]] = []
        known, board.entries = board.entries, {}
        for gang in snapshot.gangs:
            before = known.get(gang.uid)
            if before is None or before[0].gang is not gang or before[1] is not tree or before[2] is not board.charges:
                entry = self._entry(gang, board, tree)
                if entry is None:
                    continue
                before = (entry, tree, board.charges)
            board.entries[gang.uid] = before
            self.entries.append(before[0])
        self.by_id = {entry.id: entry for entry in self.entries}
        self._alike: dict[object, tuple[PendingGang, int]] = {}  # by kin: one of them, and how many wait
        for entry in self.entries:
            self.count(entry)

    def _entry(self, gang: GangRequest, board: SchedulerCache, tree: Tree) -> PendingGang | None:
        queue = tree.resolve(gang)
        if isinstance(queue, Reason):
            self.refused.append((gang, None, queue))
            return None
        present = len(gang.members) + len(gang.placed_nodes)
        if present < gang.size or not gang.members:
            self.refused.append((gang, queue, gathering(gang, present)))
            return None
        try:
            units = board.shapes.units(gang)
        except InvalidClaimError as error:
            self.refused.append((gang, queue, invalid(error)))
            return None
        return PendingGang(gang, queue, units, board.charges.least(units, board.node_snapshot), board.kinds)

    def count(self, entry: PendingGang, more: int = 1) -> None:
        """One more that waits, or (-1) one that was admitted."""
        first, count = self._alike.get(entry.kin, (entry, 0))
        self._alike[entry.kin] = (first, count + more)

    def demand(self, wanted: Callable[[PendingGang], bool]) -> None:
        """Add to the demand of their queues what so many like each of these ask for at least."""
        for entry, count in self._alike.values():
            if count and wanted(entry):
                entry.queue.note_parts(entry.charge)
                for step in entry.queue.path():
                    add(step.demand, entry.charge, count)
