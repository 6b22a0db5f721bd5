"""Where the sums of spent GPU-hours come from: the ledger, where there is one."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple, Protocol


class Spent(NamedTuple):
    """GPU-hours, counted until this moment (unix microseconds). What is held after it is the reader's to add."""

    gpu_hours: Fraction
    until_us: int


class Spending(Protocol):
    def spent(self, queue: str, since_us: int) -> Spent | None:
        """What the gangs of this queue itself, without those of queues below, spent from `since_us` (unix microseconds) on.

        A whole GPU that is held for an hour is 1, whether busy or idle; a partition counts as its share of the GPU. Devices count that
        a Flavor takes, all devices where there are no Flavors. A queue of which nothing is recorded has spent 0. None: not known, and
        then its budget stops no gang. Called in the controller's loop, for each queue with a budget about once a minute: it must
        answer from memory, or within a millisecond or two.
        """
        ...


class NotKnown:
    """Without a ledger."""

    def spent(self, queue: str, since_us: int) -> Spent | None:
        return None
