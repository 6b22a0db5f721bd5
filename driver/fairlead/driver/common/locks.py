"""Locks by key: one thread at a claim or at a GPU, while the others go on.

Exists because one lock around everything makes 64 claims wait for the slowest. Several keys are taken in sorted order,
so two claims that share GPUs cannot wait for each other. A key's lock lives as long as somebody holds or wants it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator


class KeyedLocks:
    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextlib.contextmanager
    def hold(self, keys: Iterable[str]) -> Iterator[None]:
        """Hold all of `keys` at once; waits without limit, since the caller's deadline is kubelet's."""
        with contextlib.ExitStack() as stack:
            for key in sorted(set(keys)):
                stack.enter_context(self._one(key))
            yield

    @contextlib.contextmanager
    def _one(self, key: str) -> Iterator[None]:
        with self._guard:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks.pop(key)
                if users > 1:
                    self._locks[key] = lock, users - 1
