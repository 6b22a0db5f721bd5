"""Keeps the node's ResourceSlices as the driver wants them: the one path for every reason to publish.

Exists so that start-up, a changed device, a health taint, kubelet's wiping and an administrator's edit all end in the
same sync. What to write is publication.py's; this watches, writes, retries and reports.
Keeps: a slice that somebody else changed is left alone for `settle_s`, so that a wipe in progress is over; errors are
retried with back-off for ever and shown in `problem`; what an apiserver drops is reported once, not written for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from fairlead.driver.publish import publication
from fairlead.driver.publish.publication import Pool, Raw, Write
from fairlead.driver.publish.slices import SliceBody
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.limits import Backoff, Sleep
from fairlead.kube.resources import NODES, RESOURCE_SLICES, raw

log = logging.getLogger(__name__)

SLICES = raw(RESOURCE_SLICES)


class Publisher:
    """Slices of one driver on one node. `publish` says what they should be; `run` makes it so until cancelled."""

    def __init__(
        self,
        client: Client,
        *,
        driver: str,
        node_name: str,
        settle_s: float = 2.0,
        sleep: Sleep = asyncio.sleep,
        random: Random | None = None,
        wrote: Callable[[str, str], None] | None = None,
    ) -> None:
        self.published = asyncio.Event()
        self.problem: str | None = "not published yet"
        self.dropped: tuple[str, ...] = ()
        self._client = client
        self._driver = driver
        self._node_name = node_name
        self._settle_s = settle_s
        self._sleep = sleep
        self._random = random or Random()  # noqa: S311 - jitter
        self._tell = wrote
        self._backoff = Backoff()
        self._failures = 0
        self._desired: tuple[SliceBody, ...] | None = None
        self._adopted: dict[int, tuple[Raw, Raw]] = {}
        self._wake = asyncio.Event()
        self._later: asyncio.Task[None] | None = None
        self._stored: Informer[Raw] = Informer(
            client, SLICES, fields=f"spec.driver={driver},spec.nodeName={node_name}", sleep=sleep
        )

    def publish(self, slices: Sequence[SliceBody]) -> None:
        """Make these the node's slices, soon. Idempotent: the same again writes nothing."""
        self._desired = tuple(slices)
        self._wake.set()

    async def run(self) -> None:
        stop = self._stored.subscribe(self._changed)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._stored.run())
                group.create_task(self._keep())
        finally:
            stop()
            if self._later is not None:
                self._later.cancel()

    async def _keep(self) -> None:
        await self._stored.synced.wait()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._sync()
            except errors.ApiError as error:
                delay = self._backoff.delay(self._failures, self._random)
                self._failures += 1
                self.problem = f"ResourceSlices of node {self._node_name}: {error}"
                level = logging.WARNING if error.transient or isinstance(error, errors.Conflict) else logging.ERROR
                log.log(level, "%s (attempt %d, next in %.1f s)", self.problem, self._failures, delay)
                self._wake_in(delay)
            else:
                self._failures = 0

    async def _sync(self) -> None:
        if self._desired is None:
            return
        existing = self._stored.all()
        pool = Pool(driver=self._driver, name=self._node_name, node_name=self._node_name, node_uid="")
        writes = publication.plan(pool, self._desired, existing, self._adopted)
        if any(write.verb == "create" for write in writes):
            # The owner's UID is looked up each time: a Node that was deleted and came back is another one.
            node = await self._client.get(NODES, self._node_name)
            pool = Pool(
                driver=self._driver, name=self._node_name, node_name=self._node_name, node_uid=node.metadata.uid
            )
            writes = publication.plan(pool, self._desired, existing, self._adopted)
        for write in writes:
            await self._write(write)
        if writes:
            devices = sum(len(body.devices) for body in self._desired)
            log.info("published %d devices in %d slices", devices, len(self._desired), extra={"writes": len(writes)})
        self.problem = None
        self.published.set()

    async def _write(self, write: Write) -> None:
        metadata: dict[str, Any] = write.object["metadata"]
        try:
            match write.verb:
                case "delete":
                    await self._delete(write.object)
                    stored = None
                case "update":
                    stored = await self._client.replace(SLICES, write.object)
                case "create":
                    stored = await self._client.create(SLICES, write.object)
        except errors.ApiError:
            self._count(write.verb, "error")
            raise
        self._count(write.verb, "ok")
        log.debug("%s ResourceSlice %s", write.verb, metadata.get("name") or metadata.get("generateName"))
        if stored is not None and write.index is not None:
            self._stored.note(stored)
            self._compare(write.index, write.object["spec"], stored["spec"])

    def _count(self, verb: str, result: str) -> None:
        if self._tell is not None:
            self._tell(verb, result)

    async def _delete(self, slice_: Raw) -> None:
        metadata = slice_["metadata"]
        try:
            await self._client.delete(
                SLICES, metadata["name"], uid=metadata["uid"], resource_version=metadata["resourceVersion"]
            )
        except errors.NotFound:
            pass
        self._stored.note_deleted(slice_)

    def _compare(self, index: int, sent: Raw, stored: Raw) -> None:
        wanted, kept = publication.content(sent), publication.content(stored)
        lost = tuple(publication.dropped(wanted, kept))
        if not lost:
            self._adopted.pop(index, None)
            return
        assert self._desired is not None
        self._adopted[index] = (
            publication.normal(publication.body_of(self._desired[index])),
            publication.normal(kept),
        )
        if lost != self.dropped:
            self.dropped = lost
            log.warning("the apiserver did not keep all of the slices: %s; going on without", "; ".join(lost))

    def _changed(self, change: Change[Raw]) -> None:
        """Somebody wrote one of our slices, often we ourselves: then the sync finds nothing to do."""
        if self._later is None or self._later.done():
            self._wake_in(self._settle_s)

    def _wake_in(self, seconds: float) -> None:
        async def wake() -> None:
            await self._sleep(seconds)
            self._wake.set()

        if self._later is not None:
            self._later.cancel()
        self._later = asyncio.get_running_loop().create_task(wake())
