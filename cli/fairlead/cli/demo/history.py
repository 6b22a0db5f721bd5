"""The record of a run: pods, claims and gangs as the API showed them, and which claim held which device when.

The demo and the e2e suite check this one record; nothing in it comes from inside the programs. A `History` is
pure: events and times in, records and violations out. Invariant: a device that two claims held at one instant stays in `double_use`.

An `Observer` fills it from informers, so a closed watch or an expired resourceVersion loses nothing that the checks need; but a claim that
is allocated and released between two lists is not seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlead.api import names
from fairlead.kube import timestamps
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resource import ResourceSlice
from fairlead.kube.resources import GANGS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, raw


class DeviceUse(NamedTuple):
    """One allocated device of a claim."""

    request: str
    pool: str
    device: str
    driver: str = names.DRIVER


class GangKey(NamedTuple):
    """A gang's name; a pod without annotations is a gang of its own name."""

    namespace: str
    name: str


@dataclass
class PodRecord:
    """One pod's life. Times are seconds of the caller's clock; None = has not happened."""

    namespace: str
    name: str
    uid: str
    gang: GangKey
    created_s: float
    bound_s: float | None = None
    running_s: float | None = None
    finished_s: float | None = None
    phase: str = "Pending"
    gated: bool = False
    node: str = ""
    queue: str = ""
    evict_at: str = ""  # the announced time of its eviction, as written
    claims: dict[str, str] = field(default_factory=dict)  # name in the pod's spec → ResourceClaim that it used


@dataclass
class ClaimRecord:
    """One claim's last allocation, kept after it was released."""

    namespace: str
    name: str
    uid: str
    devices: tuple[DeviceUse, ...] = ()
    allocated: bool = False
    reserved: bool = False


@dataclass
class GangRecord:
    """One gang as its pods and its Gang object show it."""

    key: GangKey
    pods: list[PodRecord]
    queue: str = ""
    reasons: list[str] = field(default_factory=list)  # every distinct message of its Gang object while it waited
    evictions: list[str] = field(default_factory=list)  # every distinct message of its Evicting condition
    forecasts: list[tuple[float, float]] = field(default_factory=list)  # when seen; seconds until p50 of its start

    @property
    def lasting(self) -> list[PodRecord]:
        """The pods that were not evicted; of an evicted one its replacement."""
        return [
            pod for pod in self.pods if not (pod.evict_at and pod.phase != "Succeeded" and pod.finished_s is not None)
        ]

    @property
    def wait_s(self) -> float | None:
        """Seconds from the first pod's creation to the last pod's binding."""
        bound = [pod.bound_s for pod in self.lasting]
        if not bound or any(at is None for at in bound):
            return None
        return max(at for at in bound if at is not None) - min(pod.created_s for pod in self.lasting)

    @property
    def succeeded(self) -> bool:
        return all(pod.phase == "Succeeded" for pod in self.lasting)

    @property
    def held(self) -> tuple[float, float] | None:
        """When its first pod was bound and its last one finished."""
        starts = [pod.bound_s for pod in self.lasting if pod.bound_s is not None]
        ends = [pod.finished_s for pod in self.lasting if pod.finished_s is not None]
        if not starts or len(ends) < len(self.lasting):
            return None
        return min(starts), max(ends)


