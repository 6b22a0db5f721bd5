"""Who is next: a tournament over the tree of queues, one gang at a time.

Exists so that each admission changes who comes next, at the cost of one path of the tree. Decides no placement.
Order among siblings, by the head gang of each: within deserved with this gang first; then the queue's priority and the
gang's; then the lowest dominant share with this gang, by weight; then age; then UID. Within a leaf: priority, age, UID.
Keeps: every gang comes exactly once; a total order, so the same snapshot gives the same sequence.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead.controller.charges import Charge
    from fairlead.controller.model import Amount, GangRequest
    from fairlead.controller.order_tree import Queue, Tree


class Entry:
    """A waiting gang in its queue, with what it costs at least."""

    __slots__ = ("charge", "devices", "gang", "queue")

    def __init__(self, gang: GangRequest, queue: Queue, charge: Charge, devices: int) -> None:
        self.gang = gang
        self.queue = queue
        self.charge = charge
        self.devices = devices

    @property
    def rank(self) -> tuple[int, float, str]:
        return (-self.gang.priority, self.gang.created, self.gang.uid)


Key = tuple[bool, int, int, float, float, str]


class Order:
    """Iterate by `next()`; say what became of the gang by `settle()` before asking again."""

    def __init__(self, tree: Tree, entries: list[Entry], totals: Mapping[str, Amount], devices: int) -> None:
        self._totals = totals
        self._devices = max(devices, 1)
        self._lines: dict[Queue, list[Entry]] = {}  # leaf: its gangs, last one first
        for entry in entries:
            self._lines.setdefault(entry.queue, []).append(entry)
        for line in self._lines.values():
            line.sort(key=lambda entry: entry.rank, reverse=True)
        self._heaps: dict[Queue | None, list[tuple[Key, str, int]]] = {}
        self._serial: dict[Queue, int] = {}
        self._queues = tree.queues
        self._roots = tree.roots
        for queue in self._roots:
            self._grow(queue)

    def next(self) -> Entry | None:
        """The gang to consider now; None when all have been."""
        heap = self._heaps.get(None)
        if not heap:
            return None
        queue = self._top(None)
        while queue is not None and queue.children:
            queue = self._top(queue)
        return None if queue is None else self._lines[queue][-1]

    def settle(self, entry: Entry) -> None:
        """The gang was admitted (its queue is charged) or set aside: its queue's next one is the head."""
        line = self._lines[entry.queue]
        assert line[-1] is entry
        line.pop()
        self._climb(entry.queue)

    def block(self, queue: Queue) -> list[Entry]:
        """Take the rest of the queue's line out: strict FIFO behind a gang that waits. In order."""
        rest = self._lines[queue][::-1]
        self._lines[queue] = []
        self._climb(queue)
        return rest

    # ----------------------------------------------------------------------------------------------- the tournament

    def _grow(self, queue: Queue) -> Entry | None:
        for child in queue.children:
            self._grow(child)
        head = self._head(queue)
        self._enter(queue, head)
        return head

    def _enter(self, queue: Queue, head: Entry | None) -> None:
        serial = self._serial[queue] = self._serial.get(queue, 0) + 1
        if head is not None:
            heap = self._heaps.setdefault(queue.parent, [])
            heapq.heappush(heap, (self._key(queue, head), queue.name, serial))

    def _climb(self, queue: Queue) -> None:
        """Work out the keys on the way up anew: use or heads have changed there, and nowhere else."""
        for step in queue.path():
            self._enter(step, self._head(step))

    def _head(self, queue: Queue) -> Entry | None:
        if not queue.children:
            line = self._lines.get(queue)
            return line[-1] if line else None
        best = self._top(queue)
        return None if best is None else self._head(best)

    def _top(self, parent: Queue | None) -> Queue | None:
        heap = self._heaps.get(parent)
        while heap:
            _, name, serial = heap[0]
            queue = self._queues[name]
            if self._serial[queue] == serial:
                return queue
            heapq.heappop(heap)
        return None

    def _key(self, queue: Queue, head: Entry) -> Key:
        gang = head.gang
        within = all(
            queue.used.get(flavor, 0) + value <= queue.deserved(flavor) for flavor, value in head.charge.items()
        )
        return (
            not within,
            -queue.spec.priority,
            -gang.priority,
            self._share(queue, head),
            gang.created,
            gang.uid,
        )

    def _share(self, queue: Queue, head: Entry) -> float:
        """The largest part of any flavor that the queue would hold with this gang, divided by its weight."""
        if queue.parent is None and len(self._roots) == 1:
            return 0.0  # nobody to compare with
        if not self._totals:
            return (queue.devices + head.devices) / self._devices
        largest = 0.0
        for flavor in queue.used.keys() | head.charge.keys():
            held = queue.used.get(flavor, 0) + head.charge.get(flavor, 0)
            total = self._totals.get(flavor, 0)
            if held and total:
                weight = queue.weight(flavor)
                largest = max(largest, float(held / total) / weight if weight > 0 else float("inf"))
        return largest
