"""Polls the node's hardware, and holds what was read last: inventory, load, faults, Xids, health, and the slices to publish.

Prepare reads the inventory from here: NVML is not queried for what seldom changes. Discovery, health and slices are of
one poll. Never blocks the event loop: each poll runs in a thread, with a deadline on the waiting; while one hangs, the
last results stay.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from fairlead.api.mig_profiles import MigStrategy
from fairlead.driver.backend import xids
from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.types import GpuCondition, GpuStatus, Inventory, MigPlacement, Telemetry, Xid
from fairlead.driver.common.threads import Threads
from fairlead.driver.publish import faults, health, slices
from fairlead.driver.publish.draining import Drains
from fairlead.driver.publish.faults import Fault, Faults
from fairlead.driver.publish.health_feed import HealthFeed
from fairlead.driver.publish.kept import ALL, Kept
from fairlead.driver.publish.known_gpus import KnownGpus
from fairlead.driver.publish.releasing import Spans
from fairlead.driver.publish.slices import PoolSlices
from fairlead.driver.publish.xid_counts import XidCounts
from fairlead.kube.limits import Clock, Sleep
from fairlead.kube.resource import DeviceTaint

log = logging.getLogger(__name__)

# NVML never answers a process again under which NVIDIA's driver was replaced.
RESTART_AFTER_S = 120.0
# In polls: reading what the GPUs are takes a thousand queries, and it seldom changes.
INVENTORY_EVERY = 12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Poll:
    begun_s: float
    inventory: Inventory | None
    statuses: tuple[GpuStatus, ...]
    xids: tuple[Xid, ...]
    telemetry: tuple[Telemetry, ...]
    conditions: tuple[GpuCondition, ...] | None
    own_mig: frozenset[MigPlacement]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What the slices follow from."""

    inventory: Inventory
    taints: Mapping[str, tuple[DeviceTaint, ...]]
    reasons: Mapping[str, str]
    partitionable: frozenset[str]
    mig_in_use: frozenset[str]
    releasing: Spans
    kept: Kept


