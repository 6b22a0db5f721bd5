"""Kubelet's plugin manager for DRA drivers: finds their sockets and registers them.

The registry directory is watched; every socket not beginning with a dot is asked GetInfo, checked, and notified of the
result. A socket that is removed or recreated ends its registration. A driver whose connection breaks is reported to
`on_lost`, and to `on_found` when it is back. Of several instances of a driver the last registered that is connected is
used. Polls every 100 ms instead of inotify.
Source: kubernetes pkg/kubelet/pluginmanager, pkg/kubelet/cm/dra/plugin, 1.36.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from fairlead.driver.kubelet import protocol
from fairlead.sandbox.files import here

log = logging.getLogger(__name__)

POLL_S: Final = 0.1
GET_INFO_TIMEOUT_S: Final = 1.0
NOTIFY_TIMEOUT_S: Final = 5.0
CALL_TIMEOUT_S: Final = 45.0
RETRY_S: Final = 0.5
SUPPORTED: Final = (protocol.DRA_V1, protocol.DRA_V1BETA1)
# A driver that comes back should be noticed within a second, not after gRPC's own 20 s to 2 min.
_CHANNEL: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class PluginError(Exception):
    """A driver that is not registered, does not answer, or breaks the protocol."""


@dataclass(frozen=True, kw_only=True)
class ClaimRef:
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class PreparedDevice:
    """One device of a NodePrepareResources answer."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]


