"""Sockets: those that listen, and each that is accepted, with TLS and the bytes of one client, from accept to close, as an asyncio transport.

The event loop's own TLS reports a connection only after its handshake, reads as much as arrives, and buffers answers without a
limit. Here a socket exists for the server from accept on, does a bounded step in each turn (one step of the handshake, or READ_MAX
bytes), and releases its descriptor in one place, `end`. Its TLS state is made when the first byte arrives.

Keeps: `closed` is called once, and the protocol's connection_lost once if connection_made was; nothing is read while paused; accepting goes on
when the process has no descriptor left. `places` says how many sockets fit under its limit of descriptors beside its own files and its
connections to the apiserver.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import logging
import resource
import select
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

log = logging.getLogger(__name__)

RECORD_BYTES = 16 * 1024
READ_MAX = 4 * RECORD_BYTES
_CLOSED = getattr(select, "POLLRDHUP", 0)
"""Of Linux; errors and hang-ups are reported everywhere."""


class State(enum.StrEnum):
    HANDSHAKE = "handshake"
    OPEN = "open"
    LINGERING = "lingering"
    """The last answer is sent; what the client still sends is discarded, since a close before that would lose the answer."""
    CLOSED = "closed"


class TlsSocket(asyncio.Transport):
    """wants_turn: asks for a call of `turn`. closed: once, with the reason. protocol: connected after the handshake."""

    def __init__(
        self,
        raw: socket.socket,
        address: str,
        context: ssl.SSLContext,
        protocol: asyncio.Protocol,
        *,
        loop: asyncio.AbstractEventLoop,
        wants_turn: Callable[[TlsSocket], None],
        closed: Callable[[TlsSocket, str], None],
    ) -> None:
        super().__init__()
        self.address = address
        self.state = State.HANDSHAKE
        self.protocol = protocol
        self._raw: socket.socket = raw
        self._tls: ssl.SSLSocket | None = None
        self._context, self._loop = context, loop
        self._wants_turn, self._closed = wants_turn, closed
        self._reading = self._writing = self._paused = self._queued = False
        self._closing = False
        self._unsent = bytearray()
        self.abort_reason = "late"
        self.linger_since = 0.0
        """Of the loop's clock; where the state is LINGERING."""
        self._read_on()

    # -- called by the server ------------------------------------------------------------------------------------

    def turn(self) -> None:
        """One bounded step. Raises nothing."""
        self._queued = False
        try:
            if self.state is State.HANDSHAKE:
                self._handshake()
            elif self.state is State.OPEN:
                self._read()
            elif self.state is State.LINGERING:
                self._discard()
        except (OSError, ValueError) as error:
            self.end("handshake failed" if self.state is State.HANDSHAKE else "lost", error)
        except Exception as error:
            log.exception("a connection's turn failed")
            self.end("failed", error)
        if self.state is State.CLOSED:
            return
        if self._paused or (self._closing and self.state is State.OPEN):
            self._read_off()
        else:
            self._read_on()

    def end(self, reason: str, error: Exception | None = None) -> None:
        """Close now, without another byte. The first reason counts."""
        if self.state is State.CLOSED:
            return
        opened, self.state = self._tls is not None and self.state is not State.HANDSHAKE, State.CLOSED
        self._read_off()
        self._write_off()
        (self._tls or self._raw).close()
        self._unsent = bytearray()  # the former may be in use by the write that failed
        if opened:
            self._loop.call_soon(self.protocol.connection_lost, error)
        self._closed(self, reason)

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    # -- asyncio.Transport ---------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self.state is not State.OPEN or self._closing:
            return
        self._unsent += data
        if not self._writing:
            self._send()
            if self._unsent and self.state is State.OPEN:
                self._write_on()
                self.protocol.pause_writing()

    def close(self) -> None:
        if self.state is State.OPEN and not self._closing:
            self._closing = True
            if not self._unsent:
                self._linger()

    def abort(self) -> None:
        self.end(self.abort_reason)

    def is_closing(self) -> bool:
        return self._closing or self.state is not State.OPEN

    def pause_reading(self) -> None:
        self._paused = True
        self._read_off()

    def resume_reading(self) -> None:
        self._paused = False
        if self.state is not State.CLOSED:
            self._readable()  # TLS may hold decrypted bytes that make no descriptor readable

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.address if name == "peername" else default

    # -- inside --------------------------------------------------------------------------------------------------

    def _handshake(self) -> None:
        if _is_gone(self._tls or self._raw):
            self.end("handshake failed")
            return
        if self._tls is None:
            self._read_off()  # the wrapping takes the descriptor over
            self._tls = self._context.wrap_socket(self._raw, server_side=True, do_handshake_on_connect=False)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._write_on()
            return
        self._write_off()
        self.state = State.OPEN
        self.protocol.connection_made(self)
        self._read()

    def _read(self) -> None:
        tls = cast("ssl.SSLSocket", self._tls)
        if _is_gone(tls):
            self.end("client closed")
            return
        for _ in range(READ_MAX // RECORD_BYTES):
            if self._paused or self._closing or self.state is not State.OPEN:
                return
            try:
                data = tls.recv(RECORD_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if not data:
                self.end("client closed")
                return
            self.protocol.data_received(data)

    def _send(self) -> None:
        tls = cast("ssl.SSLSocket", self._tls)
        try:
            while self._unsent:
                with memoryview(self._unsent) as view:
                    sent = tls.send(view[:RECORD_BYTES])
                del self._unsent[:sent]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self.end("lost", error)

    def _writable(self) -> None:
        if self.state is State.HANDSHAKE:
            self._write_off()
            self._readable()
            return
        self._send()
        if self.state is State.OPEN and not self._unsent:
            self._write_off()
            self.protocol.resume_writing()
            if self._closing:
                self._linger()

    def _linger(self) -> None:
        """Say that nothing follows, and read on until the client has closed, too."""
        tls = cast("ssl.SSLSocket", self._tls)
        self.state, self.linger_since = State.LINGERING, self._loop.time()
        try:
            tls.unwrap()
        except (OSError, ValueError):
            pass  # it waits for the client's notice, or the client is gone
        try:
            tls.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.end("lost", error)
            return
        self._paused = False
        self._read_on()

    def _discard(self) -> None:
        """TLS has ended: the bytes are read as they come."""
        try:
            if not cast("ssl.SSLSocket", self._tls).recv(READ_MAX):
                self.end("answered")
        except BlockingIOError:
            pass

    def _readable(self) -> None:
        if self._queued:
            self._read_off()  # until its turn
            return
        self._queued = True
        self._wants_turn(self)

    def _read_on(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._tls or self._raw, self._readable)

    def _read_off(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._tls or self._raw)

    def _write_on(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(cast("ssl.SSLSocket", self._tls), self._writable)

    def _write_off(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(cast("ssl.SSLSocket", self._tls))


def _is_gone(connected: socket.socket) -> bool:
    """Whether the peer has closed. Requests that it has left behind would be judged in vain."""
    poll = select.poll()
    poll.register(connected, _CLOSED)
    return bool(poll.poll(0))


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
        except OSError as error:
            for listening in bound:
                listening.close()
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
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
