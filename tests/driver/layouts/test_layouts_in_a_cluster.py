"""A node label chooses a MIG layout: the driver drains, cuts, publishes and reports, and takes up what a killed one left."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.driver.backend import profiles
from fairlead.driver.backend.factory import STATE_FILE
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.layouts.cutter import Cut, Intent, Intents
from fairlead.driver.parts import BOOT_ID
from fairlead.kube.resources import EVENTS, NODES, raw
from tests.support.driver.cluster import DriverCluster
from tests.support.driver.kubelet import Kubelet

LABEL, STATE, MESSAGE = "nvidia.com/mig.config", "nvidia.com/mig.config.state", "fairlead.dev/mig-config-message"
FILE = """
version: v1
mig-configs:
  all-disabled:
    - {devices: all, mig-enabled: false}
  first-two:
    - {devices: [0, 1], mig-enabled: true, mig-devices: {1g.10gb: 7}}
  first-in-halves:
    - {devices: [0], mig-enabled: true, mig-devices: {3g.40gb: 2}}
  too-much:
    - {devices: all, mig-enabled: true, mig-devices: {3g.40gb: 3}}
"""


class NodeView:
    """What the API shows of the node."""

    def __init__(self, cluster: DriverCluster) -> None:
        self.cluster = cluster

    async def label(self, name: str | None) -> None:
        await self.cluster.client.patch(NODES, "n1", {"metadata": {"labels": {LABEL: name}}})

    async def metadata(self) -> tuple[str | None, str]:
        node = await self.cluster.client.get(NODES, "n1")
        return node.metadata.labels.get(STATE), node.metadata.annotations.get(MESSAGE, "")

    async def until(self, state: str | None, message: str = "") -> str:
        async def so() -> bool:
            found, said = await self.metadata()
            return found == state and message in said

        try:
            await self.cluster.until(so)
        except TimeoutError:
            raise AssertionError(f"not {state}: {message}, but {await self.metadata()}") from None
        return (await self.metadata())[1]

    async def devices(self) -> list[dict[str, Any]]:
        return [device for slice_ in await self.cluster.slices() for device in slice_["spec"].get("devices", [])]

    async def published(self) -> Counter[str]:
        """Devices by profile, `gpu` for whole ones, `!` behind those with a taint."""
        return Counter(
            device["attributes"].get("profile", {}).get("string", "gpu") + ("!" if device.get("taints") else "")
            for device in await self.devices()
        )

    async def until_published(self, **wanted: int) -> None:
        expected = Counter({name.replace("_", "."): count for name, count in wanted.items()})

        async def so() -> bool:
            return await self.published() == expected

        try:
            await self.cluster.until(so)
        except TimeoutError:
            raise AssertionError(f"not {expected}, but {await self.published()}") from None


@pytest.fixture
def start(cluster: DriverCluster, tmp_path: Path) -> Callable[..., Any]:
    file = tmp_path / "config.yaml"
    file.write_text(FILE)

    @contextlib.asynccontextmanager
    async def started(**changes: Any) -> AsyncIterator[NodeView]:
        defaults = {
            "backend": "simulated:hgx-h100",
            "mig_config_file": file,
            "mig_settle_s": 0.05,
            "hardware_interval_s": 0.05,
        }
        async with cluster.driver(**(defaults | changes)):
            yield NodeView(cluster)

    return started


async def test_a_label_cuts_gpus_and_another_one_cuts_them_anew(start: Callable[..., Any]) -> None:
    async with start() as node:
        assert await node.metadata() == (None, "")
        await node.label("first-two")
        await node.until("success")
        await node.until_published(**{"1g_10gb": 14, "gpu": 6})
        uuids = {device["attributes"]["uuid"]["string"] for device in await node.devices()}
        assert len(uuids) == 20
        await node.label("first-in-halves")  # leaves GPU 1 as it is
        await node.until_published(**{"3g_40gb": 2, "1g_10gb": 7, "gpu": 6})
        await node.until("success")
        await node.label("all-disabled")
        await node.until_published(gpu=8)
        await node.until("success")
        await node.label(None)
        await node.until(None)
        assert await node.published() == {"gpu": 8}


async def test_a_gpu_that_is_held_is_drained_first(start: Callable[..., Any], cluster: DriverCluster) -> None:
    async with start() as node:
        async with Kubelet.connect(cluster.registration) as kubelet:
            claim = await cluster.allocate("gpu-0", name="held")
            assert not (await kubelet.prepare(claim))[claim.metadata.uid].error
            await node.label("first-two")
            await node.until("pending", "gpu-0 waits for default/held to end")
            await node.until_published(**{"gpu!": 1, "gpu": 6, "1g_10gb": 7})
            [taint] = next(d["taints"] for d in await node.devices() if d.get("taints"))
            assert (taint["key"], taint["value"], taint["effect"]) == (
                "gpu.fairlead.dev/mig-config",
                "first-two",
                "NoSchedule",
            )
            assert not (await kubelet.unprepare(claim))[claim.metadata.uid].error
        await node.until("success")
        await node.until_published(**{"1g_10gb": 14, "gpu": 6})


async def test_a_layout_that_the_node_cannot_have_changes_nothing_and_says_why(
    start: Callable[..., Any], cluster: DriverCluster, tmp_path: Path
) -> None:
    async with start() as node:
        await node.label("too-much")
        said = await node.until("failed", "does not fit on gpu-0")
        assert "mig-configs.too-much[0].mig-devices" in said
        assert said.endswith("nothing was changed")
        assert await node.published() == {"gpu": 8}
        await node.label("unknown")
        await node.until(
            "failed", "has no layout 'unknown'; set the label nvidia.com/mig.config to one of all-disabled"
        )
        (tmp_path / "config.yaml").write_text("version: v1\nmig-configs: {unknown: [{devices: all}]}")
        await node.until("failed", "mig-configs.unknown[0].mig-enabled: is missing")
        (tmp_path / "config.yaml").write_text(FILE.replace("first-two", "unknown"))
        await node.until("success")

        async def event() -> bool:
            events = (await cluster.client.list(raw(EVENTS), "default")).items
            return {"MigConfigFailed", "MigConfigApplied"} <= {each["reason"] for each in events}

        await cluster.until(event)


async def test_a_gpu_that_cannot_be_cut_is_left_as_it_was_and_takes_claims_again(start: Callable[..., Any]) -> None:
    async with start(backend="simulated:dgx-a100") as node:  # an A100 switches MIG mode with a reset only
        before = await node.published()
        await node.label("first-two")
        said = await node.until("failed", "gpu-0 was not cut: gpu-0: switching MIG mode on takes a reset of the GPU")
        assert "it is as it was before" in said
        await node.until_published(**{name.replace(".", "_"): count for name, count in before.items()})
        await asyncio.sleep(0.5)  # it is not tried again and again
        assert await node.metadata() == ("failed", said)


async def test_what_a_killed_driver_left_half_done_is_finished(
    start: Callable[..., Any], cluster: DriverCluster
) -> None:
    half_cut(cluster)
    node = NodeView(cluster)
    await node.label("first-two")
    async with start():
        await node.until("success")
        await node.until_published(**{"1g_10gb": 14, "gpu": 6})


async def test_what_a_killed_driver_left_half_done_is_undone_when_no_layout_is_asked_for(
    start: Callable[..., Any], cluster: DriverCluster
) -> None:
    half_cut(cluster)
    async with start() as node:
        await node.until_published(gpu=8)
        assert await node.metadata() == (None, "")


def half_cut(cluster: DriverCluster) -> None:
    """A driver died when GPU 0 had three of its seven MIG devices."""
    data = cluster.path / "plugins" / "gpu.fairlead.dev"
    data.mkdir(parents=True)
    backend = SimulatedBackend(profiles.load("hgx-h100"), node="n1", state_file=data / STATE_FILE)
    uuid = backend.inventory().gpus[0].uuid
    wanted = Cut(enabled=True, placements=tuple((19, start) for start in range(7)))
    intent = Intent(minor=0, before=Cut(enabled=False), wanted=wanted)
    Intents(data / "mig-config.json", boot_id=BOOT_ID.read_text().strip()).put(uuid, intent)
    for start in range(3):
        backend.create_mig(uuid, 19, start)


async def test_gpus_that_are_to_be_cut_are_tainted_in_the_first_slices(
    start: Callable[..., Any], cluster: DriverCluster
) -> None:
    node = NodeView(cluster)
    await node.label("first-two")
    async with start(mig_settle_s=3600.0):
        assert await node.published() == {"gpu!": 2, "gpu": 6}
