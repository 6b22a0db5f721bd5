"""Taking turns with another process of this driver: during a rolling update, the old and the new one.

Exists because both may be called by kubelet for a moment, and each must see what the other did. A lock file is held
while any call is in progress; it names its last holder, and whoever finds another name in it reads the records anew.
Within a process calls run at the same time: they share one hold.
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


class TurnError(Exception):
    """The other process did not let go in time."""


class Turns:
    """`changed` is awaited, with the turn held, when another process had the last one."""

    def __init__(self, path: Path, *, changed: Callable[[], Awaitable[None]], sleep: Sleep = asyncio.sleep) -> None:
        self._path = path
        self._changed = changed
        self._sleep = sleep
        self._me = secrets.token_hex(8).encode()
        self._gate = asyncio.Lock()
        self._users = 0
        self._descriptor = -1

    @contextlib.asynccontextmanager
    async def hold(self, *, timeout_s: float) -> AsyncIterator[None]:
        """Raises TurnError when the turn does not come within about `timeout_s`."""
        async with self._gate:
            if self._users == 0:
                await self._take(timeout_s)
            self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                os.close(self._descriptor)
                self._descriptor = -1

    async def _take(self, timeout_s: float) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            for _ in range(max(1, int(timeout_s / _POLL_S))):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    await self._sleep(_POLL_S)
            else:
                raise TurnError(
                    f"{self._path}: another process of this driver is at work on this node for {timeout_s:.0f} s; "
                    "kubelet will ask again"
                )
            if os.pread(descriptor, 64, 0) != self._me:
                await self._changed()
                os.pwrite(descriptor, self._me, 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
