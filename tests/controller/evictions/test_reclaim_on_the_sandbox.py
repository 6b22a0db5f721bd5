"""Reclaim, preemption and replacement with the true core, on the sandbox: what users of two queues see.

The maths is tested elsewhere; here it meets watches, writes, budgets and time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from fairlead.controller import term
from fairlead.kube import resources
from fairlead.kube.resources import PRIORITY_CLASSES, QUEUES
from fairlead.sandbox.apiserver.faults import Fault
from tests.controller.conftest import NAMESPACE, Bench, Lease, Life, MortalClient
from tests.support.broken_gpus import moved_off_a_broken_gpu
from tests.support.teams import OTHER, borrowers, evicted, standing, teams

pytestmark = pytest.mark.slow


async def test_a_disruption_budget_is_counted_in_queue_status_and_holds_over_restarts(bench: Bench):
    await teams(bench, disruptionBudget={"evictions": 1, "window": "1h"})
    async with bench.controller():
        await borrowers(bench)
        await bench.pod("owner", template="eight", namespace=OTHER)
        await bench.until(lambda: standing(bench, OTHER, "owner") == "Running", "the owner has its own back")
        assert len(evicted(bench)) == 1
        raw = await bench.client.get(QUEUES, NAMESPACE)
        assert len(raw["status"]["evictions"]) == 1
        (gone,) = evicted(bench)
        await bench.pod(gone, template="eight")
        await bench.client.delete(resources.PODS, "owner", OTHER, grace_period_s=0)
        await bench.until(lambda: bench.running(["one", "two"]), "the evicted pod, recreated, runs again")
    async with bench.controller():
        await bench.pod("owner", template="eight", namespace=OTHER)
        said = "disruption budget is used up"

        def told() -> bool:
            found = bench.gangs.get(f"{OTHER}/owner") or {}
            return said in found.get("status", {}).get("message", "")

        await bench.until(told, "the status names the blocker")
        assert bench.running(["one", "two"])


async def test_min_runtime_protects_and_its_end_leads_to_a_new_decision(bench: Bench):
    await teams(bench, minRuntime="4s")
    async with bench.controller():
        await borrowers(bench)
        await bench.pod("owner", template="eight", namespace=OTHER)
        await bench.until(
            lambda: (bench.gangs.get(f"{OTHER}/owner") or {}).get("status", {}).get("reason") == "VictimsProtected",
            "the status names min-runtime",
        )
        assert bench.running(["one", "two"])
        await bench.until(lambda: standing(bench, OTHER, "owner") == "Running", "then it has its own back")


async def test_a_gang_of_higher_priority_takes_the_place_of_one_in_its_own_queue(bench: Bench):
    await teams(bench)
    for name, value in (("urgent", 1000), ("batch", 10)):
        await bench.client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    async with bench.controller():
        await borrowers(bench, priorityClassName="batch")
        await bench.pod("rush", template="eight", priorityClassName="urgent")
        await bench.until(lambda: bench.running(["rush"]), "the urgent one runs")
        assert len(evicted(bench)) == 1
        (gone,) = evicted(bench)
        await bench.event(gone, "Evicted: ")
        raw = bench.gangs.get(f"{NAMESPACE}/{gone}") or {}
        assert "preempted for gang ml/rush" in raw["status"]["lastEviction"]["what"]


@contextlib.asynccontextmanager
async def leader(bench: Bench) -> AsyncIterator[None]:
    """A controller that believes to lead, whatever others believe."""
    life = Life()
    async with MortalClient.connect(bench.options().kubeconfig) as client:
        assert isinstance(client, MortalClient)
        client.life = life
        task = asyncio.create_task(term.lead(bench.options(), client, Lease()))
        yield
        life.dead = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_two_replicas_that_both_lead_evict_one_gang_once(bench: Bench):
    """A lease that was lost late: marks are made twice, evictions name the pod by UID, and nothing is given twice."""
    await teams(bench)
    async with leader(bench), leader(bench):
        await borrowers(bench)
        await bench.pod("owner", template="eight", namespace=OTHER)
        await bench.until(lambda: standing(bench, OTHER, "owner") == "Running", "the owner has its own back")
        (gone,) = evicted(bench)
        await bench.pod(gone, template="eight")
        await bench.until(
            lambda: bench.status(gone).get("phase") == "Waiting", "the evicted pod, recreated, waits and is left alone"
        )
        assert bench.gated([gone])
        bench.check()


async def test_a_gang_on_a_broken_gpu_is_evicted_and_its_recreated_pods_avoid_it(bench: Bench):
    """The cluster's own taint eviction takes the one pod; the controller the whole gang. Whoever is first, it comes back whole."""
    async with bench.controller():
        await moved_off_a_broken_gpu(bench)


async def test_nothing_more_is_evicted_while_the_claims_of_evicted_pods_are_still_allocated(bench: Bench):
    """The claim controller is slow: the pod is gone, its devices are not free yet, and its gang is no longer seen."""
    await teams(bench)
    for name, value in (("urgent", 1000), ("batch", 10)):
        await bench.client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    slow = Fault(
        resource="resourceclaims",
        subresource="status",
        user="system:serviceaccount:kube-system:resource-claim-controller",
        count=None,
        delay_s=3.0,
    )
    async with bench.controller():
        await borrowers(bench, priorityClassName="batch")
        bench.cluster.server.faults.add(slow)
        await bench.pod("rush", template="eight", priorityClassName="urgent")
        await bench.until(lambda: bench.running(["rush"]), "the urgent one runs")
        assert slow.hits
        assert len(evicted(bench)) == 1
