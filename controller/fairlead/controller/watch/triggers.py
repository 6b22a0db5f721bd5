"""What happened since the loop last ran: which gangs to look at again, and whether a decision is due.

Three degrees keep a waiting gang cheap while others come and go. `urgent`: a new request or changed settings, decided at
once. `decision`: something was freed or added that may admit a waiting gang, decided as the pacing allows. Neither: only
some gangs' reports change. The loop runs `soon` for what a gang that comes waits for, a moment later for all else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from fairlead.controller.gangs.membership.gangs import GangId


class Triggers:
    """`wake` is set by every trigger, `soon` by some; the loop clears both when it starts to look.

    `put_off` says of a gang that it will be triggered again when it is worth looking at: until then it is not noted. What set
    it may end before that: `resume` notes what was put off.
    """

    def __init__(self) -> None:
        self.decision = True
        self.urgent = True
        self.wake = asyncio.Event()
        self.soon = asyncio.Event()
        self.put_off: Callable[[GangId], bool] | None = None
        self._gangs: set[GangId] = set()
        self._put_off: set[GangId] = set()

    def gang(self, gang: GangId, *, soon: bool = False) -> None:
        """Look at this gang again."""
        self.gangs((gang,), soon=soon)

    def gangs(self, gangs: Iterable[GangId], *, soon: bool = False) -> None:
        noted: list[GangId] = []
        for gang in gangs:
            (self._put_off.add if self.put_off is not None and self.put_off(gang) else noted.append)(gang)
        if noted:
            self._gangs.update(noted)
            self._wake(soon)

    def resume(self) -> None:
        """Nothing is put off any more, and what was is noted."""
        self.put_off = None
        gangs, self._put_off = self._put_off, set()
        self.gangs(gangs)

    def decide(self, *, urgent: bool = False) -> None:
        """A decision may have another result now; `urgent`: a user may be waiting for the answer."""
        self.decision = True
        self.urgent = self.urgent or urgent
        self._wake(urgent)

    def _wake(self, soon: bool) -> None:
        self.wake.set()
        if soon:
            self.soon.set()

    def take_gangs(self) -> set[GangId]:
        """The gangs to look at, once."""
        gangs, self._gangs = self._gangs, set()
        self._put_off -= gangs
        return gangs

    def looked(self) -> None:
        """The loop starts to look: what comes from here on wakes it again."""
        self.wake.clear()
        self.soon.clear()

    def rest(self) -> None:
        """The loop has run: what asked for a decision while it ran is decided, or due when the pacing allows."""
        if not self._gangs:
            self.looked()

    def decided(self) -> None:
        """A decision starts: what comes from here on asks for the next one."""
        self.decision = self.urgent = False
