"""Pods deleted by force: the API forgets them and frees their claims at once, while their containers take their grace period."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from fairlead.api import withheld
from fairlead.driver.options import DriverOptions
from fairlead.driver.prepare import orphans
from fairlead.kube.resources import PODS, PRIORITY_CLASSES, RESOURCE_SLICES, raw
from tests.controller.conftest import NAMESPACE, Bench
from tests.support.kubernetes import of_this_run
from tests.support.sandbox import until

STOPS_IN_S = 3.0
SECONDS = 10.0
"""5 s are promised, on a machine that does nothing else."""
SCRIPT = f"trap 'sleep {STOPS_IN_S:g}' TERM; sleep infinity"


def containers(bench: Bench, gang: str) -> list[str]:
    """The pods of the gang that have a container, whatever the API says."""
    running = (key for node in bench.cluster.nodes.values() for key in node.kubelet.containers)
    return sorted(pod for _, pod, _ in running if pod.startswith(f"{gang}-"))


async def releasing(bench: Bench) -> set[str]:
    """The devices that drivers say are being released, as node/device: by a taint, or withheld where taints are not kept."""
    found: set[str] = set()
    for each in (await bench.client.list(raw(RESOURCE_SLICES))).items:
        noted = withheld.read(each["metadata"].get("annotations") or {})
        taints: dict[str, list[Any]] = {d["name"]: d.get("taints", []) for d in each["spec"].get("devices", [])}
        found |= {
            f"{each['spec']['pool']['name']}/{device}"
            for device, said in taints.items()
            if any(taint["key"] == withheld.RELEASING for taint in said)
        }
        found |= {
            f"{each['spec']['pool']['name']}/{device}"
            for device, said in noted.items()
            if any(taint.key == withheld.RELEASING for taint in said)
        }
    return found


async def deleted_by_force(bench: Bench, pods: list[str]) -> None:
    for pod in pods:
        await bench.client.delete(PODS, pod, NAMESPACE, grace_period_s=0)


async def test_a_gang_gets_the_devices_of_pods_deleted_by_force_once_their_containers_have_ended(bench: Bench) -> None:
    await bench.template("eight", 8)
    async with bench.controller():
        old = await bench.gang("old", 2, template="eight", script=SCRIPT)
        await bench.until(lambda: bench.running(old), "the old gang runs")
        new = await bench.gang("new", 2, template="eight")
        await bench.until(lambda: bench.status("new").get("phase") == "Waiting", "the new one waits")
        await deleted_by_force(bench, old)
        said: set[str] = set()
        known_s = (
            0.0  # that the drivers have said it; a decision just before gives them out, and its pods wait in prepare
        )
        early = False
        while containers(bench, "old"):
            said |= await releasing(bench)
            taken = [claim.metadata.name for claim in bench.allocated() if claim.metadata.name.startswith("new")]
            known_s = known_s or (time.monotonic() if len(said) == 16 else 0.0)
            if not known_s or time.monotonic() < known_s + 0.5:
                early = bool(taken)
            assert early or not taken
            await asyncio.sleep(0.05)
        ended_s = time.monotonic()
        await bench.until(lambda: bench.running(new), "the new gang runs")
        assert time.monotonic() - ended_s < SECONDS
        assert len(said) == 16, said
        assert await releasing(bench) == set()
        bench.check()


async def test_a_gang_that_may_preempt_waits_for_them_and_evicts_nobody(bench: Bench) -> None:
    if not of_this_run().has("device-taints"):
        pytest.skip("without taints such a device is not published, and not known as one that comes free")
    await bench.template("eight", 8)
    await bench.client.create(raw(PRIORITY_CLASSES), {"metadata": {"name": "high"}, "value": 1000})
    async with bench.controller():
        stays = await bench.gang("stays", 1, template="eight")
        goes = await bench.gang("goes", 1, template="eight", script=SCRIPT)
        await bench.until(lambda: bench.running([*stays, *goes]), "both run")
        await deleted_by_force(bench, goes)
        await until(lambda: releasing(bench), what="the driver says so")
        new = await bench.gang("new", 1, template="eight", priorityClassName="high", priority=1000)
        await bench.until(lambda: bench.status("new").get("reason") == "DevicesComingFree", "it waits for them")
        assert "is being released since" in bench.status("new")["message"]
        await bench.until(lambda: bench.running(new), "it runs")
        assert bench.running(stays)
        assert not bench.status("stays").get("evictions")
        bench.check()


async def test_a_gang_on_devices_that_are_being_released_starts_when_they_are_free(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of claims that it does not watch the driver sees it only then. Where it does not wait for long enough, kubelet is made to try again;
    by itself it does a minute later.
    """
    monkeypatch.setattr(orphans, "WATCHED_MAX", 0)
    defaults = DriverOptions.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "release_wait_s", 0.2)
    for node in bench.cluster.nodes.values():
        await node.stop_driver()
        await node.start_driver()
    await bench.template("eight", 8)
    async with bench.controller():
        old = await bench.gang("old", 2, template="eight", script="trap 'sleep 6' TERM; sleep infinity")
        await bench.until(lambda: bench.running(old), "the old gang runs")
        await deleted_by_force(bench, old)
        new = await bench.gang("new", 2, template="eight")
        await bench.until(lambda: bench.bound(new), "the new one is given devices")
        bound_s = time.monotonic()
        await bench.until(lambda: bench.status("new").get("reason") == "StartRefused", "the gang says why it waits")
        assert time.monotonic() - bound_s < SECONDS
        assert "is held by ResourceClaim ml/old-" in bench.status("new")["message"]
        await bench.until(lambda: not containers(bench, "old"), "the old containers have ended")
        ended_s = time.monotonic()
        await bench.until(lambda: bench.running(new), "the new gang runs")
        assert time.monotonic() - ended_s < SECONDS
        await bench.until(lambda: bench.status("new").get("reason") == "MembersRun", "nothing is refused any more")
