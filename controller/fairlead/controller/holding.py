"""What a decision reads of gangs one by one, kept by change: what they hold, whom they wait for, what a restart costs them.

`Holding`: the gangs that hold devices, in the order of the snapshot. One that is built anew and holds the same as before stays the same
object, and the snapshot says which gangs came and went since the one before, so that the engine looks at those only.

`wakes`: what of a running gang is worth a decision when it changes, though nothing else happens on the cluster. A gang that waits is
decided on whenever its request changes (`requests.same_request`), and a change of the tables or of the settings asks for a decision
where it is watched (`watch`). What is left is a running gang: most of its fields change with pods and claims, whose handlers ask. Every
field is in one of the two lists, so that a new one cannot be forgotten.
Example: `fairlead hold gang sweep --evict` on a quiet cluster changes `hold` of a running gang, and no pod, claim or queue.

`Rollouts`: pending gangs whose workload takes other pods away only once these run. Of a Deployment that keeps an old pod until a new one
is ready, the old one ends only when the new one has started. So long as none of the new generation has, its predecessors are the gangs
of other generations that hold devices and are not leaving: a Deployment that may be short of pods (`maxUnavailable`) has one of those
leave at once.
Example: llm-new waits, llm-old runs, both of Deployment llm: llm-old is the predecessor of llm-new. When another new pod runs already,
there is none: the rollout goes on when that one is ready.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

from msgspec.structs import replace

from fairlead.api.rollouts import Generation, generation_of
from fairlead.controller.book.book import Book, GangState, Rollout
from fairlead.controller.gangs.claims.allocations import allocation_times
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.forecast.run_times import GangKey, name_stem
from fairlead.engine.types.gangs import GangRequest, RunningGang, RunningSequence
from fairlead.kube import timestamps


class Holding:
    def __init__(self, book: Book) -> None:
        self._book = book
        self._gangs = book.all(GangState.holding)
        self._instead: Mapping[GangId, RunningGang] = {}  # at the last call of `all`
        self._changed: set[GangId] = set()  # since that call
        self._ids: list[str] = []  # of what that call returned
        self._list: list[RunningGang] = []
        self._all = RunningSequence.after(None, ())

    def get(self, gang_id: GangId) -> RunningGang | None:
        return self._gangs.get(gang_id)

    def set(self, gang_id: GangId, running: RunningGang | None) -> None:
        """What the gang holds from now on; None: nothing."""
        if running == self._gangs.get(gang_id):
            return
        self._changed.add(gang_id)
        self._book[gang_id].holding = running

    def all(self, instead: Mapping[GangId, RunningGang]) -> RunningSequence:
        """In order of ids; of some gangs what they hold `instead`, also where they held nothing."""
        changed = self._changed | self._instead.keys() | instead.keys()
        self._changed, self._instead = set(), instead
        gone: list[RunningGang] = []
        new: list[RunningGang] = []
        for key, gang_id in sorted(("/".join(gang_id), gang_id) for gang_id in changed):
            at = bisect_left(self._ids, key)
            before = self._list[at] if at < len(self._ids) and self._ids[at] == key else None
            running = instead.get(gang_id) or self._gangs.get(gang_id)
            if running == before:
                continue
            if before is not None:
                gone.append(before)
            if running is not None:
                new.append(running)
            self._put(at, key, before, running)
        if gone or new:
            self._all = RunningSequence.after(self._all, self._list, gone=gone, new=new)
        return self._all

    def _put(self, at: int, key: str, before: RunningGang | None, running: RunningGang | None) -> None:
        if running is None:
            del self._ids[at], self._list[at]
        elif before is None:
            self._ids.insert(at, key)
            self._list.insert(at, running)
        else:
            self._list[at] = running


WAKES: Final = (
    "queue",
    "priority",
    "size",
    "min_runtime_s",
    "checkpoint_grace_s",
    "ends_by",
    "bounds",
    "movable",
    "hold",
)
"""A change asks for a decision at once."""

RESTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "namespace": "identity: another gang",
        "name": "identity: another gang",
        "uid": "identity: the Gang object was recreated",
        "claims": "come and go with claims, whose handler asks",
        "namespace_labels": "the handler of namespaces asks",
        "created": "does not change",
        "endless": "of its owner's kind: another gang",
        "started": "set by its admission; time alone ends what it protects, which the decision says itself (`Plan.due`)",
        "members": "come, go and leave with pods, whose handler asks",
        "pods": "come and go with pods, whose handler asks",
        "idle": "changes with each sample; the reconciler asks when something follows from it",
        "relocation": "follows its pods",
        "checkpointed": "orders victims only",
        "restart_s": "learned; orders victims only",
    }
)
"""Why a change of the field alone asks for none."""


def wakes(before: RunningGang | None, after: RunningGang | None) -> bool:
    """Whether a decision may have another result since the gang changed from one to the other."""
    if before is None or after is None:
        return False
    return any(getattr(before, name) != getattr(after, name) for name in WAKES)


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


class StartHistory(Protocol):
    def note_restart(self, key: GangKey, seconds: float) -> None: ...
    def restart_s(self, key: GangKey) -> float | None: ...


def restart_s(gang: Gang, state: GangState, history: StartHistory) -> float | None:
    """How long a gang takes to run once it is admitted, seconds: the median of this run and earlier ones; None where none is known.

    From the allocation of its first claim to the moment at which the last of its pods was ready, as their conditions say. What is
    learned outlives the controller where forecasts are on.
    """
    key = GangKey(gang.namespace, name_stem(gang.name), gang.size)
    began = min(allocation_times(gang.released).values(), default=0.0)
    if began and state.start_noted != began:
        seconds = _start_time_s(gang, began)
        if seconds is not None:
            history.note_restart(key, seconds)
            state.start_noted = began
    return history.restart_s(key)


def _start_time_s(gang: Gang, began: float) -> float | None:
    """The start of the present run; None while one of its pods is not ready, or has been replaced."""
    ready: list[float] = []
    for member in gang.released:
        condition = member.pod.condition("Ready")
        if condition is None or condition.status != "True" or not condition.last_transition_time:
            return None
        ready.append(timestamps.parse(condition.last_transition_time))
    return max(0.0, max(ready) - began) if ready else None
