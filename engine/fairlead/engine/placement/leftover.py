"""What a node's free room is worth to the usual requests, and what a placement would spoil of it.

Exists so that one measure serves shared and whole devices, large and small requests, and nodes short of CPU. Knows numbers only:
rooms in thousandths of a device, free CPU, no nodes. Two answers, the first decides, the second parts its equals:
- waste: what the leftovers lose of their worth (`placement_prices`). It keeps shares in packings that fill devices.
- loss: how much less of each usual request the node could take. Of a request m, a device with room r takes m once and then
  whatever else fits, on average; no more of them than free CPU allows. Each request counts by its frequency over the root of
  its size, as a part of all that the empty cluster could take of it: what few nodes can serve weighs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.engine.placement.prices import WHOLE, leftover_prices

MEMORY_MAX = 50_000  # answers remembered, and states of a node: some hundred bytes each
SCALE = 1_000_000  # answers are whole numbers of this part of a device
NO_LIMIT = float("inf")
Rooms = tuple[int, ...]  # thousandths left of each device, sorted


@dataclass(frozen=True, slots=True)
class UsualRequest:
    """A usual request, as nodes of one kind see it: `count` devices, of each so many thousandths."""

    count: int
    share: int
    cpu: int  # thousandths of a core
    frequency: float

    @property
    def size(self) -> int:
        return self.count * self.share

    def copies(self, rooms: Sequence[int], cpu: int) -> int:
        """How many of it alone fit."""
        if self.count == 1:
            fitting = sum(room // self.share for room in rooms)
        else:
            fitting = sum(room >= self.share for room in rooms) // self.count
        return min(fitting, cpu // self.cpu) if self.cpu else fitting


class LeftoverValue:
    """The usual requests, weighed. `weights` are beside `forms`."""

    def __init__(self, forms: tuple[UsualRequest, ...], weights: Sequence[float]) -> None:
        self._single = [(form, weight) for form, weight in zip(forms, weights, strict=True) if form.count == 1]
        self._many = [(form, weight) for form, weight in zip(forms, weights, strict=True) if form.count > 1]
        total = sum(form.frequency for form in forms) or 1.0
        mix = [(form.share, form.frequency / total) for form, _ in self._single]
        self._more = [sum(part * (room // size) * size for size, part in mix) for room in range(WHOLE + 1)]
        amounts: dict[int, float] = {}
        for form, _ in self._single:
            amounts[form.share] = amounts.get(form.share, 0.0) + form.frequency
        demand = tuple(sorted((size, round(1e6 * amount / total)) for size, amount in amounts.items()))
        self._worth = [round(SCALE * price) for price in leftover_prices(demand)]
        self._columns: dict[int, list[float]] = {}
        self._caps: dict[int, list[float]] = {}
        self._values: dict[tuple[Rooms, int], tuple[list[float], float]] = {}
        self._known: dict[tuple[Rooms, int, int, int, int], tuple[int, int, int]] = {}

    def cost(self, rooms: Rooms, cpu: int, *, count: int, share: int, wants_cpu: int) -> tuple[int, int, int]:
        """(waste, loss, room of the device to take it from; 0 if that is all the same). The request fits."""
        key = (rooms, cpu, count, share, wants_cpu)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MEMORY_MAX:
                self._known.clear()
            found = self._known[key] = self._cost(rooms, cpu, count, share, wants_cpu)
        return found

    def _cost(self, rooms: Rooms, cpu: int, count: int, share: int, wants_cpu: int) -> tuple[int, int, int]:
        sums, value = self._value(rooms, cpu)
        caps = self._most(cpu - wants_cpu)
        if not count:
            return 0, round(SCALE * (value - self._after(sums, caps, rooms, cpu - wants_cpu))), 0
        fitting = sorted({room for room in rooms if room >= share})
        if count > 1 or len(fitting) == 1:
            fitting = fitting[-1:]  # several devices: from the emptiest, where whole ones are asked the only way
        wastes = [count * (self._worth[room] - self._worth[room - share]) for room in fitting]
        waste = min(wastes)
        best: tuple[int, int] | None = None
        for room, wasted in zip(fitting, wastes, strict=True):
            if wasted != waste:
                continue
            before, after = self._column(room), self._column(room - share)
            left = [a - count * (b - c) for a, b, c in zip(sums, before, after, strict=True)]
            rest = self._without(rooms, room, share, count) if self._many else rooms
            loss = round(SCALE * (value - self._after(left, caps, rest, cpu - wants_cpu)))
            if best is None or loss < best[0]:
                best = (loss, room)
        assert best is not None
        return waste, best[0], best[1]

    def _value(self, rooms: Rooms, cpu: int) -> tuple[list[float], float]:
        key = (rooms, cpu)
        found = self._values.get(key)
        if found is None:
            if len(self._values) >= MEMORY_MAX:
                self._values.clear()
            columns = [self._column(room) for room in rooms if room]
            sums = [sum(parts) for parts in zip(*columns, strict=True)] if columns else [0.0] * len(self._single)
            found = self._values[key] = (sums, self._after(sums, self._most(cpu), rooms, cpu))
        return found

    def _after(self, sums: list[float], caps: list[float], rooms: Sequence[int], cpu: int) -> float:
        value = sum([a if a < b else b for a, b in zip(sums, caps, strict=True)])  # noqa: FURB136  # min() takes twice the time
        for form, weight in self._many:
            value += weight * form.size * form.copies(rooms, cpu)
        return value

    def _without(self, rooms: Rooms, room: int, share: int, count: int) -> Sequence[int]:
        left = list(rooms)
        for _ in range(count):
            if room in left:
                left.remove(room)
                left.append(room - share)
        return left

    def _column(self, room: int) -> list[float]:
        """What a device with this room takes of each request for one device, weighed."""
        found = self._columns.get(room)
        if found is None:
            found = self._columns[room] = [
                weight * (form.share + self._more[room - form.share]) if room >= form.share else 0.0
                for form, weight in self._single
            ]
        return found

    def _most(self, cpu: int) -> list[float]:
        """How much of each request for one device the CPU allows, weighed."""
        found = self._caps.get(cpu)
        if found is None:
            if len(self._caps) >= MEMORY_MAX:
                self._caps.clear()
            found = self._caps[cpu] = [
                weight * form.share * (cpu // form.cpu) if form.cpu else NO_LIMIT for form, weight in self._single
            ]
        return found
