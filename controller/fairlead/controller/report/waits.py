"""How long gangs wait for their devices: from their creation until they run, or until they are gone without having run.

Creation is that of the gang's oldest pod, or of the gang that was evicted before it: the wait that `fairlead report` and forecasts
count, too. A gang that ran before this replica led is never counted.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import NamedTuple

from fairlead.controller.gangs.membership.gangs import GangId


class Since(NamedTuple):
    queue: str
    at: float  # unix seconds


class Waits:
    def __init__(self) -> None:
        self._since: dict[GangId, Since] = {}

    def waits(self, gang: GangId, queue: str, created: float) -> None:
        """The gang does not run yet."""
        self._since[gang] = Since(queue, created)

    def known(self, gang: GangId) -> bool:
        """Whether it is known to wait. Its queue and creation are those of when it began to."""
        return gang in self._since

    def ended(self, gang: GangId) -> Since | None:
        """It runs, or is gone. None: it did not wait, or that was said before."""
        return self._since.pop(gang, None)

    def oldest(self, *, but: Container[GangId] = ()) -> Mapping[str, float]:
        """By queue, since when the gang waits that has waited longest; `but` are those that do not count."""
        found: dict[str, float] = {}
        for gang, (queue, at) in self._since.items():
            if gang not in but:
                found[queue] = min(at, found.get(queue, at))
        return found
