"""A gang that waits long for alternating reasons floods neither events nor its status; both state the same."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.report import gang_status
from fairlead.controller.report.reporter import MESSAGES_PER_S, QUIET_S
from fairlead.engine.types.reasons import Code
from fairlead.kube.events import PER_OBJECT_BURST, PER_OBJECT_EVERY_S
from tests.controller.report.report_bench import Setup, running, waiting_gang, waits

LONG_S = 600
CODES = (Code.NO_DEVICES, Code.OVER_SHARE, Code.PROTECTED, Code.COMING_FREE)


@pytest.fixture
async def setup() -> AsyncIterator[Setup]:
    async with running() as made:
        yield made


async def test_ten_minutes_of_a_new_reason_each_second_is_a_bounded_number_of_writes(setup: Setup):
    gang = waiting_gang()
    codes = itertools.cycle(CODES)
    for second in range(LONG_S):
        setup.reporter.gang(gang, waits(gang, next(codes), f"{second} devices are missing"))
        await setup.time.advance(1.0)
    assert setup.objects.written["gangs/status"] <= LONG_S / QUIET_S + 1
    bound = PER_OBJECT_BURST + LONG_S / PER_OBJECT_EVERY_S + 1
    assert len(setup.events("Gang")) <= bound
    assert len(setup.events("Pod")) <= bound
    assert setup.recorder.dropped > 0


async def test_status_condition_and_event_have_the_same_reason_and_message(setup: Setup):
    gang = waiting_gang()
    for code in CODES:
        setup.reporter.gang(gang, waits(gang, code, f"because of {code}"))
        await setup.time.advance(QUIET_S + 1)
        status = setup.objects.gangs["ml/g"]["status"]
        (admitted,) = (each for each in status["conditions"] if each["type"] == "Admitted")
        last = max(setup.events("Gang"), key=lambda event: event["lastTimestamp"])
        assert {status["reason"], admitted["reason"], last["reason"]} == {code.value}
        assert {status["message"], admitted["message"], last["message"]} == {f"Because of {code}. Wait."}


async def test_a_reason_that_changes_once_is_written_at_once(setup: Setup):
    gang = waiting_gang()
    setup.reporter.gang(gang, waits(gang, Code.NO_DEVICES, "none is free"))
    await setup.time.advance(60.0)
    setup.reporter.gang(gang, waits(gang, Code.COMING_FREE, "soon"))
    await setup.time.advance(1.0)
    assert setup.objects.gangs["ml/g"]["status"]["reason"] == "DevicesComingFree"


async def test_of_many_waiting_gangs_only_so_many_messages_are_written_a_second(setup: Setup):
    """Each of a namespace of its own, so that no namespace's rate bounds them."""
    gangs = [waiting_gang(f"g{number}", namespace=f"team-{number}") for number in range(500)]
    for gang in gangs:
        setup.reporter.gang(gang, waits(gang, Code.NO_DEVICES, "0"))
    await setup.time.advance(60.0)
    before = setup.objects.written["gangs/status"]
    for second in range(20):
        for gang in gangs:
            setup.reporter.gang(gang, waits(gang, Code.NO_DEVICES, f"{second} devices are missing"))
        await setup.time.advance(1.0)
    written = setup.objects.written["gangs/status"] - before
    assert 500 <= written <= 500 + 20 * MESSAGES_PER_S


async def test_a_status_is_not_made_again_while_nothing_is_new(setup: Setup, monkeypatch: pytest.MonkeyPatch):
    """But it is when its object is gone, or another has its name."""
    made: list[str] = []
    summary = gang_status.gang_status

    def counted(gang: Gang, *args: Any, **more: Any) -> dict[str, Any]:
        made.append(gang.name)
        return summary(gang, *args, **more)

    monkeypatch.setattr(gang_status, "gang_status", counted)
    for _ in range(3):
        gang = waiting_gang()
        setup.reporter.gang(gang, waits(gang, Code.NO_DEVICES, "none is free"))
        await setup.time.advance(60.0)
    assert made == ["g"]
    setup.objects.gangs.clear()
    setup.reporter.gang(gang, waits(gang, Code.NO_DEVICES, "none is free"))
    await setup.time.advance(60.0)
    assert setup.objects.gangs["ml/g"]["status"]["reason"] == "DevicesInUse"
