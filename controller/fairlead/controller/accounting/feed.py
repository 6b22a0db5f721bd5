"""Tells the ledger, once a second, what became of claims and devices, and what was decided about gangs.

A look costs what changed; a large cluster is first told in turns. What free devices are good for is judged node by node, as nodes
change, in a bounded part of each second: on a busy cluster a node may be judged some seconds late. The times of claims are exact all
the same. Decisions are told as events tell them, which are gone after an hour; a timeline is looked at later.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from fairlead.controller.accounting.claims import Attribution, claim_ended, claim_seen
from fairlead.controller.accounting.pods import PodNotes, Told
from fairlead.controller.accounting.units import ANYWHERE, Measures, NodeUnits, UsualRequests
from fairlead.controller.gangs.membership.gangs import GangId, gang_id
from fairlead.controller.report.events import Failures
from fairlead.controller.watch.allocated_claims import AllocatedClaims, Held
from fairlead.controller.watch.caches import Caches
from fairlead.controller.watch.settings import Settings
from fairlead.engine.types.pods import Workload
from fairlead.history.ledger.entries import ClaimSeen, Decision, Observation, Unit, UnitSeen, Wait
from fairlead.history.ledger.keeper import Keeper
from fairlead.kube.limits import Clock
from fairlead.kube.timestamps import microseconds, parsed
from fairlead.kube.timing import Time

log = logging.getLogger(__name__)

LOOK_S = 1.0
WHOLE_S = 10.0  # between two looks at everything, while the store cannot be read
NODES_AT_ONCE = 8  # before others have their turn; a node of MIG-capable GPUs has 200 devices
CLAIMS_AT_ONCE = 100
JUDGE_S = 0.02  # of each look, for what free devices are good for
WAITING_MAX = 10_000  # for the ledger; beyond that the oldest are lost
GANGS_MAX = 20_000  # whose last decision is known
TEXT_MAX = 1024
NO_DECISIONS = frozenset({"Forecast"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the ledger reads of the rest of the controller."""

    workload: Callable[[], Workload | None]
    reserved: Callable[[], Collection[str]]  # nodes that are held for a gang
    queued_since: Callable[[GangId], float | None]  # unix seconds


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


