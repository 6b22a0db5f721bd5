"""What an apiserver can do to a controller: refuse, throttle, fail, fall silent, close watches, forget history.

Each fault ends in a clear state: the gang runs, or waits whole with a reason. Also: the lease, between two controllers.
"""

import asyncio
import time
from dataclasses import replace

import pytest

from fairlead.api import names
from fairlead.controller import app, term
from fairlead.controller.commit import writes
from fairlead.controller.cycle import IDLE_MAX_S
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.report.metrics import Metrics
from fairlead.kube import resources
from fairlead.kube.client import Client
from fairlead.sandbox.apiserver.faults import Fault
from tests.controller.conftest import Bench, Lease

pytestmark = pytest.mark.slow


WRITES = (
    ("create", "resourceclaims", ""),
    ("patch", "resourceclaims", "status"),
    ("patch", "pods", "status"),
    ("patch", "pods", ""),
)


@pytest.mark.parametrize("code", [409, 429, 500, 503])
async def test_every_write_that_is_refused_for_a_while_is_done_in_the_end(bench: Bench, code: int):
    await bench.template("two", 2)
    for verb, resource, subresource in WRITES:
        where = Fault(user=names.CONTROLLER_USER, verb=verb, resource=resource, subresource=subresource)
        bench.cluster.server.faults.add(replace(where, code=code, count=4))
    async with bench.controller():
        pods = await bench.gang("stubborn", 4, template="two")
        await bench.until(lambda: bench.running(pods), "the gang runs")
    assert bench.watchdog.held == 8


async def test_answers_that_are_lost_after_the_write_arrived_change_nothing(bench: Bench):
    await bench.template("two", 2)
    for verb, resource, subresource in WRITES[1:]:
        where = Fault(user=names.CONTROLLER_USER, verb=verb, resource=resource, subresource=subresource)
        bench.cluster.server.faults.add(replace(where, code=500, count=3, after=True))
    async with bench.controller():
        pods = await bench.gang("deaf", 4, template="two")
        await bench.until(lambda: bench.running(pods), "the gang runs")
        await bench.until(lambda: len(bench.claims.all()) == 4, "no duplicate claim is left")
    assert bench.watchdog.held == 8


@pytest.mark.parametrize("late", [("resourceclaims",), ("pods",), ()], ids=["claims", "pods", "all, each by itself"])
async def test_gangs_run_whichever_watch_cache_lags(bench: Bench, late: tuple[str, ...]):
    bench.cluster.server.lag_watches(0.3, seed=1, least_s=0.3 if late else 0.0, resources=late)
    await bench.template("two", 2)
    async with bench.controller():
        pods = await bench.gang("late", 4, template="two")
        await bench.until(lambda: bench.running(pods), "the gang runs")
        again = await bench.gang("later", 2, template="two")
        await bench.until(lambda: bench.running(again), "the next gang runs")
    assert bench.watchdog.held == 12


async def test_a_claim_that_can_never_be_written_undoes_the_whole_gang_and_says_why(bench: Bench, monkeypatch):
    monkeypatch.setattr(writes, "RETRY_TIMEOUT_S", 0.5)
    await bench.template("two", 2)
    async with bench.controller():
        await bench.pod("probe", template="two")
        await bench.until(lambda: bench.running(["probe"]), "all is well at first")
        refused = bench.cluster.server.faults.fail(
            403, verb="patch", resource="resourceclaims", subresource="status", user=names.CONTROLLER_USER, count=None
        )
        pods = await bench.gang("denied", 3, template="two")
        await bench.until(lambda: refused.hits > 3, "the writes are refused")
        assert bench.gated(pods)
        bench.cluster.server.faults.remove(refused)
        await bench.until(lambda: bench.running(pods), "allowed again, the gang runs")
    assert bench.watchdog.held == 8


