"""What etcd and the watch caches are to a real apiserver: objects, one revision counter, and recent history.

Every read, list and watch agrees on one order of changes. A stored dict is never changed: a write stores a new one.
Holds keys and revisions; no kinds, no rules. A real apiserver fills one watch cache per resource from a watch of etcd of its own, so a
pod can reach a watcher before the claim that was written first: `WatchLag` shows changes once they are due, each resource by itself.

Invariants:
- `revision` grows by one per change; an object's metadata.resourceVersion is the revision of its last change.
- history holds every change after `compacted`; a request for anything older raises `Compacted` (the API's 410).
- a snapshot at a past revision is the present with newer changes undone, so paging is consistent as in etcd.
- a lag keeps the order of changes within a resource; it is seeded, and which change gets which delay depends on the order of writes.
  Reads and lists are consistent, as since 1.31.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

Json = dict[str, Any]
Key = tuple[str, str]  # namespace ("" = cluster-scoped), name

_encode = msgspec.json.Encoder().encode


class Compacted(Exception):  # noqa: N818 (an answer, not a fault)
    """The wanted revision is older than what history holds."""

    def __init__(self, wanted: int, oldest: int) -> None:
        super().__init__(f"revision {wanted} is compacted; the oldest is {oldest}")
        self.wanted = wanted
        self.oldest = oldest


class Moved(Exception):  # noqa: N818
    """The object is not at the revision that the writer has read (or exists, or does not, against expectation)."""


class Stored:
    """One object at one revision, with its JSON and its selectable fields, each computed at most once."""

    __slots__ = ("_body", "_fields", "key", "obj", "revision")

    def __init__(self, key: Key, obj: Json, revision: int) -> None:
        self.key = key
        self.obj = obj
        self.revision = revision
        self._body: bytes | None = None
        self._fields: tuple[object, dict[str, str]] | None = None

    def fields(self, read: Callable[[Json], dict[str, str]]) -> dict[str, str]:
        """Its name, namespace and the fields of `read`, computed once however many watches select by them."""
        if self._fields is None or self._fields[0] != read:
            namespace, name = self.key
            self._fields = (read, {"metadata.name": name, "metadata.namespace": namespace, **read(self.obj)})
        return self._fields[1]

    @property
    def body(self) -> bytes:
        """JSON without apiVersion and kind, which depend on the version requested: `{"metadata":…}`."""
        if self._body is None:
            self._body = _encode({k: v for k, v in self.obj.items() if k not in ("apiVersion", "kind")})
        return self._body


@dataclass(slots=True)
class Change:
    """`old` is None for a creation. For a removal `new` is None, and `last` is the final state at the removal's revision."""

    revision: int
    key: Key
    old: Stored | None
    new: Stored | None
    frames: dict[Any, bytes] = field(default_factory=dict)  # encodings, computed once for all watchers
    due: float | None = None  # when a watch cache that lags shows it
    _last: Stored | None = None

    @property
    def last(self) -> Stored:
        """The old state, stamped with this change's revision: what DELETED events carry."""
        if self._last is None:
            assert self.old is not None
            self._last = Stored(self.key, stamped(self.old.obj, self.revision), self.revision)
        return self._last


def stamped(obj: Json, revision: int) -> Json:
    """A shallow copy at `revision`."""
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}


class _Table:
    """The objects of one resource, in key order."""

    __slots__ = ("history", "keys", "objects", "subscribers")

    def __init__(self) -> None:
        self.objects: dict[Key, Stored] = {}
        self.keys: list[Key] = []
        self.history: deque[Change] = deque()
        self.subscribers: dict[Callable[[Change], None], None] = {}  # in the order in which they came


