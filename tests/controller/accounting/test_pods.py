"""The ledger on what pods of gangs request: from their binding to their end, by flavor; and a budget that stops on it."""

from __future__ import annotations

import asyncio
import contextlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.history.ledger import keeper
from fairlead.history.ledger.store.place import UnavailableError
from fairlead.history.ledger.store.reader import open_reader
from fairlead.kube import resources
from tests.controller.conftest import NAMESPACE, Bench
from tests.controller.queues.test_pod_quotas import requests

EVER_US = 10**18
SECOND_US = 1_000_000


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(keeper, "COMMIT_S", 0.5)
    return str(tmp_path / "ledger")


async def settings(bench: Bench, **queue: Any) -> None:
    await flavor(bench, "cpu", price=[{"perHour": "0.05", "currency": "EUR"}])
    devices = {"deviceSelector": f'device.driver == "{names.DRIVER}"'}
    await bench.client.create(resources.FLAVORS, {"metadata": {"name": "gpu"}, "spec": devices})
    selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    quotas = [{"flavor": "gpu", "limit": 16}]
    spec: dict[str, Any] = {"flavors": quotas, "namespaceSelector": selector, **queue}
    await bench.client.create(resources.QUEUES, {"metadata": {"name": "team"}, "spec": spec})


async def flavor(bench: Bench, name: str, **spec: Any) -> None:
    spec = {"measure": "Resource", "resourceName": name, **spec}
    await bench.client.create(resources.FLAVORS, {"metadata": {"name": name}, "spec": spec})


def spent(ledger: str, *by: str) -> dict[tuple[str, ...], Fraction]:
    """Units times seconds."""
    with contextlib.suppress(UnavailableError), contextlib.closing(open_reader(ledger)) as reader:
        return {each.keys: each.weighed / SECOND_US for each in reader.pod_sums(0, EVER_US, by)}
    return {}


async def until(found: Any, timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while True:  # the ledger is written some seconds later
            if found():
                return
            await asyncio.sleep(0.3)


async def test_pods_are_counted_from_their_binding_also_by_a_flavor_that_comes_later_and_by_the_next_leader(
    bench: Bench, ledger: str
) -> None:
    await settings(bench)
    await bench.template("one", 1)
    async with bench.controller(ledger=ledger, ledger_labels=("team",)):
        first = await bench.gang("first", 2, template="one", containers=requests(cpu="1500m", memory="1Gi"))
        await bench.until(lambda: bench.running(first), "it runs")
        await until(lambda: spent(ledger, "gang", "queue", "flavor"))
        assert spent(ledger, "gang", "queue", "flavor").keys() == {("first", "team", "cpu")}
        await flavor(bench, "memory")
        await until(lambda: ("memory",) in spent(ledger, "flavor"))
        found = spent(ledger, "flavor")
        assert 0 < found["memory",] < 2 * found["cpu",] / 3, "two pods of a GiB, for a shorter time"
    before = spent(ledger, "flavor")["cpu",]
    await bench.client.delete(resources.FLAVORS, "memory")
    async with bench.controller(ledger=ledger):
        await until(lambda: spent(ledger, "flavor")["cpu",] > before)
        gib = spent(ledger, "flavor")["memory",]
        await asyncio.sleep(2)
        await bench.delete(first)
        await until(lambda: not bench.allocated())
        await asyncio.sleep(2)
        whole = spent(ledger, "flavor")
        await asyncio.sleep(2)
        assert spent(ledger, "flavor") == whole, "what is gone counts no longer"
        assert whole["memory",] == gib, "nor does a flavor that is removed"


async def test_a_budget_in_cpu_hours_stops_the_queue_that_has_spent_them(bench: Bench, ledger: str) -> None:
    budget = {"flavor": "cpu", "hours": "0.004", "per": "month", "onExhausted": "stop"}  # seven seconds of two cores
    await settings(bench, budget=budget)
    await bench.template("one", 1)
    async with bench.controller(ledger=ledger):
        first = await bench.gang("first", 2, template="one", containers=requests(cpu="1"))
        await bench.until(lambda: bench.running(first), "within its budget it starts")
        await asyncio.sleep(9)
        second = await bench.gang("second", 1, template="one", containers=requests(cpu="1"))
        await bench.until(lambda: bench.status("second").get("reason") == "BudgetExhausted", "the second waits")
        assert bench.gated(second)
        assert "cpu-hours are spent" in str(bench.status("second"))
        assert bench.running(first), "nothing is evicted for it"
        queue = await bench.client.get(resources.QUEUES, "team")
        for _ in range(60):  # the status is written a moment later
            if (queue["status"].get("budget") or {}).get("percent", 0) >= 100:
                break
            await asyncio.sleep(0.5)
            queue = await bench.client.get(resources.QUEUES, "team")
    shown = queue["status"]["budget"]
    assert (shown["flavor"], shown["unit"], "gpuHours" in shown) == ("cpu", "cpu-hours", False)
