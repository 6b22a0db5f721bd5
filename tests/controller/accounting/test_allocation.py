"""`GET /allocation` is computed beside the controller's loop, and what would take long is refused with its limit."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from fairlead.controller.accounting.opencost import COMMAND, Allocations
from fairlead.history.cost import opencost
from fairlead.history.ledger.entries import Batch
from fairlead.kube import probes
from fairlead.kube.timestamps import HOUR_US
from tests.support import cpu
from tests.support.ledger import MONDAY_US, allocation, interval, reading, writing

WINDOW = f"{MONDAY_US // 1_000_000},{MONDAY_US // 1_000_000 + 7 * 86_400}"


async def ask(
    ledger: str, *, command: Sequence[str] = COMMAND, answer_s: float = 60.0, **query: str
) -> tuple[int, Any]:
    allocations = Allocations(ledger, command=command, answer_s=answer_s)
    async with (
        probes.serve("127.0.0.1:0", more={"/allocation": allocations.answer}) as served,
        ClientSession() as session,
    ):
        assert served is not None
        with cpu.at_most(0.5):
            async with session.get(f"{served.url}/allocation", params={"window": WINDOW, **query}) as answer:
                return answer.status, await answer.json()


def filled(path: Path, count: int) -> str:
    with writing(str(path)) as writer:
        held = tuple(
            (at + 1, interval("used", MONDAY_US + at, MONDAY_US + HOUR_US, of=allocation(at), number=at))
            for at in range(count)
        )
        writer.commit(Batch(as_of_us=MONDAY_US + HOUR_US, intervals=held))
    return str(path)


@pytest.mark.slow
async def test_it_answers_from_a_process_of_its_own(tmp_path):
    status, body = await ask(filled(tmp_path, 3), aggregate="claim")
    assert (status, sorted(body["data"][0])) == (200, ["train-0", "train-1", "train-2"])


async def test_a_ledger_that_is_not_there_is_said(tmp_path):
    status, body = await ask(str(tmp_path / "absent"))
    assert (status, body["code"]) == (503, 503)


@pytest.mark.slow
async def test_too_many_intervals_are_refused_and_sums_of_fewer_lines_are_not(tmp_path, monkeypatch):
    place = filled(tmp_path, 20)
    with reading(place) as reader:
        assert reader.overlapping(MONDAY_US, MONDAY_US + HOUR_US, 100) == 20
        assert reader.overlapping(MONDAY_US, MONDAY_US + HOUR_US, 5) == 6, "no further than needed"
    code = (
        "from fairlead.history.cost import opencost; opencost.FINE_INTERVALS_MAX = 19;"
        "from fairlead.controller.accounting import allocation_child; allocation_child.main()"
    )
    status, body = await ask(place, command=(sys.executable, "-c", code))
    assert status == 400
    assert "window: has more than 19 intervals" in body["message"]
    assert (await ask(place, command=(sys.executable, "-c", code), aggregate="namespace"))[0] == 200


async def test_a_window_of_centuries_is_refused(tmp_path):
    status, body = await ask(filled(tmp_path, 1), window="36500d")
    assert (status, f"longer than {opencost.WINDOW_DAYS_MAX} days" in body["message"]) == (400, True)


@pytest.mark.slow
async def test_an_answer_that_is_too_large_takes_too_long_or_dies_is_an_error_of_the_question(tmp_path):
    large = "from fairlead.controller.accounting import allocation_child as it; it.ANSWER_BYTES_MAX = 100; it.main()"
    status, body = await ask(filled(tmp_path, 3), command=(sys.executable, "-c", large))
    assert (status, "more than 100 bytes" in body["message"]) == (413, True)
    slow = (sys.executable, "-c", "import time; time.sleep(60)")
    status, body = await ask("x", command=slow, answer_s=0.3)
    assert (status, "longer than 0.3 s" in json.dumps(body)) == (422, True)
    status, body = await ask("x", command=(sys.executable, "-c", "raise SystemExit(1)"))
    assert (status, "ask for a shorter window" in body["message"]) == (422, True)
