"""A driver's publishing alone, put together as in `fairlead.driver.app`, on simulated hardware and a fake apiserver, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import cast

from fairlead.api import withheld
from fairlead.api.withheld import Group, Taint
from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import MigPlacement
from fairlead.driver.common.metrics import Metrics
from fairlead.driver.common.threads import Threads
from fairlead.driver.publish.keeping import Found, Keeping
from fairlead.driver.publish.monitor import Drains
from fairlead.driver.publish.publisher import Publisher
from fairlead.driver.publish.slices import UNKNOWN_KEPT, Offer
from fairlead.driver.reports import Reports
from fairlead.kube.client import Client
from fairlead.kube.events import EventRecorder, Regarding
from fairlead.kube.timing import Time
from tests.support.driver.monitors import monitor_of
from tests.support.driver.slice_api import SliceApi
from tests.support.kube import VirtualTime, settle

TWO_H100S = """
driverVersion: "580.105.08"
cudaDriverVersion: "13.0"
gpu: {productName: NVIDIA H100 80GB HBM3, architecture: Hopper, memoryMiB: 81559, mig: h100-80gb}
gpus:
  - {minor: 0, pciBusId: "0000:19:00.0", pcieRoot: "pci0000:15", numaNode: 0}
  - {minor: 1, pciBusId: "0000:3b:00.0", pcieRoot: "pci0000:37", numaNode: 0}
"""


class Killed(BaseException):
    """The process died here."""


class Said:
    """An EventRecorder that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def record(self, regarding: Regarding, reason: str, message: str, *, type: str = "Normal") -> None:  # noqa: A002 - as the recorder has it
        self.events.append((type, reason, message))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]


class Publishing:
    """One driver process. `own` are MIG devices that claims have; a kill is `ended` with nothing after it done."""

    def __init__(
        self,
        api: SliceApi,
        backend: SimulatedBackend,
        *,
        time: VirtualTime,
        threads: Threads,
        wanted: frozenset[Group] = frozenset({"counters", "taints"}),
        random: Random | None = None,
    ) -> None:
        self.api = api
        self.backend = backend
        self.time = time
        self.said = Said()
        self.metrics = Metrics()
        self.drains = Drains()
        self.own: frozenset[MigPlacement] = frozenset()
        self.monitor = monitor_of(
            backend,
            threads,
            offer=Offer(dynamic_mig="counters" in wanted, shared="shares" in wanted),
            timing=Time(wall=time.clock),
            kept=UNKNOWN_KEPT,
            own_mig=lambda: self.own,
            drains=self.drains,
        )
        client = cast("Client", api)
        self._reports = Reports(cast("EventRecorder", self.said), self.metrics, "n1", wanted)
        self.publisher = Publisher(
            client,
            node_name="n1",
            keeping=Keeping(
                client,
                node_name="n1",
                wanted=wanted,
                changed=self._follow,
                sleep=time.sleep,
                random=random or Random(1),
            ),
            sleep=time.sleep,
            random=random or Random(1),
            wall=time.clock,
        )
        self.task: asyncio.Task[None] | None = None

    @property
    def withheld(self) -> dict[str, tuple[Taint, ...]]:
        return withheld.read(self.api.annotations())

    async def start(self) -> None:
        await self.monitor.poll()
        self._publish()
        self.task = asyncio.create_task(self._until_killed())
        await settle()

    async def poll(self, *, full: bool = True) -> None:
        if await self.monitor.poll(full=full):
            self._publish()
        await settle()

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    async def _until_killed(self) -> None:
        try:
            await self.publisher.run()
        except BaseExceptionGroup as group:
            if group.split(Killed)[1] is not None:
                raise

    def _follow(self, found: Found) -> None:
        self._reports.kept(found)
        self.monitor.keep(found.kept)
        self._publish()

    def _publish(self) -> None:
        self.publisher.publish(self.monitor.built.slices, self._reports.notes(self.monitor.built))


def two_h100s(tmp_path: Path) -> SimulatedBackend:
    path = tmp_path / "two-h100s.yaml"
    path.write_text(TWO_H100S)
    return SimulatedBackend(profiles.load(str(path)), node="n1")


@contextlib.asynccontextmanager
async def publishing(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime, **options: object
) -> AsyncIterator[Publishing]:
    """A driver that has published; it is stopped in the end."""
    with contextlib.closing(Threads()) as threads:
        driver = Publishing(api, backend, time=time, threads=threads, **options)  # type: ignore[arg-type]
        await driver.start()
        try:
            yield driver
        finally:
            await driver.stop()
