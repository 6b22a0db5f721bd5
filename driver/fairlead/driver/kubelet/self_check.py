"""Calls the driver over its own sockets, as kubelet would.

A process can run while its sockets do not work: a file was removed, a server no longer answers. `/healthz` shows what the
last call found, and kubelet's liveness probe then restarts the driver. The call is an empty NodePrepareResources.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Any

import grpc.aio

from fairlead.driver.kubelet import protocol
from fairlead.driver.kubelet.sockets import PluginPaths
from fairlead.kube.limits import Sleep

log = logging.getLogger(__name__)

# Channels of a process to one address share a connection, and one of the check before may be open still, of a socket that is gone.
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)


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
        registration = str(self._paths.registration)
        try:
            async with grpc.aio.insecure_channel(f"unix:{registration}", options=_OWN_CONNECTION) as channel:
                stub: Any = protocol.pluginregistration_v1_pb2_grpc.RegistrationStub(channel)
                request: Any = protocol.pluginregistration_v1_pb2.InfoRequest()
                await stub.GetInfo(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            return f"{registration}: {_describe(error)}"
        dra = str(self._paths.dra)
        try:
            async with grpc.aio.insecure_channel(f"unix:{dra}", options=_OWN_CONNECTION) as channel:
                stub = protocol.dra_v1_pb2_grpc.DRAPluginStub(channel)
                request = protocol.dra_v1_pb2.NodePrepareResourcesRequest()
                await stub.NodePrepareResources(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            return f"{dra}: {_describe(error)}"
        return None


def _describe(error: grpc.aio.AioRpcError) -> str:
    return f"the driver's own socket does not answer: {error.code().name}: {error.details()}"
