"""WATCH: the history since a revision (or the present as ADDED events), then every change.

As in the real one: synthetic ADDED and DELETED when an object starts or stops matching, bookmarks that hold the zero object of
the kind with its nulls, `sendInitialEvents`, 410 for a compacted revision, an end after `timeoutSeconds`. A change is encoded once for all watchers of the same form.
The watch of a client that reads too slowly is ended, as by the real cache; the client resumes from its last revision.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable

from fairlead.sandbox.apiserver import rendering, statuses
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.base import Kind
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.rendering import METADATA, TABLE, Wanted, negotiate
from fairlead.sandbox.apiserver.store import Change, Compacted, Stored
from fairlead.sandbox.apiserver.verbs.reading import NOT_OLDER, Predicate, parse_revision, selection
from fairlead.sandbox.apiserver.wire.exchange import Stream, encode

_DEFAULT_TIMEOUT_S = 1800  # to twice that, at random, as the real one spreads reconnects
_LAST_BOOKMARK_S = 2.0  # before the end
_BATCH = 256  # events in one write
_INITIAL_END = "k8s.io/initial-events-end"


def watch(call: Call) -> Stream:
    """Checks the request, then answers 200; a revision that is too old becomes an ERROR event, as in the real one."""
    _check_options(call)
    wanted = negotiate(call.request.accept)
    selects, _ = selection(call.request, call.kind)
    return Stream(_Watch(call, wanted, selects).frames(), wanted.content_type)


def _check_options(call: Call) -> None:
    request = call.request
    match, initial = request.param("resourceVersionMatch"), "sendInitialEvents" in request.query
    errors: list[FieldError] = []
    if initial and match != NOT_OLDER:
        message = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}"
        errors.append(forbidden("resourceVersionMatch", message))
    if match and not initial:
        message = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(forbidden("resourceVersionMatch", message))
    if errors:
        raise statuses.invalid_kind("meta.k8s.io", "ListOptions", "", errors)


class _Watch:
    """One open watch."""

    def __init__(self, call: Call, wanted: Wanted, selects: Predicate) -> None:
        self._state = call.state
        self._kind = call.kind
        self._namespace = call.namespace
        self._name = call.target.name if call.target.verb == "watch" else ""
        self._wanted = wanted
        self._selects = selects
        self._include = call.request.param("includeObject") or "Metadata"
        self._header_sent = False
        self._queue: deque[Change] = deque()
        self._wake = asyncio.Event()
        self._overflow = False
        self._revision = call.state.store.revision  # of the last change seen: that of bookmarks
        request = call.request
        self._from = parse_revision(request)
        self._initial_events = request.flag("sendInitialEvents")
        self._only_new = "sendInitialEvents" in request.query and not self._initial_events
        self._bookmarks = request.flag("allowWatchBookmarks")
        asked = call.number("timeoutSeconds") or 0
        self._timeout_s = asked if asked > 0 else _DEFAULT_TIMEOUT_S * (1 + call.state.random.random())

    async def frames(self) -> AsyncGenerator[bytes, None]:
        store, storage = self._state.store, self._kind.storage
        unsubscribe = store.subscribe(storage, self._on_change)
        self._state.watchers[self._wake] = None
        ended = _Served(self._state.registry.find, self._kind)
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        try:
            frames = self._initial()
            for start in range(0, len(frames), _BATCH):
                yield b"".join(frames[start : start + _BATCH])
            async for batch in self._live(deadline, ended):
                yield batch
        except Compacted as error:
            gone = statuses.expired(f"too old resource version: {error.wanted} ({error.oldest})")
            yield _frame("ERROR", encode(statuses.status_of(gone)))
        finally:
            unsubscribe()
            self._state.watchers.pop(self._wake, None)

    def _initial(self) -> list[bytes]:
        """The history from a revision, or the present as ADDED."""
        store, storage = self._state.store, self._kind.storage
        start = self._from
        self._queue.clear()
        self._revision = store.revision
        if self._initial_events or not start:
            if self._only_new:
                return []
            frames = [
                self._encode("ADDED", stored, None)
                for stored in store.entries(storage, self._namespace)
                if self._has_name(stored) and self._selects(stored)
            ]
            if self._initial_events and self._bookmarks:
                frames.append(self._bookmark(initial_end=True))
            return frames
        if start > store.revision:
            self._revision = start  # in the future: changes up to it are not sent
            return []
        known = store.since(storage, start)
        due = [self._due(change) for change in known]
        shown = due.index(False) if False in due else len(known)
        if shown < len(known):
            self._queue.extend(known[shown:])
            self._revision = known[shown].revision - 1
        return [frame for change in known[:shown] if (frame := self._event(change)) is not None]

    async def _live(self, deadline: float, served: _Served) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        next_bookmark = loop.time() + self._state.bookmark_interval_s
        last_bookmark_due = self._bookmarks and self._timeout_s > 2 * _LAST_BOOKMARK_S
        while not self._state.stopping and served():
            while self._queue and self._due(self._queue[0]):
                batch = self._next_batch()
                if batch:
                    yield b"".join(batch)
            now = loop.time()
            if now >= deadline or self._overflow:
                return
            if self._bookmarks and now >= next_bookmark:
                yield self._bookmark()
                next_bookmark = now + self._state.bookmark_interval_s
            if last_bookmark_due and now >= deadline - _LAST_BOOKMARK_S:
                last_bookmark_due = False
                yield self._bookmark()
            wake_at = min(deadline, next_bookmark) if self._bookmarks else deadline
            if last_bookmark_due:
                wake_at = min(wake_at, deadline - _LAST_BOOKMARK_S)
            if self._queue:
                if self._due(self._queue[0]):
                    continue
                wake_at = min(wake_at, self._due_at(self._queue[0]))
            self._wake.clear()
            try:
                async with asyncio.timeout(max(0.0, wake_at - now)):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _next_batch(self) -> list[bytes]:
        """The frames of queued changes, as many as fit one write."""
        frames: list[bytes] = []
        while self._queue and len(frames) < _BATCH and self._due(self._queue[0]):
            change = self._queue.popleft()
            if change.revision <= self._revision:
                continue
            self._revision = change.revision
            frame = self._event(change)
            if frame is not None:
                frames.append(frame)
        return frames

    def _due_at(self, change: Change) -> float:
        """When this watch shows the change, in the loop's time."""
        now = asyncio.get_running_loop().time()
        return now if self._state.lag is None else self._state.lag.due(self._kind.plural, change, now)

    def _due(self, change: Change) -> bool:
        return self._state.lag is None or self._due_at(change) <= asyncio.get_running_loop().time()

    def _on_change(self, change: Change) -> None:
        if self._namespace and change.key[0] != self._namespace:
            return
        if not self._queue and not self._sees(change):
            # With one watch of pods per node, waking each for every pod would be most of the work.
            self._revision = max(self._revision, change.revision)
            return
        self._due_at(change)  # the delay counts from now
        if len(self._queue) >= self._state.watch_queue_limit:
            self._overflow = True
        else:
            self._queue.append(change)
        self._wake.set()

    def _has_name(self, stored: Stored) -> bool:
        return not self._name or stored.key[1] == self._name

    def _sees(self, change: Change) -> bool:
        """Whether this watch has an event for the change."""
        if self._name and change.key[1] != self._name:
            return False
        return any(stored is not None and self._selects(stored) for stored in (change.new, change.old))

    def _event(self, change: Change) -> bytes | None:
        """The event of this watch for a change, if any."""
        if self._namespace and change.key[0] != self._namespace:
            return None
        if self._name and change.key[1] != self._name:
            return None
        before = change.old is not None and self._selects(change.old)
        after = change.new is not None and self._selects(change.new)
        if after:
            assert change.new is not None
            return self._encode("MODIFIED" if before else "ADDED", change.new, change)
        return self._encode("DELETED", change.last, change) if before else None

    def _encode(self, event: str, stored: Stored, change: Change | None) -> bytes:
        if self._wanted.form == TABLE:
            return self._row(event, stored)
        cache_key = (event, self._kind.api_version, self._wanted.form, self._wanted.version)
        if change is not None and cache_key in change.frames:
            return change.frames[cache_key]
        if self._wanted.form == METADATA:
            frame = _frame(event, encode(rendering.partial(stored.obj, self._wanted.version)))
        else:
            frame = _frame(event, rendering.object_json(self._kind, stored))
        if change is not None:
            change.frames[cache_key] = frame
        return frame

    def _row(self, event: str, stored: Stored) -> bytes:
        """A table of one row; only the first has the columns."""
        metadata = {"resourceVersion": stored.obj["metadata"].get("resourceVersion", "")}
        body = rendering.table(
            self._kind,
            [stored.obj],
            metadata,
            self._state.now(),
            version=self._wanted.version,
            include=self._include,
            header=not self._header_sent,
        )
        self._header_sent = True
        return _frame(event, encode(body))

    def _bookmark(self, *, initial_end: bool = False) -> bytes:
        """A bookmark of the present, unless changes wait to be sent."""
        if not self._queue:
            self._revision = max(self._revision, self._state.store.revision)
        metadata: Json = {"resourceVersion": str(self._revision)}
        if initial_end:
            metadata["annotations"] = {_INITIAL_END: "true"}
        if self._wanted.form == TABLE:
            body = rendering.table(
                self._kind, [], metadata, self._state.now(), version=self._wanted.version, include="None", header=False
            )
            body["rows"] = [{"cells": [], "object": {**self._empty(), "metadata": metadata}}]
        elif self._wanted.form == METADATA:
            body = rendering.partial({"metadata": metadata}, self._wanted.version)
        else:
            body = {**self._empty(), **self._kind.strategy.zero(), "metadata": metadata}
            if not initial_end and not self._kind.strategy.custom_resource:
                # Seen at 1.36.2 in bookmarks that come by time, and not in the one that ends the initial events.
                metadata["creationTimestamp"] = None
        return _frame("BOOKMARK", encode(body))

    def _empty(self) -> Json:
        return {"kind": self._kind.kind, "apiVersion": self._kind.api_version}


class _Served:
    """Whether the watched kind is still served: a CRD that is deleted ends its watches."""

    def __init__(self, find: Callable[[str, str, str], Kind | None], kind: Kind) -> None:
        self._find = find
        self._kind = kind

    def __call__(self) -> bool:
        return self._find(self._kind.group, self._kind.version, self._kind.plural) is not None


def _frame(event: str, obj: bytes) -> bytes:
    return b'{"type":"' + event.encode() + b'","object":' + obj + b"}\n"
