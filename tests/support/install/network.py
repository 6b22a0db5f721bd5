"""A pod's network: a namespace with an address of its own, reached by sockets that are made in it.

A socket belongs to the namespace that its thread was in when it was made, and is used from anywhere. So the test's event loop
relays: connections to the apiserver's address inside go to the sandbox's apiserver, connections to a port of this machine go
to the pod's address. A program that listens only on 127.0.0.1 is not reached, as in a cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

POD_IP = "10.244.0.9"
SERVICE_IP = "127.0.0.1"
"""Where the apiserver is inside: the sandbox's certificate covers no other address."""
SERVICE_PORT = 443
_NEW_NET = 0x40000000
_SET_ADDRESS, _SET_FLAGS, _UP = 0x8916, 0x8914, 0x1

T = TypeVar("T")


class Network:
    """The namespace of a process; `open` before the program starts."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stack = contextlib.AsyncExitStack()

    async def open(self, apiserver: tuple[str, int]) -> None:
        listening = self._inside(_prepared)
        server = await asyncio.start_server(_relay(lambda: asyncio.open_connection(*apiserver)), sock=listening)
        self._stack.push_async_callback(_closed, server)

    async def forward(self, port: int) -> int:
        """The port of this machine behind which the pod's is."""
        server = await asyncio.start_server(_relay(lambda: self.dial(port)), "127.0.0.1", 0)
        self._stack.push_async_callback(_closed, server)
        return int(server.sockets[0].getsockname()[1])

    async def dial(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError where nothing listens."""
        made = self._inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
        try:
            await asyncio.get_running_loop().sock_connect(made, (POD_IP, port))
        except BaseException:
            made.close()
            raise
        return await asyncio.open_connection(sock=made)

    async def close(self) -> None:
        await self._stack.aclose()

    def _inside(self, make: Callable[[], T]) -> T:
        """What `make` returns in the namespace. A thread of its own enters it, and ends there."""
        made: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                with Path(f"/proc/{self._pid}/ns/net").open("rb") as namespace:
                    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _NEW_NET):
                        raise OSError(ctypes.get_errno(), "setns")
                made.append(make())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]
        return made[0]


def _prepared() -> socket.socket:
    """Loopback up, the pod's address beside it, and a socket that listens where the apiserver is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name, address in ((b"lo", None), (b"lo:pod", POD_IP)):
            if address is not None:
                request = struct.pack("16sH2s4s8x", name, socket.AF_INET, b"\0\0", socket.inet_aton(address))
                fcntl.ioctl(control, _SET_ADDRESS, request)
            fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sh14x", name, _UP))
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listening.bind((SERVICE_IP, SERVICE_PORT))
    return listening


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _relay(
    dial: Callable[[], Awaitable[Streams]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """What serves a connection by one that `dial` makes. Where nothing answers there, the connection is closed."""

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            behind = await dial()
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(_copied(reader, behind[1]), _copied(behind[0], writer))

    return relay


async def _copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()
        await writer.wait_closed()


async def _closed(server: asyncio.Server) -> None:
    server.close()
