"""Keeps the node's ResourceSlices as desired: one sync for start-up, changed devices, taints, and others' writes.

sync.py decides what to write; this watches, writes, retries and reports.
Keeps: after a write of another client (kubelet wiping slices, an administrator's edit) the sync waits `sync_delay_s`,
so that a wipe in progress is over; errors are retried forever with backoff and shown in `problem`; fields that the
apiserver drops are reported once, not written forever. What it keeps is known before anything is written (keeping.py), and compared
with what was stored after each write: where that lost what the slices rest on, the rest of them is not written, and what is desired
then is. No two devices that overlap are written unless their counters are believed to be kept.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from fairlead.api import names
from fairlead.api.withheld import Group
from fairlead.driver.publish import keeping, sync
from fairlead.driver.publish.keeping import SLICES, Keeping
from fairlead.driver.publish.slices import SliceBody
from fairlead.driver.publish.sync import Annotations, Gone, Pool, Raw, Write
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.limits import Backoff, Clock, Sleep
from fairlead.kube.resources import NODES

log = logging.getLogger(__name__)


class OverlapError(Exception):
    """Slices that must not be written: their builder was not told what the apiserver keeps."""


@dataclasses.dataclass(eq=False)
class Publisher:
    """The driver's slices of one node. `publish` sets what they should be, `run` syncs until it is cancelled.

    `on_write` is called with verb and result of each write.
    """

    client: Client
    _: dataclasses.KW_ONLY
    node_name: str
    keeping: Keeping
    sync_delay_s: float = 2.0
    sleep: Sleep = asyncio.sleep
    random: Random = dataclasses.field(default_factory=Random)
    on_write: Callable[[str, str], None] | None = None
    wall: Clock = time.time

    def __post_init__(self) -> None:
        self.published = asyncio.Event()
        self.synced_at_s: float | None = None
        """When the stored slices last were known to be as desired, in epoch seconds."""
        self._outdated = True
        self.problem: str | None = "not published yet"
        self.dropped: tuple[str, ...] = ()
        self._backoff = Backoff()
        self._failures = 0
        self._desired: tuple[SliceBody, ...] | None = None
        self._annotations: dict[str, str | Gone] = {}
        self._notes: dict[str, str | Gone] = {}
        self._written = 0
        """The highest generation of any write, also of one that failed: it may have been stored all the same."""
        self._accepted: dict[int, tuple[Raw, Raw]] = {}
        self._wake = asyncio.Event()
        self._delayed_wake: asyncio.Task[None] | None = None
        self._stored: Informer[Raw] = Informer(
            self.client, SLICES, fields=f"spec.driver={names.DRIVER},spec.nodeName={self.node_name}", sleep=self.sleep
        )

    def publish(self, slices: Sequence[SliceBody], notes: Annotations | None = None) -> None:
        """Make these the node's slices soon, with these annotations on the first one, which say what is left out of them.

        Idempotent: the same slices again write nothing.
        """
        wanted, said = tuple(slices), dict(notes or {})
        self._outdated = self._outdated or (wanted, said) != (self._desired, self._notes)
        self._desired, self._notes = wanted, said
        self._wake.set()

    def annotate(self, annotations: Annotations) -> None:
        """Keep these on the first slice, too, until others are given. The rest is left as it is."""
        if dict(annotations) != self._annotations:
            self._annotations = dict(annotations)
            self._outdated = True
            self._wake.set()

    def annotations(self) -> Mapping[str, str]:
        """What the first slice has now, as far as the watch has seen."""
        return sync.annotations_of(self._pool(), self._stored.all())

    def confirm(self, at_s: float) -> None:
        """What is desired was right at this time; says so in `synced_at_s` if the stored slices are known to be that."""
        if not self._outdated and self.problem is None and self._stored.failures == 0:
            self.synced_at_s = at_s

    async def run(self) -> None:
        stop = self._stored.subscribe(self._changed)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stored.run())
                group.create_task(self._sync_loop())
                group.create_task(self.keeping.run(self._wake.set))
        finally:
            stop()
            if self._delayed_wake is not None:
                self._delayed_wake.cancel()

    async def _sync_loop(self) -> None:
        await self._stored.synced.wait()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._sync()
            except errors.ApiError as error:
                self._outdated = True
                delay = self._backoff.delay(self._failures, self.random)
                self._failures += 1
                self.problem = f"ResourceSlices of node {self.node_name}: {error}"
                level = logging.WARNING if error.transient or isinstance(error, errors.Conflict) else logging.ERROR
                log.log(level, "%s (attempt %d, next in %.1f s)", self.problem, self._failures, delay)
                self._wake_in(delay)
            except OverlapError as error:
                self._outdated = True
                self.problem = str(error)
                log.exception("nothing is written until other slices are desired")
            else:
                self._failures = 0

    async def _sync(self) -> None:
        if self._desired is None:
            return
        if self.keeping.due:
            await self.keeping.ask()  # other slices may be desired after it
        self._outdated = False
        writes = self._plan()
        if any(write.verb == "create" for write in writes):
            # The owner's UID is read each time: a Node that was deleted and recreated has another.
            node = await self.client.get(NODES, self.node_name)
            writes = self._plan(node.metadata.uid)
        desired = self._desired
        for write in writes:
            if lost := await self._write(write, desired):
                self._outdated = True
                self.keeping.lost(lost)
                self._wake.set()
                return
        if writes:
            devices = sum(len(body.devices) for body in desired)
            log.info("published %d devices in %d slices", devices, len(desired), extra={"writes": len(writes)})
        self.problem = None
        self.published.set()
        self.confirm(self.wall())

    def _plan(self, node_uid: str = "") -> list[Write]:
        assert self._desired is not None
        bodies = [sync.to_json(body) for body in self._desired]
        if self.keeping.found.kept.counters is None and any(sync.overlapping(body) for body in bodies):
            raise OverlapError(f"devices of node {self.node_name} overlap, and the apiserver does not keep counters")
        annotations = {**self._notes, **self._annotations}
        return sync.plan(
            self._pool(node_uid), self._desired, self._stored.all(), self._accepted, annotations, self._written
        )

    def _pool(self, node_uid: str = "") -> Pool:
        return Pool(node_name=self.node_name, node_uid=node_uid)

    async def _write(self, write: Write, desired: Sequence[SliceBody]) -> frozenset[Group]:
        """What the stored slice lost of what is published by it."""
        metadata: dict[str, Any] = write.object["metadata"]
        if write.verb != "delete":
            generation = write.object["spec"]["pool"]["generation"]
            self._written = max(self._written, generation) if generation > 1 else 1  # 1: all others are deleted
        try:
            match write.verb:
                case "delete":
                    await self._delete(write.object)
                    stored = None
                case "update":
                    stored = await self.client.replace(SLICES, write.object)
                case "create":
                    stored = await self.client.create(SLICES, write.object)
        except errors.ApiError as error:
            self._count(write.verb, "error")
            if isinstance(error, errors.Invalid):
                self.keeping.due = True  # counters have another layout since the apiserver is another
            raise
        self._count(write.verb, "ok")
        log.debug("%s ResourceSlice %s", write.verb, metadata.get("name") or metadata.get("generateName"))
        if stored is not None and write.index is not None:
            self._stored.note(stored)
            return self._compare(write.index, write.object["spec"], stored["spec"], desired[write.index])
        return frozenset()

    def _count(self, verb: str, result: str) -> None:
        if self.on_write is not None:
            self.on_write(verb, result)

    async def _delete(self, slice_: Raw) -> None:
        metadata = slice_["metadata"]
        try:
            if metadata.get("finalizers"):
                freed = await self.client.replace(SLICES, {**slice_, "metadata": {**metadata, "finalizers": []}})
                metadata = freed["metadata"]
            await self.client.delete(
                SLICES, metadata["name"], uid=metadata["uid"], resource_version=metadata["resourceVersion"]
            )
        except errors.NotFound:
            pass
        self._stored.note_deleted(slice_)

    def _compare(self, index: int, sent: Raw, stored: Raw, desired: SliceBody) -> frozenset[Group]:
        """What was lost; accepts what else the apiserver made of the slice: it may add fields by default, and drop others."""
        wanted, kept = sync.body_in(sent), sync.body_in(stored)
        self._accepted.pop(index, None)
        if sync.normalized(wanted, times_of=kept) == sync.normalized(kept):
            return frozenset()
        if lost := frozenset(group for group in keeping.lost(wanted, kept) if self.keeping.found.kept.has(group)):
            return lost
        self._accepted[index] = (sync.normalized(sync.to_json(desired)), sync.normalized(kept))
        dropped = tuple(sync.dropped_fields(wanted, kept))
        if dropped and dropped != self.dropped:
            self.dropped = dropped
            log.warning(
                "the apiserver did not store all fields of the slices: %s; publishing without them", "; ".join(dropped)
            )
        return frozenset()

    def _changed(self, change: Change[Raw]) -> None:
        """One of the slices was written, often by this publisher: then the sync finds nothing to do."""
        self._outdated = True
        if self._delayed_wake is None or self._delayed_wake.done():
            self._wake_in(self.sync_delay_s)

    def _wake_in(self, seconds: float) -> None:
        async def wake() -> None:
            await self.sleep(seconds)
            self._wake.set()

        if self._delayed_wake is not None:
            self._delayed_wake.cancel()
        self._delayed_wake = asyncio.get_running_loop().create_task(wake())
