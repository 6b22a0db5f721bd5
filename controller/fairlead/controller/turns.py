"""Whose turn it is, among namespaces with very many gangs to look at: of each so many pods' gangs a run, the others in the next runs.

So a namespace with thousands of gangs that all change keeps no other's waiting. A gang of more pods than that has its turn, too,
and its namespace none for as many runs as they would fill.

Example: 200 pods a run; namespace red has 1,000 gangs of one, blue has two gangs: blue's are looked at in the first run, with 200 of
red's, and the last of red's in the fifth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead.controller.gangs.membership.gangs import GangId

PODS_A_RUN = 200  # of a namespace: a tenth of a second or more


class Turns:
    def __init__(self) -> None:
        self._gangs: dict[GangId, None] = {}  # by arrival
        self._looked_at: dict[str, int] = {}  # by namespace: pods that the last run looked at

    def __bool__(self) -> bool:
        return bool(self._gangs)

    def __contains__(self, gang: object) -> bool:
        return gang in self._gangs

    def add(self, gangs: Iterable[GangId]) -> None:
        self._gangs.update(dict.fromkeys(gangs))

    def discard(self, gang: GangId) -> None:
        self._gangs.pop(gang, None)

    def take_all(self) -> set[GangId]:
        taken, self._gangs = set(self._gangs), {}
        return taken

    def take(self, pods: Callable[[GangId], int], first: Callable[[GangId], bool]) -> set[GangId]:
        """Those of this run. `pods`: how many a gang has; `first`: whether it waits for no turn."""
        spent = {name: count - PODS_A_RUN for name, count in self._looked_at.items() if count > PODS_A_RUN}
        taken: set[GangId] = set()
        for gang in self._gangs:
            if spent.get(gang[0], 0) < PODS_A_RUN or first(gang):
                taken.add(gang)
                spent[gang[0]] = spent.get(gang[0], 0) + max(1, pods(gang))
        self._looked_at = spent
        for gang in taken:
            del self._gangs[gang]
        return taken
