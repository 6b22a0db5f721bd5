"""How long the loop waits when nothing happens. Time passes only while it waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from fairlead.controller.loop import GATHER_S, Controller
from fairlead.controller.watch.triggers import Triggers
from fairlead.kube.timing import Time
from tests.controller.gang_views import NOW
from tests.support.parts import shared
from tests.support.protocol import Silent

PAUSE_S = 2.0


class Decisions:
    """A cycle of which the pacing allows no decision for `PAUSE_S`."""

    plan, took_s, due_at = None, 0.0, None

    def __init__(self, triggers: Triggers) -> None:
        self.now = NOW
        self.at: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._triggers = triggers

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def wait_s(self) -> float:
        return max(0.0, NOW + PAUSE_S - self.now)

    async def decide(self, now: float) -> set[Any]:
        self._triggers.decided()
        self.at.set_result(now)
        return set()

    def carry_out(self, now: float) -> set[Any]:
        return set()

    def expire(self, now: float) -> None: ...


def unchanged(*, turns: bool) -> set[Any]:
    return set()


async def test_a_decision_that_was_put_off_is_made_when_its_pause_is_over_though_nothing_else_happens() -> None:
    triggers = Triggers()
    cycle = Decisions(triggers)
    nobody: Any = Silent()
    watched = SimpleNamespace(
        triggers=triggers, gangs={}, refresh=unchanged, reported_gangs=set, refresh_all=nobody.any
    )
    reconciler: Any = SimpleNamespace(
        expire=nobody.any, reconcile=lambda changed, now: set(), collect_garbage=nobody.any,
        next_due=lambda: cycle.now + 300.0,
    )  # fmt: skip
    reporting: Any = SimpleNamespace(behind=False, decided=nobody.any, report=nobody.any, failed=nobody.any)
    time = Time(clock=lambda: cycle.now, wall=lambda: cycle.now, sleep=cycle.sleep)
    parts = shared(caches=watched, time=time)
    controller = Controller(parts, reconciler, cycle, reporting, nobody, nobody)  # type: ignore[arg-type]
    running = asyncio.create_task(controller.run())
    try:
        assert NOW + PAUSE_S <= await asyncio.wait_for(cycle.at, 10) <= NOW + PAUSE_S + 2 * GATHER_S
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
