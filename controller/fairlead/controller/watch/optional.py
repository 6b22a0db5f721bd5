"""APIs that not every cluster serves, and that may come and go while we lead: a copy of such a resource while there is one.

Exists so that what is optional is watched in one way. Whether a resource is served is asked when a leader begins, every
`LOOK_S` from then on, and whenever its watch fails: a CRD that is installed later is read soon, and one that is removed
leaves one line in the log, while everybody who was told of its objects is told that they are gone.
What is not `vital`, such as others' CRDs, stops nobody when it is broken: it is read as soon as it can be.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import Resource

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_S = 30.0


class Served(Generic[T]):
    """`informer` is None while the cluster does not serve the resource. `begin` once, then `run`."""

    def __init__(
        self, resource: Resource[T], versions: Sequence[str], heard: Callable[[Change[T]], None], *, vital: bool = True
    ) -> None:
        """`versions`: those that we can read, the first that is served is taken."""
        self.informer: Informer[T] | None = None
        self.vital = vital
        self.synced = asyncio.Event()
        """Set once there is nothing more to wait for before the first decision; what comes later is not waited for."""
        self.synced.set()
        self._resource = resource
        self._versions = versions
        self._heard = heard
        self._again = asyncio.Event()
        self._trouble = ""
        self._client: Client | None = None

    async def begin(self, client: Client) -> None:
        """Sees whether the resource is served. If it cannot be asked, it is not, until it can."""
        self._client = client
        await self._look(client)
        if self.informer is not None:
            self.synced = self.informer.synced

    async def run(self) -> None:
        """Keeps the copy current, and looks again. Never returns."""
        assert self._client is not None, "begin comes first"
        while True:
            reading = self.informer
            async with _beside(reading) as task:
                while self.informer is reading:
                    if task is not None and task.done():
                        task.result()  # it never returns; raises what ended it
                    self._again.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await self._again.wait()
                    await self._look(self._client)

    async def _look(self, client: Client) -> None:
        """Asks what is served now. Where nobody answers, what was known stays."""
        try:
            version = await version_of(client, self._resource.group, self._versions, self._resource.plural)
        except errors.ApiError as error:
            if str(error) != self._trouble:
                log.warning("whether %s are served cannot be asked: %s", self._name, error)
            self._trouble = str(error)
            return
        self._trouble = ""
        gone = self.informer
        if version == (gone.resource.version if gone is not None else None):
            return
        self.informer = None
        if gone is not None:
            log.info("%s are no longer served in %s", self._name, gone.resource.version)
            for each in gone.all():
                gone.note_deleted(each)
            self.synced.set()
        if version is not None:
            log.info("%s are served in %s, and read", self._name, version)
            self.informer = Informer(client, dataclasses.replace(self._resource, version=version), sleep=self._pause)
            self.informer.subscribe(self._heard)

    async def _pause(self, delay_s: float) -> None:
        """How the informer waits after a failure: meanwhile it is asked whether there is anything left to watch."""
        if not self.vital:
            self.synced.set()  # nobody waits for what may never come
        self._again.set()
        await asyncio.sleep(delay_s)

    @property
    def _name(self) -> str:
        return f"{self._resource.plural}.{self._resource.group}"


@contextlib.asynccontextmanager
async def _beside(informer: Informer[Any] | None) -> AsyncIterator[asyncio.Task[None] | None]:
    """The informer's task while the body runs; None without one."""
    if informer is None:
        yield None
        return
    task = asyncio.create_task(informer.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def version_of(client: Client, group: str, versions: Sequence[str], plural: str) -> str | None:
    """The first of these versions in which the resource is served. Raises ApiError where that cannot be asked."""
    found = await _ask(client, f"/apis/{group}")
    served = {str(version.get("version")) for version in found.get("versions") or ()}
    for version in versions:
        if version not in served:
            continue
        found = await _ask(client, f"/apis/{group}/{version}")
        if any(each.get("name") == plural for each in found.get("resources") or ()):
            return version
    return None


async def _ask(client: Client, path: str) -> Mapping[str, Any]:
    try:
        answer: Mapping[str, Any] = msgspec.json.decode(await client.request("GET", path))
    except errors.NotFound:
        return {}
    return answer
