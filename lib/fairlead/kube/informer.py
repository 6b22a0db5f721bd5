"""A local copy of one resource, kept current by list and watch.

Lists, follows a watch with bookmarks, resumes at the last version seen, and after a 410 lists again; what changed while
no watch was open is published as changes, too. Reading, indexes and handlers are `store`'s. Handlers are synchronous and
should only note or enqueue. Decisions read thousands of objects from here instead of asking the apiserver for each.
Source: client-go reflector.go.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from random import Random
from typing import Any, Protocol, TypeVar

from fairlead.kube import errors
from fairlead.kube.limits import Backoff, Clock, Sleep
from fairlead.kube.listing import Listing
from fairlead.kube.resources import Resource
from fairlead.kube.store import Change, Revision, Store, number
from fairlead.kube.watching import DELETED, Bookmark, WatchEvent

__all__ = ["Change", "Informer", "Source"]

log = logging.getLogger(__name__)

T = TypeVar("T")

# A watch that ends sooner than this without an event counts as a failure, so that a broken server is not asked again at once.
SHORT_WATCH_S = 1.0


class Source(Protocol):
    """What an informer needs of a client."""

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        each: Callable[[T], None] | None = None,
    ) -> Listing[T]: ...

    def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        labels: str | None = None,
        fields: str | None = None,
    ) -> AsyncIterator[WatchEvent[T] | Bookmark]: ...


class Informer(Store[T]):
    """`run()` never returns; cancel it. Read with `get`, `all`, `by_index` once `synced` is set.

    `reached` and `relist` tell a reader that the copy is as new as a certain moment.
    """

    def __init__(
        self,
        client: Source,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        fields: str | None = None,
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        transform: Callable[[T], T] | None = None,
        backoff: Backoff | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        """With `transform` (see Store) a list is taken page by page, so that all of it is never in memory untransformed."""
        super().__init__(str(resource), indexes=indexes, transform=transform)
        self.resource = resource
        self.synced = asyncio.Event()
        self.failures = 0  # in a row; readiness may look at it
        self.error: errors.ApiError | None = None  # of the last failure; None once the watch has brought anything since
        self.resource_version = ""
        self._client = client
        self._namespace = namespace
        self._fields = fields
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._sleep = sleep
        self._random = random or Random()  # noqa: S311 - jitter
        self._moved = asyncio.Event()  # set whenever `resource_version` changes

    async def run(self) -> None:
        """Lists and watches until cancelled; after a failure waits, longer each time.

        A version that is too old is no failure, unless it is that of a list just made: failures that led to it (an apiserver
        that restarted) do not delay the list.
        """
        while True:
            started = self._clock()
            fresh = not self.resource_version
            try:
                if fresh:
                    await self._relist()
                if await self._follow() or self._clock() - started >= SHORT_WATCH_S:
                    self.failures, self.error = 0, None
                    continue
                problem: str = "the watch ended at once"
            except errors.Gone as error:
                self.resource_version = ""
                problem = f"{error.message}; listing again"
                if not fresh:
                    log.info("%s: %s", self.resource, problem)
                    continue
            except errors.ApiError as error:
                problem = str(error)
                self.error = error
            delay = self._backoff.delay(self.failures, self._random)
            self.failures += 1
            level = logging.INFO if self.failures == 1 else logging.WARNING
            log.log(level, "%s: %s (failure %d, next try in %.1f s)", self.resource, problem, self.failures, delay)
            await self._sleep(delay)

    async def reached(self, version: str) -> None:
        """Returns when every change up to this resourceVersion, which a change of this resource has, is in the copy.

        A watch shows changes in order. What `note` stored does not count: it says nothing of the changes before it.
        """
        while number(self.resource_version) < number(version):
            self._moved.clear()
            await self._moved.wait()

    async def relist(self) -> None:
        """Lists once more, also while a watch runs; the copy is then as new as this call. Raises ApiError."""
        await self._relist()

    def note(self, obj: T) -> None:
        """As Store; an object that the watch has passed and that is not here was deleted, however late the answer comes."""
        seen = Revision.of(obj)
        if not self.resource_version or seen.key in self or seen.version > number(self.resource_version):
            super().note(obj)

    def _advance(self, version: str) -> None:
        self.resource_version = version
        self._moved.set()

    async def _relist(self) -> None:
        if self._transform is None:
            listing = await self._client.list(self.resource, self._namespace, fields=self._fields)
            self._drop_absent({Revision.of(obj).key for obj in listing.items}, number(listing.resource_version))
            for obj in listing.items:
                self._set(obj)
        else:
            listing = await self._relist_by_page()
        self._advance(listing.resource_version)
        self.synced.set()

    async def _relist_by_page(self) -> Listing[T]:
        present: set[str] = set()

        def each(obj: T) -> None:
            present.add(Revision.of(obj).key)
            self._set(obj)

        listing = await self._client.list(self.resource, self._namespace, fields=self._fields, each=each)
        self._drop_absent(present, number(listing.resource_version))
        return listing

    async def _follow(self) -> bool:
        """Follows one watch to its end; true when it brought anything."""
        progressed = False
        watch = self._client.watch(
            self.resource,
            self._namespace,
            resource_version=self.resource_version,
            fields=self._fields,
        )
        try:
            async for event in watch:
                progressed = True
                self.failures, self.error = 0, None
                if isinstance(event, Bookmark):
                    self._advance(event.resource_version)
                    continue
                if event.type == DELETED:
                    self._drop(Revision.of(event.object), event.object)
                else:
                    self._set(event.object)
                self._advance(_version(event.object))
        finally:
            close = getattr(watch, "aclose", None)
            if close is not None:
                await close()
        return progressed


def _version(obj: Any) -> str:
    if isinstance(obj, dict):
        return str(obj.get("metadata", {}).get("resourceVersion", ""))
    return str(obj.metadata.resource_version)
