"""What is left of a node's devices: its worth to the usual requests, and what a placement costs of that.

One measure for shared and whole devices, large and small requests, and nodes short of CPU. Works on numbers only: leftovers in
thousandths of a device, and free CPU; no nodes. Two measures; the cost is the first and a fifth of the second, which also orders equals:
- waste: how much the leftovers (`prices`) and the CPU beside them (`worth`) lose of their worth. It keeps shares in packings that fill
  devices, and devices from standing idle on nodes without CPU.
- loss: how much less of each usual request the node could take. Of a request m, a device with r left takes m once and then
  whatever else fits, on average; no more of them than free CPU allows. Each request counts by its frequency over the root of
  its size, as a part of all that the empty cluster could take of it: what few nodes can serve weighs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.engine.placement.value.prices import WHOLE, leftover_prices
from fairlead.engine.placement.value.worth import NodeWorth

MEMORY_MAX = 50_000  # answers remembered, and states of a node: some hundred bytes each
SCALE = 1_000_000  # answers are whole numbers of this part of a device
LOSS_PART = 0.2  # of the loss that counts beside waste
NO_LIMIT = float("inf")
Leftovers = tuple[int, ...]  # thousandths left of each device, sorted


@dataclass(frozen=True, slots=True)
class UsualRequest:
    """A usual request on nodes of one kind: `count` devices, `share` thousandths of each."""

    count: int
    share: int
    cpu: int  # thousandths of a core
    frequency: float

    @property
    def size(self) -> int:
        return self.count * self.share

    def copies(self, leftovers: Sequence[int], cpu: int) -> int:
        """How many of it fit, when nothing else runs."""
        if self.count == 1:
            fitting = sum([leftover // self.share for leftover in leftovers])
        else:
            fitting = len([leftover for leftover in leftovers if leftover >= self.share]) // self.count
        return min(fitting, cpu // self.cpu) if self.cpu else fitting


class LeftoverValue:
    """The usual requests, weighed. `weights` are beside `requests`."""

    def __init__(self, requests: tuple[UsualRequest, ...], weights: Sequence[float]) -> None:
        self._single = [
            (request, weight) for request, weight in zip(requests, weights, strict=True) if request.count == 1
        ]
        self._many = [(request, weight) for request, weight in zip(requests, weights, strict=True) if request.count > 1]
        total = sum(request.frequency for request in requests) or 1.0
        mix = [(request.share, request.frequency / total) for request, _ in self._single]
        self._filling = [sum(part * (leftover // size) * size for size, part in mix) for leftover in range(WHOLE + 1)]
        amounts: dict[int, float] = {}
        for request, _ in self._single:
            amounts[request.share] = amounts.get(request.share, 0.0) + request.frequency
        demand = tuple(sorted((size, round(1e6 * amount / total)) for size, amount in amounts.items()))
        self._price_of = [round(SCALE * price) for price in leftover_prices(demand)]
        prices = self._price_of
        self._worth = NodeWorth(
            (request.frequency, request.count * prices[request.share] / SCALE, request.cpu) for request in requests
        )
        self._columns: dict[int, list[float]] = {}
        self._cpu_limits: dict[int, list[float]] = {}
        self._values: dict[tuple[Leftovers, int], tuple[list[float], float]] = {}
        self._costs: dict[tuple[Leftovers, int, int, int, int], tuple[int, int, int]] = {}

    def cost(self, leftovers: Leftovers, cpu: int, *, count: int, share: int, wanted_cpu: int) -> tuple[int, int, int]:
        """(cost, loss, what is left of the device to take it from; 0: any device). The request fits."""
        key = (leftovers, cpu, count, share, wanted_cpu)
        found = self._costs.get(key)
        if found is None:
            if len(self._costs) >= MEMORY_MAX:
                self._costs.clear()
            found = self._costs[key] = self._cost(leftovers, cpu, count, share, wanted_cpu)
        return found

    def _cost(self, leftovers: Leftovers, cpu: int, count: int, share: int, wanted_cpu: int) -> tuple[int, int, int]:
        sums, value = self._value(leftovers, cpu)
        cpu_left = cpu - wanted_cpu
        limits = self._limits(cpu_left)
        prices = self._price_of
        priced = sum([prices[leftover] for leftover in leftovers])
        worth = self._worth.of(priced / SCALE, cpu)
        if not count:
            lost = round(SCALE * (value - self._after(sums, limits, leftovers, cpu_left)))
            waste = round(SCALE * (worth - self._worth.of(priced / SCALE, cpu_left)))
            return waste + round(LOSS_PART * lost), lost, 0
        fitting = sorted({leftover for leftover in leftovers if leftover >= share})
        if count > 1 or len(fitting) == 1:
            fitting = fitting[
                -1:
            ]  # several devices: from those with most left, the only way where whole ones are requested
        wastes = []
        for leftover in fitting:
            taken = count * (prices[leftover] - prices[leftover - share])
            wastes.append((round(SCALE * (worth - self._worth.of((priced - taken) / SCALE, cpu_left))), leftover))
        wastes.sort()
        best = (0, 0, 0)
        for waste, leftover in wastes:
            if best[2] and waste >= best[0]:
                break  # no loss is below 0
            before, after = self._column(leftover), self._column(leftover - share)
            left = [a - count * (b - c) for a, b, c in zip(sums, before, after, strict=True)]
            rest = self._without(leftovers, leftover, share, count) if self._many else leftovers
            lost = round(SCALE * (value - self._after(left, limits, rest, cpu_left)))
            cost = waste + round(LOSS_PART * lost)
            if not best[2] or cost < best[0]:
                best = (cost, lost, leftover)
        return best

    def _value(self, leftovers: Leftovers, cpu: int) -> tuple[list[float], float]:
        key = (leftovers, cpu)
        found = self._values.get(key)
        if found is None:
            if len(self._values) >= MEMORY_MAX:
                self._values.clear()
            columns = [self._column(leftover) for leftover in leftovers if leftover]
            sums = [sum(parts) for parts in zip(*columns, strict=True)] if columns else [0.0] * len(self._single)
            found = self._values[key] = (sums, self._after(sums, self._limits(cpu), leftovers, cpu))
        return found

    def _after(self, sums: list[float], limits: list[float], leftovers: Sequence[int], cpu: int) -> float:
        value = sum([a if a < b else b for a, b in zip(sums, limits, strict=True)])  # noqa: FURB136  # min() takes twice the time
        for request, weight in self._many:
            value += weight * request.size * request.copies(leftovers, cpu)
        return value

    def _without(self, leftovers: Leftovers, leftover: int, share: int, count: int) -> Sequence[int]:
        left = list(leftovers)
        for _ in range(count):
            if leftover in left:
                left.remove(leftover)
                left.append(leftover - share)
        return left

    def _column(self, leftover: int) -> list[float]:
        """What a device with so much left takes of each request for one device, weighed."""
        found = self._columns.get(leftover)
        if found is None:
            found = self._columns[leftover] = [
                weight * (request.share + self._filling[leftover - request.share]) if leftover >= request.share else 0.0
                for request, weight in self._single
            ]
        return found

    def _limits(self, cpu: int) -> list[float]:
        """How much of each request for one device the CPU allows, weighed."""
        found = self._cpu_limits.get(cpu)
        if found is None:
            if len(self._cpu_limits) >= MEMORY_MAX:
                self._cpu_limits.clear()
            found = self._cpu_limits[cpu] = [
                weight * request.share * (cpu // request.cpu) if request.cpu else NO_LIMIT
                for request, weight in self._single
            ]
        return found
