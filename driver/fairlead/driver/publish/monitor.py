"""Polls the node's hardware, and holds what was read last: inventory, load, faults, Xids, health, and the slices to publish.

Prepare reads the inventory from here: NVML is not queried for what seldom changes. Discovery, health and slices are of
one poll. Never blocks the event loop: each poll runs in a thread, with a deadline on the waiting (polling.py); while one
hangs, the last results stay.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.types import GpuCondition, Inventory, Telemetry
from fairlead.driver.publish import health
from fairlead.driver.publish.faults import Fault
from fairlead.driver.publish.health_feed import HealthFeed
from fairlead.driver.publish.kept import Kept
from fairlead.driver.publish.known_faults import KnownFaults
from fairlead.driver.publish.known_gpus import KnownGpus
from fairlead.driver.publish.polling import Poller
from fairlead.driver.publish.pool_builder import PoolBuilder
from fairlead.driver.publish.releasing import Spans
from fairlead.driver.publish.slices import PoolSlices
from fairlead.driver.publish.xid_counts import XidCounts
from fairlead.kube.timing import REAL, Time

log = logging.getLogger(__name__)

# NVML never answers a process again under which NVIDIA's driver was replaced.
RESTART_AFTER_S = 120.0
# In polls: reading what the GPUs are takes a thousand queries, and it seldom changes.
INVENTORY_EVERY = 12


class HardwareMonitor:
    """`poll` reads the hardware once, `run` again and again; it calls `changed` when the slices are others.

    `sampled` is called with the time and the readings of each poll; it must not block.
    """

    def __init__(
        self,
        poller: Poller,
        builder: PoolBuilder,
        faults: KnownFaults,
        *,
        pool: str,
        sampled: Callable[[float, Sequence[Telemetry]], None] | None = None,
        interval_s: float = 5.0,
        timing: Time = REAL,
    ) -> None:
        self.inventory = Inventory()
        self.telemetry: tuple[Telemetry, ...] = ()
        self.conditions: tuple[GpuCondition, ...] = ()
        self.xids = XidCounts()
        self.health = HealthFeed()
        self.problem: str | None = "not polled yet"
        """Why the last poll failed: readiness."""
        self.full_at_s = 0.0
        """When the last full poll began, in epoch seconds."""
        self._poller = poller
        self._builder = builder
        self._faults = faults
        self._pool = pool
        self._sampled = sampled
        self._interval_s = interval_s
        self._timing = timing
        self._known = KnownGpus(dynamic_mig=builder.offer.dynamic_mig)
        self._unhealthy: Mapping[str, str] = {}
        self._failing_since_s: float | None = None
        self._full_wanted = False
        self._lost: frozenset[str] = frozenset()

    @property
    def built(self) -> PoolSlices:
        """What should be published."""
        return self._builder.built

    def partitionable(self) -> frozenset[str]:
        """UUIDs of the GPUs whose MIG devices are created on demand."""
        return self._known.partitionable

    def unusable(self, uuid: str) -> str | None:
        """Why no claim can be prepared on a GPU now: it is lost. One that needs a reset may still serve its claims."""
        return next((fault.message for fault in self.faults_of(uuid) if fault.kind == "gpu-lost"), None)

    def report_unhealthy(self, devices: Mapping[str, str]) -> None:
        """All devices (name: reason) that are unhealthy though their GPU is not. Published with the next poll."""
        self._unhealthy = devices

    def faults_of(self, uuid: str) -> tuple[Fault, ...]:
        return self._faults.current.get(uuid, ())

    def healed(self, uuids: Collection[str]) -> None:
        """These GPUs were reset and found well: the faults that this cures end."""
        self._faults.healed(uuids)

    def rebuild(self) -> bool:
        """What is published follows drains and faults at once; True when it is other than before."""
        return self._builder.rebuild(self.inventory, self._faults.current, self._known.partitionable)

    def follow(self, releasing: Callable[[], Spans]) -> None:
        """`releasing` gives what claims that are gone have still, by GPU."""
        self._builder.releasing = releasing

    def keep(self, kept: Kept) -> bool:
        """What is published follows what the apiserver keeps at once; True when it is other than before."""
        self._builder.kept = kept
        return self.rebuild()

    def read_again(self) -> None:
        """The hardware was changed: the next poll is a full one."""
        self._full_wanted = True

    @property
    def restart_reason(self) -> str | None:
        """Liveness: why only a new process would reach the hardware. Not a call that hangs: there it hangs, too."""
        since_s = self._failing_since_s
        if since_s is None or (for_s := self._timing.wall() - since_s) < RESTART_AFTER_S:
            return None
        return f"the hardware has failed every poll for {for_s:.0f} s: {self.problem}"

    async def poll(self, *, full: bool = True) -> bool:
        """Read everything, or without `full` only health, Xids and load, which is much cheaper.

        True when what should be published changed. Raises BackendError or TimeoutError.
        """
        if full:
            self._full_wanted = False
        try:
            read = await self._poller.read(full=full)
        except BaseException:
            self._full_wanted = self._full_wanted or full
            raise
        now_s, lost = self._timing.wall(), read.lost
        self._faults.update(read.statuses, read.xids, now_s=now_s)
        self.telemetry = read.telemetry
        self.xids.add(read.xids)
        conditions = self.conditions if read.conditions is None else read.conditions
        self.conditions = tuple(each for each in conditions if each.uuid not in lost)
        if read.inventory is not None:
            self.full_at_s = read.begun_s
            self.inventory = self._known.update(read.inventory, lost=lost, own=read.own_mig)
        if self._sampled is not None:
            self._sampled(now_s, read.telemetry)
        self._full_wanted = self._full_wanted or lost != self._lost
        self._lost = lost
        changed = self.rebuild()
        self.health.publish(
            health.device_health(
                self.built.known,
                read.statuses,
                self._faults.current,
                unhealthy=self._unhealthy,
                pool=self._pool,
                now_s=now_s,
            )
        )
        self.problem = self._failing_since_s = None
        return changed

    async def run(self, changed: Callable[[PoolSlices], None], polled: Callable[[float], None] | None = None) -> None:
        """Poll every `interval_s`, forever; in full each `INVENTORY_EVERY` polls, and when a GPU is lost or found.

        `polled` is called with the time of each poll that succeeded, after `changed`.
        """
        for number in itertools.count(1):
            await self._timing.sleep(self._interval_s)
            try:
                if await self.poll(full=number % INVENTORY_EVERY == 0 or self._full_wanted):
                    log.info("the node's devices changed", extra={"devices": len(self.built.devices)})
                    changed(self.built)
                if polled is not None:
                    polled(self._timing.wall())
            except (BackendError, TimeoutError) as error:
                problem = str(error)
                if problem != self.problem:
                    log.error("hardware: %s; what was read last stays published", problem)
                self.problem = problem
                if isinstance(error, TimeoutError):
                    self._failing_since_s = None
                elif self._failing_since_s is None:
                    self._failing_since_s = self._timing.wall()
