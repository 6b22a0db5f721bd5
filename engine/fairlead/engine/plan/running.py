"""Running gangs in their queues: whose claims are whose, what each queue is charged for them, and until when they are protected.

Kept in the scheduler cache from one decision to the next, and brought up to date by what changed: of gangs the snapshot says
that (`RunningSequence`), or they are compared by identity; claims and pods change by the logs of their tables. So a decision beside thousands of running gangs costs what came and went since the last
one. Where several gangs name one claim it counts for the first of them, and everything is counted anew for each decision.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf
from typing import NamedTuple

from fairlead.engine.inventory.changes import ChangeLog
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.queues.charges import Charge, Charges, add
from fairlead.engine.queues.pod_charges import pods_of
from fairlead.engine.queues.tree import Queue, Tree
from fairlead.engine.reclaim.protection import Protection
from fairlead.engine.types.gangs import RunningGang, RunningSequence
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.values import Amount


class _Counted(NamedTuple):
    """One gang as it is counted now."""

    gang: RunningGang
    queue: Queue | None
    charge: Charge
    devices: int
    gpus: Amount  # 0 where no queue has a budget
    leaving: bool  # some of its pods are
    protected_until: float | None  # None: all of its pods are leaving
    surplus: bool  # it has units besides its own that can be evicted
    movable: bool  # it could be moved, whatever its queue says


@dataclass(slots=True)
class _Held:
    """By the gangs of one queue, without those of queues below it."""

    charge: Charge = field(default_factory=dict)
    devices: int = 0
    gpus: Amount = 0
    parts: Counter[tuple[str, int]] = field(default_factory=Counter)  # of charges by flavor that are parts of a device
    priorities: Counter[int] = field(default_factory=Counter)


class RunningGangs:
    """The running gangs of one queue tree and one set of flavors. Before each decision `look`, and `charge` once the tree has begun it."""

    def __init__(self, inventory: Inventory, tree: Tree, charges: Charges) -> None:
        self._inventory = inventory
        self._tree = tree
        self._charges = charges
        self._pods = charges.pods
        self.owner_changes: ChangeLog[str] = ChangeLog()  # UIDs of claims that changed hands
        self._clear()

    def _clear(self) -> None:
        self.owners: dict[str, tuple[str, str]] = {}  # claim UID: gang, queue
        self.owner_changes.note_all()
        self.allocated: Charge = {}  # to gangs of any queue, or of none
        self._running: tuple[RunningGang, ...] = ()
        self._version: object = self  # that of `_running`; self: it has none
        self._gangs: list[tuple[RunningGang, Queue]] | None = None
        self._counted: dict[int, _Counted] = {}  # by identity of the gang
        self._holder: dict[str, int] = {}  # claim UID: the gang that names it
        self._held: dict[Queue, _Held] = {}
        self._leaving: set[int] = set()  # gangs with leaving pods
        self._ends: list[float] = []  # of protection, sorted
        self._surplus = 0  # gangs with units besides their own
        self._movable = 0  # gangs that could be moved
        self._shared = False  # several gangs name one claim
        self.protection = Protection()
        self._cursor = self._inventory.claim_changes.cursor
        self._pod_holder: dict[str, int] = {}  # pod UID: its gang, where pods are charged
        self._pod_cursor = self._pods.cursor

    def is_of(self, tree: Tree, charges: Charges) -> bool:
        return self._tree is tree and self._charges is charges

    def charge(self) -> None:
        """To the queues of the tree, which has begun a decision."""
        for queue, held in self._held.items():
            queue.charge(held.charge, held.devices)
            queue.running += held.priorities.total()
            for (flavor, denominator), count in held.parts.items():
                if count:
                    queue.note_allocation_unit({flavor: Fraction(1, denominator)})

    # -- reads -----------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def gangs(self) -> list[tuple[RunningGang, Queue]]:
        """Those that have a queue, in the order of the snapshot."""
        if self._gangs is None:
            counted = (self._counted[id(gang)] for gang in self._running)
            self._gangs = [(each.gang, each.queue) for each in counted if each.queue is not None]
        return self._gangs

    def with_leaving(self, more: set[str]) -> list[tuple[RunningGang, Queue]]:
        """Those of which pods are leaving, or are among these UIDs of `more` such pods; in the order of the snapshot."""
        if more:
            return [
                (gang, queue)
                for gang, queue in self.gangs
                if any(member.leaving or member.pod.uid in more for member in gang.members)
            ]
        if not self._leaving:
            return []
        if not isinstance(self._running, RunningSequence):
            return [(gang, queue) for gang, queue in self.gangs if id(gang) in self._leaving]
        leaving = (self._counted[identity] for identity in self._leaving)
        found = [(each.gang, each.queue) for each in leaving if each.queue is not None]
        return sorted(found, key=lambda pair: pair[0].id)

    def leaving(self) -> set[str]:
        return {self._counted[identity].gang.id for identity in self._leaving}

    def priorities(self) -> Iterator[tuple[Queue, int, int]]:
        """By queue the lowest priority that runs there, and how many gangs do."""
        return ((queue, min(held.priorities), held.priorities.total()) for queue, held in self._held.items())

    def gpus(self) -> Iterator[tuple[Queue, Amount]]:
        """By queue the whole GPUs that its own gangs hold; 0 where no queue has a budget."""
        return ((queue, held.gpus) for queue, held in self._held.items())

    def next_end(self, now: float) -> float | None:
        """When the next gang's protection by min-runtime ends, unix seconds; inf where only that of unknown pods is left."""
        at = bisect_right(self._ends, now)
        return self._ends[at] if at < len(self._ends) else None

    @property
    def any_surplus(self) -> bool:
        """Whether a gang has units besides its own that can be evicted: `next_end` does not know of those."""
        return self._surplus > 0

    @property
    def any_movable(self) -> bool:
        """Whether a gang says what it would ask for elsewhere."""
        return self._movable > 0

    def with_queue(self, eviction: Eviction) -> Eviction:
        """Under the name of the queue that is charged for the gang, and with notice as that allows."""
        name = next((queue for gang, queue in self.owners.values() if gang == eviction.id), eviction.queue)
        found = next(((gang, queue) for gang, queue in self.gangs if gang.id == eviction.id), None)
        grace_s = eviction.checkpoint_grace_s
        if found is not None and grace_s:
            grace_s = self.protection.checkpoint_grace_s(*found)
        return replace(eviction, queue=name, checkpoint_grace_s=grace_s)

    # -- changes ---------------------------------------------------------------------------------------------------

    def look(self, running: Sequence[RunningGang]) -> None:
        """These run now."""
        changed = None if self._shared else self._inventory.claim_changes.since(self._cursor)
        pods = self._pods.changed_since(self._pod_cursor)
        if pods is None:
            changed = None
        if changed is None:
            self._clear()
        self._cursor, self._pod_cursor = self._inventory.claim_changes.cursor, self._pods.cursor
        touched = {self._holder[uid] for uid in changed or () if uid in self._holder}
        touched |= {self._pod_holder[uid] for uid in pods or () if uid in self._pod_holder}
        stale = [self._counted[at].gang for at in touched]
        if running is self._running and not stale:
            return
        for gang in stale:
            self._drop(id(gang))
        if running is self._running:
            come: Iterable[RunningGang] = stale
        elif changed is not None and isinstance(running, RunningSequence) and running.since is self._version:
            for gang in running.gone:
                if id(gang) in self._counted:
                    self._drop(id(gang))
            gone = set(map(id, running.gone))
            come = [*(gang for gang in stale if id(gang) not in gone), *running.new]
        else:
            for identity in self._counted.keys() - set(map(id, running)):
                self._drop(identity)
            come = (gang for gang in running if id(gang) not in self._counted)
        for gang in come:
            self._count(gang)
        if self._shared and changed is not None:  # since now
            self._clear()
            for gang in running:
                self._count(gang)
        self._running = running if isinstance(running, tuple) else tuple(running)
        self._version = running.version if isinstance(running, RunningSequence) else self
        self._gangs = None

    def _count(self, gang: RunningGang) -> None:
        found = self._tree.resolve(gang)
        queue = found if isinstance(found, Queue) else None
        owner = (gang.id, queue.name if queue is not None else gang.queue or "")
        devices = 0
        gpus: Amount = 0
        charge: Charge = {}
        for uid in gang.claims:
            if self._holder.setdefault(uid, id(gang)) != id(gang):
                self._shared = True
            claim = self._inventory.claim(uid)
            if claim is None or uid in self.owners:
                continue
            self.owners[uid] = owner
            self.owner_changes.note(uid)
            devices += claim.counted
            if self._tree.budgeted:
                gpus += self._charges.gpus_of_allocated(claim, self._inventory)
            if self._charges.flavors:
                charge = _sum(charge, self._charges.of_allocated(claim, self._inventory))
        if self._pods:
            self._pod_holder |= dict.fromkeys(pods_of(gang), id(gang))
            charge = _sum(charge, self._pods.of_gang(gang))
        staying = sum(not member.leaving for member in gang.members)
        until: float | None = inf
        if gang.members:
            protected = queue is not None and staying
            until = (
                gang.started + self.protection.min_runtime_s(gang, queue) if queue is not None and protected else None
            )
        counted = _Counted(
            gang, queue, charge, devices, gpus, staying < len(gang.members), until,
            surplus=staying > gang.size, movable=gang.relocation is not None,
        )  # fmt: skip
        self._counted[id(gang)] = counted
        self._add(counted, 1)

    def _drop(self, identity: int) -> None:
        counted = self._counted.pop(identity)
        for uid in counted.gang.claims:
            if self._holder.get(uid) == identity:
                del self._holder[uid]
                self.owners.pop(uid, None)
                self.owner_changes.note(uid)
        for uid in pods_of(counted.gang) if self._pods else ():
            if self._pod_holder.get(uid) == identity:
                del self._pod_holder[uid]
        self._add(counted, -1)

    def _add(self, counted: _Counted, times: int) -> None:
        """Count the gang (1), or no longer count it (-1)."""
        add(self.allocated, counted.charge, times)
        _drop_zeros(self.allocated, counted.charge)
        queue = counted.queue
        if queue is None:
            return
        held = self._held.setdefault(queue, _Held())
        add(held.charge, counted.charge, times)
        _drop_zeros(held.charge, counted.charge)
        held.devices += times * counted.devices
        held.gpus += times * counted.gpus
        for flavor, value in counted.charge.items():
            if value.denominator != 1:
                held.parts[flavor, value.denominator] += times
        held.priorities[counted.gang.priority] += times
        if not held.priorities[counted.gang.priority]:
            del held.priorities[counted.gang.priority]
        if not held.priorities:
            del self._held[queue]
        self._surplus += times * counted.surplus
        self._movable += times * counted.movable
        if counted.leaving:
            note = self._leaving.add if times > 0 else self._leaving.discard
            note(id(counted.gang))
        if counted.protected_until is not None:
            if times > 0:
                insort(self._ends, counted.protected_until)
            else:
                del self._ends[bisect_left(self._ends, counted.protected_until)]


def _sum(one: Charge, other: Charge) -> Charge:
    """Neither is changed: they may be those of claims."""
    if not one:
        return other
    total = dict(one)
    add(total, other)
    return total


def _drop_zeros(total: Charge, changed: Charge) -> None:
    for flavor in changed:
        if not total[flavor]:
            del total[flavor]
