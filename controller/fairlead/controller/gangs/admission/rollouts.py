"""Pending gangs whose workload takes other pods away only once these run: which gangs a rollout's new pods wait for.

Of a Deployment that keeps an old pod until a new one is ready, the old one ends only when the new one has started. So long as none of the
new generation has, its predecessors are the gangs of other generations that hold devices and are not leaving: a Deployment that may be
short of pods (`maxUnavailable`) has one of those leave at once. Kept current gang by gang.
Example: llm-new waits, llm-old runs, both of Deployment llm: llm-old is the predecessor of llm-new. When another new pod runs already,
there is none: the rollout goes on when that one is ready.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable

from fairlead.api.rollouts import Generation, generation_of
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.types.gangs import GangRequest

Workload = tuple[str, str]
"""Namespace, and Kind/name."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """A gang in the rollout of its workload."""

    generation: str
    holds: bool  # pods of it are released, and not all are leaving


class Rollouts:
    def __init__(self) -> None:
        self._workloads: dict[GangId, Workload] = {}
        self._parts: defaultdict[Workload, dict[GangId, _Part]] = defaultdict(dict)
        # What was requested, and the same with predecessors.
        self._lifted: dict[GangId, tuple[GangRequest, GangRequest]] = {}

    def set(self, gang_id: GangId, gang: Gang | None) -> bool:
        """As the gang is now; None: it is gone. Whether that may change who waits for whom."""
        known = self._workloads.pop(gang_id, None)
        before = None if known is None else self._parts[known].pop(gang_id, None)
        others = known is not None and bool(self._parts[known])
        if known is not None and not others:
            del self._parts[known]
        found = None if gang is None else _generation(gang)
        if gang is None or found is None:
            self._lifted.pop(gang_id, None)
            return others
        workload = self._workloads[gang_id] = (gang.namespace, found.workload)
        part = _Part(found.generation, any(not member.terminating for member in gang.released))
        self._parts[workload][gang_id] = part
        return part != before and len(self._parts[workload]) > 1

    def lift(self, requests: Iterable[GangRequest]) -> list[GangRequest]:
        """The requests with their predecessors. The same objects as long as nothing changes."""
        return [self._with_predecessors(request) for request in requests] if self._parts else list(requests)

    def _with_predecessors(self, request: GangRequest) -> GangRequest:
        gang_id = (request.namespace, request.name)
        workload = self._workloads.get(gang_id)
        parts = {} if workload is None else self._parts[workload]
        if len(parts) < 2:
            return request
        own = parts[gang_id].generation
        holding = {other: part.generation for other, part in parts.items() if part.holds}
        if not holding or own in holding.values():
            return request
        predecessors = tuple(sorted("/".join(other) for other in holding))
        known = self._lifted.get(gang_id)
        if known is None or known[0] is not request or known[1].predecessors != predecessors:
            known = self._lifted[gang_id] = (request, dataclasses.replace(request, predecessors=predecessors))
        return known[1]


def _generation(gang: Gang) -> Generation | None:
    """Of all its members; None where they are not of one."""
    found = set()
    for member in gang.members:
        owner = member.pod.metadata.controller
        found.add(generation_of(member.pod.metadata.labels, None if owner is None else (owner.kind, owner.name)))
        if len(found) > 1:
            return None
    return next(iter(found), None)
