"""What was found out of texts, by their digests: of a long text no more is kept than of a short one.

For facts that take long to find and are small, such as whether a selector may match a driver's devices: of programs, which are large,
a cache that anybody may fill keeps few. Safe in threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import blake2b
from typing import Generic, TypeVar

T = TypeVar("T")


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
