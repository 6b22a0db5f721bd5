"""The gRPC services that kubelet calls: prepare and unprepare in two versions, registration, health stream.

They only translate between messages and Plugin, or HealthFeed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from types import ModuleType
from typing import Any, Protocol

from fairlead.driver.kubelet import protocol
from fairlead.driver.kubelet.plugin import ClaimRef, Plugin
from fairlead.driver.kubelet.protocol import dra_health_v1alpha1_pb2 as health_pb2
from fairlead.driver.kubelet.protocol import pluginregistration_v1_pb2 as registration_pb2
from fairlead.driver.prepare import cdi
from fairlead.driver.publish.health_feed import HealthFeed

log = logging.getLogger(__name__)


class _ClaimMessage(Protocol):
    namespace: str
    name: str
    uid: str


class DraService:
    """DRAPlugin with the message module of one version; v1beta1 differs only in that it has no share_id."""

    def __init__(self, plugin: Plugin, messages: ModuleType, *, shares: bool) -> None:
        self._plugin = plugin
        self._messages: Any = messages
        self._shares = shares

    async def NodePrepareResources(self, request: Any, context: object) -> Any:  # noqa: N802
        response = self._messages.NodePrepareResourcesResponse()
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
        response = self._messages.NodeUnprepareResourcesResponse()
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
