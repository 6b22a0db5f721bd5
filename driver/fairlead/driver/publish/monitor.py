"""Polls the node's hardware, and holds what was read last: inventory, load, faults, Xids, health, and the slices to publish.

Prepare reads the inventory from here: NVML is not queried for what seldom changes. Discovery, health and slices are of
one poll. Never blocks the event loop: each poll runs in a thread, with a deadline on the waiting; while one hangs, the last results
stay, and the next call waits for it, so that no more threads hang with it. The slices are built again whenever anything has changed
from which they follow.

Drains are of GPUs that get no new claims, and wait until those that hold them have ended. A reason for draining (`mig-config`, `repair`)
owns its own set of GPUs, so that two may drain one GPU and neither ends the other's. In three steps: tainted, so that nothing new is
allocated there, while claims that were allocated before are still prepared; free, when no claim's record names the GPU any more
(`prepare.records.holders`); closed, when claims are refused while the GPU is changed.
Example: GPU 0 is to be cut again, and claim ml/train holds it. It is tainted `gpu.fairlead.dev/mig-config:NoSchedule`; once
ml/train is unprepared it is closed, cut, published as it is then, and opened again without the taint.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Literal

from fairlead.api import names
from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.types import GpuCondition, GpuStatus, Inventory, MigPlacement, Telemetry, Xid
from fairlead.driver.common.threads import Threads
from fairlead.driver.publish import faults as fault_list
from fairlead.driver.publish import slices
from fairlead.driver.publish.devices import KnownGpus, Spans
from fairlead.driver.publish.faults import DeviceHealth, Fault
from fairlead.driver.publish.known_faults import KnownFaults, XidCounts
from fairlead.driver.publish.slices import ALL_KEPT, Kept, Offer, PoolSlices
from fairlead.kube.resource import DeviceTaint
from fairlead.kube.timing import REAL, Time

log = logging.getLogger(__name__)

# NVML never answers a process again under which NVIDIA's driver was replaced.
RESTART_AFTER_S = 120.0
# In polls: reading what the GPUs are takes a thousand queries, and it seldom changes.
INVENTORY_EVERY = 12


Reason = Literal["mig-config", "repair"]
"""The name of the taint after `gpu.fairlead.dev/`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """`value` is the taint's; `closed` says why no claim can be prepared on the GPU now, for the user, or is empty."""

    value: str = ""
    closed: str = ""


