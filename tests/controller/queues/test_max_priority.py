"""A tenant of a queue of several teams goes before the others by no priority beyond the queue's bound, also where no webhook saw its pod."""

from __future__ import annotations

import asyncio

from fairlead.kube.resources import NAMESPACES, QUEUES, RESOURCE_CLAIM_TEMPLATES, raw
from tests.controller.conftest import NAMESPACE, Bench
from tests.support.teams import standing

OTHER = "vision"


async def test_a_gang_counts_with_no_more_than_the_bound_of_its_queue(bench: Bench) -> None:
    await bench.client.create(NAMESPACES, {"metadata": {"name": OTHER}})
    body = {"metadata": {"name": "shared"}, "spec": {"namespaceSelector": {}, "maxPriority": 0}}
    await bench.client.create(QUEUES, body)
    await bench.template("eight", 8)
    made = await bench.client.get(raw(RESOURCE_CLAIM_TEMPLATES), "eight", NAMESPACE)
    copy = {"metadata": {"name": "eight", "namespace": OTHER}, "spec": made["spec"]}
    await bench.client.create(raw(RESOURCE_CLAIM_TEMPLATES), copy)
    for name in ("first", "second"):
        await bench.pod(name, template="eight", namespace=OTHER)
    await asyncio.sleep(1.1)  # creation times are whole seconds
    await bench.pod("greedy", template="eight", priorityClassName="system-node-critical")
    async with bench.controller():
        await bench.until(
            lambda: all(standing(bench, OTHER, name) == "Running" for name in ("first", "second")), "the older ones run"
        )
        await bench.until(lambda: bench.status("greedy").get("phase") == "Waiting", "the younger one waits")
        assert all(standing(bench, OTHER, name) == "Running" for name in ("first", "second")), "and evicts none"
        await bench.client.patch(QUEUES, "shared", {"spec": {"maxPriority": None}})
        await bench.until(lambda: bench.running(["greedy"]), "without the bound it goes first, and evicts one")
