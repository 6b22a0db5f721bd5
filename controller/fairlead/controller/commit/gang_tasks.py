"""The writes under way for gangs, and how long those wait whose admission failed.

One task per gang: an admission, a recovery step or an eviction step. While it runs, nothing else is started for the gang. When it ends,
the gang is looked at again. A decision is due then, since devices that the gang could not get may go to others: but not after an
admission that succeeded, unless another gang waits. A failure starts the gang's backoff; each in a row doubles the wait.

A gang whose pod alone shows all that there is to know of it (`Gang.plain`, without a Gang object) settles after its admission: it is
looked at when kube-scheduler has bound its pod or has tried to, or else after `SETTLE_S`. Until then it counts as busy.

Nodes that kube-scheduler refused a gang's pods on are not chosen again for that gang for a while, however well they look: the engine
knows most of what kube-scheduler looks at, not all (a scheduler's own plugins, limits of volumes). Each refusal of a node in a row
doubles the time. A gang of one is known by the owner of its pod, since the next pod has another name. A new leader starts without
backoff, and learns refused nodes from Gang objects (`past_evictions`), when it first looks at the gang.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from fairlead.controller.book.book import Backoff, Book, GangState
from fairlead.controller.commit.part import Job, Part, Shared
from fairlead.controller.gangs.evictions.past_evictions import PastEviction, Refusal
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.types.gangs import RefusedNode
from fairlead.engine.types.plan import Admission
from fairlead.kube import limits

SETTLE_S = 15.0  # much longer than kube-scheduler takes, unless it is away or has a backlog of thousands
AVOID_S = 600.0  # of nodes to which a gang did not bind
BACKOFF = limits.Backoff(base_s=1.0, max_s=120.0)
FIRST_S = 120.0  # for which a refused node is not chosen
MAX_S = 1800.0
FORGET_S = 3600.0  # after its time was over, a node was not refused in a row
Key = tuple[str, str]
"""A namespace, and a gang of it, or a UID of an owner: owners are of the namespace of what they own."""


class GangTasks(Part):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self.backoffs = GangBackoffs(shared.book, shared.time.random)
        self._triggers = shared.caches.triggers
        self._admissions = shared.book.all(GangState.admission)
        self._settling = shared.book.all(GangState.settles_until)
        self._written: list[GangId] = []
        self._awaited = False

    def admissions(self) -> Mapping[GangId, Admission]:
        """Those that are being written."""
        return self._admissions

    def writing(self) -> set[str]:
        """Keys of the claims that admissions are writing."""
        return {claim.key for admission in self._admissions.values() for claim in admission.claims}

    def awaited(self) -> None:
        """A gang waits: for a claim that another's admission writes, or until what others were given may be evicted."""
        self._awaited = True

    def start(self, gang_id: GangId, job: Job, admission: Admission | None = None) -> None:
        """`admission`: what the job writes, where it is one."""
        state = self._book[gang_id]
        state.busy = True
        if admission is not None:
            state.admission = admission

        def ended() -> None:
            if gang_id not in self._settling:
                self._end(gang_id, quietly=self._book.take(gang_id, GangState.admission) is not None)
                self._triggers.gang(gang_id, soon=admission is None, first=True)

        self._tasks.start(
            f"gang {'/'.join(gang_id)}",
            job,
            failed=lambda why: self.backoffs.note_failure(gang_id, why, now=self._wall()),
            ended=ended,
            level=logging.INFO if admission is None else logging.DEBUG,  # an admission logs its own line
        )

    def _end(self, gang_id: GangId, *, quietly: bool) -> None:
        """`quietly`: an admission, whose end frees nothing if it was a success."""
        self._book[gang_id].busy = None
        if not quietly or self._awaited or self.backoffs.get(gang_id).until > self._wall():
            self._awaited = False
            self._triggers.decide()

    # -- gangs whose pod is about to be bound ----------------------------------------------------------------------

    def settle_later(self, gang_id: GangId) -> None:
        """To be called at the end of an admission's job that succeeded: the gang is busy until `settle`, or for so long."""
        state = self._book[gang_id]
        state.admission = None
        state.settles_until = self._wall() + min(SETTLE_S, self._options.gang_timeout_s)
        self._written.append(gang_id)

    def take_written(self) -> list[GangId]:
        """The gangs that began to settle since the last call."""
        written, self._written = self._written, []
        return written

    def settle(self, gang_id: GangId) -> None:
        """The gang is looked at now: its admission has ended."""
        self._book[gang_id].settles_until = None
        self._end(gang_id, quietly=True)

    def settle_due(self, now: float) -> None:
        """Gangs that settled long enough are to be looked at."""
        while (due := self.settled_at()) is not None and due <= now:
            gang_id = next(iter(self._settling))
            self.settle(gang_id)
            self._triggers.gang(gang_id, first=True)

    def settled_at(self) -> float | None:
        """When the first of them has settled long enough; unix seconds."""
        return next(iter(self._settling.values()), None)


