"""Prices of what is left of a shared device, from how the usual requests pack.

The size of a leftover says little: beside shares of 81 % the last 19 % are worth nothing, and beside shares of 47 % a rest of
53 % is worth as much as a rest of 50 %. A share's price is its dual in the cutting-stock programme (as few
devices as possible for the whole mix, fractionally); a leftover is worth the most valuable set of shares that it holds. A share
costs nothing beyond its price exactly where it completes a packing of the best plan.
Sizes are thousandths of a device. Floats, but the same ones for the same input: no order depends on hashing.
Source: Gilmore and Gomory 1961 (column generation); Farley 1990 (prices stay feasible when it is stopped early).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
