"""What a leader's next decision would start from, without leading and without writing: the term that is built for this never holds the lease.

`Rehearsal`: decisions of a standby that are thrown away, so that the first one that counts is quick. What the engine remembers of a
decision changes no answer, only how long the next one takes. The first on a kind of request looks at the devices of
all nodes, later ones at what changed.

`observe`: one look at a cluster, as a snapshot. The caches are the controller's own, filled once; what a leader keeps in its memory alone
(backoff after a failed write, admissions under way) is not known. Every list is made with the rights of the client; one that is refused
ends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar

from fairlead.controller.commit.evictor import Victims
from fairlead.controller.commit.writes import LeaseLostError
from fairlead.controller.cycle import Decide, decide_beside
from fairlead.controller.gangs.admission.requests import blocking_problem
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.options import ControllerOptions
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.standby import background, first
from fairlead.controller.term import Term
from fairlead.controller.watch.caches import Caches
from fairlead.engine.snapshot import Snapshot
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.limits import Clock
from fairlead.kube.listing import Listing
from fairlead.kube.resources import Resource
from fairlead.kube.watching import Bookmark, WatchEvent

T = TypeVar("T")

PAUSE_S = 30.0  # at least, between two
PAUSE_FACTOR = 20  # and so many times as long as the last one took: it costs a core
FILL_S = 120.0  # for the lists of an observation


class _NoLease:
    held = False
    identity = "standby"
    transitions: int | None = None

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def abandon(self) -> None:
        pass


class Rehearsal:
    """Call it with the gangs that changed; all of them the first time."""

    def __init__(
        self,
        options: ControllerOptions,
        client: Client,
        caches: Caches,
        *,
        clock: Clock = time.monotonic,
        wall: Clock = time.time,
        decide: Decide | None = None,
    ) -> None:
        self._caches = caches
        self._term = Term(options, client, _NoLease(), Metrics(), caches)
        self._victims = Victims(self._term.book)
        self._clock = clock
        self._wall = wall
        self._decide = decide or caches.tables.engine.decide
        self._changed = set(caches.gangs)
        self._next_at = 0.0  # of the clock

    async def __call__(self, changed: set[GangId]) -> None:
        self._changed |= changed
        began, now = self._clock(), self._wall()
        if not self._caches.triggers.decision or began < self._next_at:
            return
        snapshot = self.snapshot(now)
        self._caches.triggers.decided()
        await decide_beside(self._caches.tables, self._decide, snapshot, now)
        ended = self._clock()
        self._next_at = ended + max(PAUSE_S, PAUSE_FACTOR * (ended - began))

    def snapshot(self, now: float) -> Snapshot:
        """What a leader's decision would start from."""
        for gang_id in self._changed:
            self._victims.update(gang_id, self._caches.gangs.get(gang_id))
        for gang_id in self._changed | self._victims.take_beneficiaries():
            self._update(gang_id, now)
        self._changed.clear()
        return self._term.snapshots.build(now)

    def close(self) -> None:
        self._term.close()

    def _update(self, gang_id: GangId, now: float) -> None:
        snapshots = self._term.snapshots
        before = snapshots.remove(gang_id)
        gang = self._caches.gangs.get(gang_id)
        if gang is None or not gang.members:
            return
        record = snapshots.record(gang, now)
        snapshots.set_running(gang, record, now)
        if blocking_problem(gang) is None and not eviction_marks.stops(gang):
            snapshots.set_request(gang, record, before)


class Unread(Exception):  # noqa: N818 - what happened, as the errors of kube are named
    """A list that the apiserver refused, or the first one that it did not answer."""

    def __init__(self, resource: Resource[Any], error: errors.ApiError) -> None:
        super().__init__(f"{resource}: {error}")
        self.resource = resource
        self.error = error


class _Once:
    """A source whose lists are made once and whose watches never bring anything. The first error that trying again does not mend is kept."""

    def __init__(self, client: Client) -> None:
        self.refused: Unread | None = None
        self.ended = asyncio.Event()
        self._client = client
        self._answered = False  # any list

    async def list(self, resource: Resource[T], namespace: str | None = None, **more: Any) -> Listing[T]:
        try:
            found = await self._client.list(resource, namespace, **more)
            self._answered = True
            return found
        except errors.ApiError as error:
            if not error.transient or not self._answered:
                self.refused = self.refused or Unread(resource, error)
                self.ended.set()
            raise

    async def watch(
        self, resource: Resource[T], namespace: str | None = None, *, resource_version: str, **_: Any
    ) -> AsyncIterator[WatchEvent[T] | Bookmark]:
        await asyncio.Event().wait()
        yield Bookmark(resource_version)


async def observe(
    client: Client, drivers: tuple[str, ...], shared_drivers: tuple[str, ...] = (), *, wall: Clock = time.time
) -> tuple[Snapshot, float]:
    """The snapshot, and its time. Raises Unread; TimeoutError when the apiserver does not answer."""
    source = _Once(client)
    caches = Caches(source, drivers, shared_drivers, forecasts=False)
    await caches.discover(client)
    try:
        async with asyncio.timeout(FILL_S), background(*(each.run() for each in caches.all()), ignore=LeaseLostError):
            await first(caches.filled(), source.ended.wait(), ignore=LeaseLostError)
    except TimeoutError:
        missing = ", ".join(str(each.resource) for each in caches.all() if not each.synced.is_set())
        raise TimeoutError(f"the apiserver did not list {missing} within {FILL_S:g} s; try again") from None
    if source.refused is not None:
        raise source.refused
    caches.refresh_all()
    caches.refresh()
    now = wall()
    rehearsal = Rehearsal(
        ControllerOptions(managed_drivers=drivers, shared_claim_drivers=shared_drivers), client, caches
    )
    return rehearsal.snapshot(now), now
