"""A queue's right to what it deserves against tenants of another: annotations, budgets, grace periods, leaving pods.

Each test plays what a user with the role `edit` in one namespace can do; the webhook is away, so that only the controller's own
bounds hold. `ml` deserves 8 of the 16 devices and holds all; `vision` deserves the other 8.
"""

import asyncio
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import resources
from fairlead.kube.resources import QUEUES, TENANCY_POLICIES
from tests.controller.conftest import NAMESPACE, Bench
from tests.controller.evictions.test_slow_stops import DEAF
from tests.support.teams import OTHER, borrowers, evicted, standing, teams

pytestmark = pytest.mark.slow

FOREVER_S = 2**62
BOUNDS = {"maxMinRuntime": "2s", "maxCheckpointGrace": "2s", "maxTerminationGrace": "2s"}


async def owner_runs(bench: Bench) -> None:
    await bench.pod("owner", template="eight", namespace=OTHER)
    await bench.until(lambda: standing(bench, OTHER, "owner") == "Running", "the owner has its own", 60)
    bench.check()


def owner(bench: Bench) -> dict[str, Any]:
    found: dict[str, Any] = (bench.gangs.get(f"{OTHER}/owner") or {}).get("status", {})
    return found


async def budget(bench: Bench, name: str) -> None:
    body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"maxUnavailable": 0, "selector": {}}}
    await bench.client.create(resources.POD_DISRUPTION_BUDGETS, body)


@pytest.mark.parametrize(
    "annotations",
    [
        {names.MIN_RUNTIME: "9" * 31 + "d", names.CHECKPOINT_GRACE: "9" * 31 + "d"},
        {names.MIN_RUNTIME: "1e99d", names.CHECKPOINT_GRACE: "-5m"},
    ],
    ids=["long", "unreadable"],
)
async def test_annotations_do_not_void_it(bench: Bench, annotations: dict[str, str]) -> None:
    await teams(bench, **BOUNDS)
    async with bench.controller():
        await borrowers(bench, annotations=annotations)
        await owner_runs(bench)
        assert len(evicted(bench)) == 1, "no more than it deserves is taken"


async def test_a_policy_of_the_namespace_bounds_annotations_too(bench: Bench) -> None:
    await teams(bench)
    spec = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}, **BOUNDS}
    await bench.client.create(TENANCY_POLICIES, {"metadata": {"name": "bounds"}, "spec": spec})
    async with bench.controller():
        await borrowers(bench, annotations={names.MIN_RUNTIME: "400d", names.CHECKPOINT_GRACE: "400d"})
        await owner_runs(bench)


async def test_a_victim_ends_within_the_bound_of_its_queue(bench: Bench) -> None:
    await teams(bench, **BOUNDS)
    async with bench.controller():
        await borrowers(bench, script=DEAF, terminationGracePeriodSeconds=FOREVER_S)
        await owner_runs(bench)


async def test_pods_that_their_user_deletes_are_not_awaited_for_ever(bench: Bench) -> None:
    """They are victims no more, and hold their devices; the tenant starts others meanwhile, or tries to."""
    await teams(bench, **BOUNDS)
    async with bench.controller():
        await borrowers(bench, script=DEAF, terminationGracePeriodSeconds=FOREVER_S)
        for name in ("one", "two"):
            await bench.client.delete(resources.PODS, name, NAMESPACE)
        await bench.pod("three", template="eight", script=DEAF, terminationGracePeriodSeconds=FOREVER_S)
        await owner_runs(bench)


async def test_a_budget_of_a_tenant_delays_and_does_not_prevent_it(bench: Bench) -> None:
    await teams(bench, **BOUNDS)
    await budget(bench, "never")
    async with bench.controller():
        await borrowers(bench)
        await owner_runs(bench)
        (gone,) = evicted(bench)

        for name in (gone, "never"):
            await bench.event(name, "BudgetOverridden: ")


async def test_a_queue_may_respect_budgets(bench: Bench) -> None:
    await teams(bench, **BOUNDS, podDisruptionBudgets="Respected")
    await budget(bench, "never")
    async with bench.controller():
        await borrowers(bench)
        await bench.pod("owner", template="eight", namespace=OTHER)
        await bench.until(
            lambda: "PodDisruptionBudget" in owner(bench).get("message", ""), "the status names the budget"
        )
        await asyncio.sleep(3)
        assert bench.running(["one", "two"])
        queue = await bench.client.get(QUEUES, NAMESPACE)
        await bench.client.patch(QUEUES, queue["metadata"]["name"], {"spec": {"podDisruptionBudgets": None}})
        await bench.until(lambda: standing(bench, OTHER, "owner") == "Running", "the owner has its own", 60)