class LedgerFeed:
    """`run` until cancelled. `labels`: names of those that are kept with each claim."""

    def __init__(
        self,
        caches: Caches,
        known: Known,
        keeper: Keeper,
        told: Callable[[], None],
        decisions: GangDecisions,
        failures: Failures,
        *,
        labels: tuple[str, ...],
        time: Time,
    ) -> None:
        self._caches = caches
        self._known = known
        self._keeper = keeper
        self._told = told
        self._decisions = decisions
        self._failures = failures
        self._clock, self._wall, self._sleep = time.clock, time.wall, time.sleep
        self._notes = AllocatedClaims(caches, self._contained, wall=time.wall)
        self._nodes = NodeUnits(caches.tables.inventory, caches.tables.nodes)
        self._attribution = Attribution(
            queue_of=lambda pod: caches.rules.queue_of(gang_id(pod)),
            labels=labels,
            namespace_labels=caches.namespace_labels,
        )
        self._pods = PodNotes(
            caches.gangs,
            caches.tables.nodes,
            self._attribution,
            self._nodes.capacity_type,
            lambda gang: failures.contained("ledger", "gang {}/{}".format(*gang)),
        )
        self._settings: Settings | None = None
        self._workload: Workload | None = None
        self._measures = Measures((), ())
        self._usual = UsualRequests(None, {})
        self._reserved: frozenset[str] = frozenset()
        self._cursors = (-1, -1)
        self._dirty: dict[str, None] = {}  # nodes to judge, in order
        self._holding: dict[GangId, set[str]] = {}  # claim UIDs by gang
        self._gang_of: dict[str, GangId] = {}  # by claim UID
        self._whole_at = float("-inf")

    async def run(self) -> None:
        self._notes.begin()
        try:
            while True:
                try:
                    await self.look()
                except Exception:  # a defect here must not end the term
                    log.exception("the ledger could not be given what changed; tried again")
                await self._sleep(LOOK_S)
        finally:
            self._notes.end()

    async def look(self) -> None:
        """Everything at first, and where the ledger wants it; then what changed."""
        if not self._keeper.wants_whole:
            self._keeper.observe(self._changed(), whole=False)
        elif self._clock() >= self._whole_at:
            self._whole_at = self._clock() + WHOLE_S
            self._keeper.observe(await self._everything(), whole=True)
        self._told()

    # -- looks -----------------------------------------------------------------------------------------------------

    def _changed(self) -> Observation:
        self._renew()
        self._note_nodes()
        now = self._wall()
        units, gone = self._judged(now)
        changed, ended = self._notes.take()
        claims: list[ClaimSeen] = []
        waits: list[Wait] = []
        for held in changed:
            with self._contained(held):
                claims.append(seen := self._seen(held))
                if (wait := self._wait(held, seen)) is not None:
                    waits.append(wait)
        return self._observation(units, gone, claims, ended, waits, self._pods.changed(now))

    async def _everything(self) -> Observation:
        """In turns, since a large cluster takes a second; what changes meanwhile is in it, too."""
        self._renew()
        inventory, nodes = self._caches.tables.inventory, self._caches.tables.nodes
        self._cursors = (inventory.changes.cursor, nodes.changes.cursor)
        self._dirty.clear()
        now = self._wall()
        for number, name in enumerate(sorted(self._nodes.names())):
            self._look(name, now)
            if number % NODES_AT_ONCE == NODES_AT_ONCE - 1:
                await self._sleep(0)
        self._notes.take()
        claims: dict[str, ClaimSeen] = {}
        for number, held in enumerate(list(self._notes.all())):
            with self._contained(held):
                claims[held.uid] = self._seen(held)
                self._wait(held, claims[held.uid])  # it began before this term, or none looked
            if number % CLAIMS_AT_ONCE == CLAIMS_AT_ONCE - 1:
                await self._sleep(0)
        changed, ended = self._notes.take()
        for held in changed:
            with self._contained(held):
                claims[held.uid] = self._seen(held)
        pods = self._pods.everything(self._wall())
        return self._observation(self._nodes.known(), (), claims.values(), ended, (), pods)

    def _observation(
        self,
        units: Iterable[UnitSeen],
        gone: Iterable[Unit],
        claims: Iterable[ClaimSeen],
        ended: Iterable[tuple[Held, float]],
        waits: Iterable[Wait],
        pods: Told,
    ) -> Observation:
        ends = []
        for held, at in ended:
            with self._contained(held):
                ends.append(claim_ended(held, at, self._caches.node_exists))
        for end in ends:
            gang = self._gang_of.pop(end.claim_uid, None)
            if gang is not None:
                self._holding[gang].discard(end.claim_uid)
                if not self._holding[gang]:
                    del self._holding[gang]
        return Observation(
            now_us=microseconds(self._wall()),
            decisions=self._decisions.take(),
            units=tuple(units),
            gone=tuple(gone),
            claims=tuple(claims),
            ended=tuple(ends),
            waits=tuple(waits),
            pods=tuple(pods[0]),
            pods_ended=tuple(pods[1]),
        )

    # -- claims ----------------------------------------------------------------------------------------------------

    def _contained(self, held: Held) -> AbstractContextManager[None]:
        return self._failures.contained("ledger", f"claim {held.claim.metadata.key}")

    def _look(self, node: str, now: float) -> tuple[list[UnitSeen], list[Unit]]:
        """A node that cannot be judged stays as it was."""
        units: list[UnitSeen] = []
        gone: list[Unit] = []
        with self._failures.contained("ledger", f"node {node}"):
            seen, left = self._nodes.look(node, self._measures, self._usual, self._reserved, now)
            units += seen
            gone += left
        return units, gone

    def _seen(self, held: Held) -> ClaimSeen:
        inventory = self._caches.tables.inventory
        return claim_seen(
            held, self._attribution, inventory, self._nodes.units, self._measures, self._nodes.capacity_type
        )

    def _wait(self, held: Held, seen: ClaimSeen) -> Wait | None:
        """The wait of a gang that held nothing before."""
        pod = held.first_pod
        if pod is None or held.uid in self._gang_of:
            return None
        gang = self._gang_of[held.uid] = gang_id(pod)
        holding = self._holding.setdefault(gang, set())
        holding.add(held.uid)
        queued = self._known.queued_since(gang)
        if len(holding) > 1 or queued is None:
            return None
        own = seen.allocation
        queued_us = min(microseconds(queued), own.allocated_us)
        return Wait(queue=own.queue, namespace=gang[0], gang=gang[1], queued_us=queued_us, admitted_us=own.allocated_us)

    # -- devices ---------------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        """What devices are worth and what is usual, where that changed: then all is told anew."""
        caches, settings, workload = self._caches, self._caches.rules.settings(), self._known.workload()
        if settings is not self._settings:
            flavors = {each["metadata"]["name"]: each for each in caches.flavors.all()}
            priced = (name for name, each in flavors.items() if each.get("spec", {}).get("price"))
            self._measures = Measures(settings.flavors, priced)
            created = {
                name: microseconds(at)
                for name, each in flavors.items()
                if (at := parsed(each["metadata"].get("creationTimestamp"))) is not None
            }
            self._pods.renew(settings.flavors, created, self._wall())
            self._settings = settings
            self._dirty |= dict.fromkeys(sorted(self._nodes.names()))
            self._notes.touch_all()
        if workload is not self._workload:
            self._usual = UsualRequests(workload, dict(caches.tables.classes))
            self._workload = workload
            self._dirty |= dict.fromkeys(sorted(self._nodes.names()))
        reserved = frozenset(self._known.reserved())
        if reserved != self._reserved:
            self._dirty |= dict.fromkeys(sorted(reserved ^ self._reserved))
            self._reserved = reserved

    def _note_nodes(self) -> None:
        inventory, nodes = self._caches.tables.inventory, self._caches.tables.nodes
        for log_, cursor in zip((inventory.changes, nodes.changes), self._cursors, strict=True):
            changed = log_.since(cursor)
            self._dirty |= dict.fromkeys(sorted(self._nodes.names()) if changed is None else changed)
        self._cursors = (inventory.changes.cursor, nodes.changes.cursor)
        if self._dirty:
            self._dirty[ANYWHERE] = None

    def _judged(self, now: float) -> tuple[list[UnitSeen], list[Unit]]:
        """As many nodes as there is time for: the others are judged by the next look."""
        units: list[UnitSeen] = []
        gone: list[Unit] = []
        until = self._clock() + JUDGE_S
        while self._dirty:
            name = next(iter(self._dirty))
            del self._dirty[name]
            seen, left = self._look(name, now)
            units += seen
            gone += left
            if self._clock() > until:
                break
        return units, gone
