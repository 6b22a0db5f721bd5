"""The lock that serializes two processes of this driver on one node: during a rolling update, the old and the new one.

kubelet may call both for a moment, and each must see what the other did. The lock file is held while any call is in
progress. It contains the ID of its last holder: a process that finds another ID in it reads the claim records again.
Calls within one process run in parallel and share one hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from fairlead.kube.limits import Sleep

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
