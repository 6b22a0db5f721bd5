"""What was compiled, and what was found out of texts, within bounds that hold whatever is asked.

Programs by text are bounded in bytes and shared fairly: a program takes some hundred bytes a node, so a cache that counts entries would hold
gigabytes of hostile ones. When the cache is full, the owner with the most bytes loses its least recently used program. A program that several
owners use counts for the first of them.
Facts that take long to find and are small, such as whether a selector may match a driver's devices, are kept by the digests of their texts: of a
long text no more is kept than of a short one.
Safe in threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import blake2b
from typing import Generic, TypeVar

T = TypeVar("T")


class ProgramCache(Generic[T]):
    """A cache of at most `bytes_max` bytes, by the callers' estimates, whatever the owners do."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._lock = threading.Lock()
        self._found: dict[str, tuple[T, int, str]] = {}
        self._order: dict[str, OrderedDict[str, None]] = {}  # by owner, the least recently used first
        self._bytes: dict[str, int] = {}  # by owner
        self._total = 0

    def __len__(self) -> int:
        return len(self._found)

    @property
    def bytes(self) -> int:
        return self._total

    def get(self, text: str) -> T | None:
        with self._lock:
            found = self._found.get(text)
            if found is None:
                return None
            self._order[found[2]].move_to_end(text)
            return found[0]

    def put(self, text: str, value: T, size_bytes: int, owner: str) -> None:
        """Replaces nothing: the first value of a text stays."""
        with self._lock:
            if text in self._found or size_bytes > self.bytes_max:
                return
            while self._total + size_bytes > self.bytes_max:
                self._evict(max(self._bytes, key=lambda name: (self._bytes[name] + size_bytes * (name == owner), name)))
            self._found[text] = (value, size_bytes, owner)
            self._order.setdefault(owner, OrderedDict())[text] = None
            self._bytes[owner] = self._bytes.get(owner, 0) + size_bytes
            self._total += size_bytes

    def clear(self) -> None:
        with self._lock:
            self._found.clear()
            self._order.clear()
            self._bytes.clear()
            self._total = 0

    def _evict(self, owner: str) -> None:
        text, _ = self._order[owner].popitem(last=False)
        _, size_bytes, _ = self._found.pop(text)
        self._total -= size_bytes
        self._bytes[owner] -= size_bytes
        if not self._order[owner]:
            del self._order[owner], self._bytes[owner]


class TextMemo(Generic[T]):
    """A memory of at most `most` texts, the latest used."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._found: OrderedDict[bytes, T] = OrderedDict()

    def get(self, *texts: str) -> T | None:
        key = _digest(texts)
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, value: T, *texts: str) -> T:
        """Returns the value."""
        with self._lock:
            self._found[_digest(texts)] = value
            if len(self._found) > self._most:
                self._found.popitem(last=False)
        return value


def _digest(texts: tuple[str, ...]) -> bytes:
    return blake2b("\0".join(texts).encode(errors="surrogatepass"), digest_size=16).digest()
