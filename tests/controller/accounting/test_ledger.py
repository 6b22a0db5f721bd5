"""A controller's ledger against what happened: claims' times, why they came free, restarts, and a store that refuses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.api import names
from fairlead.history.ledger import keeper
from fairlead.history.ledger.entries import WHOLE_PPM, Held
from fairlead.history.ledger.store.place import UnavailableError
from fairlead.history.ledger.store.reader import Reader, open_reader
from fairlead.kube import resources, timestamps
from tests.controller.conftest import Bench

EVER_US = 10**18
FLAVOR = {
    "apiVersion": names.API_VERSION,
    "kind": "Flavor",
    "metadata": {"name": "h100"},
    "spec": {"deviceSelector": "true", "measure": "Devices", "price": [{"perHour": "2.50", "currency": "EUR"}]},
}
QUEUE = {
    "apiVersion": names.API_VERSION,
    "kind": "Queue",
    "metadata": {"name": "vision"},
    "spec": {"namespaceSelector": {}, "flavors": [{"flavor": "h100", "deserved": 16}]},
}


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(keeper, "COMMIT_S", 0.5)
    return str(tmp_path / "ledger")


def reader(ledger: str) -> Reader:
    return open_reader(ledger)


def held(ledger: str) -> list[Held]:
    return sorted(reader(ledger).held(0, EVER_US), key=lambda each: (each.allocation.allocated_us, each.device))


def broken(ledger: str) -> list[object]:
    """Units and days of which the sum is not the time that they were there."""
    return list(reader(ledger).broken_days(0, EVER_US))


async def known(ledger: str, holds: Callable[[list[Held]], bool], timeout_s: float = 60.0) -> None:
    """Until the ledger has it: it is written some seconds later."""
    found: list[Held] = []
    async with asyncio.timeout(timeout_s):
        while not holds(found):
            await asyncio.sleep(0.5)
            with contextlib.suppress(UnavailableError):  # there is none yet
                found = held(ledger)


def allocations(bench: Bench) -> Iterator[tuple[str, int]]:
    """Of claims now: device and allocationTimestamp."""
    for claim in bench.allocated():
        assert claim.status.allocation is not None
        at_us = round(timestamps.parse(claim.status.allocation.allocation_timestamp or "") * 1e6)
        for result in claim.status.allocation.devices.results:
            yield f"{result.pool}/{result.device}", at_us


async def test_claims_are_accounted_from_their_allocation_to_their_end_and_opencost_reads_them(
    bench: Bench, ledger: str, free_port: Callable[[], int]
):
    await bench.client.create(resources.FLAVORS, FLAVOR)
    await bench.client.create(resources.QUEUES, QUEUE)
    await bench.template("four", 4)
    address = f"127.0.0.1:{free_port()}"
    async with (
        bench.controller(ledger=ledger, ledger_labels=("team",), opencost=True, metrics_bind=address),
        aiohttp.ClientSession(f"http://{address}") as session,
    ):
        await bench.gang("done", 1, template="four", sleep=0.5, labels={"team": "blue"})
        stays = await bench.gang("stays", 2, template="four", annotations={names.USER: "ada"})
        await bench.until(lambda: bench.running(stays), "the gang runs")
        exact = dict(allocations(bench))
        await bench.until(lambda: bench.watchdog.held == 8, "the first gang's devices are given back")
        await known(ledger, lambda found: any(each.ended_by for each in found))
        await known(ledger, lambda found: bool(found) and dict(found[-1].times_us).get("used", 0) > 0)
        async with session.get("/metrics") as answer:
            shown = await answer.text()
        async with session.get("/allocation", params={"window": "1d", "aggregate": "namespace"}) as answer:
            assert answer.status == 200, await answer.text()
            (sets,) = (await answer.json())["data"]
        async with session.get("/allocation") as answer:
            assert (answer.status, "window" in (await answer.json())["message"]) == (400, True)
    lines = sorted(line for line in shown.splitlines() if line.startswith("container_gpu_allocation{"))
    assert [line.partition('pod="')[2] for line in lines] == ['stays-0"} 4.0', 'stays-1"} 4.0']
    assert lines[0].startswith('container_gpu_allocation{container="main",namespace="ml",node="h')
    assert sets["ml"]["gpuHours"] > 0
    assert sets["ml"]["gpuCost"] == pytest.approx(2.5 * sets["ml"]["gpuHours"], abs=1e-4)
    found = held(ledger)
    assert len(found) == 12
    for each in found:
        own = each.allocation
        assert exact.get(f"{each.unit.pool}/{each.device}", own.allocated_us) == own.allocated_us
        assert (own.queue, each.measure.flavor) == ("vision", "h100")
        assert (each.measure.amount, each.measure.share_ppm) == (Fraction(1), WHOLE_PPM)
    ends = {(of.gang, each.ended_by, of.labels, of.user, each.lost) for each in found if (of := each.allocation)}
    assert ends == {("done", "Completed", (("team", "blue"),), "", False), ("stays", "", (), "ada", False)}
    read = reader(ledger)
    assert {wait.gang for wait in read.waits(0, EVER_US)} == {"done", "stays"}
    assert list(read.gaps(0, EVER_US)) == []
    assert {day.unit.name for day in read.unit_days(0, EVER_US)} == {f"gpu-{number}" for number in range(8)}
    assert broken(ledger) == []


async def test_a_restart_goes_on_and_what_ended_meanwhile_is_unknown(bench: Bench, ledger: str):
    await bench.template("four", 4)
    async with bench.controller(ledger=ledger, record=None):
        stays = await bench.gang("stays", 1, template="four")
        goes = await bench.gang("goes", 1, template="four")
        await bench.until(lambda: bench.running([*stays, *goes]), "both run")
        await known(ledger, lambda found: len(found) == 8 and all("used" in dict(each.times_us) for each in found))
    await bench.delete(goes)
    await bench.until(lambda: bench.watchdog.held == 4, "its devices are given back while no controller runs")
    await asyncio.sleep(1.5)
    async with bench.controller(ledger=ledger, record=None):
        await known(ledger, lambda found: sum(each.ended_by == "Unknown" for each in found) == 4)
    found = held(ledger)
    assert {(each.allocation.gang, each.ended_by) for each in found} == {("stays", ""), ("goes", "Unknown")}
    read = reader(ledger)
    (gap,) = read.gaps(0, EVER_US)
    unknown = [each for each in read.sums(0, EVER_US, ("unit",)) if each.bucket == "unknown"]
    assert len(unknown) == 4
    assert {each.time_us for each in unknown} == {gap.end_us - gap.start_us}
    assert broken(ledger) == []


async def test_an_eviction_loses_work_and_a_tainted_device_is_broken(bench: Bench, ledger: str):
    await bench.template("eight", 8)
    low = await _priority(bench, "low", 1)
    high = await _priority(bench, "high", 100)
    async with bench.controller(ledger=ledger):
        first = [await bench.gang(f"low{number}", 1, template="eight", **low) for number in range(2)]
        await bench.until(lambda: bench.running([*first[0], *first[1]]), "both nodes are full")
        urgent = await bench.gang("urgent", 1, template="eight", **high)
        await bench.until(lambda: bench.running(urgent), "it runs in the place of another")
        await known(ledger, lambda found: any(each.lost for each in found))
    lost = [each for each in held(ledger) if each.lost]
    assert {(each.ended_by, len(lost)) for each in lost} == {("Evicted", 8)}
    assert broken(ledger) == []
    (victim,) = {each.allocation.gang for each in lost}
    told = {each.what: each.text for each in reader(ledger).decisions(lost[0].allocation.namespace, victim, 100)}
    assert "preempted for gang ml/urgent: of no queue, as this one, with priority 100 against its 1" in told["Evicted"]


async def _priority(bench: Bench, name: str, value: int) -> dict[str, Any]:
    await bench.client.create(resources.raw(resources.PRIORITY_CLASSES), {"metadata": {"name": name}, "value": value})
    return {"priorityClassName": name, "priority": value}


async def test_a_budget_is_spent_by_what_the_ledger_has_and_outlives_the_leader(bench: Bench, ledger: str):
    budget = {"gpuHours": "0.002", "per": "month", "onExhausted": "stop"}  # seven seconds of one GPU
    await bench.client.create(resources.FLAVORS, FLAVOR)
    await bench.client.create(resources.QUEUES, QUEUE | {"spec": {"namespaceSelector": {}, "budget": budget}})
    await bench.template("four", 4)
    async with bench.controller(ledger=ledger):
        first = await bench.gang("first", 1, template="four")
        await bench.until(lambda: bench.running(first), "the first gang runs")
        await asyncio.sleep(3)
        await bench.delete(first)
        await bench.until(lambda: bench.watchdog.held == 0, "it is gone")
        await known(ledger, lambda found: len(found) == 4 and all(each.ended_by for each in found))
    raw = await bench.client.get(resources.QUEUES, "vision")
    await bench.client.patch(resources.QUEUES, "vision", {"status": None}, subresource="status")
    assert raw["status"]
    async with bench.controller(ledger=ledger):
        for number in range(20):  # the ledger is summed a second or two after it is first asked for
            waits = await bench.gang(f"later{number}", 1, template="four")
            await bench.until(
                lambda name=f"later{number}", pods=waits: (
                    bench.status(name).get("reason") == "BudgetExhausted"  # type: ignore[misc]
                    or bench.running(pods)
                ),
                "it waits for the budget, or runs",
            )
            if not bench.running(waits):
                break
            await bench.delete(waits)
            await asyncio.sleep(2)
        assert bench.status(f"later{number}")["reason"] == "BudgetExhausted"
