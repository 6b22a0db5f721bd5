"""How long kubelet waits for the driver: NodePrepareResources over its socket, fsync on, simulated hardware.

Measures from the call to the answer in a kubelet's stand-in in the same process, so the client's time is in it; the claim
comes from memory, since the apiserver's time is the cluster's. Also: the slices of 16 GPUs with every MIG placement.
Bars: DESIGN 8 and 5.
"""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measured import figure
from fairlead.api import names
from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.common.locks import ProcessLock
from fairlead.driver.common.metrics import Metrics
from fairlead.driver.common.threads import Threads
from fairlead.driver.kubelet import server
from fairlead.driver.kubelet.plugin import Plugin
from fairlead.driver.kubelet.server import RegistrationService
from fairlead.driver.prepare.checkpoint import CdiFiles, Checkpoint
from fairlead.driver.prepare.metadata import Metadata
from fairlead.driver.prepare.mps_daemons import Daemons
from fairlead.driver.prepare.orphans import look
from fairlead.driver.prepare.preparer import Gpus, Preparer
from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.driver.publish import slices
from fairlead.driver.publish.monitor import HealthFeed
from fairlead.kube.resource import ResourceClaim
from tests.support.driver.claims import claim
from tests.support.driver.kubelet import Kubelet

ROUNDS = 300
BURSTS = 10
SHARE = "3f3a8d6e-0000-4000-8000-{:012x}"

# What one claim asks for, by its number within a burst of 64.
KINDS: dict[str, Callable[[int], str | dict[str, Any]]] = {
    "whole": lambda number: {"device": f"gpu-{number % 8}", "shareID": SHARE.format(number)},
    "static-mig": lambda number: {"device": f"gpu-6-mig-1g10gb-19-{number % 7}", "shareID": SHARE.format(number)},
    "dynamic-mig": lambda number: f"gpu-{number // 7 % 8}-mig-1g10gb-19-{number % 7}",
}


def figures() -> list[dict[str, Any]]:
    """The table, as DESIGN 9 has it: figure, value, unit, bar."""
    return [*asyncio.run(_prepare()), *_slices()]


async def _prepare() -> list[dict[str, Any]]:
    found = []
    for kind, device in KINDS.items():
        one = await _timed(kind, device, claims=1, rounds=ROUNDS)
        found += [
            figure(f"driver/prepare/{kind}/1/p50", statistics.median(one), "ms", 5.0),
            figure(f"driver/prepare/{kind}/1/p99", _p99(one), "ms", 20.0),
        ]
        # 56 placements are all that eight GPUs have for claims that make their own MIG devices.
        count = 56 if kind == "dynamic-mig" else 64
        many = await _timed(kind, device, claims=count, rounds=BURSTS)
        found.append(figure(f"driver/prepare/{kind}/{count}-at-once/p99", _p99(many), "ms", 200.0))
    return found


async def _timed(kind: str, device: Callable[[int], str | dict[str, Any]], *, claims: int, rounds: int) -> list[float]:
    """Milliseconds from the call to each claim's answer; claims at once are calls at once, as many pods make them."""
    with tempfile.TemporaryDirectory(prefix="fl-", dir="/tmp") as directory:
        path = Path(directory)
        known: dict[str, ResourceClaim] = {}

        async def fetch(namespace: str, name: str) -> ResourceClaim:
            return known[name]

        backend = SimulatedBackend(profiles.load("dgx-a100" if kind == "static-mig" else "hgx-h100"), node="n1")
        inventory = backend.inventory()
        cuttable = frozenset(gpu.uuid for gpu in inventory.gpus) if kind == "dynamic-mig" else frozenset()
        published = {
            device.name: device for device in slices.build(inventory, slices.Facts(partitionable=cuttable)).devices
        }
        paths = server.plugin_paths(driver=names.DRIVER, plugins_dir=path / "p", registry_dir=path / "r", pod_uid=None)
        paths.data.mkdir(parents=True)
        paths.registration.parent.mkdir()
        preparer = Preparer(
            pool="n1",
            backend=backend,
            checkpoint=Checkpoint(paths.data / "claims", boot_id="b"),
            cdi_files=CdiFiles(path / "cdi"),
            cache=RecordCache(),
            gpus=Gpus(inventory=lambda: inventory, partitionable=lambda: cuttable),
            metadata=Metadata(path / "metadata", enabled=True, published=lambda: published),
            daemons=Daemons(path / "mps", backend.mps_program),
        )
        preparer.recover()
        threads = Threads()
        plugin = Plugin(
            preparer,
            fetch=fetch,
            process_lock=ProcessLock(paths.data / "serialize.lock", reload=_nothing),
            threads=threads,
            metrics=Metrics(),
            is_orphan=partial(look, fetch),
            wait_s=30.0,
        )
        registration = RegistrationService(driver=names.DRIVER, endpoint=str(paths.dra))
        times: list[float] = []
        async with (
            server.serving(paths, plugin, registration, HealthFeed(), shared=False),
            Kubelet.connect(paths.registration) as kubelet,
        ):

            async def call(one: ResourceClaim) -> None:
                began = time.perf_counter()
                answer = await kubelet.prepare(one)
                times.append((time.perf_counter() - began) * 1000)
                if answer[one.metadata.uid].error:
                    raise RuntimeError(answer[one.metadata.uid].error)

            for round_ in range(rounds + 1):
                wanted = [claim(f"u{round_}-{number}", device(number)) for number in range(claims)]
                known.update({one.metadata.name: one for one in wanted})
                await asyncio.gather(*(call(one) for one in wanted))
                await kubelet.unprepare(*wanted)
                if round_ == 0:
                    times.clear()  # the first pays for connecting
        threads.close()
        return times


async def _nothing() -> None:
    pass


def _slices() -> list[dict[str, Any]]:
    one = SimulatedBackend(profiles.load("hgx-h100"), node="n1").inventory()
    gpus = tuple(
        dataclasses.replace(one.gpus[0], minor=minor, uuid=f"GPU-{minor}", pci_bus_id=f"0000:{minor:02x}:00.0")
        for minor in range(16)
    )
    inventory = dataclasses.replace(one, gpus=gpus)
    everything = frozenset(gpu.uuid for gpu in gpus)
    times = []
    for _ in range(20):
        began = time.perf_counter()
        slices.build(inventory, slices.Facts(partitionable=everything))
        times.append((time.perf_counter() - began) * 1000)
    return [figure("driver/slices/16-gpus-all-placements", statistics.median(times), "ms", 50.0)]


def _p99(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]
