"""Ports of 127.0.0.1 for programs that are told where to listen before they run.

A port that was free a moment ago, and is not bound any more, may be another program's by the time that this one listens. So it stays bound
here, without listening, for as long as the program is to have it. Linux then gives it neither to a socket that asks for any port nor to one
that connects, while a server, whose socket has SO_REUSEADDR as ours and most others' do, may listen on it (inet_csk_bind_conflict in
net/ipv4/inet_connection_sock.c, __inet_hash_connect in net/ipv4/inet_hashtables.c).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


class Ports:
    """Each port of `reserve` is its caller's until `close`."""

    def __init__(self) -> None:
        self._sockets = contextlib.ExitStack()

    def reserve(self) -> int:
        bound = self._sockets.enter_context(socket.socket())
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])

    def close(self) -> None:
        self._sockets.close()


@contextlib.contextmanager
def reserved() -> Iterator[int]:
    """One port, for the length of the block."""
    with contextlib.closing(Ports()) as ports:
        yield ports.reserve()
