"""Gangs under ResourceQuotas, on the sandbox: whole ones start or wait with the reason, and none holds a part of a quota."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import resources
from tests.controller.conftest import NAMESPACE, Bench, Life

GPUS = f"{names.GPU_CLASS}.deviceclass.resource.k8s.io/devices"
LEGACY = "requests.nvidia.com/gpu"


@pytest.fixture(name="named")
def claims_are_named() -> bool:
    return True


async def set_quota(bench: Bench, hard: dict[str, str], name: str = "gpus") -> None:
    """Returns when the quota counts."""
    body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"hard": hard}}
    if name in {each["metadata"]["name"] for each in await quotas(bench)}:
        patch = {"spec": {"hard": hard}}
        await bench.client.patch(resources.RESOURCE_QUOTAS, name, patch, namespace=NAMESPACE)
    else:
        await bench.client.create(resources.RESOURCE_QUOTAS, body)
    await until(bench, lambda found: any(each.get("status", {}).get("hard") == hard for each in found))


async def until(bench: Bench, holds: Callable[[list[dict[str, Any]]], bool]) -> None:
    """Waits until the quotas are so."""
    async with asyncio.timeout(30):
        while not holds(await quotas(bench)):  # noqa: ASYNC110  # another program writes them
            await asyncio.sleep(0.02)


async def quotas(bench: Bench) -> list[dict[str, Any]]:
    return list((await bench.client.list(resources.RESOURCE_QUOTAS, NAMESPACE)).items)


async def used(bench: Bench, resource: str = GPUS) -> str:
    (found,) = await quotas(bench)
    return str(found["status"]["used"][resource])


def succeeded(bench: Bench, pods: Iterable[str]) -> bool:
    return all((pod := bench.get(name)) is not None and pod.status.phase == "Succeeded" for name in pods)


def waits(bench: Bench, gang: str) -> bool:
    return bench.status(gang).get("reason") == "ExceedsResourceQuota"


async def test_of_two_gangs_that_exceed_a_quota_together_one_waits_with_the_reason_until_the_other_ends(
    bench: Bench,
) -> None:
    await bench.template("four", 4)
    await set_quota(bench, {GPUS: "8"})
    async with bench.controller():
        pods = {name: await bench.gang(name, 2, template="four") for name in ("one", "other")}
        await bench.until(lambda: any(bench.running(each) for each in pods.values()), "one of them runs")
        # Of the same second: which of them goes first is drawn by their UIDs.
        runs = next(name for name, each in pods.items() if bench.running(each))
        (waiting,) = pods.keys() - {runs}
        await bench.until(lambda: waits(bench, waiting), "the other waits")
        assert f"{GPUS}: 8 used + 8 asked > 8" in bench.status(waiting)["message"]
        assert bench.gated(pods[waiting])
        assert len(bench.claims.all()) == 2
        assert await used(bench) == "8"
        await bench.delete(pods[runs])
        await bench.until(lambda: bench.running(pods[waiting]), "the other runs when the quota is free")
        assert await used(bench) == "8"


async def test_gangs_created_at_once_under_an_exact_quota_start_one_after_the_other(bench: Bench) -> None:
    """No claim is ever refused, and none made for a gang that may not start."""
    await bench.template("two", 2)
    await set_quota(bench, {GPUS: "4", "count/resourceclaims.resource.k8s.io": "2"})
    gangs = [await bench.gang(f"g{number}", 2, template="two", sleep=0.5) for number in range(3)]
    async with bench.controller():
        await bench.until(lambda: all(succeeded(bench, pods) for pods in gangs), "all run to their end")
    events = (await bench.client.list(resources.EVENTS, NAMESPACE)).items
    assert [each["message"] for each in events if "exceeded quota" in each["message"]] == []


@pytest.mark.parametrize("writes", [2, 4])
async def test_a_controller_killed_in_the_middle_leaves_no_quota_to_half_a_gang(bench: Bench, writes: int) -> None:
    """The next one completes or undoes what the first began; both gangs get their turn under an exact quota."""
    await bench.template("four", 4)
    await set_quota(bench, {GPUS: "8"})
    first = await bench.gang("first", 2, template="four", sleep=1)
    second = await bench.gang("second", 2, template="four", sleep=1)
    await bench.mortal(Life(writes, after=True), lambda: False)
    async with bench.controller():
        await bench.until(lambda: succeeded(bench, [*first, *second]), "both gangs run to their end", 60)


async def test_claims_that_others_made_count_and_a_gang_starts_when_they_are_deleted(bench: Bench) -> None:
    await bench.template("one")
    await set_quota(bench, {GPUS: "3"})
    await bench.claim("stranger", 2)
    pods = await bench.gang("late", 2, template="one")
    async with bench.controller():
        await bench.until(lambda: waits(bench, "late"), "it waits")
        assert [each.metadata.name for each in bench.claims.all()] == ["stranger"]
        await bench.client.delete(resources.RESOURCE_CLAIMS, "stranger", NAMESPACE)
        await bench.until(lambda: bench.running(pods), "it runs when the stranger's claim is gone")


async def test_a_quota_on_the_legacy_resource_limits_claims_of_legacy_limits(bench: Bench) -> None:
    """The apiserver counts none of them: the pods have no such limit any more, and the claims none of its name."""
    await bench.template("one")
    await set_quota(bench, {LEGACY: "4"})
    async with bench.controller():
        first = await bench.gang("first", 2, template="fairlead-gpu-2")
        await bench.until(lambda: bench.running(first), "the first runs")
        assert await used(bench, LEGACY) == "0"
        second = await bench.gang("second", 1, template="fairlead-gpu-1")
        await bench.until(lambda: waits(bench, "second"), "the second waits")
        assert f"{LEGACY}: 4 used + 1 asked > 4" in bench.status("second")["message"]
        native = await bench.gang("native", 1, template="one")
        await bench.until(lambda: bench.running(native), "a claim of its own is not limited by it")
        bench.named = False
        bare = await bench.pod("bare", template="fairlead-gpu-1", gang="bare", size=1)
        await bench.until(lambda: waits(bench, "bare"), "nor does a generated claim get devices")
        assert bench.gated([bare.metadata.name])
        await bench.delete(first)
        await bench.until(lambda: bench.running([*second, "bare"]), "both run when the first is gone")
