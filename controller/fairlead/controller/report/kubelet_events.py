"""What kubelet says in Events alone of pods that have a node and do not start: that a DRA driver is not registered there, for instance.

Events are not watched: most of a cluster's are of no concern here. Those of one pod are listed when it has been bound for `FIRST_S` and none of its
containers was begun, and again after twice that time, at most every `LAST_S`; of one pod of a gang at a time, and of no more than
`LOOKS_MAX` gangs in `TURN_S`, where namespaces take turns. Whoever may write Events of a namespace may write any about its pods: what is said is cut
off, and shown; it decides nothing. Where claims could not be prepared, kubelet is made to sync the pods with each look: by itself it does 60 to 90 s
later, however soon a driver that was started anew is there again.
Example: a gang of 8 on a node whose driver has not come up: after 3 s kubelet's event on its first pod is the gang's reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from fairlead.api import texts
from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState, Looks, Said
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.report import gang_phase
from fairlead.kube import core, errors, listing, timestamps
from fairlead.kube.client import Client
from fairlead.kube.resources import EVENTS
from fairlead.kube.timing import Time

log = logging.getLogger(__name__)

FIRST_S = 3.0
LAST_S = 60.0
TURN_S = 0.5
LOOKS_MAX = 2
LISTED_MAX = 16
"""Events of a pod; kubelet has about eight kinds of them, and counts what it repeats."""
STALE_S = 120.0
"""kubelet tries again, and says so again, after 60 to 90 s."""
UNPREPARED = "FailedPrepareDynamicResources"
WOKEN_MAX = 64
"""Pods of a gang, with one look."""
REFUSING = frozenset(
    {
        UNPREPARED,
        "FailedCreatePodSandBox",
        "FailedCreatePodContainer",
        "FailedMount",
        "FailedMapVolume",
        "NetworkNotReady",
    }
)
BEGUN = frozenset({"Pulling", "Pulled", "Created", "Started"})
"""After one of these what was refused before is over."""


def refusal(events: Iterable[core.Event], now: float) -> str:
    """The latest reason why the pod is not started; "" where there is none, or containers were begun since. Pure."""
    said, latest, begun = "", 0.0, 0.0
    for event in events:
        at = _time(event)
        if event.reason in BEGUN:
            begun = max(begun, at)
        elif event.reason in REFUSING and at >= latest:
            said, latest = f"{event.reason}: {event.message}", at
    return texts.line(said[: gang_phase.SAID_MAX]) if latest > max(begun, now - STALE_S) else ""


def _time(event: core.Event) -> float:
    """Unix seconds; 0 where none can be read."""
    texts_ = (event.last_timestamp, event.event_time, event.metadata.creation_timestamp)
    return max(timestamps.parsed(text) or 0.0 for text in texts_)


class KubeletEvents:
    """One per term of leadership."""

    def __init__(self, client: Client, book: Book, gang_of: Callable[[GangId], Gang | None], time: Time) -> None:
        self._client = client
        self._book = book
        self._gang_of = gang_of
        self._time = time
        self._looked: dict[str, float] = {}  # by namespace, when last
        self._wake = asyncio.Event()

    def of(self, gang: Gang, now: float) -> Said | None:
        """What is known; from the first call for a gang with such a pod on, it is looked for."""
        state, waiting = self._book[gang.id], gang_phase.unexplained(gang)
        looks = state.looks
        if not waiting:
            state.looks = None
            return None
        if looks is None:
            state.looks = Looks(now + FIRST_S, FIRST_S)
            self._wake.set()
            return None
        said = looks.said
        return said if said is not None and any(pod.metadata.uid == said[0] for pod in waiting) else None

    async def run(self, refresh: Callable[[Iterable[GangId], float], None], wake: Callable[[core.Pod], None]) -> None:
        """Never returns. `refresh` reports gangs of which something else is known than before; `wake` has kubelet sync a pod."""
        while True:
            await self._wake.wait()
            while self._book.all(GangState.looks):
                await self._time.sleep(TURN_S)
                for gang_id, looks in self._due(self._time.wall()):
                    if await self._look(gang_id, looks, wake):
                        refresh([gang_id], self._time.wall())
            self._looked.clear()
            self._wake.clear()

    def _due(self, now: float) -> list[tuple[GangId, Looks]]:
        """One gang of each namespace, those first that were looked at longest ago."""
        due: dict[str, tuple[GangId, Looks]] = {}
        for gang_id, looks in self._book.all(GangState.looks).items():
            first = due.get(gang_id[0])
            if looks.due <= now and (first is None or looks.due < first[1].due):
                due[gang_id[0]] = gang_id, looks
        return sorted(due.values(), key=lambda each: (self._looked.get(each[0][0], 0.0), each[0]))[:LOOKS_MAX]

    async def _look(self, gang_id: GangId, looks: Looks, wake: Callable[[core.Pod], None]) -> bool:
        """Whether it is another answer than the last."""
        gang = self._gang_of(gang_id)
        waiting = [] if gang is None else gang_phase.unexplained(gang)
        if not waiting:
            self._book[gang_id].looks = None
            return False
        before = looks.said
        pod = next((each for each in waiting if before is not None and each.metadata.uid == before[0]), waiting[0])
        said = await self._said(pod)
        now = self._time.wall()
        self._looked[gang_id[0]] = now
        looks.due = now + looks.wait_s
        looks.wait_s = min(LAST_S, 2 * looks.wait_s)
        looks.said = (pod.metadata.uid, said) if said else None
        for each in waiting[:WOKEN_MAX] if said.startswith(UNPREPARED) else ():
            wake(each)
        return looks.said != before

    async def _said(self, pod: core.Pod) -> str:
        meta = pod.metadata
        params = {"fieldSelector": f"involvedObject.uid={meta.uid},source=kubelet", "limit": str(LISTED_MAX)}
        try:
            body = await self._client.request("GET", EVENTS.path(meta.namespace), params=params)
            items = listing.decode(core.Event, body).items or ()
        except (errors.ApiError, msgspec.MsgspecError) as error:
            log.debug("pod %s: its events cannot be read: %s", meta.key, error)
            return ""
        return refusal(items, self._time.wall())
