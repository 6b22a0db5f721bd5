"""The kubelet plugin of one node, put together and run.

Exists so that the command line, the sandbox and tests start the same program. Order: own the directories, take up what
the process before left, look at the hardware, serve kubelet, publish; the other way round at the end. Holds no logic of
its own: each part is in a module of its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio

from fairlead.api import names
from fairlead.driver.backend import factory
from fairlead.driver.backend.interface import Backend
from fairlead.driver.common.metrics import Metrics
from fairlead.driver.common.process_lock import ProcessLock
from fairlead.driver.common.threads import Threads
from fairlead.driver.gpu_metrics import GpuCollector
from fairlead.driver.kubelet import protocol, sockets
from fairlead.driver.kubelet.self_check import SelfCheck
from fairlead.driver.kubelet.service import DraService, HealthService, Plugin, RegistrationService
from fairlead.driver.kubelet.sockets import Places
from fairlead.driver.prepare import cdi, libraries
from fairlead.driver.prepare.checkpoint import Checkpoint
from fairlead.driver.prepare.claim_consumers import Holders
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps.daemons import Daemons
from fairlead.driver.prepare.mps_supervisor import MpsSupervisor
from fairlead.driver.prepare.orphan_gc import Sweeper
from fairlead.driver.prepare.preparer import Preparer
from fairlead.driver.prepare.recovery_report import Reports
from fairlead.driver.publish.fault_store import FaultStore
from fairlead.driver.publish.health_feed import HealthFeed
from fairlead.driver.publish.monitor import HardwareMonitor
from fairlead.driver.publish.publisher import Publisher
from fairlead.driver.publish.slices import Layout, PoolSlices
from fairlead.kube import errors, probes
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import RESOURCE_CLAIMS

log = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
GRACE_S = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverOptions:
    """`backend` is "nvml", or "simulated:" and a profile's name or file. `pod_uid` makes rolling updates possible.

    `dynamic_mig` publishes every MIG placement of GPUs that are not cut yet, and cuts them on demand. `shared_gpus` lets
    a whole GPU be in several claims at once, each with a part of its memory. `dcgm_metrics` adds DCGM's names.
    `driver_root` is where this process finds NVIDIA's driver, `driver_root_host` where the host does, if that differs.
    `mps_dir` (default: in the driver's own directory) has to be the same path on the host. `device_metadata` gives
    containers a file with their devices' attributes.
    """

    node_name: str
    plugins_dir: Path
    registry_dir: Path
    cdi_dir: Path
    kubeconfig: Path | None = None
    backend: str = "nvml"
    metrics_bind: str | None = None
    pod_uid: str | None = None
    driver_root: Path = Path("/")
    driver_root_host: Path | None = None
    mps_dir: Path | None = None
    device_metadata: bool = True
    dynamic_mig: bool = False
    shared_gpus: bool = False
    dcgm_metrics: bool = False
    hardware_interval_s: float = 5.0
    mps_interval_s: float = 5.0
    sweep_interval_s: float = 120.0
    sync_delay_s: float = 2.0
    self_check_s: float = 15.0
    self_check_timeout_s: float = 5.0


async def run(options: DriverOptions, *, ready: asyncio.Event | None = None) -> None:
    """Serve until cancelled. Raises SocketError, ProfileError, BackendError or OSError when it cannot start.

    `ready` is set once kubelet can call and the slices are published.
    """
    places = sockets.places(
        driver=names.DRIVER,
        plugins_dir=options.plugins_dir,
        registry_dir=options.registry_dir,
        pod_uid=options.pod_uid,
    )
    places.data.mkdir(mode=0o750, parents=True, exist_ok=True)
    places.registration.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    with (
        sockets.only_one(places.lifetime_lock, shared=options.pod_uid is not None),
        contextlib.closing(Threads()) as threads,
    ):
        backend = await threads.run(
            factory.open_backend,
            options.backend,
            node=options.node_name,
            data=places.data,
            driver_root=options.driver_root,
        )
        try:
            async with Client.connect(options.kubeconfig, user_agent="fairlead-driver") as client:
                await _run(options, places, backend, client, threads, ready)
        finally:
            await threads.run(backend.close)


async def _run(
    options: DriverOptions,
    places: Places,
    backend: Backend,
    client: Client,
    threads: Threads,
    ready: asyncio.Event | None,
) -> None:
    async def fetch_claim(namespace: str, name: str) -> ResourceClaim:
        return await client.get(RESOURCE_CLAIMS, name, namespace)

    async def reload() -> None:
        """Another process of this driver had the last turn; at the start, recovering reads everything anyway."""
        if started:
            tell.unreadable(await threads.run(preparer.reload))

    def publish(built: PoolSlices) -> None:
        types = Counter(device.attributes["type"].string or "" for device in built.devices)
        metrics.published(types, sum(1 for device in built.devices if device.taints))
        publisher.publish(built.slices)

    def dead() -> str | None:
        """Liveness: why a restart would help."""
        return check.problem or hardware.restart_reason

    def unwell() -> str | None:
        """Readiness: why kubelet and the scheduler cannot use this node's devices now."""
        return registration.problem or publisher.problem or hardware.problem

    started = False
    metrics = Metrics()
    boot_id = (await threads.run(BOOT_ID.read_text)).strip()
    store = FaultStore(places.faults, boot_id=boot_id)
    hardware = HardwareMonitor(
        backend,
        pool=options.node_name,
        threads=threads,
        dynamic_mig=options.dynamic_mig,
        shared_gpus=options.shared_gpus,
        layout=await _layout(client) if options.dynamic_mig else "split",
        own_mig=lambda: _made(preparer) if started else frozenset(),
        initial_faults=await threads.run(store.load),
        save_faults=store.save,
        interval_s=options.hardware_interval_s,
    )
    await hardware.poll()
    preparer = Preparer(
        driver=names.DRIVER,
        pool=options.node_name,
        backend=backend,
        checkpoint=Checkpoint(places.claims, boot_id=boot_id),
        store=cdi.Store(options.cdi_dir),
        inventory=lambda: hardware.inventory,
        partitionable=hardware.partitionable,
        unusable=hardware.unusable,
        metadata=Metadata(
            places.metadata,
            enabled=options.device_metadata,
            published=lambda: {device.name: device for device in hardware.built.devices},
        ),
        daemons=Daemons((options.mps_dir or places.mps).absolute(), backend.mps_program),
        mounts=await threads.run(
            libraries.find,
            options.driver_root,
            hardware.inventory.driver_version,
            host_root=options.driver_root_host,
        ),
    )
    publisher = Publisher(
        client,
        driver=names.DRIVER,
        node_name=options.node_name,
        sync_delay_s=options.sync_delay_s,
        on_write=metrics.wrote,
    )
    holders = Holders(preparer.records)
    fetch = holders.noting(fetch_claim)
    process_lock = ProcessLock(places.serialize_lock, reload=reload)
    plugin = Plugin(preparer, fetch=fetch, process_lock=process_lock, threads=threads, metrics=metrics)
    registration = RegistrationService(driver=names.DRIVER, endpoint=str(places.dra))
    sweeper = Sweeper(preparer, fetch=fetch, give_back=plugin.give_back, interval_s=options.sweep_interval_s)
    check = SelfCheck(places, interval_s=options.self_check_s, timeout_s=options.self_check_timeout_s)
    mps = MpsSupervisor(
        preparer,
        report_unhealthy=hardware.report_unhealthy,
        process_lock=process_lock,
        threads=threads,
        restarted=metrics.mps_restarted,
        interval_s=options.mps_interval_s,
    )

    tell = Reports(EventRecorder(client, "fairlead-driver", instance=options.node_name), metrics, options.node_name)
    async with process_lock.hold(timeout_s=60.0):
        tell.recovery(await threads.run(preparer.recover))
    started = True
    if options.dynamic_mig:
        await hardware.poll()  # now that it is known which MIG devices are ours
    metrics.track_claims_held(lambda: Counter(record.state for record in preparer.records()))
    metrics.registry.register(
        GpuCollector(
            inventory=lambda: hardware.inventory,
            telemetry=lambda: hardware.telemetry,
            records=preparer.records,
            pods=holders.pods,
            node=options.node_name,
            dcgm=options.dcgm_metrics,
        )
    )
    publish(hardware.built)

    async with (
        probes.serve(options.metrics_bind, ready=unwell, health=dead, registry=metrics.registry),
        _serving(places, plugin, registration, hardware.health, shared=options.pod_uid is not None),
        asyncio.TaskGroup() as group,
    ):
        group.create_task(tell.events.run())
        group.create_task(publisher.run())
        group.create_task(hardware.run(publish))
        group.create_task(sweeper.run())
        group.create_task(check.run())
        group.create_task(mps.run())
        await publisher.published.wait()
        log.info(
            "serving",
            extra={"node": options.node_name, "socket": str(places.dra), "devices": len(hardware.built.devices)},
        )
        if ready is not None:
            ready.set()


@contextlib.asynccontextmanager
async def _serving(
    places: Places, plugin: Plugin, registration: RegistrationService, board: HealthFeed, *, shared: bool
) -> AsyncIterator[None]:
    """Both sockets, the DRA one first: kubelet may call the moment it sees the other."""
    if not shared:
        sockets.clear(places.dra)
        sockets.clear(places.registration)
    sockets.clear_dead(places.data, "dra*.sock")
    sockets.clear_dead(places.registration.parent, f"{names.DRIVER}*-reg.sock")
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(plugin.close)
        dra = grpc.aio.server()
        v1: Any = DraService(plugin, protocol.dra_v1_pb2, shares=True)
        v1beta1: Any = DraService(plugin, protocol.dra_v1beta1_pb2, shares=False)
        health: Any = HealthService(board)
        protocol.dra_v1_pb2_grpc.add_DRAPluginServicer_to_server(v1, dra)
        protocol.dra_v1beta1_pb2_grpc.add_DRAPluginServicer_to_server(v1beta1, dra)
        protocol.dra_health_v1alpha1_pb2_grpc.add_DRAResourceHealthServicer_to_server(health, dra)
        await stack.enter_async_context(_listening(dra, places.dra))
        stack.callback(board.close)  # or the health stream would keep the server for its whole grace
        registrar = grpc.aio.server()
        servicer: Any = registration
        protocol.pluginregistration_v1_pb2_grpc.add_RegistrationServicer_to_server(servicer, registrar)
        await stack.enter_async_context(_listening(registrar, places.registration))
        yield


@contextlib.asynccontextmanager
async def _listening(server: grpc.aio.Server, path: Path) -> AsyncIterator[None]:
    """While the context lasts; calls in progress get `GRACE_S` to end, and the socket goes at once."""
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        path.chmod(0o600)  # noqa: ASYNC240 - once, on a local disk
        yield
    finally:
        path.unlink(missing_ok=True)  # noqa: ASYNC240
        await server.stop(GRACE_S)


def _made(preparer: Preparer) -> frozenset[tuple[str, int, int]]:
    """Where our own MIG devices are, or are coming to be: (GPU UUID, profile ID, start)."""
    return frozenset(
        (device.gpu_uuid, device.mig.profile_id, device.mig.start)
        for record in preparer.records()
        for device in record.devices
        if device.mig and device.mig.made in {"creating", "live"}
    )


async def _layout(client: Client) -> Layout:
    """Since 1.35 counters and the devices that use them are in different slices; 1.34 wants them together."""
    try:
        version = json.loads(await client.request("GET", "/version"))
        major, minor = int(version["major"]), int(re.sub(r"\D.*", "", version["minor"]))
    except (errors.ApiError, ValueError, KeyError, TypeError) as error:
        log.warning("the apiserver's version is not known (%s); taking it for 1.35 or later", error)
        return "split"
    return "combined" if (major, minor) < (1, 35) else "split"
