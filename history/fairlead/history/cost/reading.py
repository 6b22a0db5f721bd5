"""What a bill reads of a ledger, as a Protocol: `fairlead.history.ledger.store` has the reader of real ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from fairlead.history.ledger.entries import Gap, Held, Sum, UnitDay, Wait


class Reader(Protocol):
    """Windows are unix microseconds, the end excluded; intervals are cut to them, open ones to where the ledger is known."""

    def sums(self, since_us: int, until_us: int, by: tuple[str, ...]) -> Sequence[Sum]:
        """Time by the groups of `entries.GROUPS` and by "label=<name>"; keys are in the order of `by`."""
        ...

    def held(self, since_us: int, until_us: int) -> Iterator[Held]: ...

    def waits(self, since_us: int, until_us: int) -> Iterable[Wait]:
        """Those that ended, by an admission, in the window."""
        ...

    def gaps(self, since_us: int, until_us: int) -> Iterable[Gap]: ...

    def unit_days(self, since_us: int, until_us: int) -> Iterator[UnitDay]: ...

    def overlapping(self, since_us: int, until_us: int, most: int) -> int:
        """How many overlap the window, counted up to one more than `most`."""
        ...

    def known(self) -> tuple[int, int] | None:
        """From when until when the ledger is known; None: it holds nothing yet."""
        ...