class HardwareMonitor:
    """`poll` reads the hardware once, `run` again and again; it calls `changed` when the slices are others.

    `own_mig` gives the MIG devices that the driver created. `initial_faults` are those known from before a restart, and
    `save_faults` is called with the faults whenever they change. `sampled` is called with the time and the readings of
    each poll; it must not block. `drains` are the GPUs that get no new claims. `kept` is what the apiserver is believed to keep.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        pool: str,
        threads: Threads,
        dynamic_mig: bool = False,
        shared_gpus: bool = False,
        shared_mig: bool = False,
        shared_replicas: int = 1,
        mig_strategy: MigStrategy = "none",
        kept: Kept = ALL,
        own_mig: Callable[[], frozenset[MigPlacement]] = frozenset,
        drains: Drains | None = None,
        initial_faults: Faults | None = None,
        save_faults: Callable[[Faults], None] | None = None,
        sampled: Callable[[float, Sequence[Telemetry]], None] | None = None,
        interval_s: float = 5.0,
        deadline_s: float = 30.0,
        wall: Clock = time.time,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.inventory = Inventory()
        self.telemetry: tuple[Telemetry, ...] = ()
        self.conditions: tuple[GpuCondition, ...] = ()
        self.xids = XidCounts()
        self.built = PoolSlices(slices=())
        self.releasing: Callable[[], Spans] = dict
        """What claims that are gone have still, by GPU."""
        self.health = HealthFeed()
        self.problem: str | None = "not polled yet"
        """Why the last poll failed: readiness."""
        self._unhealthy: Mapping[str, str] = {}
        self._faults: Faults = initial_faults or {}
        self._failing_since_s: float | None = None
        self._backend = backend
        self._pool = pool
        self._threads = threads
        self._shared_gpus = shared_gpus
        self._shared_mig = shared_mig
        self._shared_replicas = shared_replicas
        self._mig_strategy: MigStrategy = mig_strategy
        self._kept = kept
        self._own_mig = own_mig
        self._drains = drains or Drains()
        self._full_wanted = False
        self.full_at_s = 0.0
        """When the last poll began, and the last full one, in epoch seconds."""
        self._save_faults = save_faults
        self._sampled = sampled
        self._interval_s = interval_s
        self._deadline_s = deadline_s
        self._wall = wall
        self._sleep = sleep
        self._known = KnownGpus(dynamic_mig=dynamic_mig)
        self._lost: frozenset[str] = frozenset()
        self._lost_changed = False
        self._polling: asyncio.Task[_Poll] | None = None
        self._warned: tuple[str, ...] = ()
        self._built_from: _Facts | None = None

    def partitionable(self) -> frozenset[str]:
        """UUIDs of the GPUs whose MIG devices are created on demand."""
        return self._known.partitionable

    def unusable(self, uuid: str) -> str | None:
        """Why no claim can be prepared on a GPU now: it is lost. One that needs a reset may still serve its claims."""
        return next((fault.message for fault in self._faults.get(uuid, ()) if fault.kind == "gpu-lost"), None)

    def report_unhealthy(self, devices: Mapping[str, str]) -> None:
        """All devices (name: reason) that are unhealthy though their GPU is not. Published with the next poll."""
        self._unhealthy = devices

    def faults_of(self, uuid: str) -> tuple[Fault, ...]:
        return self._faults.get(uuid, ())

    def healed(self, uuids: Collection[str]) -> None:
        """These GPUs were reset and found well: the faults that this cures end."""
        self._keep_faults(faults.healed(self._faults, uuids))

    def rebuild(self) -> bool:
        """What is published follows drains and faults at once; True when it is other than before."""
        return self._rebuild_slices()

    def keep(self, kept: Kept) -> bool:
        """What is published follows what the apiserver keeps at once; True when it is other than before."""
        self._kept = kept
        return self._rebuild_slices()

    def read_again(self) -> None:
        """The hardware was changed: the next poll is a full one."""
        self._full_wanted = True

    @property
    def restart_reason(self) -> str | None:
        """Liveness: why only a new process would reach the hardware. Not a call that hangs: there it hangs, too."""
        since_s = self._failing_since_s
        if since_s is None or self._wall() - since_s < RESTART_AFTER_S:
            return None
        return f"the hardware has failed every poll for {self._wall() - since_s:.0f} s: {self.problem}"

    async def poll(self, *, full: bool = True) -> bool:
        """Read everything, or without `full` only health, Xids and load, which is much cheaper.

        True when what should be published changed. Raises BackendError or TimeoutError.
        """
        if full:
            self._full_wanted = False
        try:
            read = await self._read_within_deadline(full)
        except BaseException:
            self._full_wanted = self._full_wanted or full
            raise
        self._update_faults(read.statuses, read.xids)
        self.telemetry = read.telemetry
        self.xids.add(read.xids)
        lost = frozenset(status.uuid for status in read.statuses if status.responds is False)
        conditions = self.conditions if read.conditions is None else read.conditions
        self.conditions = tuple(each for each in conditions if each.uuid not in lost)
        if read.inventory is not None:
            self.full_at_s = read.begun_s
            self.inventory = self._known.update(read.inventory, lost=lost, own=read.own_mig)
        if self._sampled is not None:
            self._sampled(self._wall(), read.telemetry)
        self._lost_changed = lost != self._lost
        self._lost = lost
        changed = self._rebuild_slices()
        self.health.publish(
            health.device_health(
                self.built.known,
                read.statuses,
                self._faults,
                unhealthy=self._unhealthy,
                pool=self._pool,
                now_s=self._wall(),
            )
        )
        self.problem = self._failing_since_s = None
        return changed

    async def run(self, changed: Callable[[PoolSlices], None], polled: Callable[[float], None] | None = None) -> None:
        """Poll every `interval_s`, forever; in full each `INVENTORY_EVERY` polls, and when a GPU is lost or found.

        `polled` is called with the time of each poll that succeeded, after `changed`.
        """
        for number in itertools.count(1):
            await self._sleep(self._interval_s)
            try:
                if await self.poll(full=number % INVENTORY_EVERY == 0 or self._lost_changed or self._full_wanted):
                    log.info("the node's devices changed", extra={"devices": len(self.built.devices)})
                    changed(self.built)
                if polled is not None:
                    polled(self._wall())
            except (BackendError, TimeoutError) as error:
                problem = str(error)
                if problem != self.problem:
                    log.error("hardware: %s; what was read last stays published", problem)
                self.problem = problem
                if isinstance(error, TimeoutError):
                    self._failing_since_s = None
                elif self._failing_since_s is None:
                    self._failing_since_s = self._wall()

    async def _read_within_deadline(self, full: bool) -> _Poll:
        """One poll. The next call waits for one that hangs, so that no more threads hang with it."""
        if self._polling is None:
            self._polling = asyncio.get_running_loop().create_task(self._threads.run(self._read, full))
        done, _ = await asyncio.wait({self._polling}, timeout=self._deadline_s)
        if not done:
            raise TimeoutError(f"no answer within {self._deadline_s:g} s")
        finished, self._polling = self._polling, None
        return finished.result()

    def _read(self, full: bool) -> _Poll:
        own, begun_s = self._own_mig(), self._wall()
        inventory = self._backend.inventory() if full else None  # first: a GPU has a status once it was in an inventory
        return _Poll(
            begun_s=begun_s,
            inventory=inventory,
            statuses=self._backend.statuses(),
            xids=self._backend.xids(),
            telemetry=self._backend.telemetry(),
            conditions=self._backend.conditions() if full else None,
            # Before and after: a MIG device that a claim created or destroyed meanwhile is ours, too.
            own_mig=own | self._own_mig(),
        )

    def _update_faults(self, statuses: tuple[GpuStatus, ...], events: tuple[Xid, ...]) -> None:
        for event in events:
            log.warning("GPU %s: %s: %s", event.uuid, xids.describe(event.code), xids.classify(event.code))
        self._keep_faults(faults.fold(self._faults, statuses, events, now_s=self._wall()))

    def _keep_faults(self, found: Faults) -> None:
        before, self._faults = self._faults, found
        if self._faults == before:
            return
        for uuid in sorted(before.keys() | self._faults.keys()):
            if before.get(uuid) != self._faults.get(uuid):
                message = faults.describe(self._faults, uuid) or "healthy again"
                log.warning("GPU %s: %s", uuid, message, extra={"severe": faults.is_severe(self._faults, uuid)})
        if self._save_faults is not None:
            self._save_faults(self._faults)

    def _rebuild_slices(self) -> bool:
        """Whether the slices are others than before."""
        facts = _Facts(
            inventory=self.inventory,
            taints=_joined(faults.taints(self._faults), self._drains.taints()),
            reasons={uuid: faults.describe(self._faults, uuid) for uuid in self._faults},
            partitionable=self._known.partitionable,
            mig_in_use=frozenset(uuid for uuid, _, _ in self._own_mig())
            if self._kept.counters is None
            else frozenset(),
            releasing=self.releasing(),
            kept=self._kept,
        )
        if facts == self._built_from:
            built = self.built
        else:
            built = slices.build(
                self.inventory,
                taints=facts.taints,
                partitionable=facts.partitionable,
                shared=self._shared_gpus,
                shared_mig=self._shared_mig,
                shared_replicas=self._shared_replicas,
                mig_strategy=self._mig_strategy,
                kept=facts.kept,
                mig_in_use=facts.mig_in_use,
                released=facts.releasing,
                reasons=facts.reasons,
            )
        changed = (built.slices, built.notes) != (self.built.slices, self.built.notes)
        self.built, self._built_from = built, facts
        warnings = (*self.inventory.warnings, *built.warnings)
        for warning in sorted(set(warnings) - set(self._warned)):
            log.warning("%s", warning)
        self._warned = warnings
        return changed


def _joined(
    one: Mapping[str, tuple[DeviceTaint, ...]], other: Mapping[str, tuple[DeviceTaint, ...]]
) -> dict[str, tuple[DeviceTaint, ...]]:
    return {uuid: one.get(uuid, ()) + other.get(uuid, ()) for uuid in sorted(one.keys() | other.keys())}
