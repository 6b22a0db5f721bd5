"""Looks after the MPS daemons of prepared claims: one that died is started again, with its limits.

Exists because a daemon dies with the container that it was started in, at every update of the driver, or on its own; its
claim's next programs would then run without limits, or not at all. Programs that were its clients are lost with it: CUDA has
no way back to another daemon. A daemon that cannot be started is told in the health stream, and tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fairlead.driver.common.process_lock import ProcessLock, ProcessLockError
from fairlead.driver.common.threads import Threads
from fairlead.driver.prepare.preparer import PrepareError, Preparer
from fairlead.kube.limits import Sleep

log = logging.getLogger(__name__)

TURN_S = 10.0


class MpsWatch:
    """`look` looks once, `run` at once and then every `interval_s`. `restarted` is called for each daemon started again."""

    def __init__(
        self,
        preparer: Preparer,
        *,
        process_lock: ProcessLock,
        threads: Threads,
        restarted: Callable[[], None],
        interval_s: float = 5.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.ailing: dict[str, str] = {}
        """Devices (by name) whose daemon is dead and cannot be started, and why."""
        self._preparer = preparer
        self._process_lock = process_lock
        self._threads = threads
        self._restarted = restarted
        self._interval_s = interval_s
        self._sleep = sleep

    async def run(self) -> None:
        while True:
            await self.look()
            await self._sleep(self._interval_s)

    async def look(self) -> None:
        ailing: dict[str, str] = {}
        for record in await self._threads.run(self._preparer.unserved):
            try:
                async with self._process_lock.hold(timeout_s=TURN_S):
                    revived = await self._threads.run(self._preparer.revive, record.uid)
            except (PrepareError, ProcessLockError) as error:
                if not self.ailing:
                    log.error("%s: its MPS daemon is dead and cannot be started: %s", record, error)
                assert record.mps is not None
                ailing |= dict.fromkeys(record.mps.devices, f"no MPS daemon: {error}")
                continue
            if revived:
                self._restarted()
                log.warning(
                    "%s: its MPS daemon had died and was started again; programs that it served are lost", record
                )
        self.ailing = ailing
