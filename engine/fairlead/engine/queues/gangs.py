"""A gang on its way: pending in its queue, in the order of pending gangs, then assumed to have its devices.

The order is a tournament over the tree of queues, one gang at a time: each admission changes which gang is next, at the cost of one path.
Order among siblings, by the head gang of each: within deserved with this gang first; then within the fair share, so that
nothing is admitted that would be reclaimed; then the queue's priority and the gang's; then the lowest dominant
share with this gang, by weight corrected for past use; then less past use; then age; then UID. Within a leaf: priority,
age, UID.
Keeps: every gang comes exactly once; a total order, so the same snapshot gives the same sequence.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from msgspec.structs import replace

from fairlead.engine.placement.model import UnitPlacement
from fairlead.engine.placement.shapes import PlacementUnit, signature
from fairlead.engine.queues.charges import Charge, chargeable
from fairlead.engine.queues.tree import Queue, Tree
from fairlead.engine.queues.usage_history import weighed
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.values import Amount


def with_models(gang: GangRequest, queue: Queue) -> GangRequest:
    """With what the queue, or the first above it that says so, says of models where the gang does not."""
    if gang.models is not None:
        return gang
    said = next((step.spec.models for step in queue.path() if step.spec.models is not None), None)
    return gang if said in {None, "same"} else replace(gang, models=said)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the units of a gang cost: `least` whatever they get; `choices`, on devices of one kind, where there are several.

    `flavors`: of which they may cost something at all.
    """

    least: Charge
    choices: tuple[Charge, ...] = ()
    flavors: frozenset[str] = frozenset()


class PendingGang:
    """A pending gang in its queue, with what it costs at least. Outlives a decision: as long as gang, queue and devices do.

    `equivalence` is its equivalence class: one object for all gangs of a queue that a decision treats alike but for their
    age. `classes` has those there are. `observes`: it holds no device, since all that it asks for is by admin access.
    """

    def __init__(
        self,
        gang: GangRequest,
        queue: Queue,
        units: list[PlacementUnit],
        cost: Cost,
        classes: dict[object, object],
    ) -> None:
        self.source = gang
        self.gang = gang = with_models(gang, queue)
        self.id = gang.id
        self.claim_keys = [claim.key for claim in gang.claims]
        self.queue = queue
        self.units = units
        self.cost = cost
        self.charge = charge = cost.least
        self.shares_claims = any(len(unit.members) > 1 for unit in units)
        self.devices = sum(unit.shape.least for unit in units)
        requests = [found[0] for unit in units for claim in unit.shape.claims for found in claim.alternatives if found]
        self.observes = bool(requests) and all(request.admin for request in requests)
        self.rank = (-gang.priority, gang.created, gang.uid)
        alike = (
            queue.name,
            signature(gang, units, spread=queue.spec.strategy == "spread"),
            tuple(sorted(charge.items())),
            gang.priority,
            gang.preempts,
            gang.preemptor,
            gang.replaces,
            gang.kept,
            gang.run_s,
            (gang.namespace, gang.quota_charge) if gang.quota_charge else None,
        )
        self.equivalence = classes.setdefault(alike, object())  # compared by identity: cheap to look up


@dataclass(frozen=True, slots=True)
class AssumedGang:
    """The gang, where it is placed, and what its queue is charged for that."""

    pending: PendingGang
    placed: Sequence[UnitPlacement]
    charge: Charge

    @property
    def devices(self) -> int:
        """How many it holds, without those by admin access."""
        return sum(1 for _ in chargeable(self.placed))


_BY_RANK = attrgetter("rank")

Key = tuple[bool, bool, int, int, float, float, float, str]


