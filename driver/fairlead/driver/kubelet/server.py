"""The two gRPC servers of the driver, on their unix sockets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio

from fairlead.api import names
from fairlead.driver.kubelet import protocol, sockets
from fairlead.driver.kubelet.plugin import Plugin
from fairlead.driver.kubelet.services import DraService, HealthService, RegistrationService
from fairlead.driver.kubelet.sockets import PluginPaths
from fairlead.driver.publish.health_feed import HealthFeed

# For calls in progress when the driver ends.
GRACE_S = 5.0


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
        v1: Any = DraService(plugin, protocol.dra_v1_pb2, shares=True)
        v1beta1: Any = DraService(plugin, protocol.dra_v1beta1_pb2, shares=False)
        streams: Any = HealthService(health)
        protocol.dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(v1, dra)
        protocol.dra_v1beta1_pb2_grpc.add_DRAPluginServicer_to_server(v1beta1, dra)
        protocol.dra_health_v1alpha1_pb2_grpc.add_DRAResourceHealthServicer_to_server(streams, dra)
        await stack.enter_async_context(_listening(dra, paths.dra))
        stack.callback(health.close)  # or the health stream would keep the server for its whole grace
        registrar = grpc.aio.server()
        servicer: Any = registration
        protocol.pluginregistration_v1_pb2_grpc.add_RegistrationServicer_to_server(servicer, registrar)
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
