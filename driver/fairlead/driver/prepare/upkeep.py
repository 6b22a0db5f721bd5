"""What is done for claims beside kubelet's calls: orphans are collected, MPS daemons restarted, leftovers tried again.

**Orphans** (orphans.py) that kubelet never unprepares: a claim can be force-deleted while the driver or kubelet is down; its devices
would be refused to every other claim forever. kubelet's own call is better, and it comes only when the containers have ended, which may
take a pod's whole grace period: so a record has to be an orphan at two collections in a row, and no process may have its GPUs open. An
apiserver that does not answer proves nothing about a claim.

**MPS daemons** end with the container that they were started in (at every update of the driver) or on their own; without one the claim's
next programs would run without limits, or not at all. Programs that it served are lost with it: CUDA cannot reconnect them. While a daemon
cannot be started its devices are unhealthy in kubelet's health stream; each check tries again.

**Leftovers** (leftovers.py) have a back-off each: one that fails, or takes its time, delays no other, and a round waits for none longer
than `ROUND_S`. The first failure of each, and each other reason, is reported.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from fairlead.driver.common.locks import ProcessLock, ProcessLockError
from fairlead.driver.common.threads import Threads
from fairlead.driver.prepare.leftovers import Leftover, Leftovers, reason
from fairlead.driver.prepare.preparer import PrepareError, Preparer
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.kube.limits import Clock, Sleep

log = logging.getLogger(__name__)

LOCK_TIMEOUT_S = 10.0
BACKOFF_S = 5.0
BACKOFF_MAX_S = 300.0
ROUND_S = 10.0
AT_ONCE_MAX = 8
"""Leftovers that are tried at once."""


@dataclasses.dataclass(eq=False)
class OrphanGc:
    """`collect` collects once, `run` every `interval_s`. `is_orphan` asks the apiserver; `in_use` says what uses a record's GPUs,
    or nothing; `unprepare` undoes a record, or raises PrepareError.
    """

    preparer: Preparer
    _: dataclasses.KW_ONLY
    is_orphan: Callable[[ClaimRecord], Awaitable[bool]]
    in_use: Callable[[ClaimRecord], Awaitable[str]]
    unprepare: Callable[[ClaimRecord], Awaitable[None]]
    interval_s: float = 120.0
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self._missing: frozenset[str] = frozenset()

    async def run(self) -> None:
        while True:
            await self.sleep(self.interval_s)
            try:
                await self.collect()
            except Exception:
                log.exception("orphans could not be collected; tried again in %g s", self.interval_s)

    async def collect(self) -> list[str]:
        """UIDs of the claims that were unprepared."""
        missing: set[str] = set()
        collected: list[str] = []
        for record in self.preparer.records():
            if not await self.is_orphan(record):
                continue
            if record.uid not in self._missing:
                missing.add(record.uid)
                continue
            if users := await self.in_use(record):
                log.warning("%s no longer exists, and is not unprepared: %s", record, users)
                missing.add(record.uid)
                continue
            try:
                await self.unprepare(record)
            except Exception as error:  # of this claim: the next is collected all the same
                why = str(error) if isinstance(error, PrepareError) else reason(error)
                log.error("%s no longer exists, but cannot be unprepared: %s", record, why)
                missing.add(record.uid)
            else:
                log.warning("%s no longer exists; it was unprepared without a call of kubelet", record)
                collected.append(record.uid)
        self._missing = frozenset(missing)
        return collected


@dataclasses.dataclass(eq=False)
class MpsSupervisor:
    """`check` checks all claims once, `run` at once and then every `interval_s`.

    `restarted` is called for each daemon that was started again, `report_unhealthy` after each check with the devices
    (by name) whose daemon does not run and cannot be started, and why.
    """

    preparer: Preparer
    _: dataclasses.KW_ONLY
    process_lock: ProcessLock
    threads: Threads
    restarted: Callable[[], None]
    report_unhealthy: Callable[[Mapping[str, str]], None]
    interval_s: float = 5.0
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self._failing: frozenset[str] = frozenset()  # UIDs, so that each claim is logged once

    async def run(self) -> None:
        while True:
            try:
                await self.check()
            except Exception:
                log.exception("MPS daemons could not be checked; tried again in %g s", self.interval_s)
            await self.sleep(self.interval_s)

    async def check(self) -> None:
        unhealthy: dict[str, str] = {}
        failing: set[str] = set()
        for record in await self.threads.run(self.preparer.without_mps_daemon):
            try:
                async with self.process_lock.hold(timeout_s=LOCK_TIMEOUT_S):
                    restarted = await self.threads.run(self.preparer.restart_mps_daemon, record.uid)
            except Exception as error:  # of this claim: the next is checked all the same
                why = str(error) if isinstance(error, PrepareError | ProcessLockError) else reason(error)
                if record.uid not in self._failing:
                    log.error("%s: its MPS daemon is dead and cannot be started: %s", record, why)
                failing.add(record.uid)
                unhealthy |= dict.fromkeys(record.mps.devices if record.mps else (), f"no MPS daemon: {why}")
                continue
            if restarted:
                self.restarted()
                log.warning(
                    "%s: its MPS daemon had died and was started again; programs that it served are lost", record
                )
        self._failing = frozenset(failing)
        self.report_unhealthy(unhealthy)


@dataclasses.dataclass(slots=True)
class _Tried:
    failures: int = 0
    due_s: float = 0.0
    reported: str = ""


@dataclasses.dataclass(eq=False)
class Cleaner:
    """`clean` is one round, `run` rounds every `interval_s`.

    `report` is called with what could not be removed, why, and when it is tried again; `count` after each round with
    the number left, by kind.
    """

    leftovers: Leftovers
    _: dataclasses.KW_ONLY
    process_lock: ProcessLock
    threads: Threads
    report: Callable[[Leftover, str, float], None]
    count: Callable[[Mapping[str, int]], None]
    interval_s: float = 5.0
    clock: Clock = time.monotonic
    sleep: Sleep = asyncio.sleep

    def __post_init__(self) -> None:
        self._tried: dict[Leftover, _Tried] = {}
        self._running: dict[Leftover, asyncio.Task[None]] = {}

    async def run(self) -> None:
        while True:
            try:
                await self.clean()
            except Exception:
                log.exception("cannot list what is left of claims; tried again in %g s", self.interval_s)
            await self.sleep(self.interval_s)

    async def clean(self) -> None:
        """Try what is due, and no longer than `ROUND_S`; what takes longer goes on. Raises OSError."""
        found = await self.threads.run(self.leftovers.all)
        self._tried = {each: self._tried.get(each, _Tried()) for each in found}
        free = AT_ONCE_MAX - len(self._running)
        due = [each for each in found if each not in self._running and self._tried[each].due_s <= self.clock()]
        for each in sorted(due, key=lambda one: self._tried[one].due_s)[: max(0, free)]:
            task = asyncio.get_running_loop().create_task(self._attempt(each))
            self._running[each] = task
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=ROUND_S)
        self.count(Counter(each.kind for each in await self.threads.run(self.leftovers.all)))

    async def _attempt(self, each: Leftover) -> None:
        try:
            await self._try(each, self._tried[each])
        finally:
            del self._running[each]

    async def _try(self, each: Leftover, tried: _Tried) -> None:
        try:
            async with self.process_lock.hold(timeout_s=LOCK_TIMEOUT_S):
                done = await self.threads.run(self.leftovers.attempt, each)
        except Exception as error:
            tried.failures += 1
            wait_s = min(BACKOFF_MAX_S, BACKOFF_S * 2.0 ** min(tried.failures - 1, 16))
            tried.due_s = self.clock() + wait_s
            if (why := reason(error)) != tried.reported:
                tried.reported = why
                self.report(each, why, wait_s)
            return
        tried.failures, tried.due_s = 0, self.clock()  # after the others, where it needs another attempt
        if done:
            log.info("%s: what was left is removed", each.subject)