class GangBackoffs:
    def __init__(self, book: Book, random: Random) -> None:
        self._book = book
        self._random = random
        self.refusals = Refusals()
        self._expired_at = 0.0
        self._known = book.all(GangState.backoff)

    def note_failure(
        self, gang: GangId, why: str, *, now: float, nodes: Iterable[str] = (), created: float | None = None
    ) -> None:
        """`nodes` are to be avoided; `created` is the gang's age, when its pods are evicted."""
        backoff = self._book[gang].backoff = self.get(gang)
        backoff.why = why
        backoff.until = now + BACKOFF.delay(backoff.failures, self._random)
        backoff.failures += 1
        for node in nodes:
            backoff.avoid[node] = now + AVOID_S
        if created is not None:
            backoff.queued_since = created if backoff.queued_since is None else min(created, backoff.queued_since)

    def get(self, gang: GangId) -> Backoff:
        """An empty one when nothing is known of the gang."""
        return self._known.get(gang) or Backoff()

    def next_end(self) -> float | None:
        """When the next backoff, or time of a refused node, is over; unix seconds."""
        ends = [backoff.until for backoff in self._known.values() if backoff.until]
        refused = self.refusals.next_end(self._expired_at)
        return min((*ends, *(() if refused is None else (refused,))), default=None)

    def expire(self, now: float, existing: Container[GangId]) -> list[GangId]:
        """The gangs whose backoff is over now, or a node's time. Drops expired nodes, and gangs that are gone and have nothing left."""
        over: list[GangId] = self.refusals.expire(self._expired_at, now)
        self._expired_at = now
        for gang, backoff in list(self._known.items()):
            backoff.avoid = {node: until for node, until in backoff.avoid.items() if until > now}
            if backoff.until and backoff.until <= now:
                backoff.until = 0.0
                over.append(gang)
            if not backoff.until and not backoff.avoid and gang not in existing:
                self._book[gang].backoff = None
        return over


@dataclass(slots=True)
class _Known:
    nodes: dict[str, Refusal] = field(default_factory=dict)
    gangs: set[GangId] = field(default_factory=set)  # that asked: told when a node may be chosen again


class Refusals:
    def __init__(self) -> None:
        self._known: dict[Key, _Known] = {}
        self._learnt: dict[Key, float] = {}  # what was written of them is this process's, or was read then

    def learn(self, gang: Gang, past: Iterable[PastEviction], now: float) -> None:
        """What an earlier leader wrote, once: later this process knows better, e.g. that the gang has run since."""
        told = [each for one in past for each in one.refused if each.until + FORGET_S > now]
        key = _key(gang)
        if not told or key in self._learnt:
            return
        self._learnt[key] = now
        known = self._known.setdefault(key, _Known())
        for each in sorted(told, key=lambda each: each.until):
            known.nodes[each.node] = replace(each, until=min(each.until, now + MAX_S))

    def note(self, gang: Gang, refused: Iterable[tuple[str, str]], now: float) -> None:
        """`refused`: node, and what kube-scheduler said."""
        for node, why in refused:
            self._learnt[_key(gang)] = now
            known = self._known.setdefault(_key(gang), _Known())
            known.gangs.add(gang.id)
            before = known.nodes.get(node)
            times = 0 if before is None else before.times
            until = now + min(MAX_S, FIRST_S * 2.0**times)
            known.nodes[node] = Refusal(node=node, until=until, times=times + 1, why=why)

    def told(self, gang: Gang, now: float) -> tuple[Refusal, ...]:
        """What the next leader is to know; the longest first."""
        known = self._known.get(_key(gang)) or _Known()
        return tuple(sorted((e for e in known.nodes.values() if e.until > now), key=lambda e: (-e.until, e.node)))

    def of(self, gang: Gang, now: float) -> tuple[RefusedNode, ...]:
        """Refusals in the order of names."""
        known = self._known.get(_key(gang))
        if known is None:
            return ()
        known.gangs.add(gang.id)
        return tuple(
            RefusedNode(node=node, until=each.until, why=each.why)
            for node, each in sorted(known.nodes.items())
            if each.until > now
        )

    def reset(self, gang: Gang) -> None:
        """All its pods are bound. Of a gang of one, others of its owner may still be refused."""
        if not gang.solo:
            self._known.pop(gang.id, None)

    def next_end(self, now: float) -> float | None:
        """When a node may be chosen again next; unix seconds."""
        return min(
            (e.until for known in self._known.values() for e in known.nodes.values() if e.until > now), default=None
        )

    def expire(self, since: float, now: float) -> list[GangId]:
        """The gangs that may be placed again on a node whose time ended after `since`. Forgets what is long over."""
        over: list[GangId] = []
        for key, known in list(self._known.items()):
            if any(since < each.until <= now for each in known.nodes.values()):
                over += sorted(known.gangs)
            known.nodes = {node: each for node, each in known.nodes.items() if each.until + FORGET_S > now}
            if not known.nodes:
                del self._known[key]
        self._learnt = {key: at for key, at in self._learnt.items() if at + MAX_S + FORGET_S > now}
        return over


def _key(gang: Gang) -> Key:
    owner = gang.members[0].owner if gang.solo and gang.members else ""
    return (gang.namespace, f"owner/{owner}") if owner else gang.id
