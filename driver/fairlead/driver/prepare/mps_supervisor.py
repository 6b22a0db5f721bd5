"""Restarts the MPS daemons of prepared claims when they died, with their limits.

A daemon ends with the container that it was started in (at every update of the driver) or on its own; without it the
claim's next programs would run without limits, or not at all. Programs that it served are lost with it: CUDA cannot
reconnect them to another daemon. While a daemon cannot be started its devices are unhealthy in kubelet's health stream;
each check tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from fairlead.driver.common.process_lock import ProcessLock, ProcessLockError
from fairlead.driver.common.threads import Threads
from fairlead.driver.prepare.leftovers import reason
from fairlead.driver.prepare.preparer import PrepareError, Preparer
from fairlead.kube.limits import Sleep

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 10.0


class MpsSupervisor:
    """`check` checks all claims once, `run` at once and then every `interval_s`.

    `restarted` is called for each daemon that was started again, `report_unhealthy` after each check with the devices
    (by name) whose daemon does not run and cannot be started, and why.
    """

    def __init__(
        self,
        preparer: Preparer,
        *,
        process_lock: ProcessLock,
        threads: Threads,
        restarted: Callable[[], None],
        report_unhealthy: Callable[[Mapping[str, str]], None],
        interval_s: float = 5.0,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._preparer = preparer
        self._process_lock = process_lock
        self._threads = threads
        self._restarted = restarted
        self._report_unhealthy = report_unhealthy
        self._interval_s = interval_s
        self._sleep = sleep
        self._failing: frozenset[str] = frozenset()  # UIDs, so that each claim is logged once

    async def run(self) -> None:
        while True:
            try:
                await self.check()
            except Exception:
                log.exception("MPS daemons could not be checked; tried again in %g s", self._interval_s)
            await self._sleep(self._interval_s)

    async def check(self) -> None:
        unhealthy: dict[str, str] = {}
        failing: set[str] = set()
        for record in await self._threads.run(self._preparer.without_mps_daemon):
            try:
                async with self._process_lock.hold(timeout_s=LOCK_TIMEOUT_S):
                    restarted = await self._threads.run(self._preparer.restart_mps_daemon, record.uid)
            except Exception as error:  # of this claim: the next is checked all the same
                why = str(error) if isinstance(error, PrepareError | ProcessLockError) else reason(error)
                if record.uid not in self._failing:
                    log.error("%s: its MPS daemon is dead and cannot be started: %s", record, why)
                failing.add(record.uid)
                unhealthy |= dict.fromkeys(record.mps.devices if record.mps else (), f"no MPS daemon: {why}")
                continue
            if restarted:
                self._restarted()
                log.warning(
                    "%s: its MPS daemon had died and was started again; programs that it served are lost", record
                )
        self._failing = frozenset(failing)
        self._report_unhealthy(unhealthy)
