"""A new leader's caches are warm and current, and what the leader before it may still send is void.

The last leader's messages that the network holds are kept by `HoldingClient` and delivered later by the test.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller import standby, term
from fairlead.controller.commit import takeover
from fairlead.controller.rehearsal import PAUSE_S, Rehearsal
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.standby import Watched
from fairlead.engine.plan import decide as plan
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.kube import errors, resources
from fairlead.kube.client import Client
from fairlead.kube.resources import PRIORITY_CLASSES
from tests.controller.conftest import NAMESPACE, Bench, Lease, Life

Request = dict[str, Any]


class HoldingClient(Client):
    """Requests for which `holds` is true never get an answer; they are in `held`, to be delivered later, or never."""

    holds: Callable[[str, str, Any], bool]
    held: list[tuple[str, str, Request]]

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        if method == "GET" or not self.holds(method, path, more.get("body")):
            return await super().request(method, path, **more)
        self.held.append((method, path, more))
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


def allocates(method: str, path: str, body: Any) -> bool:
    return path.endswith("/status") and "/resourceclaims/" in path and bool(body["status"].get("allocation"))


def gated(watched: Watched, pod: str) -> bool:
    found = watched.caches.pods.get(f"{NAMESPACE}/{pod}")
    return found is None or found.has_gate(names.ADMISSION_GATE)


def deallocates(method: str, path: str, body: Any) -> bool:
    return path.endswith("/status") and "/resourceclaims/" in path and body["status"].get("allocation", 1) is None


@contextlib.asynccontextmanager
async def holding(bench: Bench, holds: Callable[[str, str, Any], bool]) -> AsyncIterator[HoldingClient]:
    async with HoldingClient.connect(bench.options().kubeconfig) as client:
        assert isinstance(client, HoldingClient)
        client.holds, client.held = holds, []
        yield client


async def deliver(bench: Bench, held: list[tuple[str, str, Request]]) -> list[bool]:
    """Whether each of these messages was accepted, now that it arrives."""
    accepted = []
    async with Client.connect(bench.options().kubeconfig) as network:
        for method, path, more in held:
            try:
                await network.request(method, path, **more)
                accepted.append(True)
            except errors.Conflict:
                accepted.append(False)
    return accepted


@contextlib.asynccontextmanager
async def warm(bench: Bench) -> AsyncIterator[tuple[Client, Watched]]:
    """The client and the filled caches of a replica that stands by."""
    async with (
        Client.connect(bench.options().kubeconfig) as client,
        standby.watching(client, bench.options().managed_drivers) as watched,
    ):
        await watched.caches.filled()
        yield client, watched


@contextlib.asynccontextmanager
async def leading(
    bench: Bench, client: Client, *, lease_s: float = 6.0, **more: Any
) -> AsyncIterator[tuple[Lease, asyncio.Task[None]]]:
    """A term; at the end it loses its lease, and ends.

    `lease_s`: for as long it waits for writes whose answers are held, and a third of it each write may take.
    """
    lease = Lease()
    task = asyncio.create_task(term.lead(bench.options(lease_s=lease_s), client, lease, **more))
    try:
        yield lease, task
    finally:
        lease.held = False
        lease.lost.set()
        await task


@pytest.fixture(params=[500, 0], ids=["listed again", "by markers"])
def catching_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "RELIST_MAX", request.param)


async def test_a_standby_has_its_caches_filled_and_its_gangs_built(bench: Bench):
    await bench.template("two", 2)
    async with warm(bench) as (_, watched):
        elsewhere = Held()
        waiting = asyncio.create_task(standby.acquire(elsewhere, watched))  # type: ignore[arg-type]
        await bench.gang("later", 2, template="two")
        known = lambda: len(watched.caches.gangs.get((NAMESPACE, "later"), Nothing).members) == 2  # noqa: E731
        await bench.until(known, "the gang is built")
        assert not waiting.done()
        elsewhere.free.set()
        await waiting


async def test_a_standby_rehearses_decisions_seldom_and_writes_nothing(bench: Bench):
    await bench.template("eight", 8)
    async with warm(bench) as (client, watched):
        now, decided = [1000.0], list[Snapshot]()
        running = await bench.gang("runs", 1, template="eight")
        async with leading(bench, client):
            await bench.until(lambda: bench.running(running), "one gang runs")
        waiting = await bench.gang("waits", 2, template="eight")
        caches = watched.caches
        await bench.until(lambda: len(caches.pods) == 3, "the standby knows all pods")

        def decide(snapshot: Snapshot, at: float) -> Plan:
            decided.append(snapshot)
            return plan.decide(snapshot, at)

        rehearsal = Rehearsal(bench.options(), client, caches, clock=lambda: now[0], decide=decide)
        with contextlib.closing(rehearsal):
            await rehearsal(caches.refresh())
            assert [each.name for each in decided[0].gangs] == ["waits"]
            assert [each.name for each in decided[0].running] == ["runs"]
            caches.triggers.decide()
            await rehearsal(caches.refresh())
            assert len(decided) == 1, "too early for another"
            now[0] += PAUSE_S
            await rehearsal(caches.refresh())
            assert len(decided) == 2
        assert bench.gated(waiting)
        assert len(bench.allocated()) == 1


class Nothing:
    members = ()


class Held:
    """A lease that another holds until `free` is set."""

    def __init__(self) -> None:
        self.free = asyncio.Event()

    async def acquire(self) -> None:
        await self.free.wait()


@pytest.mark.usefixtures("catching_up")
@pytest.mark.parametrize("late", [("resourceclaims",), ("resourceclaims", "pods")], ids="+".join)
async def test_a_cache_that_lags_behind_the_last_leader_is_made_current_before_the_first_decision(bench: Bench, late):
    await bench.template("eight", 8)
    await bench.client.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    async with warm(bench) as (client, watched):
        first = await bench.gang("first", 2, template="eight", priorityClassName="urgent")
        await bench.gang("second", 2, template="eight")
        await bench.until(lambda: len(watched.caches.pods) == 4, "the standby knows all pods")
        bench.cluster.server.lag_watches(3.0, least_s=3.0, resources=late)
        life = Life(None)
        releases = {f"PATCH /api/v1/namespaces/{NAMESPACE}/pods/{pod}" for pod in first}
        await bench.mortal(life, lambda: releases <= set(life.done))
        assert not any(claim.status.allocation for claim in watched.caches.claims.all()), "its caches are behind"
        async with leading(bench, client, watched=watched):
            await bench.until(lambda: bench.status("second").get("phase") == "Waiting", "the second gang waits")
            bench.cluster.server.lag_watches(0)
            await bench.until(lambda: bench.running(first), "the first one runs")
    assert len(bench.allocated()) == 2


@pytest.mark.core
async def test_an_allocation_of_the_last_leader_that_arrives_late_is_refused(bench: Bench):
    """The new leader gives the devices to a gang of higher priority: it need not write the other's claims for that."""
    await bench.template("eight", 8)
    await bench.client.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    await bench.gang("old", 2, template="eight")
    async with warm(bench) as (client, watched):
        async with holding(bench, allocates) as last:
            async with leading(bench, last, lease_s=0.5):
                await bench.until(lambda: len(last.held) == 2, "two allocations are under way")
            urgent = await bench.gang("urgent", 2, template="eight", priorityClassName="urgent")
        async with leading(bench, client, watched=watched):
            await bench.until(lambda: bench.running(urgent), "the urgent gang runs")
            assert await deliver(bench, last.held) == [False, False]
    assert len(bench.allocated()) == 2


