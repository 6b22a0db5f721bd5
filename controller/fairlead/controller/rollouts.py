"""Pending gangs whose workload takes other pods away only once these run: which gangs a rollout's new pods wait for.

Of a Deployment that keeps an old pod until a new one is ready, the old one ends only when the new one has started. So long as none of the
new generation has, its predecessors are the gangs of other generations that hold devices and are not leaving: a Deployment that may be
short of pods (`maxUnavailable`) has one of those leave at once. Kept current gang by gang.
Example: llm-new waits, llm-old runs, both of Deployment llm: llm-old is the predecessor of llm-new. When another new pod runs already,
there is none: the rollout goes on when that one is ready.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from fairlead.api.rollouts import Generation, generation_of
from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState, Rollout
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.types.gangs import GangRequest


class Rollouts:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._rollouts = book.all(GangState.rollout)
        self._gangs: defaultdict[tuple[str, str], set[GangId]] = defaultdict(set)  # by workload

    def set(self, gang_id: GangId, gang: Gang | None) -> bool:
        """As the gang is now; None: it is gone. Whether that may change who waits for whom."""
        state = self._book[gang_id]
        before, others = state.rollout, False
        if before is not None:
            self._gangs[before.workload].discard(gang_id)
            others = bool(self._gangs[before.workload])
            if not others:
                del self._gangs[before.workload]
        found = None if gang is None else _generation(gang)
        if gang is None or found is None:
            state.rollout = state.behind = None
            return others
        released = any(not member.terminating for member in gang.released)
        now = state.rollout = Rollout((gang.namespace, found.workload), found.generation, released)
        self._gangs[now.workload].add(gang_id)
        return now != before and len(self._gangs[now.workload]) > 1

    def lift(self, requests: Iterable[GangRequest]) -> list[GangRequest]:
        """The requests with their predecessors. The same objects as long as nothing changes."""
        return [self._with_predecessors(request) for request in requests] if self._gangs else list(requests)

    def _with_predecessors(self, request: GangRequest) -> GangRequest:
        gang_id = (request.namespace, request.name)
        own = self._rollouts.get(gang_id)
        others = () if own is None else self._gangs[own.workload]
        if own is None or len(others) < 2:
            return request
        holding = {other: self._rollouts[other].generation for other in others if self._rollouts[other].holds}
        if not holding or own.generation in holding.values():
            return request
        predecessors = tuple(sorted("/".join(other) for other in holding))
        state = self._book[gang_id]
        known = state.behind
        if known is None or known[0] is not request or known[1].predecessors != predecessors:
            known = state.behind = (request, replace(request, predecessors=predecessors))
        return known[1]


def _generation(gang: Gang) -> Generation | None:
    """The generation of all its members; None where they are not of one."""
    found = set()
    for member in gang.members:
        owner = member.pod.metadata.controller
        found.add(generation_of(member.pod.metadata.labels, None if owner is None else (owner.kind, owner.name)))
        if len(found) > 1:
            return None
    return next(iter(found), None)
