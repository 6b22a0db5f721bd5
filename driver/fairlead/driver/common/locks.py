"""Locks by key: one thread at a time for one claim or one GPU, all others in parallel.

One lock around everything would make 64 claims wait for the slowest. Several keys are acquired in sorted order, so two
claims that share GPUs cannot deadlock. A key's lock is dropped when no thread holds it or waits for it.
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
        """Hold all of `keys`. Waits without limit: the deadline is that of kubelet's call."""
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
