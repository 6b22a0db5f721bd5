"""A local copy of one resource, kept current by list and watch, with handlers told of every change.

Exists because decisions read thousands of objects and must not ask the apiserver for each. Lists in pages, follows a
watch with bookmarks, resumes where it stopped, and after a 410 lists again and tells the difference: handlers always see
`old`, `new`, and for a deletion the last state known, even when it happened while nobody watched.
Handlers are synchronous and should only note or enqueue. Does not write; `note` takes what a write returned, so that a
decision sees its own outcome before the watch brings it, and nothing older overwrites it.
Source: client-go reflector.go and mutation_cache.go; resourceVersions are compared as numbers (KEP-5504).
"""

import asyncio
import collections
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from fairlead.kube import errors
from fairlead.kube.limits import Backoff, Clock, Sleep
from fairlead.kube.listing import Listing
from fairlead.kube.resources import Resource
from fairlead.kube.watching import ADDED, BOOKMARK, DELETED, MODIFIED, WatchEvent

log = logging.getLogger(__name__)

T = TypeVar("T")

# A watch that ends sooner than this without an event counts as a failure, so that a broken server is not hammered.
SHORT_WATCH_S = 1.0
TOMBSTONES_MAX = 4096


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
    ) -> AsyncIterator[WatchEvent[T]]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """ADDED has no old, DELETED no new; `object` is the one there is, the newer of two."""

    type: str
    key: str
    old: T | None
    new: T | None

    @property
    def object(self) -> T:
        chosen = self.new if self.new is not None else self.old
        assert chosen is not None
        return chosen


@dataclasses.dataclass(frozen=True, slots=True)
class _Meta:
    key: str
    uid: str
    version: int


def _meta(obj: Any) -> _Meta:
    if isinstance(obj, dict):
        raw = obj.get("metadata", {})
        namespace, name, uid = raw.get("namespace", ""), raw.get("name", ""), raw.get("uid", "")
        version = raw.get("resourceVersion", "")
    else:
        meta = obj.metadata
        namespace, name, uid, version = meta.namespace, meta.name, meta.uid, meta.resource_version
    return _Meta(f"{namespace}/{name}" if namespace else name, uid, _number(version))


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0