class Order:
    """Iterate by `next`; say by `advance` that the gang was decided on before asking again."""

    def __init__(self, tree: Tree, pending: list[PendingGang], devices: int) -> None:
        """`tree`: with what runs charged, and divided. `devices` of the cluster are the measure where there are no flavors."""
        self._tree = tree
        self._devices = max(devices, 1)
        self._before = {name: dict(queue.used) for name, queue in tree.queues.items() if queue.spec.past_usage}
        self._lines: dict[Queue, list[PendingGang]] = {}  # leaf: its gangs, the last one first
        for each in pending:
            self._lines.setdefault(each.queue, []).append(each)
        for line in self._lines.values():
            line.sort(key=_BY_RANK, reverse=True)
        self._heaps: dict[Queue | None, list[tuple[Key, str, int]]] = {}  # of siblings, by parent
        self._serial: dict[Queue, int] = {}
        for queue in tree.roots:
            self._build(queue)

    def next(self) -> PendingGang | None:
        """The gang to consider now; None when all have been."""
        first = self._top(None)
        return None if first is None else self._head(first)

    def advance(self, pending: PendingGang, refused: Container[object] = ()) -> list[PendingGang]:
        """The gang was admitted (its queue is charged) or set aside: its queue's next one is the head.

        Those right behind it whose equivalence class is `refused` are set aside with it, and returned: a thousand alike cost
        one update of the path.
        """
        line = self._lines[pending.queue]
        assert line[-1] is pending
        line.pop()
        behind = []
        while line and line[-1].equivalence in refused:
            behind.append(line.pop())
        self._update(pending.queue)
        return behind

    def block(self, queue: Queue) -> list[PendingGang]:
        """Take the rest of the queue's line out: strict FIFO behind a gang that waits. In order."""
        rest = self._lines[queue][::-1]
        self._lines[queue] = []
        self._update(queue)
        return rest

    def _build(self, queue: Queue) -> None:
        for child in queue.children:
            self._build(child)
        self._push(queue)

    def _push(self, queue: Queue) -> None:
        head = self._head(queue)
        serial = self._serial[queue] = self._serial.get(queue, 0) + 1
        if head is not None:
            heap = self._heaps.setdefault(queue.parent, [])
            heapq.heappush(heap, (self._key(queue, head), queue.name, serial))

    def _update(self, queue: Queue) -> None:
        """Work out the keys on the way up again: use or heads have changed there, and nowhere else."""
        for step in queue.path():
            self._push(step)

    def _head(self, queue: Queue) -> PendingGang | None:
        if not queue.children:
            line = self._lines.get(queue)
            return line[-1] if line else None
        best = self._top(queue)
        return None if best is None else self._head(best)

    def _top(self, parent: Queue | None) -> Queue | None:
        heap = self._heaps.get(parent)
        while heap:
            _, name, serial = heap[0]
            queue = self._tree.queues[name]
            if self._serial[queue] == serial:
                return queue
            heapq.heappop(heap)
        return None

    def _key(self, queue: Queue, head: PendingGang) -> Key:
        gang = head.gang
        within = fair = True
        for flavor, value in self._tree.deciding(head.charge).items():
            held = queue.used.get(flavor, 0) + value
            within = within and held <= queue.deserved(flavor)
            fair = fair and held <= queue.fair.get(flavor, 0)
        return (
            not within,
            not (within or fair),
            -queue.spec.priority,
            -gang.priority,
            self._share(queue, head),
            self._past(queue),
            gang.created,
            gang.uid,
        )

    def _share(self, queue: Queue, head: PendingGang) -> float:
        if queue.parent is None and len(self._tree.roots) == 1:
            return 0.0  # nothing to compare with
        if not self._tree.totals:
            return (queue.devices + head.devices) / self._devices
        return dominant_share(queue, self._tree, head.charge)[0]

    def _past(self, queue: Queue) -> float:
        """Past use, and what this decision gave: so that equals take turns."""
        before = self._before.get(queue.name)
        if before is None:
            return 0.0
        given = {
            flavor: float(value - before.get(flavor, 0)) / float(self._tree.totals[flavor])
            for flavor, value in queue.used.items()
            if self._tree.totals.get(flavor)
        }
        return weighed(queue.spec.past_usage, given, {flavor: queue.weight(flavor) for flavor in queue.quotas})


def dominant_share(queue: Queue, tree: Tree, ask: Mapping[str, Amount]) -> tuple[float, str]:
    """How far the queue goes beyond deserved with this ask, as a part of what could be lent to it; of which flavor.

    It ranks queues with different flavors by one number, the largest over flavors; (0, "") within deserved: what is unused of
    one flavor does not make up for another. Weight 0 with surplus: infinite. Source: Kueue's fair sharing (KEP 1714), with the
    cluster itself as the root.
    Example: a queue holds 6 of 8 a100 and deserves 2, and holds 1 of 8 h100 and deserves 1: (6 - 2) / 8 = 0.5 if all 8 could
    be lent.
    """
    largest, flavor = 0.0, ""
    for name in sorted(tree.deciding({**queue.used, **ask})):
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