class Drains:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._by_reason: dict[Reason, dict[str, Drain]] = {}

    def replace(self, reason: Reason, gpus: Mapping[str, Drain]) -> None:
        """All GPUs (by UUID) that are drained for this reason from now on; the others are not any more."""
        with self._mutex:
            self._by_reason[reason] = dict(gpus)

    def of(self, reason: Reason) -> dict[str, Drain]:
        """The GPUs that are drained for this reason."""
        with self._mutex:
            return dict(self._by_reason.get(reason, {}))

    def taints(self) -> dict[str, tuple[DeviceTaint, ...]]:
        """By the GPU's UUID: for the GPU and its MIG devices."""
        found: dict[str, tuple[DeviceTaint, ...]] = {}
        with self._mutex:
            for reason, gpus in sorted(self._by_reason.items()):
                for uuid, drain in gpus.items():
                    taint = DeviceTaint(key=f"{names.DRIVER}/{reason}", value=drain.value, effect="NoSchedule")
                    found[uuid] = (*found.get(uuid, ()), taint)
        return found

    def closed(self, uuid: str) -> str | None:
        """Why no claim can be prepared on the GPU now; None when claims can be."""
        with self._mutex:
            drains = (gpus[uuid] for _, gpus in sorted(self._by_reason.items()) if uuid in gpus)
            return next((drain.closed for drain in drains if drain.closed), None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Poll:
    """`begun_s` in epoch seconds. `inventory` and `conditions` are of full polls only."""

    begun_s: float
    inventory: Inventory | None
    statuses: tuple[GpuStatus, ...]
    xids: tuple[Xid, ...]
    telemetry: tuple[Telemetry, ...]
    conditions: tuple[GpuCondition, ...] | None
    own_mig: frozenset[MigPlacement]


class HealthFeed:
    """The latest health of the devices, and a way to wait for the next: what kubelet's health streams read."""

    def __init__(self) -> None:
        self.devices: tuple[DeviceHealth, ...] = ()
        self._next: asyncio.Event = asyncio.Event()
        self._closed = False

    def publish(self, devices: tuple[DeviceHealth, ...]) -> None:
        """Wakes every subscriber even if nothing changed: kubelet takes 30 s of silence for unknown health."""
        self.devices = devices
        self._next.set()
        self._next = asyncio.Event()

    def close(self) -> None:
        """End every subscription."""
        self._closed = True
        self._next.set()

    async def subscribe(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """The complete list now, and again whenever it is published."""
        while not self._closed:
            published = self._next
            yield self.devices
            await published.wait()


@dataclasses.dataclass(eq=False)
class HardwareMonitor:
    """`poll` reads the hardware once, `run` again and again; it calls `changed` when the slices are others.

    `kept` is what the apiserver is believed to keep; `drains` are the GPUs that get no new claims; `own_mig` gives the MIG devices that
    the driver created.
    """

    backend: Backend
    threads: Threads
    faults: KnownFaults
    _: dataclasses.KW_ONLY
    pool: str
    offer: Offer = dataclasses.field(default_factory=Offer)
    kept: Kept = ALL_KEPT
    drains: Drains = dataclasses.field(default_factory=Drains)
    own_mig: Callable[[], frozenset[MigPlacement]] = frozenset
    interval_s: float = 5.0
    timing: Time = REAL

    def __post_init__(self) -> None:
        self.inventory = Inventory()
        self.telemetry: tuple[Telemetry, ...] = ()
        self.conditions: tuple[GpuCondition, ...] = ()
        self.xids = XidCounts()
        self.health = HealthFeed()
        self.built = PoolSlices(slices=())
        """What should be published."""
        self.releasing: Callable[[], Spans] = dict
        """What claims that are gone have still, by GPU."""
        self.problem: str | None = "not polled yet"
        """Why the last poll failed: readiness."""
        self.full_at_s = 0.0
        """When the last full poll began, in epoch seconds."""
        self.sampled: Callable[[float, Sequence[Telemetry]], None] | None = None
        """Is called with the time and the readings of each poll; must not block."""
        self.deadline_s = 30.0
        """How long a poll is waited for."""
        self._known = KnownGpus(dynamic_mig=self.offer.dynamic_mig)
        self._polling: asyncio.Task[_Poll] | None = None
        self._unhealthy: Mapping[str, str] = {}
        self._failing_since_s: float | None = None
        self._full_wanted = False
        self._lost: frozenset[str] = frozenset()
        self._built_from: tuple[Inventory, slices.Facts] | None = None
        self._warned: tuple[str, ...] = ()

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
        return self.faults.current.get(uuid, ())

    def healed(self, uuids: Collection[str]) -> None:
        """These GPUs were reset and found well: the faults that this cures end."""
        self.faults.healed(uuids)

    def read_again(self) -> None:
        """The hardware was changed: the next poll is a full one."""
        self._full_wanted = True

    @property
    def restart_reason(self) -> str | None:
        """Liveness: why only a new process would reach the hardware. Not a call that hangs: there it hangs, too."""
        since_s = self._failing_since_s
        if since_s is None or (for_s := self.timing.wall() - since_s) < RESTART_AFTER_S:
            return None
        return f"the hardware has failed every poll for {for_s:.0f} s: {self.problem}"

    # -- what is published -------------------------------------------------------------------------------------------

    def keep(self, kept: Kept) -> None:
        """What is published follows what the apiserver keeps at once."""
        self.kept = kept
        self.rebuild()

    def rebuild(self) -> bool:
        """What is published follows drains and faults at once; True when it is other than before."""
        faults, drained = self.faults.current, self.drains.taints()
        tainted = fault_list.taints(faults)
        facts = slices.Facts(
            taints={
                uuid: tainted.get(uuid, ()) + drained.get(uuid, ()) for uuid in sorted(tainted.keys() | drained.keys())
            },
            reasons={uuid: fault_list.describe(faults, uuid) for uuid in faults},
            partitionable=self._known.partitionable,
            mig_in_use=frozenset(uuid for uuid, _, _ in self.own_mig()) if self.kept.counters is None else frozenset(),
            releasing=self.releasing(),
            kept=self.kept,
            offer=self.offer,
        )
        if (self.inventory, facts) == self._built_from:
            return False
        before, self.built = self.built, slices.build(self.inventory, facts)
        self._built_from = self.inventory, facts
        warnings = (*self.inventory.warnings, *self.built.warnings)
        for warning in sorted(set(warnings) - set(self._warned)):
            log.warning("%s", warning)
        self._warned = warnings
        return (self.built.slices, self.built.notes) != (before.slices, before.notes)

    # -- polling -----------------------------------------------------------------------------------------------------

    async def poll(self, *, full: bool = True) -> bool:
        """Read everything, or without `full` only health, Xids and load, which is much cheaper.

        True when what should be published changed. Raises BackendError or TimeoutError.
        """
        if full:
            self._full_wanted = False
        try:
            read = await self._read(full)
        except BaseException:
            self._full_wanted = self._full_wanted or full
            raise
        now_s = self.timing.wall()
        lost = frozenset(status.uuid for status in read.statuses if status.responds is False)
        self.faults.update(read.statuses, read.xids, now_s=now_s)
        self.telemetry = read.telemetry
        self.xids.add(read.xids)
        conditions = self.conditions if read.conditions is None else read.conditions
        self.conditions = tuple(each for each in conditions if each.uuid not in lost)
        if read.inventory is not None:
            self.full_at_s = read.begun_s
            self.inventory = self._known.update(read.inventory, lost=lost, own=read.own_mig)
        if self.sampled is not None:
            self.sampled(now_s, read.telemetry)
        self._full_wanted = self._full_wanted or lost != self._lost
        self._lost = lost
        changed = self.rebuild()
        self.health.publish(
            fault_list.device_health(
                self.built.known,
                read.statuses,
                self.faults.current,
                unhealthy=self._unhealthy,
                pool=self.pool,
                now_s=now_s,
            )
        )
        self.problem = self._failing_since_s = None
        return changed

    async def _read(self, full: bool) -> _Poll:
        if self._polling is None:
            self._polling = asyncio.get_running_loop().create_task(self.threads.run(self._read_hardware, full))
        done, _ = await asyncio.wait({self._polling}, timeout=self.deadline_s)
        if not done:
            raise TimeoutError(f"no answer within {self.deadline_s:g} s")
        finished, self._polling = self._polling, None
        return finished.result()

    def _read_hardware(self, full: bool) -> _Poll:
        own, begun_s = self.own_mig(), self.timing.wall()
        inventory = self.backend.inventory() if full else None  # first: a GPU has a status once it was in an inventory
        return _Poll(
            begun_s=begun_s,
            inventory=inventory,
            statuses=self.backend.statuses(),
            xids=self.backend.xids(),
            telemetry=self.backend.telemetry(),
            conditions=self.backend.conditions() if full else None,
            # Before and after: a MIG device that a claim created or destroyed meanwhile is ours, too.
            own_mig=own | self.own_mig(),
        )

    async def run(self, changed: Callable[[PoolSlices], None], polled: Callable[[float], None] | None = None) -> None:
        """Poll every `interval_s`, forever; in full each `INVENTORY_EVERY` polls, and when a GPU is lost or found.

        `polled` is called with the time of each poll that succeeded, after `changed`.
        """
        for number in itertools.count(1):
            await self.timing.sleep(self.interval_s)
            try:
                if await self.poll(full=number % INVENTORY_EVERY == 0 or self._full_wanted):
                    log.info("the node's devices changed", extra={"devices": len(self.built.devices)})
                    changed(self.built)
                if polled is not None:
                    polled(self.timing.wall())
            except (BackendError, TimeoutError) as error:
                problem = str(error)
                if problem != self.problem:
                    log.error("hardware: %s; what was read last stays published", problem)
                self.problem = problem
                if isinstance(error, TimeoutError):
                    self._failing_since_s = None
                elif self._failing_since_s is None:
                    self._failing_since_s = self.timing.wall()