class Informer(Generic[T]):
    """`run()` never returns; cancel it. Read with `get`, `all`, `by_index` once `synced` is set."""

    def __init__(
        self,
        client: Source,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        keep: Callable[[T], T] | None = None,
        backoff: Backoff | None = None,
        clock: Clock = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        """`keep` says what is kept of an object, for large ones: handlers are told of the whole as `new`, and of what was
        kept as `old`; its metadata has to stay.
        """
        self.resource = resource
        self._keep = keep
        self.synced = asyncio.Event()
        self.failures = 0  # in a row; readiness may look at it
        self.resource_version = ""
        self._client = client
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._sleep = sleep
        self._random = random or Random()  # noqa: S311 - jitter
        self._objects: dict[str, T] = {}
        self._handlers: list[Callable[[Change[T]], None]] = []
        self._index_functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, set[str]]] = {name: {} for name in self._index_functions}
        self._tombstones: collections.OrderedDict[str, int] = collections.OrderedDict()  # by uid

    # -- reading ---------------------------------------------------------------------------------------------------

    def get(self, key: str) -> T | None:
        """By `namespace/name`, or `name` when cluster-scoped."""
        return self._objects.get(key)

    def all(self) -> list[T]:
        """In no particular order: sort where it can reach a decision."""
        return list(self._objects.values())

    def by_index(self, name: str, key: str) -> list[T]:
        """The objects for which the index function gave `key`, sorted by their own key."""
        return [self._objects[found] for found in sorted(self._indexes[name].get(key, ()))]

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def subscribe(self, handler: Callable[[Change[T]], None]) -> Callable[[], None]:
        """Tells `handler` of what is here already (as ADDED) and of every change. Returns how to stop that."""
        self._handlers.append(handler)
        for key, obj in list(self._objects.items()):
            self._tell(handler, Change(ADDED, key, None, obj))
        return lambda: self._handlers.remove(handler)

    # -- writing ---------------------------------------------------------------------------------------------------

    def note(self, obj: T) -> None:
        """Takes an object that a write returned, unless something newer is known."""
        self._set(obj)

    def note_deleted(self, obj: T) -> None:
        """Takes a deletion that is known to be complete, before the watch tells."""
        self._drop(_meta(obj), obj)

    async def run(self) -> None:
        while True:
            started = self._clock()
            try:
                if not self.resource_version:
                    await self._relist()
                if await self._follow() or self._clock() - started >= SHORT_WATCH_S:
                    self.failures = 0
                    continue
                problem: str = "the watch ended at once"
            except errors.Gone as error:
                self.resource_version = ""
                problem = f"{error.message}; listing again"
            except errors.ApiError as error:
                problem = str(error)
            delay = self._backoff.delay(self.failures, self._random)
            self.failures += 1
            level = logging.INFO if self.failures == 1 else logging.WARNING
            log.log(level, "%s: %s (failure %d, next try in %.1f s)", self.resource, problem, self.failures, delay)
            await self._sleep(delay)

    async def _relist(self) -> None:
        if self._keep is not None:
            await self._relist_by_page()
            return
        listing = await self._client.list(self.resource, self._namespace, labels=self._labels, fields=self._fields)
        self._forget({_meta(obj).key for obj in listing.items}, listing)
        for obj in listing.items:
            self._set(obj)
        self.resource_version = listing.resource_version
        self.synced.set()

    async def _relist_by_page(self) -> None:
        """The same without ever holding all of them whole."""
        present: set[str] = set()

        def each(obj: T) -> None:
            present.add(_meta(obj).key)
            self._set(obj)

        listing = await self._client.list(
            self.resource, self._namespace, labels=self._labels, fields=self._fields, each=each
        )
        self._forget(present, listing)
        self.resource_version = listing.resource_version
        self.synced.set()

    def _forget(self, present: set[str], listing: Listing[T]) -> None:
        """Drops what is no longer there."""
        version = _number(listing.resource_version)
        for key, obj in list(self._objects.items()):
            meta = _meta(obj)
            if key not in present and meta.version <= version:  # what we wrote after the list was made stays
                self._drop(_Meta(meta.key, meta.uid, version), obj)

    async def _follow(self) -> bool:
        """Follows one watch to its end; true when it brought anything."""
        progressed = False
        watch = self._client.watch(
            self.resource,
            self._namespace,
            resource_version=self.resource_version,
            labels=self._labels,
            fields=self._fields,
        )
        try:
            async for event in watch:
                progressed = True
                self.failures = 0
                if event.type == DELETED:
                    self._drop(_meta(event.object), event.object)
                elif event.type != BOOKMARK:
                    self._set(event.object)
                self.resource_version = _version(event.object)
        finally:
            close = getattr(watch, "aclose", None)
            if close is not None:
                await close()
        return progressed

    def _set(self, obj: T) -> None:
        meta = _meta(obj)
        old = self._objects.get(meta.key)
        if self._tombstones.get(meta.uid, -1) >= meta.version:
            return
        if old is not None:
            known = _meta(old)
            if known.version >= meta.version:
                return
            if known.uid != meta.uid:  # deleted and made again while we did not look
                self._drop(known, old)
                old = None
        self._objects[meta.key] = obj if self._keep is None else self._keep(obj)
        self._reindex(meta.key, old, obj)
        self._publish(Change(ADDED if old is None else MODIFIED, meta.key, old, obj))

    def _drop(self, meta: _Meta, final: T) -> None:
        if meta.uid:
            self._tombstones[meta.uid] = max(meta.version, self._tombstones.get(meta.uid, 0))
            while len(self._tombstones) > TOMBSTONES_MAX:
                self._tombstones.popitem(last=False)
        old = self._objects.get(meta.key)
        if old is None:
            return
        known = _meta(old)
        if known.uid != meta.uid and known.version > meta.version:
            return  # a successor of the same name
        del self._objects[meta.key]
        self._reindex(meta.key, old, None)
        self._publish(Change(DELETED, meta.key, final if known.uid == meta.uid else old, None))

    def _reindex(self, key: str, old: T | None, new: T | None) -> None:
        for name, function in self._index_functions.items():
            index = self._indexes[name]
            before = set(function(old)) if old is not None else set()
            after = set(function(new)) if new is not None else set()
            for gone in before - after:
                index[gone].discard(key)
                if not index[gone]:
                    del index[gone]
            for come in after - before:
                index.setdefault(come, set()).add(key)

    def _publish(self, change: Change[T]) -> None:
        for handler in list(self._handlers):
            self._tell(handler, change)

    def _tell(self, handler: Callable[[Change[T]], None], change: Change[T]) -> None:
        try:
            handler(change)
        except Exception:  # one bad object must not stop the stream for all others
            log.exception("%s %s: a handler failed on %s", self.resource, change.key, change.type)


def _version(obj: Any) -> str:
    if isinstance(obj, dict):
        return str(obj.get("metadata", {}).get("resourceVersion", ""))
    return str(obj.metadata.resource_version)
