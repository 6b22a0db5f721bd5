"""The parts of a driver that rest on the hardware, put together from its options: what watches it, prepares claims, cuts GPUs.

Holds no logic of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from fairlead.driver.backend.interface import Backend
from fairlead.driver.common.threads import Threads
from fairlead.driver.kubelet.server import PluginPaths
from fairlead.driver.layouts.cutter import Cutter, Intents
from fairlead.driver.node_gpus import NodeGpus
from fairlead.driver.options import DriverOptions
from fairlead.driver.prepare import libraries
from fairlead.driver.prepare.checkpoint import CdiFiles, Checkpoint
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps_daemons import Daemons
from fairlead.driver.prepare.mps_directory import SizeLimits
from fairlead.driver.prepare.preparer import Gpus, Preparer
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.publish.known_faults import KnownFaults
from fairlead.driver.publish.monitor import Drains, HardwareMonitor
from fairlead.driver.publish.slices import UNKNOWN_KEPT
from fairlead.driver.usage.sampler import Sampler, Settings

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """`records` are of claims that have some of `gpus`."""

    gpus: NodeGpus
    records: RecordCache
    sampler: Sampler
    cutter: Cutter

    @classmethod
    async def of(
        cls, options: DriverOptions, paths: PluginPaths, backend: Backend, threads: Threads, records: RecordCache
    ) -> Parts:
        """The hardware has been looked at once. Raises BackendError, TimeoutError or OSError."""
        boot_id = (await threads.run(BOOT_ID.read_text)).strip()
        sampler = Sampler(
            Settings(idle_below_percent=options.idle_below, window_s=options.idle_window_s, levels=options.idle_levels)
        )
        drains = Drains()
        monitor = HardwareMonitor(
            backend,
            threads,
            await threads.run(KnownFaults, paths.data / "faults.json", boot_id=boot_id),
            pool=options.node_name,
            offer=options.offer,
            kept=UNKNOWN_KEPT,
            drains=drains,
            own_mig=records.own_mig,
            interval_s=options.hardware_interval_s,
        )
        monitor.sampled = lambda at_s, readings: sampler.observe(at_s, readings, records.all(), monitor.inventory)
        await monitor.poll()
        preparer = Preparer(
            pool=options.node_name,
            backend=backend,
            checkpoint=Checkpoint(paths.data / "claims", boot_id=boot_id),
            cdi_files=CdiFiles(options.cdi_dir),
            cache=records,
            gpus=Gpus(
                inventory=lambda: monitor.inventory,
                partitionable=monitor.partitionable,
                unusable=monitor.unusable,
                closed=drains.closed,
                shared_limits=options.shared_limits,
            ),
            metadata=Metadata(
                paths.data / "dra-device-metadata",
                enabled=options.device_metadata,
                published=lambda: {device.name: device for device in monitor.built.known},
            ),
            daemons=Daemons(
                _mps_directory(options, paths),
                backend.mps_program,
                # Simulated hardware serves no CUDA programs, and its driver need not run privileged.
                size_limits=SizeLimits(shm_bytes=options.mps_shm_bytes) if options.backend == "nvml" else None,
            ),
            driver_files=await threads.run(_driver_files, options, paths, monitor.inventory.driver_version),
        )
        return cls(
            gpus=NodeGpus(backend=backend, threads=threads, drains=drains, monitor=monitor, preparer=preparer),
            records=records,
            sampler=sampler,
            cutter=Cutter(backend=backend, intents=Intents(paths.data / "mig-config.json", boot_id=boot_id)),
        )


def claim_directories(options: DriverOptions, paths: PluginPaths) -> Callable[[str], tuple[Path, ...]]:
    """By a claim's UID, where the files are that its containers get mounted; those of MPS may be mounts of their own."""
    mps, metadata = _mps_directory(options, paths).resolve(), (paths.data / "dra-device-metadata").resolve()
    return lambda uid: (metadata / uid, mps / uid, mps / uid / "tmp", mps / uid / "shm")


def _mps_directory(options: DriverOptions, paths: PluginPaths) -> Path:
    return (options.mps_dir or paths.data / "mps").absolute()


def _driver_files(options: DriverOptions, paths: PluginPaths, driver_version: str | None) -> libraries.DriverFiles:
    found = libraries.find(options.driver_root, driver_version, host_root=options.driver_root_host)
    return found.linked((paths.data / "libraries").absolute())