async def test_a_deallocation_of_the_last_leader_that_arrives_late_is_refused(bench: Bench):
    """It was undoing the admission, which the new one completes: the pods run, and keep their devices."""
    await bench.template("eight", 8)

    def holds(method: str, path: str, body: Any) -> bool:
        if isinstance(body, list) and method == "PATCH" and "/pods/" in path:
            raise errors.Forbidden("no release today", status=403)
        return deallocates(method, path, body)

    async with warm(bench) as (client, watched):
        async with holding(bench, holds) as last, leading(bench, last, lease_s=0.5):
            pods = await bench.gang("whole", 2, template="eight")
            await bench.until(lambda: len(last.held) == 2, "both are being taken back")
        async with leading(bench, client, watched=watched):
            await bench.until(lambda: bench.running(pods), "the gang runs")
            assert await deliver(bench, last.held) == [False, False]
            assert bench.watchdog.held == 16


async def test_a_second_term_of_a_replica_knows_nothing_of_what_the_first_assumed(bench: Bench):
    await bench.template("eight", 8)
    metrics = Metrics()
    async with warm(bench) as (_, watched), holding(bench, allocates) as client:
        async with leading(bench, client, lease_s=0.5, watched=watched, metrics=metrics):
            pods = await bench.gang("lost", 2, template="eight")
            await bench.until(lambda: len(client.held) == 2, "all devices are assumed to be taken")
        assert metrics.registry.get_sample_value("fairlead_controller_leader") == 0
        await bench.delete(pods)
        await bench.until(lambda: bench.claims.all() == [], "the gang is gone")
        client.holds = lambda method, path, body: False
        for name in ("third", "fourth"):
            async with leading(bench, client, watched=watched, metrics=metrics):
                pods = await bench.gang(name, 2, template="eight")
                await bench.until(lambda: bench.running(pods), f"the {name} gang runs")  # noqa: B023
                await bench.delete(pods)
                await bench.until(lambda: bench.watchdog.held == 0, "its devices are free")


@pytest.mark.core
@pytest.mark.parametrize("named", [True])
async def test_a_pod_that_was_released_before_the_lease_was_lost_keeps_its_claim(bench: Bench):
    """The first term had put off looking at it until it is bound; the second must not take it for a gated one."""
    await bench.template("eight", 8)
    async with warm(bench) as (client, watched):
        async with leading(bench, client, watched=watched):
            await bench.pod("alone", template="eight", schedulerName="away")
            await bench.until(lambda: not gated(watched, "alone"), "the watch has shown that it is released")
            await asyncio.sleep(0.5)  # the admission has ended
        async with leading(bench, client, watched=watched):
            after = await bench.gang("after", 1, template="eight")
            await bench.until(lambda: bench.running(after), "the second term has decided")
            reserved = {each.name for claim in bench.allocated() for each in claim.status.reserved_for}
            assert reserved == {"alone", *after}