async def test_a_scheduler_that_is_away_costs_time_and_no_pod(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """The gang is released and does not bind for longer than the timeout: it is not rolled back, and says what it waits for."""
    monkeypatch.setattr(recovery, "UNTRIED_S", 0.5)
    await bench.template("one")
    await bench.cluster.stop_scheduler()
    async with bench.controller(gang_timeout_s=1.0):
        pods = await bench.gang("patient", 4, template="one")
        await bench.until(
            lambda: "kube-scheduler has not tried 4 of its pods" in bench.status("patient").get("message", ""),
            "the gang says that the scheduler does not try its pods",
        )

        def living() -> set[str]:
            found = [pod for name in pods if (pod := bench.get(name)) is not None]
            return {pod.metadata.uid for pod in found if pod.metadata.deletion_timestamp is None}

        before = living()
        released_s = time.monotonic()
        while time.monotonic() < released_s + 3.0:
            assert len(living()) == 4
            await asyncio.sleep(0.1)
        bench.cluster.start_scheduler()
        await bench.until(lambda: bench.running(pods), "the scheduler is back: all run")
        assert living() == before
        await bench.until(
            lambda: "scheduler" not in bench.status("patient").get("message", ""), "and the message is gone"
        )


async def test_a_scheduler_that_does_not_exist_holds_devices_for_a_bounded_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """A tenant's gang names one: it is taken back with its reason, and its devices go to the gang that waits for them."""
    monkeypatch.setattr(recovery, "UNTRIED_MAX_S", 1.0)
    await bench.template("eight", 8)
    async with bench.controller(gang_timeout_s=1.0):
        stuck = await bench.gang("stuck", 2, template="eight", schedulerName="nobody")
        await bench.until(lambda: not bench.gated(stuck), "it is released, with all devices")
        waiting = await bench.gang("waiting", 2, template="eight")
        await bench.until(lambda: all(bench.get(pod) is None for pod in stuck), "it is taken back")
        await bench.event(
            "stuck", "RolledBack: 2 of its pods (stuck-0, stuck-1) name scheduler 'nobody', which has not"
        )
        await bench.until(lambda: bench.running(waiting), "the other one runs")


async def test_a_node_that_vanishes_before_its_pods_bind_takes_no_gang_with_it(bench: Bench):
    """The gang is pinned to a node that is gone: it goes back whole, and is placed elsewhere when made again."""
    await bench.template("eight", 8)
    async with bench.controller(gang_timeout_s=2.0):
        stuck = bench.cluster.server.faults.fail(500, verb="create", resource="pods", subresource="binding", count=None)
        await bench.pod("lonely", template="eight")
        await bench.until(lambda: bool(bench.allocated()), "devices are chosen")
        (claim,) = bench.allocated()
        assert claim.status.allocation is not None
        where = claim.status.allocation.devices.results[0].pool
        await bench.cluster.nodes[where].stop()
        await bench.client.delete(resources.NODES, where)
        await bench.until(lambda: bench.get("lonely") is None, "it is rolled back")
        bench.cluster.server.faults.remove(stuck)
        await bench.until(lambda: bench.watchdog.held == 0, "its devices are given back")
        await bench.pod("lonely", template="eight")
        await bench.until(lambda: bench.running(["lonely"]), "on the other node it runs")


async def test_a_second_controller_stands_by_and_takes_over_when_the_first_is_stopped(bench: Bench):
    await bench.template("one")
    async with bench.controller(identity="first"):
        await bench.pod("a", template="one")
        await bench.until(lambda: bench.running(["a"]), "the first leads")

        ready = asyncio.Event()
        second = asyncio.create_task(app.run(bench.options(identity="second"), ready=ready))
        await bench.pod("b", template="one")
        await bench.until(lambda: bench.running(["b"]), "the first still leads")
        assert not ready.is_set()
    async with asyncio.timeout(10):
        await ready.wait()
    lease = await bench.client.get(resources.LEASES, "fairlead-controller", names.NAMESPACE)
    assert lease.spec.holder_identity == "second"
    await bench.pod("c", template="one")
    await bench.until(lambda: bench.running(["c"]), "the second leads")
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    lease = await bench.client.get(resources.LEASES, "fairlead-controller", names.NAMESPACE)
    assert lease.spec.holder_identity in {"", None}


async def test_a_waiting_gang_costs_no_decision_while_only_reports_change(bench: Bench):
    await bench.template("eight", 8)
    await bench.template("one")
    metrics = Metrics()

    def decisions() -> float:
        value = metrics.registry.get_sample_value("fairlead_controller_decide_seconds_count")
        assert value is not None
        return value

    async with Client.connect(bench.options().kubeconfig) as client:
        task = asyncio.create_task(term.lead(bench.options(), client, Lease(), metrics=metrics))
        running = await bench.gang("first", 2, template="eight")
        await bench.until(lambda: bench.running(running), "the first gang runs")
        await bench.gang("second", 2, template="eight")
        await bench.until(lambda: bench.status("second").get("phase") == "Waiting", "the second waits")
        before = 0.0
        while before != decisions():  # until the last change has been answered
            before = decisions()
            await asyncio.sleep(IDLE_MAX_S + 0.2)
        node = await bench.client.get(resources.raw(resources.NODES), "h1")
        for number in range(20):  # heartbeats, as kubelet writes them
            conditions = [
                c | {"lastHeartbeatTime": f"2026-11-21T00:00:{number:02}Z"} for c in node["status"]["conditions"]
            ]
            await bench.client.patch(
                resources.NODES, "h1", {"status": {"conditions": conditions}}, subresource="status"
            )
        await asyncio.sleep(IDLE_MAX_S + 0.2)
        assert decisions() == before
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("arrives", [True, False], ids=["it arrived", "it did not"])
async def test_a_release_whose_answers_are_all_lost_is_noticed_before_anything_is_undone(
    bench: Bench, monkeypatch, arrives
):
    """If the release arrived the gang is completed; if not, the pod is held back, so that it can never arrive late."""
    monkeypatch.setattr(writes, "RETRY_TIMEOUT_S", 0.4)
    await bench.template("two", 2)
    lost = Fault(verb="patch", resource="pods", subresource="", user=names.CONTROLLER_USER, count=None)
    lost.code, lost.after = 500, arrives
    bench.cluster.server.faults.add(lost)
    async with bench.controller():
        pods = await bench.gang("silent", 3, template="two")
        await bench.until(lambda: lost.hits >= 3, "the release is tried")
        if arrives:
            await bench.until(lambda: bench.bound(pods), "every release arrived, heard or not")
        else:
            await bench.until(lambda: held_back(bench, "silent-0"), "the pod is held back")
            assert bench.gated(pods)
        bench.cluster.server.faults.clear()
        await bench.until(lambda: bench.running(pods), "the gang runs")
    assert bench.watchdog.held == 6


def held_back(bench: Bench, name: str) -> bool:
    pod = bench.get(name)
    condition = pod.condition(names.ADMITTED_CONDITION) if pod else None
    return condition is not None and condition.status == "False" and condition.reason == "TakenBack"
