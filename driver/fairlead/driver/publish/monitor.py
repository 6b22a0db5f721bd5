"""The node's hardware as the driver last saw it, looked at again and again.

Exists so that prepare does not query NVML for what seldom changes, and so that discovery, health and publication see
one moment. A GPU that answered once and is lost now stays in the inventory, tainted: it still is in claims.
Blocks nowhere: each look is in a thread, with a deadline; a look that hangs leaves the last one standing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Mapping

from fairlead.driver.backend import xids
from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.types import Gpu, GpuStatus, Inventory, NvLink, Telemetry, Xid
from fairlead.driver.common.threads import Threads
from fairlead.driver.publish import faults, health, slices
from fairlead.driver.publish.faults import Ledger
from fairlead.driver.publish.slices import Built, Layout
from fairlead.kube.limits import Clock, Sleep

log = logging.getLogger(__name__)


# A driver that was replaced under a running process never answers that process again.
DEAF_S = 120.0
# Of the looks: what a GPU is changes seldom, and reading all of it is a thousand queries.
INVENTORY_EVERY = 12


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    inventory: Inventory | None
    watched: tuple[GpuStatus, ...]
    xids: tuple[Xid, ...]
    telemetry: tuple[Telemetry, ...]
    own: frozenset[tuple[str, int, int]]


class Hardware:
    """`look` reads everything once; `watch` goes on reading and calls `changed` when there is something to publish.

    `own` gives the MIG devices that the driver made: (GPU UUID, profile ID, start). `remember` is called with the ledger
    of faults whenever it changes. `ailing` gives what is wrong with single devices, by name, though their GPU is well.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        pool: str,
        threads: Threads,
        dynamic_mig: bool = False,
        shared_gpus: bool = False,
        layout: Layout = "split",
        interval_s: float = 5.0,
        deadline_s: float = 30.0,
        wall: Clock = time.time,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.inventory = Inventory()
        self.telemetry: tuple[Telemetry, ...] = ()
        self.ledger: Ledger = {}
        self.remember: Callable[[Ledger], None] | None = None
        self.built = Built(slices=())
        self.board = health.HealthBoard()
        self.problem: str | None = "not looked at yet"
        """Why the last look failed: readiness."""
        self._failing_since_s: float | None = None
        self.layout: Layout = layout
        self.ailing: Callable[[], Mapping[str, str]] = dict
        self.own: Callable[[], frozenset[tuple[str, int, int]]] = frozenset
        self._backend = backend
        self._pool = pool
        self._threads = threads
        self._dynamic = dynamic_mig
        self._shared = shared_gpus
        self._interval_s = interval_s
        self._deadline_s = deadline_s
        self._wall = wall
        self._sleep = sleep
        self._known: dict[str, Gpu] = {}
        self._links: dict[str, tuple[NvLink | None, str | None]] = {}
        self._reading: asyncio.Task[_Seen] | None = None
        self._gone: frozenset[str] = frozenset()
        self._came_or_went = False
        self._warned: tuple[str, ...] = ()
        self._partitionable: frozenset[str] = frozenset()
        self._facts: tuple[Inventory, Ledger, frozenset[str]] | None = None

    def partitionable(self) -> frozenset[str]:
        """UUIDs of the GPUs whose MIG devices are made on demand: none of theirs was made by somebody else."""
        return self._partitionable

    def unusable(self, uuid: str) -> str | None:
        """Why a GPU cannot be given to anyone now: it is lost. One that needs a reset may still serve who has it."""
        return next((fault.message for fault in self.ledger.get(uuid, ()) if fault.kind == "gpu-lost"), None)

    @property
    def deaf(self) -> str | None:
        """Why only a new process would reach the hardware: liveness. A call that hangs is no reason; it would hang there too."""
        since_s = self._failing_since_s
        if since_s is None or self._wall() - since_s < DEAF_S:
            return None
        return f"the hardware refuses every look for {self._wall() - since_s:.0f} s: {self.problem}"

    async def look(self, *, whole: bool = True) -> bool:
        """See everything now, or (not `whole`) only how the GPUs are, which is much cheaper than what they are.

        True when what should be published changed. Raises BackendError or TimeoutError.
        """
        seen = await self._finished(whole)
        self._fold(seen.watched, seen.xids)
        self.telemetry = seen.telemetry
        gone = frozenset(one.uuid for one in seen.watched if one.responds is False)
        if seen.inventory is not None:
            self._take(seen.inventory, gone, seen.own)
        self._came_or_went = gone != self._gone
        self._gone = gone
        facts = (self.inventory, self.ledger, self._partitionable)
        if facts == self._facts:
            built = self.built
        else:
            built = slices.build(
                self.inventory,
                taints=faults.taints(self.ledger),
                partitionable=self._partitionable,
                shared=self._shared,
                layout=self.layout,
            )
        changed = built.slices != self.built.slices
        self.built, self._facts = built, facts
        warnings = (*self.inventory.warnings, *built.warnings)
        for warning in sorted(set(warnings) - set(self._warned)):
            log.warning("%s", warning)
        self._warned = warnings
        self.board.post(
            health.states(
                built.devices, seen.watched, self.ledger, ailing=self.ailing(), pool=self._pool, now_s=self._wall()
            )
        )
        self.problem = self._failing_since_s = None
        return changed

    def _take(self, inventory: Inventory, gone: frozenset[str], own: frozenset[tuple[str, int, int]]) -> None:
        """The GPUs that are there, and those that were and are lost now: they still are in claims."""
        partitionable = _free_to_cut(inventory, own) if self._dynamic else frozenset()
        cut = frozenset(gpu.uuid for gpu in inventory.gpus if gpu.uuid in partitionable and gpu.mig_devices)
        if not cut:
            self._links = {gpu.uuid: (gpu.nvlink, gpu.clique) for gpu in inventory.gpus}
        # What is published must not change with what is cut just now: counters tell what is left of a GPU.
        present = {gpu.uuid: _uncut(gpu, cut, self._links) if cut else gpu for gpu in inventory.gpus}
        kept = {uuid: gpu for uuid, gpu in self._known.items() if uuid in gone and uuid not in present}
        self._known = present | kept
        gpus = tuple(sorted(self._known.values(), key=lambda gpu: (gpu.minor, gpu.uuid)))
        self.inventory = dataclasses.replace(inventory, gpus=gpus)
        self._partitionable = partitionable | (self._partitionable & kept.keys())

    async def watch(self, changed: Callable[[Built], None]) -> None:
        """Look every `interval_s`, for ever; at what there is every `INVENTORY_EVERY` looks, or when a GPU came or went."""
        for number in itertools.count(1):
            await self._sleep(self._interval_s)
            try:
                if await self.look(whole=number % INVENTORY_EVERY == 0 or self._came_or_went):
                    log.info("the node's devices changed", extra={"devices": len(self.built.devices)})
                    changed(self.built)
            except (BackendError, TimeoutError) as error:
                problem = str(error)
                if problem != self.problem:
                    log.error("hardware: %s; what was seen last stays published", problem)
                self.problem = problem
                if isinstance(error, TimeoutError):
                    self._failing_since_s = None
                elif self._failing_since_s is None:
                    self._failing_since_s = self._wall()

    async def _finished(self, whole: bool) -> _Seen:
        """One reading. One that hangs is waited for again, so that no more threads hang with it."""
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._threads.run(self._read, whole))
        done, _ = await asyncio.wait({self._reading}, timeout=self._deadline_s)
        if not done:
            raise TimeoutError(f"no answer within {self._deadline_s:g} s")
        reading, self._reading = self._reading, None
        return reading.result()

    def _read(self, whole: bool) -> _Seen:
        own = self.own()
        inventory = self._backend.inventory() if whole else None  # first: only GPUs that were seen are watched
        return _Seen(
            inventory=inventory,
            watched=self._backend.statuses(),
            xids=self._backend.xids(),
            telemetry=self._backend.telemetry(),
            # What was ours before and after: a MIG device that came or went meanwhile is not somebody else's.
            own=own | self.own(),
        )

    def _fold(self, watched: tuple[GpuStatus, ...], events: tuple[Xid, ...]) -> None:
        before = self.ledger
        self.ledger = faults.fold(before, watched, events, now_s=self._wall())
        for event in events:
            log.warning("GPU %s: %s: %s", event.uuid, xids.describe(event.code), xids.classify(event.code))
        if self.ledger == before:
            return
        for uuid in sorted(before.keys() | self.ledger.keys()):
            if before.get(uuid) != self.ledger.get(uuid):
                told = faults.message(self.ledger, uuid) or "well again"
                log.warning("GPU %s: %s", uuid, told, extra={"severe": faults.severe(self.ledger, uuid)})
        if self.remember is not None:
            self.remember(self.ledger)


def _uncut(gpu: Gpu, cut: frozenset[str], links: Mapping[str, tuple[NvLink | None, str | None]]) -> Gpu:
    """A GPU of a node where some (`cut`) are cut on demand, as it is when none is: MIG mode takes NVLink from both ends."""
    nvlink, clique = links.get(gpu.uuid, (gpu.nvlink, gpu.clique))
    enabled = False if gpu.uuid in cut and gpu.mig_mutable else gpu.mig_enabled
    return dataclasses.replace(gpu, nvlink=nvlink, clique=clique, mig_enabled=enabled)


def _free_to_cut(inventory: Inventory, own: frozenset[tuple[str, int, int]]) -> frozenset[str]:
    """GPUs whose every MIG device is our own."""
    return frozenset(
        gpu.uuid
        for gpu in inventory.gpus
        if gpu.mig_profiles
        and (gpu.mig_mutable or gpu.mig_enabled)
        and all((gpu.uuid, mig.profile.id, mig.start) in own for mig in gpu.mig_devices)
    )