async def test_a_gang_whose_pods_went_while_nobody_led_is_reported_no_more(bench: Bench):
    """The standby saw the last pod go, and built the gang no more; its Gang object was left."""
    await bench.template("eight", 8)
    async with warm(bench) as (client, watched):
        async with leading(bench, client, watched=watched):
            pods = await bench.gang("left", 2, template="eight")
            await bench.until(lambda: watched.caches.gang_object(("ml", "left")) is not None, "it is reported")
        await bench.delete(pods)
        await bench.until(lambda: bench.claims.all() == [], "its pods are gone")
        watched.caches.refresh()
        async with leading(bench, client, watched=watched):
            await bench.until(lambda: watched.caches.gang_object(("ml", "left")) is None, "its Gang object is gone")


async def test_a_marker_that_cannot_be_written_or_seen_costs_a_list(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(takeover, "RELIST_MAX", -1)
    monkeypatch.setattr(takeover, "MARKER_S", 0.2)
    await bench.template("one")
    async with warm(bench) as (client, watched):
        bench.cluster.server.lag_watches(2.0, least_s=2.0, resources=("pods",))
        bench.cluster.server.faults.fail(403, verb="patch", resource="resourceclaims", message="no marker")
        await bench.pod("a", template="one")
        async with leading(bench, client, watched=watched):
            await bench.until(lambda: watched.caches.pods.get(f"{NAMESPACE}/a") is not None, "listed again")
            bench.cluster.server.lag_watches(0)
            await bench.until(lambda: bench.running(["a"]), "it runs")


async def test_a_marker_names_no_pod_and_asks_for_no_device(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(takeover, "RELIST_MAX", -1)
    await bench.template("one")
    async with warm(bench) as (client, watched):
        for _ in range(2):
            async with leading(bench, client, watched=watched):
                await bench.until(lambda: bench.claims.get(MARKER) is not None, "the marker is written")
    marker = await bench.client.get(resources.RESOURCE_CLAIMS, takeover.MARKER, names.NAMESPACE)
    assert marker.spec.devices.requests == ()
    assert names.TAKEN_OVER in marker.metadata.annotations


MARKER = f"{names.NAMESPACE}/{takeover.MARKER}"


def whole(bench: Bench, pods: list[str]) -> bool:
    """All of the gang's pods are released, or none is."""
    gates = {pod.has_gate(names.ADMISSION_GATE) for name in pods if (pod := bench.get(name)) is not None}
    return len(gates) < 2


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("arrives", ["before the takeover", "during it", "after its decisions"])
async def test_whatever_write_the_network_holds_and_whenever_it_arrives_no_device_is_given_twice(
    bench: Bench, arrives: str
):
    """The last leader is cut off at its first, second, … write; what it sent from then on arrives later, in any order."""
    await bench.template("eight", 8)
    await bench.client.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    dice = Random(arrives)
    for cut in range(1, 100):
        seen = 0

        def holds(method: str, path: str, body: Any, cut: int = cut) -> bool:
            nonlocal seen
            seen += "/resourceclaims" in path or "/pods" in path
            return seen >= cut

        async def network(held: list[tuple[str, str, Request]]) -> None:
            dice.shuffle(held)
            for each in held:
                await asyncio.sleep(dice.random() * 0.1)
                with contextlib.suppress(errors.ApiError):  # gone, or there already
                    await deliver(bench, [each])

        async with warm(bench) as (client, watched):
            async with holding(bench, holds) as last:
                async with leading(bench, last, lease_s=0.5):
                    old = await bench.gang(f"old-{cut}", 2, template="eight")
                    await bench.until(lambda: bool(last.held) or bench.running(old), "it is cut off")  # noqa: B023
                urgent = await bench.gang(f"urgent-{cut}", 2, template="eight", priorityClassName="urgent")
            held = [each for each in last.held if "/resourceclaims" in each[1] or "/pods" in each[1]]
            if arrives == "before the takeover":
                await network(held)
            async with leading(bench, client, watched=watched):
                late = asyncio.create_task(network(held if arrives == "during it" else []))
                await bench.until(lambda: bench.running(urgent), f"cut off at write {cut}: the urgent gang runs")  # noqa: B023
                await late
                if arrives == "after its decisions":
                    await network(held)
                bench.check()
                assert whole(bench, old), f"cut off at write {cut}: {bench.describe()}"
                assert bench.running(urgent)
                await bench.delete([*old, *urgent])
                await bench.until(lambda: bench.watchdog.held == 0, f"cut off at write {cut}: nothing is held")
        bench.check()
        if not held:
            assert cut > 5  # of two pods with a claim each: finalizers, allocations, releases at least
            return
    raise AssertionError("an admission has more writes than expected")
