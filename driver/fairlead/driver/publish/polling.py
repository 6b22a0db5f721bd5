"""One poll of the node's hardware: read in a thread, with a deadline on the waiting."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable

from fairlead.driver.backend.interface import Backend
from fairlead.driver.backend.types import GpuCondition, GpuStatus, Inventory, MigPlacement, Telemetry, Xid
from fairlead.driver.common.threads import Threads
from fairlead.kube.limits import Clock


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """`begun_s` in epoch seconds. `inventory` and `conditions` are of full polls only."""

    begun_s: float
    inventory: Inventory | None
    statuses: tuple[GpuStatus, ...]
    xids: tuple[Xid, ...]
    telemetry: tuple[Telemetry, ...]
    conditions: tuple[GpuCondition, ...] | None
    own_mig: frozenset[MigPlacement]

    @property
    def lost(self) -> frozenset[str]:
        """UUIDs of GPUs that do not respond."""
        return frozenset(status.uuid for status in self.statuses if status.responds is False)


class Poller:
    """`own_mig` gives the MIG devices that the driver created."""

    def __init__(
        self,
        backend: Backend,
        threads: Threads,
        *,
        own_mig: Callable[[], frozenset[MigPlacement]] = frozenset,
        deadline_s: float = 30.0,
        wall: Clock = time.time,
    ) -> None:
        self.own_mig = own_mig
        self.deadline_s = deadline_s
        self._backend = backend
        self._threads = threads
        self._wall = wall
        self._polling: asyncio.Task[Poll] | None = None

    async def read(self, *, full: bool) -> Poll:
        """Everything, or without `full` only health, Xids and load, which is much cheaper. Raises BackendError or TimeoutError.

        The next call waits for one that hangs, so that no more threads hang with it.
        """
        if self._polling is None:
            self._polling = asyncio.get_running_loop().create_task(self._threads.run(self._read, full))
        done, _ = await asyncio.wait({self._polling}, timeout=self.deadline_s)
        if not done:
            raise TimeoutError(f"no answer within {self.deadline_s:g} s")
        finished, self._polling = self._polling, None
        return finished.result()

    def _read(self, full: bool) -> Poll:
        own, begun_s = self.own_mig(), self._wall()
        inventory = self._backend.inventory() if full else None  # first: a GPU has a status once it was in an inventory
        return Poll(
            begun_s=begun_s,
            inventory=inventory,
            statuses=self._backend.statuses(),
            xids=self._backend.xids(),
            telemetry=self._backend.telemetry(),
            conditions=self._backend.conditions() if full else None,
            # Before and after: a MIG device that a claim created or destroyed meanwhile is ours, too.
            own_mig=own | self.own_mig(),
        )
