"""The scheduler's loop: takes pods from its queue, decides, and binds while the next pod is decided.

The decision is cycle.py's, the writes that bind are binding.py's; here are queue, retries, the deallocation of PostFilter,
conditions and events. Runs as system:kube-scheduler. Does not wait for binding conditions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from random import Random
from typing import Final

from fairlead.kube import errors, timestamps
from fairlead.kube.client import Client, Patch
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.informer import Change
from fairlead.kube.limits import Clock
from fairlead.kube.resources import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    Raw,
    raw,
)
from fairlead.sandbox.informers import Informers, by_claim
from fairlead.sandbox.objects import (
    Obj,
    allocation_of,
    condition,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    node_name_of,
    phase_of,
    spec_of,
    status_of,
    uid_of,
)
from fairlead.sandbox.release import NEWEST, Release
from fairlead.sandbox.scheduler import claims as dra
from fairlead.sandbox.scheduler.binding import AllocatedElsewhere, Binder
from fairlead.sandbox.scheduler.cache import Cache, PodQueue
from fairlead.sandbox.scheduler.cycle import Gated, Placed, Snapshot, Unschedulable, decide
from fairlead.sandbox.scheduler.devices import Selects
from fairlead.sandbox.scheduler.fit import Storage

log = logging.getLogger(__name__)

SCHEDULER_NAME: Final = "default-scheduler"
BINDINGS_AT_ONCE: Final = 16
SCHEDULER_ERROR: Final = (
    "SchedulerError"  # the reason for whatever fails that is no filter's verdict (PodReasonSchedulerError)
)
_CLAIMS: Final = raw(RESOURCE_CLAIMS)
_PODS: Final = raw(PODS)


class Scheduler:
    """`run()` never returns; cancel it."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        *,
        selects: Selects,
        random: Random,
        wall: Clock = time.time,
        clock: Clock = time.monotonic,
        backoff_s: tuple[float, float] = (1.0, 10.0),
        release: Release = NEWEST,
    ) -> None:
        self._client = client
        self._events = events
        self._selects = selects
        self._random = random
        self._wall = wall
        self._informers = Informers(client)
        self._pods = self._informers.of(PODS, indexes={"claim": by_claim})
        self._nodes = self._informers.of(NODES)
        self._claims = self._informers.of(RESOURCE_CLAIMS)
        self._slices = self._informers.of(RESOURCE_SLICES)
        self._classes = self._informers.of(DEVICE_CLASSES)
        self._namespaces = self._informers.of(NAMESPACES)
        self._volume_claims = self._informers.of(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = self._informers.of(PERSISTENT_VOLUMES)
        self._storage_classes = self._informers.of(STORAGE_CLASSES)
        self._cache = Cache()
        self._queue = PodQueue(clock=clock, backoff_s=backoff_s)
        self._release = release
        self._binder = Binder(client, wall=wall, release=release)
        self._binding = asyncio.Semaphore(BINDINGS_AT_ONCE)
        self._storage = Storage(
            claim=self._volume_claims.get,
            volume=self._volumes.get,
            volumes=self._volumes.all,
            storage_class=self._storage_classes.get,
        )
        self._pods.subscribe(self._pod_changed)
        self._nodes.subscribe(self._node_changed)
        self._claims.subscribe(self._claim_changed)
        self._slices.subscribe(lambda _: self._queue.something_changed())
        for informer in (self._classes, self._volume_claims, self._volumes, self._storage_classes):
            informer.subscribe(lambda _: self._queue.something_changed())

    # -- which change enqueues which pod ---------------------------------------------------------------------------

    def _pod_changed(self, change: Change[Raw]) -> None:
        pod = change.object
        if change.new is None:
            self._cache.drop_pod(uid_of(pod))
            self._queue.drop(change.key)
            self._queue.something_changed()
            return
        self._cache.set_pod(pod)
        kept = change.old is not None and status_of(change.old).get("nominatedNodeName")
        if kept and kept != status_of(pod).get("nominatedNodeName") and not node_name_of(pod):
            self._queue.something_changed()  # room that was kept is free
        if self._is_ours(pod):
            old = change.old
            if old is None or _differs(old, pod):
                self._queue.add(change.key, priority=int(spec_of(pod).get("priority") or 0))
        else:
            self._queue.drop(change.key)
            bound = change.old is not None and not node_name_of(change.old) and node_name_of(pod)
            if phase_of(pod) in {"Succeeded", "Failed"} or bound:
                self._queue.something_changed()  # room again, or a neighbour that others wait for

    def _is_ours(self, pod: Obj) -> bool:
        return (
            not node_name_of(pod)
            and not is_deleting(pod)
            and phase_of(pod) == "Pending"
            and (spec_of(pod).get("schedulerName") or SCHEDULER_NAME) == SCHEDULER_NAME
        )

    def _node_changed(self, change: Change[Raw]) -> None:
        if change.new is None:
            self._cache.drop_node(change.key)
            return
        self._cache.set_node(change.new)
        # A heartbeat is no reason to try anything again.
        if change.old is None or any(
            _node_facts(change.old)[i] != fact for i, fact in enumerate(_node_facts(change.new))
        ):
            self._queue.something_changed()

    def _claim_changed(self, change: Change[Raw]) -> None:
        if change.new is None:
            self._cache.drop_claim(uid_of(change.object))
        else:
            self._cache.set_claim(change.new)
        for pod in self._pods.by_index("claim", change.key):
            if self._is_ours(pod) and not self._cache.is_assumed(pod):
                self._queue.add(key_of(pod), priority=int(spec_of(pod).get("priority") or 0))
        freed = change.old is not None and allocation_of(change.old) is not None
        if freed and (change.new is None or allocation_of(change.new) is None):
            self._queue.something_changed()

    # -- the loop --------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informers.run(), name="scheduler informers")
            await self._informers.synced()
            while True:
                key = await self._queue.get()
                await self._cycle(key, group)

    async def _cycle(self, key: str, group: asyncio.TaskGroup) -> None:
        pod = self._pods.get(key)
        if pod is None or not self._is_ours(pod) or self._cache.is_assumed(pod):
            return
        snapshot = Snapshot(
            release=self._release,
            nodes=self._cache.nodes,
            slices=self._slices.all,
            claim=lambda namespace, name: self._claims.get(f"{namespace}/{name}"),
            device_class=self._classes.get,
            allocated=self._cache.allocated,
            selects=self._selects,
            repelling=self._cache.repelling,
            namespace_labels=lambda name: labels_of(self._namespaces.get(name) or {}),
            storage=self._storage,
        )
        try:
            outcome = decide(pod, snapshot, pick=self._pick)
            match outcome:
                case Gated(message=message):
                    log.debug("pod %s waits: %s", key, message)
                case Unschedulable():
                    self._queue.unschedulable(key)
                    await self._refuse(pod, outcome)
                case Placed():
                    self._place(pod, outcome, group)
        except errors.ApiError as error:
            log.info("pod %s: %s", key, error)
            self._queue.unschedulable(key, retry=True)
        except Exception:
            log.exception("pod %s", key)
            self._queue.unschedulable(key, retry=True)

    def _pick(self, loose: Sequence[Obj]) -> Obj:
        return self._random.choice(loose)

    async def _refuse(self, pod: Obj, outcome: Unschedulable) -> None:
        if outcome.deallocate is not None:
            claim = outcome.deallocate
            log.info("claim %s: deallocating, pod %s cannot use it on its node", key_of(claim), key_of(pod))
            body = {**claim, "status": dra.deallocated(claim)}
            try:
                self._claims.note(await self._client.replace(_CLAIMS, body, subresource="status"))
            except errors.ApiError as error:
                # A conflict, or an admission policy that forbids it: the pod stays unschedulable either way.
                log.info("claim %s: not deallocated: %s", key_of(claim), error)
        await self._report(pod, outcome)

    async def _report(self, pod: Obj, outcome: Unschedulable) -> None:
        """The condition, if it differs from the one that is there, and the event."""
        pod = self._pods.get(key_of(pod)) or pod
        known = condition(pod, "PodScheduled")
        if known is None or (known.get("reason"), known.get("message")) != (outcome.reason, outcome.message):
            now = timestamps.seconds(self._wall())
            new = {
                "type": "PodScheduled",
                "status": "False",
                "reason": outcome.reason,
                "message": outcome.message,
                "lastTransitionTime": (known or {}).get("lastTransitionTime") or now,
                "lastProbeTime": None,
            }
            await self._patch_status(pod, {"conditions": [new]})
            self._events.record(Regarding.of(PODS, pod), "FailedScheduling", outcome.message, type="Warning")

    async def _patch_status(self, pod: Obj, status: Obj) -> None:
        body = {"metadata": {"uid": uid_of(pod)}, "status": status}
        try:
            await self._client.patch(
                _PODS, name_of(pod), body, namespace=namespace_of(pod), kind=Patch.STRATEGIC, subresource="status"
            )
        except errors.NotFound:
            log.debug("pod %s: does not exist any more", key_of(pod))

    # -- binding ---------------------------------------------------------------------------------------------------

    def _place(self, pod: Obj, outcome: Placed, group: asyncio.TaskGroup) -> None:
        for claim, allocation in outcome.claims:
            if allocation is not None and self._cache.is_in_flight(claim):
                # A verdict and no error, as upstream: the pod is tried again when the claim changes.
                self._queue.unschedulable(key_of(pod))
                return
        self._cache.assume(pod, outcome.node)
        for claim, allocation in outcome.claims:
            if allocation is not None:
                self._cache.assume_allocation(claim, allocation)
        group.create_task(self._bind(pod, outcome), name=f"bind {key_of(pod)}")

    async def _bind(self, pod: Obj, outcome: Placed) -> None:
        latest = {uid_of(claim): claim for claim, _ in outcome.claims}
        try:
            async with self._binding:
                if spec_of(pod).get("resourceClaims"):  # PreBind of DynamicResources has work
                    await self._binder.nominate(pod, outcome.node)
                for claim, allocation in outcome.claims:
                    written = await self._binder.claim(claim, pod, allocation)
                    self._claims.note(written)
                    latest[uid_of(claim)] = written
                await self._binder.pod(pod, outcome.node)
        except Exception as error:
            self._queue.unschedulable(key_of(pod), retry=True)  # before its claims change, which would make it active
            self._cache.forget(pod)
            for claim, _ in outcome.claims:
                self._cache.drop_allocation(uid_of(claim))
            self._queue.something_changed()
            await self._binder.unreserve(pod, list(latest.values()))
            level = logging.INFO if isinstance(error, errors.ApiError | AllocatedElsewhere) else logging.ERROR
            log.log(level, "pod %s not bound to %s: %s", key_of(pod), outcome.node, error)
            with contextlib.suppress(errors.ApiError):
                await self._report(pod, Unschedulable(reason=SCHEDULER_ERROR, message=f"binding rejected: {error}"))
            return
        self._queue.bound(key_of(pod))
        text = f"Successfully assigned {key_of(pod)} to {outcome.node}"
        self._events.record(Regarding.of(PODS, pod), "Scheduled", text)


def _differs(old: Obj, new: Obj) -> bool:
    """Whether a pod changed in a way that can make it schedulable (gates, affinity, names of its claims)."""
    return spec_of(old) != spec_of(new) or status_of(old).get("resourceClaimStatuses") != status_of(new).get(
        "resourceClaimStatuses"
    )


def _node_facts(node: Obj) -> tuple[object, ...]:
    status = status_of(node)
    return (spec_of(node), node["metadata"].get("labels"), status.get("allocatable"))
