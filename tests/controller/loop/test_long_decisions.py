"""A decision that takes long is made beside the loop: the lease is renewed, probes are answered, and what changes meanwhile counts.

`Gate` holds a decision in its thread for as long as a test wants; no test waits for time to pass.
"""

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator

import pytest

from fairlead.api import names
from fairlead.controller import cycle, term
from fairlead.controller.cycle import Cycle
from fairlead.controller.watch.tables import Tables
from fairlead.engine.plan import decide as plan
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.kube import core, objects, resource, resources
from tests.controller.conftest import NAMESPACE, Bench


class Gate:
    """While `closed`, decisions with gangs wait in their thread; `threads` are those in which decisions were made."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._open.set()
        self.entered = asyncio.Event()
        self.threads: set[int] = set()
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        self.entered.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def decide(self, snapshot: Snapshot, now: float) -> Plan:
        self.threads.add(threading.get_ident())
        if snapshot.gangs and not self._open.is_set():
            self._loop.call_soon_threadsafe(self.entered.set)
            assert self._open.wait(60), "the test did not open the gate"
        return plan.decide(snapshot, now)


@pytest.fixture
async def gate(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gate]:
    made = Gate()
    monkeypatch.setattr(cycle, "LONG_GANGS", 0)
    monkeypatch.setattr(term, "Cycle", functools.partial(Cycle, decide=made.decide))
    yield made
    made.open()


async def entered(gate: Gate) -> None:
    async with asyncio.timeout(30):
        await gate.entered.wait()


async def test_the_lease_is_renewed_while_a_decision_is_made(bench: Bench, gate: Gate):
    await bench.template("one")
    async with bench.controller(lease_s=3.0):
        gate.close()
        await bench.pod("a", template="one")
        await entered(gate)
        assert threading.get_ident() not in gate.threads

        async def renewed() -> str:
            lease = await bench.client.get(resources.LEASES, term.COMPONENT, names.NAMESPACE)
            return lease.spec.renew_time or ""

        seen = {await renewed()}
        async with asyncio.timeout(30):
            while len(seen) < 4:  # a leader that is held up for the lease's duration would lose it
                await asyncio.sleep(0.1)
                seen.add(await renewed())
        gate.open()
        await bench.until(lambda: bench.running(["a"]), "it runs")


async def test_what_changes_during_a_decision_counts_after_it(bench: Bench, gate: Gate):
    """A node that is drained and a pod that is deleted while the decision on them is being made."""
    await bench.template("eight", 8)
    async with bench.controller():
        gate.close()
        pods = await bench.gang("wide", 2, template="eight")
        await entered(gate)
        await bench.delete(pods[:1])
        await bench.until(lambda: bench.get(pods[0]) is None, "it is gone while the decision is made")
        gate.open()
        await bench.until(lambda: bench.status("wide").get("phase") == "Gathering", "the gang is one pod short")
        await bench.until(lambda: bench.watchdog.held == 0, "and holds nothing")
        assert bench.gated(pods[1:])
        again = await bench.gang("other", 2, template="eight")
        await bench.until(lambda: bench.running(again), "others run")


async def test_a_controller_that_stops_waits_for_the_end_of_its_decision(bench: Bench, gate: Gate):
    await bench.template("one")
    with contextlib.ExitStack() as opening:
        opening.callback(gate.open)
        async with bench.controller():
            gate.close()
            await bench.pod("a", template="one")
            await entered(gate)
            opening.pop_all()
            asyncio.get_running_loop().call_later(0.3, gate.open)
    assert bench.gated(["a"])  # what was decided too late is not written
    async with bench.controller():
        await bench.until(lambda: bench.running(["a"]), "the next one admits it")


class Nothing:
    """An informer without objects."""

    def all(self) -> list[resource.ResourceClaim]:
        return []

    def by_index(self, index: str, key: str) -> list[core.Pod]:
        return []


def test_tables_are_at_rest_during_a_decision_and_take_every_change_after_it(caplog: pytest.LogCaptureFixture):
    tables = Tables(Nothing(), Nothing())  # type: ignore[arg-type]
    pod = core.Pod(
        metadata=objects.ObjectMeta(name="p", namespace=NAMESPACE, uid="u"), spec=core.PodSpec(node_name="n")
    )
    with tables.at_rest():
        tables.set_node(core.Node(metadata=objects.ObjectMeta(name="n")))
        tables.set_pod(pod)
        tables.drop_node(None)  # type: ignore[arg-type]  # does nothing
        tables.set_node(None)  # type: ignore[arg-type]  # cannot be read
        tables.drop_pod("u")
        tables.set_pod(pod)
        assert tables.nodes.all() == ()
        assert tables.nodes.pod("u") is None
    assert [node.name for node in tables.nodes.all()] == ["n"]
    assert tables.nodes.pod("u") is not None
    assert "a change that came during a decision failed" in caplog.text