class History:
    """Takes every event; answers what happened."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}
        self.claims: dict[tuple[str, str], ClaimRecord] = {}
        self.double_use: list[str] = []
        self._holders: dict[tuple[str, str, str, str], str] = {}
        self._held_by: dict[str, set[tuple[str, str, str, str]]] = {}
        self._gang_objects: dict[GangKey, GangRecord] = {}

    def pod(self, pod: Mapping[str, Any], *, now_s: float) -> None:
        """Record a pod as the API shows it now."""
        meta, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
        notes = meta.get("annotations") or {}
        record = self.pods.get(meta["uid"])
        if record is None:
            gang = GangKey(meta["namespace"], notes.get(names.GANG) or meta["name"])
            record = PodRecord(meta["namespace"], meta["name"], meta["uid"], gang, created_s=now_s)
            self.pods[meta["uid"]] = record
        record.evict_at = notes.get(names.EVICT_AT) or record.evict_at
        record.queue = notes.get(names.QUEUE) or (meta.get("labels") or {}).get(names.QUEUE) or record.queue
        record.gated = any(gate["name"] == names.ADMISSION_GATE for gate in spec.get("schedulingGates") or ())
        record.phase = status.get("phase", record.phase)
        for entry in spec.get("resourceClaims") or ():
            if entry.get("resourceClaimName"):
                record.claims[entry["name"]] = entry["resourceClaimName"]
        for entry in status.get("resourceClaimStatuses") or ():
            # Once its containers have started the claims are fixed. The claim controller may still write the name of a claim
            # that it made in a race and that was never used.
            if entry.get("resourceClaimName") and (record.running_s is None or entry["name"] not in record.claims):
                record.claims[entry["name"]] = entry["resourceClaimName"]
        if spec.get("nodeName") and record.bound_s is None:
            record.node, record.bound_s = spec["nodeName"], now_s
        if record.phase == "Running" and record.running_s is None:
            record.running_s = now_s
        if record.phase in {"Succeeded", "Failed"} and record.finished_s is None:
            record.finished_s = now_s

    def claim(self, claim: Mapping[str, Any], *, deleted: bool = False) -> None:
        """Record a claim as the API shows it now, and every device of it that another claim holds."""
        meta = claim["metadata"]
        record = self.claims.setdefault(
            (meta["namespace"], meta["name"]), ClaimRecord(meta["namespace"], meta["name"], meta["uid"])
        )
        status = {} if deleted else claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        record.allocated, record.reserved = bool(status.get("allocation")), bool(status.get("reservedFor"))
        if results:
            record.devices = tuple(DeviceUse(r["request"], r["pool"], r["device"], r["driver"]) for r in results)
        holds = {
            (r["driver"], r["pool"], r["device"], r.get("shareID") or "") for r in results if not r.get("adminAccess")
        }
        uid = meta["uid"]
        for device in self._held_by.get(uid, set()) - holds:
            if self._holders.get(device) == uid:
                del self._holders[device]
        for device in sorted(holds):
            holder = self._holders.setdefault(device, uid)
            if holder != uid:
                self.double_use.append(f"{device[1]}/{device[2]} is in claim {uid} and in claim {holder}")
        self._held_by[uid] = holds

    def holds(self, pod: PodRecord) -> bool:
        """Whether a claim of the pod is allocated now."""
        claims = (self.claims.get((pod.namespace, name)) for name in pod.claims.values())
        return any(claim is not None and claim.allocated for claim in claims)

    def gang(self, gang: Mapping[str, Any], *, now_s: float = 0.0) -> None:
        """Record a Gang object; its messages and forecasts while it waits are kept."""
        meta, status = gang["metadata"], gang.get("status") or {}
        key = GangKey(meta["namespace"], meta["name"])
        record = self._gang_objects.setdefault(key, GangRecord(key, []))
        record.queue = status.get("queue") or record.queue
        message = status.get("message") or ""
        if status.get("phase") == "Waiting" and message and message not in record.reasons:
            record.reasons.append(message)
        forecast = status.get("forecast") or {}
        if forecast.get("p50"):
            wait_s = timestamps.parse(forecast["p50"]) - timestamps.parse(forecast["asOf"])
            if not record.forecasts or record.forecasts[-1][1] != wait_s:
                record.forecasts.append((now_s, wait_s))
        for condition in status.get("conditions") or ():
            evicting = (condition.get("type"), condition.get("status")) == ("Evicting", "True")
            message = condition.get("message") or ""
            if evicting and message not in record.evictions:
                record.evictions.append(message)

    def gangs(self, namespaces: Iterable[str] | None = None) -> list[GangRecord]:
        """Every gang seen, by first creation."""
        found: dict[GangKey, GangRecord] = {}
        wanted = None if namespaces is None else set(namespaces)
        for pod in self.pods.values():
            if wanted is None or pod.namespace in wanted:
                found.setdefault(pod.gang, self._new(pod)).pods.append(pod)
        return sorted(found.values(), key=lambda gang: (min(p.created_s for p in gang.pods), gang.key))

    def find(self, namespace: str, name: str) -> GangRecord | None:
        """One gang, or None if no pod of it was seen."""
        return next((gang for gang in self.gangs() if gang.key == (namespace, name)), None)

    def devices(self, pod: PodRecord) -> list[DeviceUse]:
        """What the pod's claims held, in claim order."""
        return [use for claim in self.claims_of(pod) for use in claim.devices]

    def claims_of(self, pod: PodRecord) -> Iterator[ClaimRecord]:
        for name in pod.claims.values():
            if (pod.namespace, name) in self.claims:
                yield self.claims[pod.namespace, name]

    def held_now(self) -> dict[tuple[str, str], str]:
        """(pool, device) → claim UID, for every device allocated at this moment."""
        return {(device[1], device[2]): uid for device, uid in self._holders.items()}

    def _new(self, pod: PodRecord) -> GangRecord:
        known = self._gang_objects.get(pod.gang)
        if known is None:
            return GangRecord(pod.gang, [], pod.queue)
        return GangRecord(pod.gang, [], known.queue or pod.queue, known.reasons, known.evictions, known.forecasts)


class Observer:
    """A `History` that follows a cluster, and the devices that its slices publish."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.history = History()
        self._clock = clock
        self._changed = asyncio.Event()
        self._pods = Informer(client, raw(PODS))
        self._claims = Informer(client, raw(RESOURCE_CLAIMS))
        self._gangs = Informer(client, raw(GANGS))
        self._slices = Informer(client, RESOURCE_SLICES)
        self._pods.subscribe(self._on_pod)
        self._claims.subscribe(self._on_claim)
        self._gangs.subscribe(self._on_gang)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Observer]:
        """Follow the cluster for the length of the block."""
        informers = (self._pods, self._claims, self._gangs, self._slices)
        async with contextlib.AsyncExitStack() as stack:
            tasks = [asyncio.create_task(informer.run()) for informer in informers]
            stack.push_async_callback(_cancel, tasks)
            await asyncio.gather(*(informer.synced.wait() for informer in informers))
            yield self

    async def until(self, condition: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until `condition()` holds, checked at each change; False when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        return condition()

    def now_s(self) -> float:
        return self._clock()

    def slices(self) -> list[ResourceSlice]:
        return sorted(self._slices.all(), key=lambda item: item.metadata.name)

    def attributes(self, pool: str, device: str) -> dict[str, object]:
        """A published device's attributes by bare name; empty if no slice has it."""
        for item in self._slices.all():
            if item.spec.pool.name == pool:
                for found in item.spec.devices:
                    if found.name == device:
                        return {name.rpartition("/")[2]: value.value for name, value in found.attributes.items()}
        return {}

    def _on_pod(self, change: Change[dict[str, Any]]) -> None:
        if change.new is not None:
            self.history.pod(change.new, now_s=self._clock())
        self._changed.set()

    def _on_claim(self, change: Change[dict[str, Any]]) -> None:
        final = change.new if change.new is not None else change.old
        if final is not None:
            self.history.claim(final, deleted=change.new is None)
        self._changed.set()

    def _on_gang(self, change: Change[dict[str, Any]]) -> None:
        if change.new is not None:
            self.history.gang(change.new, now_s=self.now_s())
        self._changed.set()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
