"""Repair of a GPU by a running driver: requests and states on its slice, taints, resets, MIG devices, kills."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from fairlead.api import names
from fairlead.api import repair as api
from fairlead.driver import app
from fairlead.driver.backend.simulated import fault_file
from fairlead.driver.repair.repairer import Repairer
from fairlead.driver.repair.state import RepairStore
from fairlead.kube.resources import NAMESPACES
from tests.support.driver.cluster import SLICES, DriverCluster
from tests.support.driver.kubelet import Kubelet

FAST: dict[str, Any] = {"hardware_interval_s": 0.02, "repair_interval_s": 0.02, "repair_quiet_s": 0.1}


class Look(NamedTuple):
    phase: str
    published: set[str]
    tainted: set[str]


@dataclasses.dataclass
class Operator:
    """Who asks for repairs, as the command line does, and looks at what becomes of them."""

    cluster: DriverCluster

    async def ask(self, device: str, number: int = 1, action: api.Action = "repair") -> None:
        first = api.first_slice(await self.cluster.slices())
        assert first is not None
        text = api.encode(api.Request(id=f"id-{number}", action=action))
        body = {"metadata": {"annotations": {f"{api.REQUEST_PREFIX}{device}": text}}}
        await self.cluster.client.patch(SLICES, first["metadata"]["name"], body)

    async def annotations(self) -> dict[str, str]:
        first = api.first_slice(await self.cluster.slices())
        return {} if first is None else dict(first["metadata"].get("annotations") or {})

    async def state(self, device: str) -> api.State | None:
        return api.states(await self.annotations()).get(device)

    async def until(self, device: str, check: Callable[[api.State], bool]) -> api.State:
        found: api.State | None = None

        async def reached() -> bool:
            nonlocal found
            found = await self.state(device)
            return found is not None and check(found)

        try:
            await self.cluster.until(reached)
        except TimeoutError:
            raise AssertionError(f"{device}: {found}") from None
        assert found is not None
        return found

    async def phase(self, device: str, *phases: str, number: int = 1) -> api.State:
        return await self.until(device, lambda state: state.phase in phases and state.id == f"id-{number}")

    async def taints(self) -> dict[str, list[str]]:
        return {
            device["name"]: [
                f"{taint['key'].rpartition('/')[2]}={taint.get('value', '')}" for taint in device["taints"]
            ]
            for slice_ in await self.cluster.slices()
            for device in slice_["spec"].get("devices", [])
            if device.get("taints")
        }

    async def look(self, gpu: str) -> Look:
        """The phase, and which of the GPU's devices are published and tainted, of one moment."""
        [slice_] = await self.cluster.slices()
        state = api.states(slice_["metadata"].get("annotations") or {}).get(gpu)
        of_gpu = [each for each in slice_["spec"].get("devices", []) if f"{each['name']}-".startswith(f"{gpu}-")]
        return Look(
            "" if state is None else state.phase,
            {each["name"] for each in of_gpu},
            {each["name"] for each in of_gpu if each.get("taints")},
        )

    def recorded(self, gpu: str) -> str:
        """The phase on the node's disk, which is ahead of what is published."""
        return RepairStore(self.cluster.path / "plugins/gpu.fairlead.dev/repairs.json").load()[gpu].phase

    async def untainted(self) -> None:
        async def none() -> bool:
            return await self.taints() == {}

        await self.cluster.until(none)

    @property
    def faults(self) -> Any:
        return self.cluster.path / "plugins/gpu.fairlead.dev" / fault_file.NAME


class KilledError(BaseException):
    """The process ends here, as by SIGKILL: nothing of the driver's own runs afterwards."""


