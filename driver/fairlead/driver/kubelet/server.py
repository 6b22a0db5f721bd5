"""What kubelet calls: prepare and unprepare in two versions, registration, health stream, on two unix sockets; and their own check.

The services only translate between messages and Plugin, or HealthFeed. A process can run while its sockets do not work: a file was
removed, a server no longer answers. So the driver calls itself as kubelet would, with an empty NodePrepareResources; `/healthz` shows
what the last call found, and kubelet's liveness probe then restarts the driver.

kubelet finds a plugin by a file's name, a unix path has at most 107 bytes, and a killed process leaves its sockets behind. With a pod UID
the sockets' names are unique to the pod, so that the next version of the driver can start while this one still serves (rolling update,
kubelet 1.33 and later). Source: k8s.io/dynamic-resource-allocation/kubeletplugin uses the same names.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import fcntl
import hashlib
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Protocol

import grpc.aio

from fairlead.api import names
from fairlead.driver.kubelet import protocol
from fairlead.driver.kubelet.plugin import ClaimRef, Plugin
from fairlead.driver.kubelet.protocol import dra_health_v1alpha1_pb2 as health_pb2
from fairlead.driver.kubelet.protocol import dra_v1_pb2
from fairlead.driver.kubelet.protocol import pluginregistration_v1_pb2 as registration_pb2
from fairlead.driver.prepare import cdi
from fairlead.driver.publish.monitor import HealthFeed
from fairlead.kube.limits import Sleep

log = logging.getLogger(__name__)

GRACE_S = 5.0
"""For calls in progress when the driver ends."""
# Channels of a process to one address share a connection, and one of the check before may be open still, of a socket that is gone.
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


class _ClaimMessage(Protocol):
    namespace: str
    name: str
    uid: str


class DraService:
    """DRAPlugin in one version: with `shares` (v1) a device has its share_id, which v1beta1 does not have."""

    def __init__(self, plugin: Plugin, *, shares: bool) -> None:
        self._plugin = plugin
        self._shares = shares

    async def NodePrepareResources(self, request: Any, context: object) -> Any:  # noqa: N802
        response = dra_v1_pb2.NodePrepareResourcesResponse()
        for uid, answer in (await self._plugin.prepare(_refs(request.claims))).items():
            entry = response.claims[uid]
            if isinstance(answer, str):
                entry.error = answer
                continue
            for device in answer.devices:
                made = entry.devices.add(
                    request_names=[device.request_name],
                    pool_name=device.pool,
                    device_name=device.device,
                    cdi_device_ids=[cdi.device_id(answer.uid, device)],
                )
                if self._shares and device.share_id:
                    made.share_id = device.share_id
        return response

    async def NodeUnprepareResources(self, request: Any, context: object) -> Any:  # noqa: N802
        response = dra_v1_pb2.NodeUnprepareResourcesResponse()
        for uid, answer in (await self._plugin.unprepare(_refs(request.claims))).items():
            entry = response.claims[uid]
            if isinstance(answer, str):
                entry.error = answer
        return response


def _refs(claims: Iterable[_ClaimMessage]) -> list[ClaimRef]:
    return [ClaimRef(namespace=claim.namespace, name=claim.name, uid=claim.uid) for claim in claims]


class RegistrationService:
    """kubelet reads the driver's name and endpoint, then reports whether it registered it.

    `problem` is why the driver is not registered: readiness.
    """

    def __init__(self, *, driver: str, endpoint: str) -> None:
        self.problem: str | None = "kubelet has not registered the driver yet"
        self._driver = driver
        self._endpoint = endpoint

    async def GetInfo(self, request: object, context: object) -> registration_pb2.PluginInfo:  # noqa: N802
        return registration_pb2.PluginInfo(
            type=protocol.PLUGIN_TYPE,
            name=self._driver,
            endpoint=self._endpoint,
            supported_versions=protocol.SUPPORTED_VERSIONS,
        )

    async def NotifyRegistrationStatus(  # noqa: N802
        self, request: registration_pb2.RegistrationStatus, context: object
    ) -> registration_pb2.RegistrationStatusResponse:
        if request.plugin_registered:
            self.problem = None
            log.info("kubelet registered %s", self._driver)
        else:
            self.problem = f"kubelet refused to register {self._driver}: {request.error}"
            log.error("%s", self.problem)
        return registration_pb2.RegistrationStatusResponse()


_STATES = {
    "healthy": health_pb2.HEALTHY,
    "unhealthy": health_pb2.UNHEALTHY,
    "unknown": health_pb2.UNKNOWN,
}


class HealthService:
    """The stream behind `allocatedResourcesStatus` of pods."""

    def __init__(self, feed: HealthFeed) -> None:
        self._feed = feed

    async def NodeWatchResources(  # noqa: N802
        self, request: object, context: object
    ) -> AsyncIterator[health_pb2.NodeWatchResourcesResponse]:
        async for states in self._feed.subscribe():
            yield health_pb2.NodeWatchResourcesResponse(
                devices=[
                    health_pb2.DeviceHealth(
                        device=health_pb2.DeviceIdentifier(pool_name=state.pool, device_name=state.device),
                        health=_STATES[state.state],
                        last_updated_time=int(state.updated_s),
                        message=state.message,
                    )
                    for state in states
                ]
            )


@contextlib.asynccontextmanager
async def serving(
    paths: PluginPaths, plugin: Plugin, registration: RegistrationService, health: HealthFeed, *, shared: bool
) -> AsyncIterator[None]:
    """Serve while the context lasts. The DRA socket comes first: kubelet may call as soon as it finds the other.

    `shared`: another process of this driver may serve sockets of its own beside these. Raises SocketError.
    """
    if not shared:
        remove_stale(paths.dra)
        remove_stale(paths.registration)
    remove_all_stale(paths.data, "dra*.sock")
    remove_all_stale(paths.registration.parent, f"{names.DRIVER}*-reg.sock")
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(plugin.close)
        dra = grpc.aio.server()
        for version, service in protocol.DRA.items():
            service.serve(DraService(plugin, shares=version == protocol.DRA_V1), dra)
        protocol.HEALTH.serve(HealthService(health), dra)
        await stack.enter_async_context(_listening(dra, paths.dra))
        stack.callback(health.close)  # or the health stream would keep the server for its whole grace
        registrar = grpc.aio.server()
        protocol.REGISTRATION.serve(registration, registrar)
        await stack.enter_async_context(_listening(registrar, paths.registration))
        yield


@contextlib.asynccontextmanager
async def _listening(server: grpc.aio.Server, path: Path) -> AsyncIterator[None]:
    """Listen while the context lasts. At its end the socket is removed, and calls in progress get `GRACE_S`."""
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        path.chmod(0o600)  # noqa: ASYNC240 - once, on a local disk
        yield
    finally:
        path.unlink(missing_ok=True)  # noqa: ASYNC240
        await server.stop(GRACE_S)


@dataclasses.dataclass(eq=False)
class SelfCheck:
    """`problem` is None while the sockets answer: liveness."""

    paths: PluginPaths
    _: dataclasses.KW_ONLY
    interval_s: float = 15.0
    timeout_s: float = 5.0
    sleep: Sleep = asyncio.sleep
    random: Random = dataclasses.field(default_factory=Random)

    def __post_init__(self) -> None:
        self.problem: str | None = None

    async def run(self) -> None:
        while True:
            # Jitter: drivers that started together do not all call at once.
            await self.sleep(self.interval_s * self.random.uniform(0.8, 1.2))
            await self.check()

    async def check(self) -> str | None:
        before, self.problem = self.problem, await self._call()
        if self.problem is not None and self.problem != before:
            log.error("%s", self.problem)
        return self.problem

    async def _call(self) -> str | None:
        empty: tuple[tuple[Path, protocol.Service, str, Any], ...] = (
            (self.paths.registration, protocol.REGISTRATION, "GetInfo", registration_pb2.InfoRequest()),
            (
                self.paths.dra,
                protocol.DRA[protocol.DRA_V1],
                "NodePrepareResources",
                dra_v1_pb2.NodePrepareResourcesRequest(),
            ),
        )
        for path, service, method, request in empty:
            try:
                async with grpc.aio.insecure_channel(f"unix:{path}", options=_OWN_CONNECTION) as channel:
                    await getattr(protocol.Stub(channel, service), method)(request, timeout=self.timeout_s)
            except grpc.aio.AioRpcError as error:
                return f"{path}: the driver's own socket does not answer: {error.code().name}: {error.details()}"
        return None


# -- paths and sockets -------------------------------------------------------------------------------------------------

PATH_BYTES_MAX = 107


class SocketError(Exception):
    """The sockets cannot be made at their paths, or another process of this driver runs already."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PluginPaths:
    """Absolute paths. `data` is the driver's own directory under kubelet's plugins."""

    data: Path
    dra: Path
    registration: Path


