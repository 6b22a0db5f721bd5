"""What is left of a node's devices: its price by how the usual requests pack, its worth beside free CPU, and what a placement costs of it.

One measure for shared and whole devices, large and small requests, and nodes short of CPU. Works on numbers only: leftovers in
thousandths of a device, and free CPU; no nodes. Floats, but the same ones for the same input: no order depends on hashing.
Price: the size of a leftover says little: beside shares of 81 % the last 19 % are worth nothing, and beside shares of 47 % a rest of 53 % is
worth as much as one of 50 %. A share's price is its dual in the cutting-stock programme (as few devices as possible for the whole mix,
fractionally); a leftover is worth the most valuable set of shares that it holds. A share costs nothing beyond its price exactly where it
completes a packing of the best plan.
Worth: of a usual request no more counts than the CPU allows; the mean over the requests, each by its part of the demand. A little CPU that
is taken costs most on nodes where devices will stand idle for lack of it, and nothing where there is plenty. Example: requests for half a
device and 4 cores, or 12 cores, come alike. Two devices beside 24 cores are worth (2 + 1) / 2; beside 16 cores (2 + 2/3) / 2: a pod that
takes 8 cores and no device costs 1/6. Beside 60 cores it costs nothing.
A placement costs the first of these and a fifth of the second, which also orders equals:
- waste: how much the leftovers and the CPU beside them lose of their worth. It keeps shares in packings that fill devices, and devices from
  standing idle on nodes without CPU.
- loss: how much less of each usual request the node could take. Of a request m, a device with r left takes m once and then
  whatever else fits, on average; no more of them than free CPU allows. Each request counts by its frequency over the root of
  its size, as a part of all that the empty cluster could take of it: what few nodes can serve weighs more.
Source: Gilmore and Gomory 1961 (column generation); Farley 1990 (prices stay feasible when it is stopped early).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

WHOLE = 1000
SIZES_MAX = 32  # most demanded sizes that are priced; others are worth what fits into them
ROUNDS_MAX = 300
_TINY = 1e-7


@lru_cache(maxsize=64)
def leftover_prices(demand: tuple[tuple[int, int], ...]) -> tuple[float, ...]:
    """The worth of r thousandths left, for r from 0 to 1000, in devices. `demand` is (size, how many), sizes from 1 to 1000."""
    most = sorted(demand, key=lambda entry: (-entry[1], entry[0]))[:SIZES_MAX]
    sizes = sorted(size for size, _ in most)
    if not sizes or sizes[0] == WHOLE:
        return (*([0.0] * WHOLE), 1.0)
    counts = dict(most)

    def most_valuable(prices: Sequence[float]) -> tuple[float, list[int]]:
        worth, first = _fill(sizes, prices)
        return worth[WHOLE], _packing(sizes, first)

    stock = Stock([WHOLE // size for size in sizes], [float(counts[size]) for size in sizes])
    prices = stock.prices(most_valuable)
    worth, _ = _fill(sizes, prices)
    scale = max(worth[WHOLE], _TINY)
    # Whole devices are worth one; what is below the last bits of a price is no difference.
    return tuple(round(value / scale, 6) for value in worth)


def _fill(sizes: Sequence[int], prices: Sequence[float]) -> tuple[list[float], list[int]]:
    """For each leftover the most valuable set of shares that it holds, and the share to put in first (-1: leave one thousandth)."""
    worth = [0.0] * (WHOLE + 1)
    first = [-1] * (WHOLE + 1)
    items = list(zip(sizes, prices, range(len(sizes)), strict=True))
    for leftover in range(1, WHOLE + 1):
        best, choice = worth[leftover - 1], -1
        for size, price, place in items:
            if size > leftover:
                break
            value = worth[leftover - size] + price
            if value > best + 1e-12:
                best, choice = value, place
        worth[leftover], first[leftover] = best, choice
    return worth, first


class Stock:
    """The programme's basis: as many packings as kinds of request, kept by the inverse of their matrix."""

    def __init__(self, most: Sequence[int], demand: Sequence[float]) -> None:
        """`most`: how many of each kind one device holds when it holds nothing else; at least 1."""
        number = len(most)
        # Packings of one kind each, to begin with.
        self.inverse = [[0.0] * number for _ in range(number)]
        for place, many in enumerate(most):
            self.inverse[place][place] = 1.0 / many
        self.amounts = [demand[place] * self.inverse[place][place] for place in range(number)]

    def prices(self, most_valuable: Callable[[Sequence[float]], tuple[float, Sequence[int]]]) -> list[float]:
        """The price of each kind, in devices. All of a packing together cost no more than one.

        `most_valuable`: at given prices the worth of the best packing of a device, and how many of each kind it has.
        """
        prices = self._duals()
        for _ in range(ROUNDS_MAX):
            worth, packing = most_valuable(prices)
            if worth <= 1 + _TINY or not self._enter(packing):
                break
            prices = self._duals()
        return prices

    def _duals(self) -> list[float]:
        return [max(0.0, sum(column)) for column in zip(*self.inverse, strict=True)]

    def _enter(self, packing: Sequence[int]) -> bool:
        """Bring a packing into the basis in place of one that it makes redundant."""
        step = [sum(a * b for a, b in zip(row, packing, strict=True)) for row in self.inverse]
        leaving, least = -1, 0.0
        for place, rate in enumerate(step):
            if rate > _TINY:
                ratio = self.amounts[place] / rate
                if leaving < 0 or ratio < least - 1e-12:
                    leaving, least = place, ratio
        if leaving < 0:
            return False
        pivot = [value / step[leaving] for value in self.inverse[leaving]]
        for place, rate in enumerate(step):
            if place != leaving and rate:
                self.inverse[place] = [a - rate * b for a, b in zip(self.inverse[place], pivot, strict=True)]
                self.amounts[place] -= rate * least
        self.inverse[leaving] = pivot
        self.amounts[leaving] = least
        return True


def _packing(sizes: Sequence[int], first: Sequence[int]) -> list[int]:
    """How many of each size the most valuable filling of a whole device has."""
    packing = [0] * len(sizes)
    leftover = WHOLE
    while leftover > 0:
        place = first[leftover]
        if place < 0:
            leftover -= 1
        else:
            packing[place] += 1
            leftover -= sizes[place]
    return packing


class NodeWorth:
    def __init__(self, requests: Iterable[tuple[float, float, int]]) -> None:
        """How often each is made, its price in devices, and its CPU (thousandths of a core)."""
        weighed = [(often * price, price, cpu) for often, price, cpu in requests if often * price > 0]
        total = sum(weight for weight, _, _ in weighed) or 1.0
        limited = sorted((price / cpu, weight / total) for weight, price, cpu in weighed if cpu)
        self._densities = [density for density, _ in limited]  # devices served by a thousandth of a core
        self._weights = [0.0, *accumulate(weight for _, weight in limited)]
        self._by_cpu = [0.0, *accumulate(density * weight for density, weight in limited)]

    def of(self, leftover: float, cpu: int) -> float:
        """In devices. `leftover` likewise, `cpu` in thousandths of a core."""
        if not leftover:
            return 0.0
        if cpu <= 0:
            return leftover * (1.0 - self._weights[-1])
        short = bisect_left(self._densities, leftover / cpu)  # for so many requests CPU ends first
        return cpu * self._by_cpu[short] + leftover * (1.0 - self._weights[short])


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
