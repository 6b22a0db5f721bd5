"""What is left of a node's devices: its worth together with the node's free CPU: a device without CPU beside it serves no request.

What is left is priced as leftovers are (`prices`), in devices. Of a usual request, no more of it counts than the CPU allows; the worth is the mean
over the requests, each by its part of the demand. Numbers only. Grows with either, and with both alike in proportion, so a little CPU
that is taken costs most on nodes where devices will stand idle for lack of it, and nothing where there is plenty.
Example: requests for half a device and 4 cores, or 12 cores, come alike. Two devices beside 24 cores are worth (2 + 1) / 2; beside 16 cores
(2 + 2/3) / 2: a pod that takes 8 cores and no device costs 1/6. Beside 60 cores it costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class NodeWorth:
    """What nodes are worth, for one mix."""

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