@dataclass(kw_only=True)
class Plugin:
    """One registered instance of a driver."""

    driver: str
    endpoint: str
    version: str
    channel: grpc.aio.Channel
    manager: PluginManager
    connected: bool = True

    async def prepare(self, claims: Sequence[ClaimRef]) -> dict[str, list[PreparedDevice] | str]:
        """Per claim UID its devices, or the driver's error. Raises PluginError when the answer breaks the protocol."""
        answer = await self._call("NodePrepareResources", claims)
        result: dict[str, list[PreparedDevice] | str] = {}
        for uid, each in answer.items():
            result[uid] = each.error or [
                PreparedDevice(
                    requests=tuple(device.request_names),
                    pool=device.pool_name,
                    device=device.device_name,
                    cdi_ids=tuple(device.cdi_device_ids),
                )
                for device in each.devices
            ]
        return result

    async def unprepare(self, claims: Sequence[ClaimRef]) -> dict[str, str]:
        """Per claim UID the driver's error, empty for success."""
        return {uid: each.error for uid, each in (await self._call("NodeUnprepareResources", claims)).items()}

    async def _call(self, method: str, claims: Sequence[ClaimRef]) -> Mapping[str, Any]:
        messages = protocol.dra_v1_pb2
        request = getattr(messages, f"{method}Request")(
            claims=[messages.Claim(namespace=each.namespace, name=each.name, uid=each.uid) for each in claims]
        )
        stub = protocol.Stub(self.channel, protocol.DRA[self.version])
        try:
            answer = await getattr(stub, method)(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise PluginError(f"{method} of driver {self.driver}: {error.code().name}: {error.details()}") from error
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise PluginError(f"{method} of driver {self.driver}: the connection was closed") from None
        if self.manager.tap is not None:
            await self.manager.tap(method)
        asked = {each.uid for each in claims}
        unknown = sorted(set(answer.claims) - asked)
        if unknown:
            raise PluginError(f"{method} of driver {self.driver} answered for unknown claims {', '.join(unknown)}")
        missing = sorted(asked - set(answer.claims))
        if missing:
            raise PluginError(f"{method} of driver {self.driver} skipped claims {', '.join(missing)}")
        return dict(answer.claims)


@dataclass(kw_only=True)
class _Socket:
    """A registration socket: its identity on disk, and the plugin behind it once it is registered."""

    identity: tuple[int, int]
    task: asyncio.Task[None]
    plugin: Plugin | None = None


@dataclass(kw_only=True)
class PluginManager:
    registry_dir: Path
    on_found: Callable[[str], None]
    on_lost: Callable[[str], None]
    # Directories of a real node that a driver in a container names, and where they are on this machine.
    host_paths: Mapping[str, Path] = field(default_factory=dict)
    # For fault tests: awaited when a driver's reply to a method has arrived, before it is used. May raise PluginError.
    tap: Callable[[str], Awaitable[None]] | None = None
    _sockets: dict[Path, _Socket] = field(default_factory=dict)
    _plugins: list[Plugin] = field(default_factory=list)
    _stopping: bool = False
    _found_event: asyncio.Event = field(default_factory=asyncio.Event)  # replaced each time it is set

    def get(self, driver: str) -> Plugin:
        """The instance to use: the last registered that is connected. Raises PluginError when there is none."""
        own = [each for each in self._plugins if each.driver == driver]
        if not own:
            raise PluginError(f"DRA driver {driver} is not registered")
        return next((each for each in reversed(own) if each.connected), own[-1])

    def is_connected(self, driver: str) -> bool:
        return any(each.connected for each in self._plugins if each.driver == driver)

    async def registered(self, driver: str) -> None:
        """Until an instance of the driver is registered and connected."""
        while not self.is_connected(driver):
            await self._found_event.wait()

    async def run(self) -> None:
        """Watches the directory until cancelled; closes every connection then."""
        self.registry_dir.mkdir(parents=True, exist_ok=True)
        try:
            while True:
                self._scan()
                await asyncio.sleep(POLL_S)
        finally:
            self._stopping = True
            sockets, self._sockets = list(self._sockets.values()), {}
            for each in sockets:
                each.task.cancel()
            await asyncio.gather(*(each.task for each in sockets), return_exceptions=True)

    def _scan(self) -> None:
        found = dict(_sockets_in(self.registry_dir))
        for path, known in list(self._sockets.items()):
            if found.get(path) != known.identity:
                log.info("plugin socket %s removed", path)
                known.task.cancel()
                del self._sockets[path]
        for path, identity in found.items():
            if path not in self._sockets:
                task = asyncio.create_task(self._serve(path), name=f"plugin {path.name}")
                self._sockets[path] = _Socket(identity=identity, task=task)

    async def _serve(self, path: Path) -> None:
        """One registration socket for as long as it exists: whatever ends a registration, the next one is tried, as kubelet's reconciler does."""
        while True:
            try:
                await self._serve_once(path)
            except (PluginError, grpc.aio.AioRpcError, TimeoutError) as error:
                log.info("plugin socket %s not registered: %s", path, error)
            except asyncio.CancelledError:
                if _is_cancelled():
                    raise
                log.info("plugin socket %s: a call was cancelled with its channel", path)
            except Exception:
                log.exception("plugin socket %s: the registration ended", path)
            await asyncio.sleep(RETRY_S)

    async def _serve_once(self, path: Path) -> None:
        plugin = await self._register(path)
        self._plugins.append(plugin)
        log.info("DRA driver %s registered, %s at %s", plugin.driver, plugin.version, plugin.endpoint)
        try:
            self._found(plugin.driver)
            await self._monitor(plugin)
        finally:
            self._plugins.remove(plugin)
            if plugin.connected and not self.is_connected(plugin.driver) and not self._stopping:
                self.on_lost(plugin.driver)
            await plugin.channel.close(None)

    def _found(self, driver: str) -> None:
        self.on_found(driver)
        self._found_event.set()
        self._found_event = asyncio.Event()

    async def _register(self, path: Path) -> Plugin:
        messages = protocol.pluginregistration_v1_pb2
        async with grpc.aio.insecure_channel(f"unix:{path}", options=_CHANNEL) as channel:
            stub = protocol.Stub(channel, protocol.REGISTRATION)
            info = await stub.GetInfo(messages.InfoRequest(), timeout=GET_INFO_TIMEOUT_S)
            try:
                version = self._version(info)
            except PluginError as error:
                refusal = messages.RegistrationStatus(plugin_registered=False, error=str(error))
                await stub.NotifyRegistrationStatus(refusal, timeout=NOTIFY_TIMEOUT_S)
                raise
            await stub.NotifyRegistrationStatus(
                messages.RegistrationStatus(plugin_registered=True), timeout=NOTIFY_TIMEOUT_S
            )
        return Plugin(
            driver=info.name,
            endpoint=info.endpoint,
            version=version,
            manager=self,
            channel=grpc.aio.insecure_channel(f"unix:{here(info.endpoint, self.host_paths)}", options=_CHANNEL),
        )

    def _version(self, info: Any) -> str:
        """The service version to use: the first of the driver's list that is supported. Raises PluginError."""
        if info.type != protocol.PLUGIN_TYPE:
            raise PluginError(f"plugin type {info.type!r} is not handled; {protocol.PLUGIN_TYPE} is")
        if not info.name or not info.endpoint:
            raise PluginError(f"a DRA plugin must give name and endpoint, not {info.name!r} and {info.endpoint!r}")
        if any(each.endpoint == info.endpoint and each.driver == info.name for each in self._plugins):
            raise PluginError(f"endpoint {info.endpoint} already registered for driver {info.name}")
        version = next((str(each) for each in info.supported_versions if each in SUPPORTED), None)
        if version is None:
            raise PluginError(f"none of the versions {list(info.supported_versions)} is supported, only {SUPPORTED}")
        return version

    async def _monitor(self, plugin: Plugin) -> None:
        """Follows the connection: lost when it breaks, found when it is back."""
        state = plugin.channel.get_state(try_to_connect=True)
        while True:
            if state in {grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.IDLE}:
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and plugin.connected:
                    plugin.connected = False
                    log.info("DRA driver %s: connection to %s lost", plugin.driver, plugin.endpoint)
                    if not self.is_connected(plugin.driver):
                        self.on_lost(plugin.driver)
                plugin.channel.get_state(try_to_connect=True)
            elif state is grpc.ChannelConnectivity.READY and not plugin.connected:
                plugin.connected = True
                self._found(plugin.driver)
            await plugin.channel.wait_for_state_change(state)
            state = plugin.channel.get_state(try_to_connect=True)


def _is_cancelled() -> bool:
    """Whether the task itself is: gRPC cancels calls in progress when a channel is closed, as if the caller had been cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _sockets_in(directory: Path) -> list[tuple[Path, tuple[int, int]]]:
    """Every unix socket below, with its identity (inode, mtime): one recreated at the same path is another."""
    found: list[tuple[Path, tuple[int, int]]] = []
    for root, _, files in os.walk(directory):
        for name in sorted(files):
            if name.startswith("."):
                continue
            path = Path(root) / name
            with contextlib.suppress(FileNotFoundError):
                facts = path.lstat()
                if stat.S_ISSOCK(facts.st_mode):
                    found.append((path, (facts.st_ino, facts.st_mtime_ns)))
    return found
