"""What an apiserver may drop is not what safety rests on: MIG on demand, shares and broken GPUs on each release.

Up to 1.35 an apiserver without flags drops counters, shares and taints of ResourceSlices.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fairlead.api import names
from fairlead.driver.backend.simulated import fault_file
from fairlead.kube import resources
from fairlead.kube.informer import Change
from fairlead.kube.releases import Minor
from fairlead.kube.resource import ResourceClaim
from fairlead.sandbox.release import Release
from tests.controller.conftest import Bench, benches
from tests.support.broken_gpus import held, moved_off_a_broken_gpu


@pytest.fixture
async def cut(tmp_path: Path, release: Minor) -> AsyncIterator[Bench]:
    """One node of eight GPUs that are cut on demand."""
    async with benches(tmp_path, count=1, release=release, flags={"driver": ("--dynamic-mig",)}) as made:
        yield made


@pytest.fixture
async def shared(tmp_path: Path, release: Minor) -> AsyncIterator[Bench]:
    async with benches(tmp_path, count=1, release=release, flags={"driver": ("--shared-gpus",)}) as made:
        yield made


class Overlaps:
    """Of every state of all claims: a GPU that is in a claim whole and in another one in part. `seen` stays empty."""

    def __init__(self, bench: Bench) -> None:
        self.seen: list[str] = []
        self._held: dict[str, list[tuple[str, str]]] = {}  # by claim: GPU, device
        bench.claims.subscribe(self._claim)

    def _claim(self, change: Change[ResourceClaim]) -> None:
        allocation = change.new.status.allocation if change.new else None
        self._held[change.object.metadata.uid] = [
            (result.device.partition("-mig-")[0], result.device)
            for result in (allocation.devices.results if allocation else ())
        ]
        by_gpu: defaultdict[str, set[str]] = defaultdict(set)
        for gpu, device in (pair for pairs in self._held.values() for pair in pairs):
            by_gpu[gpu].add(device)
        self.seen += [f"{gpu}: {sorted(found)}" for gpu, found in by_gpu.items() if gpu in found and len(found) > 1]


async def events_of_nodes(bench: Bench) -> list[str]:
    found = (await bench.client.list(resources.EVENTS)).items
    return [each["reason"] for each in found if each["involvedObject"]["kind"] == "Node"]


@pytest.mark.slow
async def test_mig_on_demand_is_exact_where_counters_are_kept_and_refused_where_not(cut: Bench, release: Minor):
    kept = Release.of(release).has("partitionable-devices")
    overlaps = Overlaps(cut)
    await cut.template("eight", 8)
    profile = f'device.attributes["{names.DRIVER}"].profile == "1g.10gb"'
    await cut.template("part", deviceClassName=names.MIG_CLASS, selector=profile)
    async with cut.controller():
        await cut.pod("all", template="eight")
        await cut.until(lambda: cut.running(["all"]), "the whole GPUs run")
        parts = ["part-0", "part-1"]
        for name in parts:
            await cut.pod(name, template="part")
        await cut.until(
            lambda: cut.status("part-0").get("phase") == "Waiting", "parts wait while all GPUs are given whole"
        )
        assert cut.gated(parts)
        await cut.delete(["all"])
        await cut.until(lambda: cut.watchdog.held == (2 if kept else 0), "its devices are free")
        if kept:
            await cut.until(lambda: cut.running(parts), "the parts run")
        else:
            await cut.pod("again", template="eight")
            await cut.until(lambda: cut.running(["again"]), "GPUs are given whole, and only so")
            assert cut.gated(parts)
            assert "CountersNotKept" in await events_of_nodes(cut)
    assert overlaps.seen == []
    slices = (await cut.client.list(resources.RESOURCE_SLICES)).items
    devices = [device for each in slices for device in each.spec.devices]
    assert kept or [device.name for device in devices] == [f"gpu-{minor}" for minor in range(8)]
    assert all(device.consumes_counters for device in devices) == kept


async def test_a_gpu_is_shared_where_shares_are_kept_and_whole_where_not(shared: Bench, release: Minor):
    kept = Release.of(release).has("consumable-capacity")
    await shared.template("share", capacity={"requests": {"memory": "20Gi"}})
    async with shared.controller():
        pods = [f"share-{number}" for number in range(3)]
        for name in pods:
            await shared.pod(name, template="share")
        await shared.until(lambda: shared.running(pods), "all three run")
    devices = {device for _, device in held(shared)}
    assert len(devices) == (1 if kept else 3)
    assert kept or "SharesNotKept" in await events_of_nodes(shared)


@pytest.mark.slow
async def test_a_broken_gpu_is_never_given_out_and_its_gang_moves_to_sound_ones(bench: Bench, release: Minor):
    kept = Release.of(release).has("device-taints")
    await bench.template("eight", 8)
    async with bench.controller():
        pods, broken = await moved_off_a_broken_gpu(bench)
        await bench.pod("wide", template="eight")
        await asyncio.sleep(0.5)
        assert broken not in held(bench)
        assert kept or "TaintsNotKept" in await events_of_nodes(bench)
        pool, device = broken
        node = bench.cluster.nodes[pool]
        fault_file.clear(node.plugins_dir / names.DRIVER / fault_file.NAME, int(device.removeprefix("gpu-")))
        await bench.delete(pods)
        await bench.delete(["wide"])
        await bench.pod("both", template="eight")
        await bench.pod("more", template="eight")
        await bench.until(lambda: bench.running(["both", "more"]), "once it is well all sixteen are given", 60)
        assert broken in held(bench)