class Store:
    """All objects. `history_limit` is the number of changes kept per resource."""

    def __init__(self, *, history_limit: int = 10_000) -> None:
        self.revision = 1
        self.compacted = 1
        self._history_limit = history_limit
        self._tables: defaultdict[str, _Table] = defaultdict(_Table)
        self._trimmed: defaultdict[str, int] = defaultdict(int)

    # -- reads
    def get(self, storage: str, key: Key) -> Stored | None:
        table = self._tables.get(storage)
        return table.objects.get(key) if table else None

    def entries(self, storage: str, namespace: str = "", *, at: int | None = None) -> list[Stored]:
        """All objects of a resource (and namespace) in key order, now or as they were at a revision."""
        table = self._tables.get(storage)
        if at is not None and at < self.revision:
            return self._past(storage, namespace, at)
        if table is None:
            return []
        if not namespace:
            return [table.objects[key] for key in table.keys]
        start = bisect_left(table.keys, (namespace, ""))
        end = bisect_left(table.keys, (namespace + "\0", ""))
        return [table.objects[key] for key in table.keys[start:end]]

    def _past(self, storage: str, namespace: str, at: int) -> list[Stored]:
        self.check(storage, at)
        table = self._tables[storage]
        objects = dict(table.objects)
        for change in reversed(table.history):
            if change.revision <= at:
                break
            if change.old is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.old
        return [objects[key] for key in sorted(objects) if not namespace or key[0] == namespace]

    def oldest(self, storage: str) -> int:
        """The oldest revision of this resource that a watch may start after."""
        return max(self.compacted, self._trimmed[storage])

    def check(self, storage: str, revision: int) -> None:
        if revision < self.oldest(storage):
            raise Compacted(revision, self.oldest(storage))

    def since(self, storage: str, revision: int) -> list[Change]:
        """Changes after `revision`, oldest first. Raises Compacted."""
        self.check(storage, revision)
        history = self._tables[storage].history
        if not history or history[-1].revision <= revision:
            return []
        newer = list(history)
        return newer[bisect_right(newer, revision, key=lambda change: change.revision) :]

    # -- writes
    def put(self, storage: str, key: Key, obj: Json, *, expect: int | None) -> Stored:
        """Create (expect None) or replace (expect = the revision read). Raises Moved. The caller must not keep the dict."""
        table = self._tables[storage]
        old = table.objects.get(key)
        if (old.revision if old else None) != expect:
            raise Moved(f"{storage} {key}: expected revision {expect}, found {old.revision if old else None}")
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        new = Stored(key, obj, self.revision)
        table.objects[key] = new
        if old is None:
            table.keys.insert(bisect_left(table.keys, key), key)
        self._record(storage, table, Change(self.revision, key, old, new))
        return new

    def remove(self, storage: str, key: Key, *, expect: int, final: Json | None = None) -> Stored:
        """Remove; returns the last state, which is `final` if given. Raises Moved."""
        table = self._tables[storage]
        old = table.objects.get(key)
        if old is None or old.revision != expect:
            raise Moved(f"{storage} {key}: expected revision {expect}, found {old.revision if old else None}")
        self.revision += 1
        del table.objects[key]
        del table.keys[bisect_left(table.keys, key)]
        change = Change(self.revision, key, old, None)
        if final is not None:
            change._last = Stored(key, stamped(final, self.revision), self.revision)  # noqa: SLF001
        self._record(storage, table, change)
        return change.last

    def _record(self, storage: str, table: _Table, change: Change) -> None:
        table.history.append(change)
        while len(table.history) > self._history_limit:
            self._trimmed[storage] = table.history.popleft().revision
        for subscriber in list(table.subscribers):
            subscriber(change)

    def compact(self, revision: int | None = None) -> None:
        """Drop the history up to `revision` (default: the current one): older watches and pages get 410."""
        self.compacted = max(self.compacted, self.revision if revision is None else revision)
        for table in self._tables.values():
            while table.history and table.history[0].revision <= self.compacted:
                table.history.popleft()

    # -- watches
    def subscribe(self, storage: str, subscriber: Callable[[Change], None]) -> Callable[[], None]:
        """Call `subscriber` at each change, in order, until the returned function is called."""
        subscribers = self._tables[storage].subscribers
        subscribers[subscriber] = None
        return lambda: subscribers.pop(subscriber, None)


class WatchLag:
    """Delays each change by a random time between `least_s` and `most_s`; of named resources (plurals), or of all."""

    def __init__(self, most_s: float, *, random: Random, least_s: float = 0.0, resources: Collection[str] = ()) -> None:
        self._least_s = least_s
        self._most_s = most_s
        self._random = random
        self._resources = frozenset(resources)
        self._last: dict[str, float] = {}  # when the newest change is due, by resource

    def due(self, plural: str, change: Change, now: float) -> float:
        """When watchers see the change, in the loop's time; the same for all of them."""
        if self._resources and plural not in self._resources:
            return now
        if change.due is None:
            delayed = now + self._random.uniform(self._least_s, self._most_s)
            change.due = self._last[plural] = max(self._last.get(plural, 0.0), delayed)
        return change.due
