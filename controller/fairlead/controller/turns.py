"""Whose turn it is, among namespaces with very many gangs to look at: of each so many pods' gangs a run, the others in the next runs.

So a namespace with thousands of gangs that all change keeps no other's waiting. A gang of more pods than that has its turn, too,
and its namespace none for as many runs as they would fill. A run costs what it takes, not what waits.

Example: 100 pods a run; namespace red has 1,000 gangs of one, blue has two gangs: blue's are looked at in the first run, with 100 of
red's, and the last of red's in the tenth.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from fairlead.controller.gangs.membership.gangs import GangId

PODS_A_RUN = 100  # of a namespace: a twentieth of a second or more


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
