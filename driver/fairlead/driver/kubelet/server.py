"""What kubelet calls: prepare and unprepare in two versions, registration, health stream, on two unix sockets; and their own check.

The services only translate between messages and Plugin, or HealthFeed. A process can run while its sockets do not work: a file was
removed, a server no longer answers. So the driver calls itself as kubelet would, with an empty NodePrepareResources; `/healthz` shows
what the last call found, and kubelet's liveness probe then restarts the driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from random import Random
from typing import Any, Protocol

import grpc.aio

from fairlead.api import names
from fairlead.driver.kubelet import protocol, sockets
from fairlead.driver.kubelet.plugin import ClaimRef, Plugin
from fairlead.driver.kubelet.protocol import dra_health_v1alpha1_pb2 as health_pb2
from fairlead.driver.kubelet.protocol import dra_v1_pb2
from fairlead.driver.kubelet.protocol import pluginregistration_v1_pb2 as registration_pb2
from fairlead.driver.kubelet.sockets import PluginPaths
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
        sockets.remove_stale(paths.dra)
        sockets.remove_stale(paths.registration)
    sockets.remove_all_stale(paths.data, "dra*.sock")
    sockets.remove_all_stale(paths.registration.parent, f"{names.DRIVER}*-reg.sock")
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


class SelfCheck:
    """`problem` is None while the sockets answer: liveness."""

    def __init__(
        self,
        paths: PluginPaths,
        *,
        interval_s: float = 15.0,
        timeout_s: float = 5.0,
        sleep: Sleep = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        self.problem: str | None = None
        self._paths = paths
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._random = random or Random()  # noqa: S311 - jitter

    async def run(self) -> None:
        while True:
            # Jitter: drivers that started together do not all call at once.
            await self._sleep(self._interval_s * self._random.uniform(0.8, 1.2))
            await self.check()

    async def check(self) -> str | None:
        before, self.problem = self.problem, await self._call()
        if self.problem is not None and self.problem != before:
            log.error("%s", self.problem)
        return self.problem

    async def _call(self) -> str | None:
        empty: tuple[tuple[Path, protocol.Service, str, Any], ...] = (
            (self._paths.registration, protocol.REGISTRATION, "GetInfo", registration_pb2.InfoRequest()),
            (
                self._paths.dra,
                protocol.DRA[protocol.DRA_V1],
                "NodePrepareResources",
                dra_v1_pb2.NodePrepareResourcesRequest(),
            ),
        )
        for path, service, method, request in empty:
            try:
                async with grpc.aio.insecure_channel(f"unix:{path}", options=_OWN_CONNECTION) as channel:
                    await getattr(protocol.Stub(channel, service), method)(request, timeout=self._timeout_s)
            except grpc.aio.AioRpcError as error:
                return f"{path}: the driver's own socket does not answer: {error.code().name}: {error.details()}"
        return None
