"""Locks by key within the process, and the one that serializes two processes of this driver on one node.

By key: one thread at a time for one claim or one GPU, all others in parallel: one lock around everything would make 64 claims wait for
the slowest. Several keys are acquired in sorted order, so two claims that share GPUs cannot deadlock. A key's lock is dropped when no
thread holds it or waits for it.

During a rolling update kubelet may call the old and the new process for a moment, and each must see what the other did. The lock file is
held while any call is in progress. It contains the ID of its last holder: a process that finds another ID in it reads the claim records
again. Calls within one process run in parallel and share one hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path

from fairlead.kube.limits import Sleep


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


_POLL_S = 0.02


class ProcessLockError(Exception):
    """Another process of this driver did not release the lock in time, or its file cannot be used."""


class ProcessLock:
    """`reload` is awaited, with the lock held, when another process was the last holder."""

    def __init__(self, path: Path, *, reload: Callable[[], Awaitable[None]], sleep: Sleep = asyncio.sleep) -> None:
        self._path = path
        self._reload = reload
        self._sleep = sleep
        self._holder_id = secrets.token_hex(8).encode()
        self._gate = asyncio.Lock()
        self._users = 0
        self._descriptor = -1

    @contextlib.asynccontextmanager
    async def hold(self, *, timeout_s: float) -> AsyncIterator[None]:
        """Raises ProcessLockError when the lock is not free within about `timeout_s`, or its file cannot be used."""
        async with self._gate:
            if self._users == 0:
                try:
                    await self._acquire(timeout_s)
                except OSError as error:
                    raise ProcessLockError(
                        f"{error.filename or self._path}: {error.strerror}; check the node's disk"
                    ) from error
            self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                os.close(self._descriptor)
                self._descriptor = -1

    async def _acquire(self, timeout_s: float) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for _ in range(max(1, int(timeout_s / _POLL_S))):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await self._sleep(_POLL_S)
            else:
                raise ProcessLockError(
                    f"{self._path}: another process of this driver is at work on this node for {timeout_s:.0f} s; "
                    "kubelet will ask again"
                )
            if os.pread(descriptor, 64, 0) != self._holder_id:
                await self._reload()
                os.pwrite(descriptor, self._holder_id, 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