def killing(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next driver dies at this step of a repair."""

    def on_step(now: str) -> None:
        if now == step:
            monkeypatch.setattr(app, "Repairer", Repairer)
            raise KilledError

    monkeypatch.setattr(app, "Repairer", functools.partial(Repairer, on_step=on_step))


STEPS = (
    "draining recorded",
    "reset intended",
    "reset done",
    "restore intended",
    "restored one",
    "verification intended",
    "healed",
    "done recorded",
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("step", STEPS)
async def test_a_repair_goes_on_after_a_kill_and_the_gpu_is_tainted_until_it_is_verified(
    cluster: DriverCluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    operator = Operator(cluster)
    killing(step, monkeypatch)
    with contextlib.suppress(BaseExceptionGroup, KilledError):
        async with cluster.driver(**FAST) as driver:
            before = sorted(each["name"] for one in await cluster.slices() for each in one["spec"]["devices"])
            await operator.ask("gpu-7")
            await asyncio.wait({driver}, timeout=20)
            assert driver.done(), f"never came to {step!r}"
    async with cluster.driver(**FAST):
        while (look := await operator.look("gpu-7")).phase != "done":
            # Between the reset and the MIG devices that are made again there is nothing to publish, and to taint.
            assert look.tainted == look.published or operator.recorded("gpu-7") == "done"
        await operator.untainted()
        assert sorted(each["name"] for one in await cluster.slices() for each in one["spec"]["devices"]) == before


async def test_a_gpu_that_asks_for_a_reset_is_reset_and_its_taints_go(cluster: DriverCluster) -> None:
    operator = Operator(cluster)
    async with cluster.driver(**FAST):
        fault_file.inject(operator.faults, 1, xid=48, ecc="uncorrected")

        async def tainted() -> bool:
            return "gpu-1" in await operator.taints()

        await cluster.until(tainted)
        await operator.ask("gpu-1")
        done = await operator.phase("gpu-1", "done")
        assert done.message == "reset and found well"
        await operator.untainted()
        assert fault_file.read(operator.faults).recovery == {}  # type: ignore[union-attr]
        assert not [key for key in await operator.annotations() if key.startswith(api.REQUEST_PREFIX)]


async def test_a_gpu_is_watched_after_its_reset_before_it_is_given_out(cluster: DriverCluster) -> None:
    operator = Operator(cluster)
    async with cluster.driver(**FAST | {"repair_quiet_s": 60.0}):
        await operator.ask("gpu-1")
        await operator.phase("gpu-1", "verifying")
        await asyncio.sleep(20 * FAST["hardware_interval_s"])  # it is looked at as often, and found well
        assert operator.recorded("gpu-1") == "verifying"
        assert "gpu-1" in await operator.taints()


async def test_a_gpu_that_a_claim_has_is_tainted_and_not_reset_until_the_claim_ends(cluster: DriverCluster) -> None:
    operator, claim = Operator(cluster), await cluster.allocate("gpu-2")
    async with cluster.driver(**FAST), Kubelet.connect(cluster.registration) as kubelet:
        await kubelet.prepare(claim)
        await operator.ask("gpu-2")
        draining = await operator.until("gpu-2", lambda state: bool(state.holders))
        assert (draining.phase, draining.holders) == ("draining", ("ResourceClaim default/train",))
        assert await operator.taints() == {"gpu-2": ["repair=draining"]}
        await kubelet.unprepare(claim)
        await operator.phase("gpu-2", "done")
        await operator.untainted()


async def test_a_reset_that_fails_keeps_taint_and_claims_off_until_one_succeeds(cluster: DriverCluster) -> None:
    operator, claim = Operator(cluster), await cluster.allocate("gpu-3")
    async with cluster.driver(**FAST), Kubelet.connect(cluster.registration) as kubelet:
        fault_file.inject(operator.faults, 3, reset_fails=True)
        await operator.ask("gpu-3")
        failed = await operator.phase("gpu-3", "failed")
        assert "the reset failed" in failed.message
        assert await operator.taints() == {"gpu-3": ["repair=failed"]}
        error = (await kubelet.prepare(claim))[claim.metadata.uid].error
        assert "the repair of gpu-3 failed (gpu-3: the reset failed: unknown error); delete the pod" in error
        fault_file.clear(operator.faults, 3)
        await operator.ask("gpu-3", 2)
        await operator.phase("gpu-3", "done", number=2)
        await operator.untainted()
        assert (await kubelet.prepare(claim))[claim.metadata.uid].error == ""


async def test_a_failed_repair_keeps_its_taint_over_a_restart_and_wiped_slices(cluster: DriverCluster) -> None:
    operator = Operator(cluster)
    async with cluster.driver(**FAST):
        fault_file.inject(operator.faults, 3, reset_fails=True)
        await operator.ask("gpu-3")
        await operator.phase("gpu-3", "failed")
    for each in await cluster.slices():
        await cluster.client.delete(SLICES, each["metadata"]["name"])
    async with cluster.driver(**FAST):
        # Ready means published: the first slice of the new process has it.
        assert await operator.taints() == {"gpu-3": ["repair=failed"]}
        await operator.phase("gpu-3", "failed")


async def test_one_that_drains_can_be_taken_back(cluster: DriverCluster) -> None:
    operator, claim = Operator(cluster), await cluster.allocate("gpu-2")
    async with cluster.driver(**FAST), Kubelet.connect(cluster.registration) as kubelet:
        await kubelet.prepare(claim)
        await operator.ask("gpu-2")
        await operator.until("gpu-2", lambda state: bool(state.holders))
        await operator.ask("gpu-2", action="cancel")
        await operator.phase("gpu-2", "cancelled")
        await operator.untainted()


async def test_one_that_is_only_drained_stays_so_over_a_restart_and_prepares_what_it_had(
    cluster: DriverCluster,
) -> None:
    operator, claim = Operator(cluster), await cluster.allocate("gpu-2")
    async with cluster.driver(**FAST):
        await operator.ask("gpu-2", action="drain")
        await operator.phase("gpu-2", "drained")
        await operator.ask("gpu-77", number=5, action="drain")
        assert (await operator.phase("gpu-77", "refused", number=5)).message.startswith("this node has gpu-0")
    async with cluster.driver(**FAST), Kubelet.connect(cluster.registration) as kubelet:
        (prepared,) = (await kubelet.prepare(claim)).values()
        assert not prepared.error, "it was allocated before"
        assert (await operator.taints())["gpu-2"] == ["repair=drained"]
        await operator.ask("gpu-2", number=2, action="drain")  # once more: nothing new
        await operator.ask("gpu-2", action="cancel")
        await operator.phase("gpu-2", "cancelled")
        await operator.untainted()


async def test_a_repair_takes_a_drained_gpu_over_and_one_beside_it_stays_drained(cluster: DriverCluster) -> None:
    operator = Operator(cluster)
    async with cluster.driver(**FAST):
        for number, gpu in enumerate(("gpu-2", "gpu-3")):
            await operator.ask(gpu, number=number, action="drain")
            await operator.phase(gpu, "drained", number=number)
        await operator.ask("gpu-2", number=7)
        await operator.phase("gpu-2", "done", number=7)

        async def one_left() -> bool:
            return {gpu: taints for gpu, taints in (await operator.taints()).items() if gpu == "gpu-2"} == {}

        await cluster.until(one_left)
        assert (await operator.taints())["gpu-3"] == ["repair=drained"]


async def test_gpus_that_bridges_join_are_drained_and_reset_together(cluster: DriverCluster) -> None:
    operator, claim = Operator(cluster), await cluster.allocate("gpu-3")
    async with (
        cluster.driver(backend="simulated:a100-pcie-nvlink-pairs", **FAST),
        Kubelet.connect(cluster.registration) as kubelet,
    ):
        await kubelet.prepare(claim)
        await operator.ask("gpu-2")
        state = await operator.until("gpu-2", lambda state: bool(state.holders))
        assert state.together == ("gpu-2", "gpu-3")
        assert await operator.taints() == {"gpu-2": ["repair=draining"], "gpu-3": ["repair=draining"]}
        await operator.ask("gpu-3", 2)
        refused = await operator.phase("gpu-3", "refused", number=2)
        assert refused.message == "gpu-2 is being repaired, and gpu-3 is reset with it"
        await kubelet.unprepare(claim)
        await operator.phase("gpu-2", "done")
        await operator.untainted()


async def test_a_claim_with_admin_access_is_waited_for_too(cluster: DriverCluster) -> None:
    operator = Operator(cluster)
    allowed = {"metadata": {"labels": {names.ADMIN_ACCESS_LABEL: "true"}}}
    await cluster.client.patch(NAMESPACES, "default", allowed)
    claim = await cluster.allocate({"device": "gpu-2", "adminAccess": True}, name="watch")
    async with cluster.driver(**FAST), Kubelet.connect(cluster.registration) as kubelet:
        await kubelet.prepare(claim)
        await operator.ask("gpu-2")
        state = await operator.until("gpu-2", lambda state: bool(state.holders))
        assert state.holders == ("ResourceClaim default/watch",)
