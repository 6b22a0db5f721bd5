"""The two parts of a driver that rest on the hardware, put together from its options: what watches it, and what prepares claims.

Holds no logic of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fairlead.api import names
from fairlead.driver.backend.interface import Backend
from fairlead.driver.common.threads import Threads
from fairlead.driver.kubelet.sockets import PluginPaths
from fairlead.driver.options import DriverOptions
from fairlead.driver.prepare import libraries
from fairlead.driver.prepare.cdi_files import CdiFiles
from fairlead.driver.prepare.checkpoint import Checkpoint
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps.daemons import Daemons
from fairlead.driver.prepare.mps.directory import SizeLimits
from fairlead.driver.prepare.preparer import Preparer
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.publish.draining import Drains
from fairlead.driver.publish.fault_store import FaultStore
from fairlead.driver.publish.kept import UNKNOWN
from fairlead.driver.publish.monitor import HardwareMonitor
from fairlead.driver.usage.sampler import Sampler


async def monitor(
    options: DriverOptions,
    paths: PluginPaths,
    backend: Backend,
    threads: Threads,
    records: RecordCache,
    *,
    boot_id: str,
    drains: Drains,
    sampler: Sampler,
) -> HardwareMonitor:
    """It has not looked at the hardware yet."""
    fault_store = FaultStore(paths.faults, boot_id=boot_id)
    made = HardwareMonitor(
        backend,
        pool=options.node_name,
        threads=threads,
        dynamic_mig=options.dynamic_mig,
        shared_gpus=options.shared_gpus,
        shared_mig=options.shared_mig,
        shared_replicas=options.shared_replicas,
        mig_strategy=options.mig_strategy,
        kept=UNKNOWN,
        own_mig=records.own_mig,
        drains=drains,
        initial_faults=await threads.run(fault_store.load),
        save_faults=fault_store.save,
        sampled=lambda at_s, readings: sampler.observe(at_s, readings, records.all(), made.inventory),
        interval_s=options.hardware_interval_s,
    )
    return made


async def preparer(
    options: DriverOptions,
    paths: PluginPaths,
    backend: Backend,
    threads: Threads,
    records: RecordCache,
    *,
    boot_id: str,
    drains: Drains,
    hardware: HardwareMonitor,
) -> Preparer:
    """`hardware` has been looked at once."""
    return Preparer(
        driver=names.DRIVER,
        pool=options.node_name,
        backend=backend,
        checkpoint=Checkpoint(paths.claims, boot_id=boot_id),
        cdi_files=CdiFiles(options.cdi_dir),
        cache=records,
        inventory=lambda: hardware.inventory,
        partitionable=hardware.partitionable,
        unusable=hardware.unusable,
        closed=drains.closed,
        metadata=Metadata(
            paths.metadata,
            enabled=options.device_metadata,
            published=lambda: {device.name: device for device in hardware.built.known},
        ),
        daemons=Daemons(
            _mps_directory(options, paths),
            backend.mps_program,
            # Simulated hardware serves no CUDA programs, and its driver need not run privileged.
            size_limits=SizeLimits(shm_bytes=options.mps_shm_bytes) if options.backend == "nvml" else None,
        ),
        driver_files=await threads.run(_driver_files, options, paths, hardware.inventory.driver_version),
        shared_limits=options.shared_limits,
    )


def claim_directories(options: DriverOptions, paths: PluginPaths) -> Callable[[str], tuple[Path, ...]]:
    """By a claim's UID, where the files are that its containers get mounted; those of MPS may be mounts of their own."""
    mps, metadata = _mps_directory(options, paths).resolve(), paths.metadata.resolve()
    return lambda uid: (metadata / uid, mps / uid, mps / uid / "tmp", mps / uid / "shm")


def _mps_directory(options: DriverOptions, paths: PluginPaths) -> Path:
    return (options.mps_dir or paths.mps).absolute()


def _driver_files(options: DriverOptions, paths: PluginPaths, driver_version: str | None) -> libraries.DriverFiles:
    found = libraries.find(options.driver_root, driver_version, host_root=options.driver_root_host)
    return found.linked(paths.libraries.absolute())
