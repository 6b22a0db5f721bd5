"""Quotas of what pods request, as users write them: Flavors with measure Resource, on a cluster."""

from __future__ import annotations

import asyncio
from typing import Any

from fairlead.api import names
from fairlead.kube.resources import FLAVORS, QUEUES
from tests.controller.conftest import NAMESPACE, Bench


async def quotas(bench: Bench) -> None:
    for name in ("cpu", "memory"):
        spec = {"measure": "Resource", "resourceName": name}
        await bench.client.create(FLAVORS, {"metadata": {"name": name}, "spec": spec})
    spec = {"deviceSelector": f'device.driver == "{names.DRIVER}"'}
    await bench.client.create(FLAVORS, {"metadata": {"name": "gpu"}, "spec": spec})
    flavors = [
        {"flavor": "gpu", "limit": 16},
        {"flavor": "cpu", "deserved": "1500m"},
        {"flavor": "memory", "deserved": "2Gi", "limit": "3Gi"},
    ]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
    await bench.client.create(
        QUEUES, {"metadata": {"name": "team"}, "spec": {"flavors": flavors, "namespaceSelector": selector}}
    )


def requests(**amounts: str) -> list[dict[str, Any]]:
    resources = {"claims": [{"name": "gpu"}], "requests": amounts}
    return [{"name": "main", "image": "busybox", "command": ["serve"], "resources": resources}]


async def test_a_gang_waits_for_memory_of_its_queue_and_starts_when_it_is_free(bench: Bench) -> None:
    """Also with its pods' requests in the status; a controller that takes over counts the same."""
    await quotas(bench)
    await bench.template("one", 1)

    async def usage() -> dict[str, list[object]]:
        found = (await bench.client.get(QUEUES, "team")).get("status", {}).get("usage", ())
        return {each["flavor"]: [each["allocated"], each["demand"]] for each in found}

    async with bench.controller():
        first = await bench.gang("first", 2, template="one", containers=requests(cpu="750m", memory="1Gi"))
        await bench.until(lambda: bench.running(first), "the first runs")
        second = await bench.gang("second", 2, template="one", containers=requests(memory="1Gi"))
        await bench.until(lambda: bench.status("second").get("phase") == "Waiting", "the second waits")
        status = bench.status("second")
        assert status["reason"] == "OverQueueLimit", status
        assert "queue team: flavor memory: 2Gi used + 2Gi asked > limit 3Gi" in str(status)
    assert await usage() == {"gpu": [2, 4], "cpu": ["1500m", "1500m"], "memory": ["2Gi", "4Gi"]}
    async with bench.controller():
        third = await bench.pod("third", template="one", containers=requests(memory="512Mi"))
        await bench.until(lambda: bench.running([third.metadata.name]), "what fits starts")
        assert bench.gated(second)
        await bench.delete(first)
        await bench.until(lambda: bench.running(second), "the second runs")
        for _ in range(300):  # status is written a moment later
            flavor = (await bench.client.get(FLAVORS, "memory"))["status"]
            if flavor["allocated"] == "2560Mi" and (await usage())["memory"] == ["2560Mi", "2560Mi"]:
                break
            await asyncio.sleep(0.1)
        else:
            raise AssertionError(f"{flavor}, {await usage()}")
        assert flavor["conditions"][0]["status"] == "True", flavor


async def test_many_that_come_at_once_stay_within_the_quota(bench: Bench) -> None:
    """Also while what was admitted is being written: its pods count from the decision on."""
    await quotas(bench)
    await bench.template("one", 1)
    async with bench.controller():
        pods = [await bench.pod(f"p{number}", template="one", containers=requests(memory="1Gi")) for number in range(6)]
        uids = [pod.metadata.name for pod in pods]
        await bench.until(lambda: sum(bench.running([name]) for name in uids) == 3, "three run")
        await bench.until(
            lambda: all(bench.status(n).get("phase") == "Waiting" for n in uids if bench.gated([n])), "others wait"
        )
        assert sum(bench.gated([name]) for name in uids) == 3
