"""Accepting connections: a few per pass of the event loop, and going on when the process has no descriptor left.

`places` says how many sockets fit under the process's limit of descriptors beside its own files and its connections to the
apiserver.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable

log = logging.getLogger(__name__)

ACCEPTS_MAX = 64
"""Per pass of the loop."""
BACKLOG = 4096
"""The kernel cuts it to net.core.somaxconn. Connections beyond it wait a second for their second try."""
RESERVED = 128
"""Descriptors for the process itself: connections to the apiserver, watches, probes, files."""
WANTED = 16_384
PAUSE_S = 0.1
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def places(connections: int) -> int:
    """How many sockets may be open: `connections`, or fewer where the limit of descriptors is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(WANTED, connections + RESERVED)
    unlimited = resource.RLIM_INFINITY
    if soft != unlimited and soft < wanted:
        soft = wanted if hard == unlimited else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        except (OSError, ValueError):
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == unlimited or soft >= connections + RESERVED:
        return connections
    fits = max(soft - RESERVED, soft // 2)
    log.warning("the limit of %d open files leaves room for %d connections, not %d; raise it", soft, fits, connections)
    return fits


class Listener:
    """accepted: gets each new socket and its peer's address. exhausted: called where no descriptor is left, to free one."""

    def __init__(
        self,
        sockets: list[socket.socket],
        loop: asyncio.AbstractEventLoop,
        accepted: Callable[[socket.socket, str], None],
        exhausted: Callable[[], None],
    ) -> None:
        self._sockets, self._loop = sockets, loop
        self._accepted, self._exhausted = accepted, exhausted
        self._closed = False

    @staticmethod
    async def bind(host: str, port: int, loop: asyncio.AbstractEventLoop) -> list[socket.socket]:
        """A listening socket for each address of the host. Raises OSError."""
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        bound: list[socket.socket] = []
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                listening = socket.socket(family, kind, protocol)
                bound.append(listening)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.setblocking(False)
                listening.bind(address)
                listening.listen(BACKLOG)
        except OSError:
            for listening in bound:
                listening.close()
            raise
        return bound

    @property
    def port(self) -> int:
        return int(self._sockets[0].getsockname()[1])

    def start(self) -> None:
        for listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        self._closed = True
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                accepted, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    continue  # the client is gone already
                self._loop.remove_reader(listening)
                self._loop.call_later(PAUSE_S, self._again, listening)
                self._exhausted()
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accepted(accepted, str(address[0]))

    def _again(self, listening: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listening, self._accept, listening)