def plugin_paths(*, driver: str, plugins_dir: Path, registry_dir: Path, pod_uid: str | None) -> PluginPaths:
    """Raises SocketError when a path cannot be made short enough."""
    data = plugins_dir.absolute() / driver
    registry = registry_dir.absolute()
    if pod_uid is None:
        dra, registration = "dra.sock", f"{driver}-reg.sock"
    else:
        dra, registration = f"dra-{pod_uid}.sock", f"{driver}-{pod_uid}-reg.sock"
        if _length(registry / registration) > PATH_BYTES_MAX:
            registration = f"{driver}-{_hash(pod_uid, 8)}-reg.sock"
        if _length(registry / registration) > PATH_BYTES_MAX:
            both = _hash(driver + "\0" + pod_uid, 16)
            registration = f"dra-{both}-reg.sock"
        if _length(data / dra) > PATH_BYTES_MAX:
            dra = f"dra-{_hash(pod_uid, 8)}.sock"
    for path in (data / dra, registry / registration):
        if _length(path) > PATH_BYTES_MAX:
            raise SocketError(
                f"socket {path}: {_length(path)} bytes, and a unix socket's path has at most {PATH_BYTES_MAX}; "
                "choose a shorter --plugins-dir or --registry-dir"
            )
    return PluginPaths(data=data, dra=data / dra, registration=registry / registration)


def _length(path: Path) -> int:
    return len(os.fsencode(path))


def _hash(text: str, length: int) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return digest.replace("_", "x").replace("-", "y")[:length]


def remove_stale(path: Path) -> None:
    """Remove a socket that no process serves. Raises SocketError when one does, or the file is no socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SocketError(f"{path}: in the way of a socket, and is none; move it away")
    if _served(path):
        raise SocketError(f"{path}: another process serves this socket; stop it first")
    path.unlink(missing_ok=True)


def remove_all_stale(directory: Path, pattern: str) -> None:
    """Remove the sockets of killed pods, which kubelet would dial again and again."""
    for path in sorted(directory.glob(pattern)):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(path.lstat().st_mode) and not _served(path):
                path.unlink()


def _served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True


@contextlib.contextmanager
def hold_lifetime_lock(path: Path, *, shared: bool) -> Iterator[None]:
    """While the context lasts, no other process of this driver runs, or with `shared` only ones that share, too.

    The kernel releases the lock when the process ends, however it ends. Raises SocketError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SocketError(
                f"{path}: held by another process of this driver on this node; stop it, or give both their pod's UID "
                "(--pod-uid) to let them take over from each other"
            ) from None
        yield
    finally:
        os.close(descriptor)
