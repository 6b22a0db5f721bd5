"""What happened since the loop last ran: which gangs to look at again, and whether a decision is due.

Three degrees keep a waiting gang cheap while others come and go. `urgent`: a new request or changed settings, decided at
once. `decision`: something was freed or added that may admit a waiting gang, decided as the pacing allows. Neither: only
some gangs' reports change. The loop runs `soon` for what a gang that comes waits for, a moment later for all else.

Namespaces take turns: of each so many pods' gangs a run, the others in the next runs, so that one with thousands of gangs that all
change keeps no other's waiting. A gang of more pods than that has its turn, too, and its namespace none for as many runs as they would
fill. A run costs what it takes, not what waits. Always looked at are gangs that hold something, since that is charged to their queue,
and others may wait for it; and those of which a write has ended. Who uses an object that very many pods name is looked up in a run
(`crowd`), once for many changes: a change costs nothing by itself.
Example: 100 pods a run; namespace red has 1,000 gangs of one, blue has two gangs: blue's are looked at in the first run, with 100 of
red's, and the last of red's in the tenth.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from fairlead.controller.gangs.membership.gangs import GangId

PODS_A_RUN = 100  # of a namespace: a twentieth of a second or more


class Attention(Protocol):
    """What a term of leadership says of a gang that changed."""

    def put_off(self, gang_id: GangId) -> bool:
        """Whether it will be triggered again when it is worth looking at."""

    def holds(self, gang_id: GangId) -> bool:
        """Whether it has devices, or a write for it is under way."""


class Triggers:
    """`wake` is set by every trigger, `soon` by some; the loop clears both when it starts to look.

    Between `begin` and `end` gangs that the term puts off are not noted; `end` notes them.
    """

    def __init__(self) -> None:
        self.decision = True
        self.urgent = True
        self.wake = asyncio.Event()
        self.soon = asyncio.Event()
        self._term: Attention | None = None
        self._gangs = Turns()
        self._crowds = Turns()  # namespaces, each with what is to be looked up
        self._first: set[GangId] = set()  # of these, those that have no turn to wait for
        self._put_off: set[GangId] = set()

    def gang(self, gang: GangId, *, soon: bool = False, first: bool = False) -> None:
        """Look at this gang again; `first`: in the next run."""
        self.gangs((gang,), soon=soon)
        if first and gang in self._gangs:
            self._first.add(gang)

    def gangs(self, gangs: Iterable[GangId], *, soon: bool = False) -> None:
        noted: list[GangId] = []
        for gang in gangs:
            (self._put_off.add if self._term is not None and self._term.put_off(gang) else noted.append)(gang)
        if noted:
            self._gangs.add(noted)
            self._wake(soon)

    def crowd(self, namespace: str, of: str) -> None:
        """Look at the gangs that `take_gangs` finds under this name: very many."""
        self._crowds.add([(namespace, of)])
        self._wake(False)

    def begin(self, term: Attention) -> None:
        """A term of leadership begins."""
        self._term = term

    def end(self) -> None:
        """It is over: nothing is put off any more, and what was is noted."""
        self._term = None
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

    def take_gangs(
        self, pods: Callable[[GangId], int] | None = None, crowd: Callable[[str, str], Iterable[GangId]] | None = None
    ) -> set[GangId]:
        """The gangs to look at, once. `pods`: how many a gang has; given, namespaces take turns. `crowd`: which gangs are meant."""
        crowds = self._crowds.take_all() if pods is None else self._crowds.take(lambda _: PODS_A_RUN, lambda _: False)
        for namespace, of in sorted(crowds):
            self.gangs(() if crowd is None else crowd(namespace, of))
        taken = self._gangs.take_all() if pods is None else self._gangs.take(pods, self._has_no_turn)
        self._first -= taken
        self._put_off -= taken
        return taken

    def _has_no_turn(self, gang: GangId) -> bool:
        return gang in self._first or (self._term is not None and self._term.holds(gang))

    def looked(self) -> None:
        """The loop starts to look: what comes from here on wakes it again, and what is left when it has looked (`rest`)."""
        self.wake.clear()
        self.soon.clear()

    def rest(self) -> None:
        """The loop has run: what asked for a decision while it ran is decided, or due when the pacing allows."""
        if self._gangs or self._crowds:
            self.wake.set()
        else:
            self.looked()

    def decided(self) -> None:
        """A decision starts: what comes from here on asks for the next one."""
        self.decision = self.urgent = False


class Turns:
    def __init__(self) -> None:
        self._gangs: dict[str, OrderedDict[GangId, None]] = {}  # by namespace, by arrival
        self._new: dict[GangId, None] = {}  # of these, those that came, or came again, since the last run
        self._looked_at: dict[str, int] = {}  # by namespace: pods that the last run looked at

    def __bool__(self) -> bool:
        return bool(self._gangs)

    def __contains__(self, gang: GangId) -> bool:
        return gang in self._gangs.get(gang[0], ())

    def add(self, gangs: Iterable[GangId]) -> None:
        for gang in gangs:
            self._gangs.setdefault(gang[0], OrderedDict())[gang] = None
            self._new[gang] = None

    def discard(self, gang: GangId) -> None:
        self._new.pop(gang, None)
        queue = self._gangs.get(gang[0])
        if queue is not None:
            queue.pop(gang, None)
            if not queue:
                del self._gangs[gang[0]]

    def take_all(self) -> set[GangId]:
        taken = {gang for queue in self._gangs.values() for gang in queue}
        self._gangs.clear()
        self._new.clear()
        return taken

    def take(self, pods: Callable[[GangId], int], first: Callable[[GangId], bool]) -> set[GangId]:
        """Those of this run. `pods`: how many a gang has; `first`: whether it waits for no turn, asked when it comes."""
        looked_at = {name: count - PODS_A_RUN for name, count in self._looked_at.items() if count > PODS_A_RUN}
        taken: list[GangId] = []
        for namespace, queue in self._gangs.items():
            spent = looked_at.get(namespace, 0)
            for gang in queue:
                if spent >= PODS_A_RUN:
                    break
                taken.append(gang)
                spent += max(1, pods(gang))
            looked_at[namespace] = spent
        for gang in taken:
            self.discard(gang)
        for gang in [gang for gang in self._new if first(gang)]:
            taken.append(gang)
            looked_at[gang[0]] += max(1, pods(gang))
            self.discard(gang)
        self._new.clear()
        self._looked_at = looked_at
        return set(taken)
