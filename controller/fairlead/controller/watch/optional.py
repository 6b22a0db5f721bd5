"""Informers of APIs that not every cluster serves, and that may be installed or removed while this replica leads.

Discovery runs when a leader begins, every `DISCOVERY_S` from then on, and whenever the watch fails. A CRD that is
installed later is read soon; when one is removed, the log says so once and subscribers see each of its objects deleted.
An API that is not `required`, such as another system's CRD, never delays the leader: while it is broken, it counts as
absent.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.nulls import Decoder
from fairlead.kube.resources import Resource

log = logging.getLogger(__name__)

T = TypeVar("T")

DISCOVERY_S = 30.0


class _Entry(msgspec.Struct, frozen=True):
    version: str = ""
    name: str = ""


class _Document(msgspec.Struct, frozen=True):
    """APIGroup, the versions in which an API group is served; or APIResourceList, what is served in one of them."""

    versions: tuple[_Entry, ...] = ()
    resources: tuple[_Entry, ...] = ()


_documents = Decoder(_Document)


class OptionalInformer(Generic[T]):
    """`informer` is None while the cluster does not serve the resource. `discover` once, then `run`."""

    def __init__(
        self,
        resource: Resource[T],
        versions: Sequence[str],
        *,
        required: bool = True,
        transform: Callable[[T], T] | None = None,
    ) -> None:
        """`versions` in order of preference: the first that is served is read. `transform`: see Informer."""
        self.informer: Informer[T] | None = None
        self.required = required
        self.synced = asyncio.Event()  # set once the first decision need not wait for this API
        self.synced.set()
        self.resource = resource
        self._versions = versions
        self._transform = transform
        self._handlers: list[Callable[[Change[T]], None]] = []
        self._discover_now = asyncio.Event()
        self._last_error = ""
        self._client: Client | None = None

    def subscribe(self, handler: Callable[[Change[T]], None]) -> None:
        """Before `discover`."""
        self._handlers.append(handler)

    def get(self, key: str) -> T | None:
        return None if self.informer is None else self.informer.get(key)

    async def discover(self, client: Client) -> None:
        """Finds out whether the resource is served. Where discovery fails, it counts as not served until it succeeds."""
        self._client = client
        await self._discover(client)
        if self.informer is not None:
            self.synced = self.informer.synced

    async def run(self) -> None:
        """Runs the informer, and discovery. Never returns."""
        assert self._client is not None, "discover comes first"
        while True:
            running = self.informer
            async with _running(running) as task:
                while self.informer is running:
                    if task is not None and task.done():
                        task.result()  # it never returns; raises what ended it
                    self._discover_now.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(DISCOVERY_S):
                            await self._discover_now.wait()
                    await self._discover(self._client)

    async def _discover(self, client: Client) -> None:
        """Starts or drops the informer as the API is served now. Where discovery fails, the informer stays."""
        try:
            version = await version_of(client, self.resource.group, self._versions, self.resource.plural)
        except errors.ApiError as error:
            if str(error) != self._last_error:
                log.warning("discovery of %s failed: %s", self._name, error)
            self._last_error = str(error)
            return
        self._last_error = ""
        previous = self.informer
        if version == (previous.resource.version if previous is not None else None):
            return
        self.informer = None
        if previous is not None:
            log.info("%s are no longer served in %s", self._name, previous.resource.version)
            for each in previous.all():
                previous.note_deleted(each)
            self.synced.set()
        if version is not None:
            log.info("%s are served in %s, and read", self._name, version)
            resource = dataclasses.replace(self.resource, version=version)
            self.informer = Informer(client, resource, transform=self._transform, sleep=self._pause)
            for handler in self._handlers:
                self.informer.subscribe(handler)

    async def _pause(self, delay_s: float) -> None:
        """The informer's sleep after a failed watch: runs discovery meanwhile, since the API may be gone."""
        if not self.required:
            self.synced.set()  # the first decision does not wait for it
        self._discover_now.set()
        await asyncio.sleep(delay_s)

    @property
    def _name(self) -> str:
        return f"{self.resource.plural}.{self.resource.group}".rstrip(".")


def on_change(read: Callable[[T], object], changed: Callable[[str], None]) -> Callable[[Change[T]], None]:
    """A handler that calls `changed` with the key of each object that came, went or says something else to `read`."""

    def handler(change: Change[T]) -> None:
        if change.old is None or change.new is None or read(change.old) != read(change.new):
            changed(change.key)

    return handler


@contextlib.asynccontextmanager
async def _running(informer: Informer[Any] | None) -> AsyncIterator[asyncio.Task[None] | None]:
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
    """The first of these versions in which the resource is served. Raises ApiError where discovery fails."""
    if group:
        served = {each.version for each in (await _get(client, f"/apis/{group}")).versions}
    else:
        served = {"v1"}  # the core group has no document of its own
    for version in versions:
        if version not in served:
            continue
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        if any(each.name == plural for each in (await _get(client, path)).resources):
            return version
    return None


async def _get(client: Client, path: str) -> _Document:
    """Empty where there is none. Raises ApiError, also for a document that cannot be read."""
    try:
        return _documents.decode(await client.request("GET", path))
    except errors.NotFound:
        return _Document()
    except msgspec.MsgspecError as error:
        raise errors.ServerError(f"{path}: the apiserver's answer cannot be read: {error}") from error
