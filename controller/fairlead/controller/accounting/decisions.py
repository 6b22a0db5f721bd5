"""What was decided about gangs, as their events tell it, for the ledger: events are gone after an hour, a timeline is looked at later."""

from __future__ import annotations

from collections import OrderedDict, deque

from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.history.ledger.entries import Decision
from fairlead.kube.limits import Clock
from fairlead.kube.timestamps import microseconds

WAITING_MAX = 10_000  # for the ledger; beyond that the oldest are lost
GANGS_MAX = 20_000  # whose last decision is known
TEXT_MAX = 1024
NO_DECISIONS = frozenset({"Forecast"})


class GangDecisions:
    """Two in a row that say the same are one. `note` and `take` from one thread."""

    def __init__(self, wall: Clock) -> None:
        self._wall = wall
        self._noted: deque[Decision] = deque(maxlen=WAITING_MAX)
        self._last: OrderedDict[GangId, tuple[str, str]] = OrderedDict()

    def note(self, gang: GangId, what: str, text: str, *, warning: bool) -> None:
        if what in NO_DECISIONS or self._last.get(gang) == (what, text):
            return
        self._last[gang] = (what, text)
        self._last.move_to_end(gang)
        if len(self._last) > GANGS_MAX:
            self._last.popitem(last=False)
        at_us = microseconds(self._wall())
        self._noted.append(
            Decision(namespace=gang[0], gang=gang[1], at_us=at_us, what=what, text=text[:TEXT_MAX], warning=warning)
        )

    def take(self) -> tuple[Decision, ...]:
        taken = tuple(self._noted)
        self._noted.clear()
        return taken
