"""The objects of one resource in memory: by key and by index, never older than known, with handlers called on every change.

Invariants:
- An object is replaced only by one with a larger resourceVersion (compared as numbers, KEP-5504), so the order in which a
  watch and the answers to writes arrive does not matter.
- A deleted object does not return: its UID is remembered, of the last `TOMBSTONES_MAX` deletions.
- Handlers see each change once, with the object before and after it. Of an object that was deleted and recreated under its
  name they see a deletion and an addition.
Does no I/O; `informer` fills it. Source: client-go store.go and mutation_cache.go.
"""

import collections
import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from fairlead.kube.watching import ADDED, DELETED, MODIFIED

log = logging.getLogger(__name__)

T = TypeVar("T")

TOMBSTONES_MAX = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """ADDED has no old, DELETED no new; `object` is the newer of the two that there are."""

    type: str
    key: str
    old: T | None
    new: T | None

    @property
    def object(self) -> T:
        chosen = self.new if self.new is not None else self.old
        assert chosen is not None
        return chosen


class Revision(NamedTuple):
    """One state of one object: its key (`namespace/name`, `name` where cluster-scoped), UID and resourceVersion."""

    key: str
    uid: str
    version: int

    @classmethod
    def of(cls, obj: Any) -> "Revision":
        """The revision of a struct or a raw dict."""
        if isinstance(obj, dict):
            raw = obj.get("metadata", {})
            namespace, name, uid = raw.get("namespace", ""), raw.get("name", ""), raw.get("uid", "")
            version = raw.get("resourceVersion", "")
        else:
            meta = obj.metadata
            namespace, name, uid, version = meta.namespace, meta.name, meta.uid, meta.resource_version
        return cls(f"{namespace}/{name}" if namespace else name, uid, number(version))


def number(version: str) -> int:
    """A resourceVersion as a number; 0 where it is none. An apiserver counts in 64 bits, which 20 digits hold."""
    return int(version) if version.isascii() and version.isdigit() and len(version) <= 20 else 0


class Store(Generic[T]):
    """What is known of one resource. Reads are by key or index; `note` and `note_deleted` take the outcomes of writes."""

    def __init__(
        self,
        subject: str,
        *,
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        transform: Callable[[T], T] | None = None,
    ) -> None:
        """`subject` begins log lines. `transform` gives what is stored of a large object, with its metadata unchanged;
        handlers get the whole object as `new`, and the stored one as `old`.
        """
        self._subject = subject
        self._transform = transform
        self._objects: dict[str, T] = {}
        self._handlers: list[Callable[[Change[T]], None]] = []
        self._index_functions = dict(indexes or {})
        self._indexes: dict[str, dict[str, set[str]]] = {name: {} for name in self._index_functions}
        self._indexed: dict[str, tuple[tuple[str, ...], ...]] = {}  # what the index functions gave, by object
        self._tombstones: collections.OrderedDict[str, int] = (
            collections.OrderedDict()
        )  # version of the deletion, by uid

    def get(self, key: str) -> T | None:
        """The object of this key: `namespace/name`, or `name` when cluster-scoped."""
        return self._objects.get(key)

    def all(self) -> list[T]:
        """All objects, in no particular order: sort where it can reach a decision."""
        return list(self._objects.values())

    def keys(self) -> list[str]:
        """The keys of all objects, in no particular order."""
        return list(self._objects)

    def by_index(self, name: str, key: str) -> list[T]:
        """The objects for which the index function gave `key`, sorted by their own key."""
        return [self._objects[found] for found in sorted(self._indexes[name].get(key, ()))]

    def count(self, name: str, key: str) -> int:
        """How many objects `by_index` has."""
        return len(self._indexes[name].get(key, ()))

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def subscribe(self, handler: Callable[[Change[T]], None]) -> Callable[[], None]:
        """Calls `handler` for each object that is there (as ADDED) and for every change. Returns what ends that."""
        self._handlers.append(handler)
        for key, obj in list(self._objects.items()):
            self._call(handler, Change(ADDED, key, None, obj))
        return lambda: self._handlers.remove(handler)

    def note(self, obj: T) -> None:
        """Stores an object that a write returned, unless a newer one is known."""
        self._set(obj)

    def note_deleted(self, obj: T) -> None:
        """Drops an object whose deletion is known to be complete before the watch reports it."""
        self._drop(Revision.of(obj), obj)

    def _set(self, obj: T) -> None:
        new = Revision.of(obj)
        if self._tombstones.get(new.uid, -1) >= new.version:
            return
        old = self._objects.get(new.key)
        if old is not None:
            known = Revision.of(old)
            if known.version >= new.version:
                return
            if known.uid != new.uid:  # recreated, and the deletion was not seen
                self._drop(known, old)
                old = None
        self._objects[new.key] = obj if self._transform is None else self._transform(obj)
        self._reindex(new.key, obj)
        self._publish(Change(ADDED if old is None else MODIFIED, new.key, old, obj))

    def _drop(self, deleted: Revision, final: T) -> None:
        self._bury(deleted.uid, deleted.version)
        old = self._objects.get(deleted.key)
        if old is None:
            return
        known = Revision.of(old)
        if known.uid != deleted.uid:
            if known.version > deleted.version:
                return  # a successor of the same name
            self._bury(known.uid, known.version)
        del self._objects[deleted.key]
        self._reindex(deleted.key, None)
        self._publish(Change(DELETED, deleted.key, final if known.uid == deleted.uid else old, None))

    def _bury(self, uid: str, version: int) -> None:
        if not uid:
            return
        self._tombstones[uid] = max(version, self._tombstones.get(uid, 0))
        while len(self._tombstones) > TOMBSTONES_MAX:
            self._tombstones.popitem(last=False)

    def _drop_absent(self, present: set[str], version: int) -> None:
        """Drops what a list as of this version did not contain; an object that was written after the list stays."""
        for key, obj in list(self._objects.items()):
            known = Revision.of(obj)
            if key not in present and known.version <= version:
                self._drop(Revision(known.key, known.uid, version), obj)

    def _reindex(self, key: str, new: T | None) -> None:
        if not self._index_functions:
            return
        before = self._indexed.pop(key, None)
        after = None if new is None else tuple([tuple(function(new)) for function in self._index_functions.values()])
        if after is not None:
            self._indexed[key] = after
        if before == after:
            return
        nothing: tuple[tuple[str, ...], ...] = ((),) * len(self._index_functions)
        for index, were, are in zip(self._indexes.values(), before or nothing, after or nothing, strict=True):
            for gone in set(were).difference(are):
                index[gone].discard(key)
                if not index[gone]:
                    del index[gone]
            for added in set(are).difference(were):
                index.setdefault(added, set()).add(key)

    def _publish(self, change: Change[T]) -> None:
        for handler in list(self._handlers):
            self._call(handler, change)

    def _call(self, handler: Callable[[Change[T]], None], change: Change[T]) -> None:
        try:
            handler(change)
        except Exception:  # one bad object must not stop the stream for all others
            log.exception("%s %s: a handler failed on %s", self._subject, change.key, change.type)
