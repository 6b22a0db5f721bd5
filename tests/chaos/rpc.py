"""gRPC over unix sockets, in memory: what kubelet and driver use of grpc.aio, and nothing else.

The files of the sockets are real, since both sides look for them; which program serves one is kept here. A message takes its bytes' way, so
that nothing is shared between the two processes. A process that dies leaves its files, as a real one does.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import grpc
import grpc.aio

from tests.chaos.loop import Process
from tests.chaos.virtual import CHANCE, PROCESS

MESSAGE_S = (0.0001, 0.001)


class _Sockets:
    """Who serves which path."""

    def __init__(self) -> None:
        self.serving: dict[str, Server] = {}
        self.made: dict[str, int] = {}  # how often a socket was made at this path
        self.channels: dict[Channel, None] = {}

    def find(self, path: str) -> Server | None:
        server = self.serving.get(path)
        return server if server is not None and server.process.alive and Path(path).exists() else None

    def changed(self) -> None:
        for channel in list(self.channels):
            channel.look()


SOCKETS = _Sockets()


def served(path: Path) -> bool:
    """For fairlead.driver.kubelet.server."""
    return SOCKETS.find(str(path)) is not None


def sockets_in(directory: Path) -> list[tuple[Path, tuple[int, int]]]:
    """For fairlead.sandbox.kubelet.plugins: every socket below, and which it is. An inode would differ from run to run."""
    return [
        (path, (SOCKETS.made.get(str(path), 0), 0)) for path in sorted(directory.rglob("*.sock")) if path.is_socket()
    ]


class RpcError(grpc.aio.AioRpcError):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details, None)


class Server:
    """grpc.aio.Server."""

    def __init__(self) -> None:
        process = PROCESS.get()
        assert process is not None
        self.process: Process = process
        self.methods: dict[str, Any] = {}
        self._paths: list[str] = []
        process.on_kill.append(SOCKETS.changed)

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        for each in handlers:
            self.methods |= each._method_handlers

    def add_registered_method_handlers(self, service: str, methods: dict[str, Any]) -> None:
        self.methods |= {f"/{service}/{name}": handler for name, handler in methods.items()}

    def add_insecure_port(self, address: str) -> int:
        self._paths.append(address.removeprefix("unix:"))
        return 1

    async def start(self) -> None:
        for path in self._paths:
            Path(path).unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path)
            SOCKETS.serving[path] = self
            SOCKETS.made[path] = SOCKETS.made.get(path, 0) + 1
        SOCKETS.changed()

    async def stop(self, grace: float | None) -> None:
        for path in self._paths:
            if SOCKETS.serving.get(path) is self:
                del SOCKETS.serving[path]
        SOCKETS.changed()


class Channel:
    """grpc.aio.Channel to one unix socket."""

    def __init__(self, address: str, options: object = None) -> None:
        self.path = address.removeprefix("unix:")
        self._state = grpc.ChannelConnectivity.IDLE
        self._moved = asyncio.Event()
        self._closed = False
        process = PROCESS.get()
        assert process is not None
        self._process: Process = process
        SOCKETS.channels[self] = None

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes],
        response_deserializer: Callable[[bytes], Any],
        **_: object,
    ) -> Callable[..., Any]:
        async def call(request: Any, timeout: float | None = None) -> Any:
            return await self._call(method, request_serializer(request), response_deserializer, timeout)

        return call

    def unary_stream(self, *_: object, **__: object) -> Callable[..., Any]:
        """The health stream, which the sandbox's kubelet does not read."""

        def call(*_: object, **__: object) -> Any:
            raise NotImplementedError

        return call

    stream_stream = stream_unary = unary_stream

    async def _call(self, method: str, data: bytes, decode: Callable[[bytes], Any], timeout_s: float | None) -> Any:
        server, caller = SOCKETS.find(self.path), self._process
        await asyncio.sleep(CHANCE.uniform(*MESSAGE_S))
        if server is None or not server.process.alive:
            raise RpcError(grpc.StatusCode.UNAVAILABLE, f"failed to connect to {self.path}")
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def fail(code: grpc.StatusCode, details: str) -> None:
            if not answered.done():
                answered.set_exception(RpcError(code, details))

        def died() -> None:
            caller.call(CHANCE.uniform(*MESSAGE_S), fail, grpc.StatusCode.UNAVAILABLE, "Socket closed")

        async def serve() -> None:
            handler = server.methods[method]
            try:
                answer = handler.unary_unary(handler.request_deserializer(data), None)
                encoded = handler.response_serializer(await answer if inspect.isawaitable(answer) else answer)
            except Exception as error:
                details = f"Unexpected {type(error)}: {error}"
                caller.call(CHANCE.uniform(*MESSAGE_S), fail, grpc.StatusCode.UNKNOWN, details)
                raise
            finally:
                if died in server.process.on_kill:
                    server.process.on_kill.remove(died)
            caller.call(CHANCE.uniform(*MESSAGE_S), lambda: None if answered.done() else answered.set_result(encoded))

        server.process.on_kill.append(died)
        server.process.spawn(serve(), method)
        try:
            async with asyncio.timeout(timeout_s):
                return decode(await answered)
        except TimeoutError:
            raise RpcError(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None

    # -- connectivity

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        if try_to_connect or self._state is not grpc.ChannelConnectivity.IDLE:
            self._state = self._now()
        return self._state

    def _now(self) -> grpc.ChannelConnectivity:
        if self._closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        up = SOCKETS.find(self.path) is not None
        return grpc.ChannelConnectivity.READY if up else grpc.ChannelConnectivity.TRANSIENT_FAILURE

    async def wait_for_state_change(self, last: grpc.ChannelConnectivity) -> None:
        while self._state is last:
            self._moved.clear()
            await self._moved.wait()

    def look(self) -> None:
        """Whether somebody serves the socket has changed: noticed soon, as its owner."""
        if self._state is not grpc.ChannelConnectivity.IDLE and self._process.alive:
            self._process.call(CHANCE.uniform(0.001, 0.5), self._look)

    def _look(self) -> None:
        self._state = self._now()
        self._moved.set()

    async def close(self, grace: float | None = None) -> None:
        self._closed = True
        SOCKETS.channels.pop(self, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def install() -> None:
    """In place of grpc.aio's."""
    replaced: Any = grpc.aio
    replaced.server = Server
    replaced.insecure_channel = Channel
