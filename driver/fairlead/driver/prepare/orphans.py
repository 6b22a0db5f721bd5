"""What the apiserver says of the claims that have a record: whether they are gone, and the pods for which each is reserved.

A record whose claim is gone though kubelet has not unprepared it is an orphan until it is undone: a pod was deleted by force, and its
containers run on. Its devices must not be given out (publish/devices.py), and a prepare that meets
them waits (kubelet/plugin.py). Each claim with a record is watched by its name, so that this is known as soon as the claim
controller frees the claim; beyond `WATCHED_MAX` claims, and where the watch is refused, a prepare that meets the devices finds out.
Example: `kubectl delete pod --force` of a pod with a grace period of 30 s. The claim is deallocated and deleted at once: an orphan,
until kubelet has stopped the containers and calls unprepare.
Pods are named by metrics, and kubelet does not pass them to a driver. Claims are read at prepare and by the garbage collection anyway: a
pod that joins or leaves a claim later shows after the next collection. No decision uses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable

from fairlead.driver.prepare.leftovers import reason
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.kube import errors
from fairlead.kube.informer import Informer, Source
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import RESOURCE_CLAIMS

log = logging.getLogger(__name__)

WATCHED_MAX = 64
"""Each watch is a connection to the apiserver."""
FIRST_S = 10.0


def is_orphan(record: ClaimRecord, claim: ResourceClaim | None) -> bool:
    """Whether the claim, as the apiserver has it under the record's name, no longer has the record's devices."""
    if claim is None or claim.metadata.uid != record.uid:
        return True
    results = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    allocated = {(each.pool, each.device, each.share_id) for each in results}
    return any((each.pool, each.device, each.share_id) not in allocated for each in record.devices if not each.admin)


async def look(fetch: Fetch, record: ClaimRecord) -> bool:
    """As `is_orphan`, of the apiserver's answer. False where it gives none, which proves nothing."""
    try:
        return is_orphan(record, await fetch(record.namespace, record.name))
    except errors.NotFound:
        return True
    except errors.ApiError as error:
        log.debug("%s: not known whether it still exists: %s", record, error)
    except Exception as error:  # such as an object nested too deeply to be read: it does exist
        log.warning("%s: cannot be read: %s", record, reason(error))
    return False


class Orphans:
    """`first` looks once, `run` follows. `changed` is called when there are others than before; `fetch` reads a claim."""

    def __init__(self, client: Source, records: RecordCache, *, fetch: Fetch, changed: Callable[[], None]) -> None:
        self._client = client
        self._records = records
        self._fetch = fetch
        self._changed = changed
        self._orphans: frozenset[str] = frozenset()
        self._wake = asyncio.Event()
        self._watched: dict[str, tuple[Informer[ResourceClaim], asyncio.Task[None]]] = {}  # by UID

    def devices(self) -> dict[str, frozenset[tuple[int, int] | None]]:
        """By the GPU's UUID, what claims that are known to be gone have of it: first memory slice and number of them, None: the whole."""
        found: dict[str, set[tuple[int, int] | None]] = {}
        for record in self._records.all():
            for device in record.devices if record.uid in self._orphans else ():
                if not device.admin:
                    span = None if device.mig is None else (device.mig.start, device.mig.size)
                    found.setdefault(device.gpu_uuid, set()).add(span)
        return {uuid: frozenset(spans) for uuid, spans in found.items()}

    async def is_one(self, record: ClaimRecord) -> bool:
        """Asks the apiserver where the watch has not said so. False where that does not answer."""
        return record.uid in self._orphans or await look(self._fetch, record)

    async def first(self) -> None:
        """Before anything is published: of the claims of the process before, at most `FIRST_S` long."""
        found = self._records.all()
        looks = [asyncio.ensure_future(self.is_one(record)) for record in found]
        if looks:
            done, late = await asyncio.wait(looks, timeout=FIRST_S)
            for each in late:
                each.cancel()
            gone = {record.uid for record, look in zip(found, looks, strict=True) if look in done and look.result()}
            self._set(gone)

    async def run(self) -> None:
        """Never returns."""
        loop = asyncio.get_running_loop()

        def changed() -> None:  # called by threads, also by those that outlive the loop
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake.set)

        stop = self._records.subscribe(changed)
        try:
            while True:
                self._wake.clear()
                records = self._records.all()
                self._follow(records)
                self._set({record.uid for record in records if self._is_gone(record)})
                await self._wake.wait()
        finally:
            stop()
            tasks = [task for _, task in self._watched.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _follow(self, records: Iterable[ClaimRecord]) -> None:
        known = {record.uid: record for record in records}
        for uid in self._watched.keys() - known.keys():
            self._watched.pop(uid)[1].cancel()
        for uid, record in known.items():
            if uid not in self._watched and len(self._watched) < WATCHED_MAX:
                self._watched[uid] = self._watch(record)

    def _watch(self, record: ClaimRecord) -> tuple[Informer[ResourceClaim], asyncio.Task[None]]:
        informer = Informer(
            self._client, RESOURCE_CLAIMS, namespace=record.namespace, fields=f"metadata.name={record.name}"
        )
        informer.subscribe(lambda _: self._wake.set())

        async def run() -> None:
            synced = asyncio.ensure_future(informer.synced.wait())
            synced.add_done_callback(lambda _: self._wake.set())  # a claim that is gone already changes nothing
            try:
                await informer.run()
            finally:
                synced.cancel()

        return informer, asyncio.get_running_loop().create_task(run(), name=f"watch of {record}")

    def _is_gone(self, record: ClaimRecord) -> bool:
        watched = self._watched.get(record.uid)
        if watched is None or not watched[0].synced.is_set():
            return record.uid in self._orphans  # as far as `first` has seen
        return is_orphan(record, watched[0].get(f"{record.namespace}/{record.name}"))

    def _set(self, uids: Iterable[str]) -> None:
        found = frozenset(uids)
        if found == self._orphans:
            return
        for record in self._records.all():
            if record.uid in found - self._orphans:
                log.warning(
                    "%s is gone, and its devices (%s) are prepared still: they are not given out until kubelet has unprepared them",
                    record,
                    ", ".join(device.device for device in record.devices),
                )
        self._orphans = found
        self._changed()


KNOWN_MAX = 1024

# From namespace and name. Raises ApiError.
Fetch = Callable[[str, str], Awaitable[ResourceClaim]]


class ClaimConsumers:
    """`read` reads from the apiserver. At `KNOWN_MAX` claims, those without a record are forgotten."""

    def __init__(self, read: Fetch, records: RecordCache) -> None:
        self._read = read
        self._records = records
        self._pods: dict[str, tuple[str, ...]] = {}

    async def fetch(self, namespace: str, name: str) -> ResourceClaim:
        claim = await self._read(namespace, name)
        if len(self._pods) >= KNOWN_MAX:
            self._pods = {record.uid: self.pods(record.uid) for record in self._records.all()}
        pods = (consumer.name for consumer in claim.status.reserved_for if consumer.resource == "pods")
        self._pods[claim.metadata.uid] = tuple(sorted(pods))
        return claim

    def pods(self, uid: str) -> tuple[str, ...]:
        """Names of the pods for which the claim was reserved when it was last read, sorted."""
        return self._pods.get(uid, ())
