"""Where taints or shares are dropped: a device that must get no claims leaves the slices with a note, and what would be shared is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.api import withheld
from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from tests.support.driver.publishing import publishing, two_h100s
from tests.support.driver.slice_api import SliceApi
from tests.support.kube import VirtualTime

TAINTS = frozenset({"taints"})
LOST = "gpu.fairlead.dev/gpu-lost"


@pytest.fixture
def backend(tmp_path: Path) -> SimulatedBackend:
    return two_h100s(tmp_path)


@pytest.fixture
def api() -> SliceApi:
    made = SliceApi()
    made.gates.taints = made.gates.shares = False
    return made


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


async def test_a_broken_gpu_leaves_the_slices_with_the_reason_and_comes_back_when_it_is_well(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    async with publishing(api, backend, time, wanted=TAINTS) as driver:
        assert driver.said.reasons == ["TaintsNotKept"]
        backend.faults.lost.add(1)
        await driver.poll(full=False)
        assert set(api.offered()) == {"gpu-0"}
        [taint] = driver.withheld["gpu-1"]
        assert (taint.key, taint.effect) == (LOST, "NoExecute")
        assert "fallen off the bus" in taint.reason
        unhealthy = [each.device for each in driver.monitor.health.devices if each.state == "unhealthy"]
        assert unhealthy == ["gpu-1"]  # to kubelet it is there
        backend.faults.lost.clear()
        await driver.poll(full=False)
        assert set(api.offered()) == {"gpu-0", "gpu-1"}
        assert driver.withheld == {}


async def test_what_becomes_of_a_withheld_gpu_is_noted_though_the_slices_stay(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    async with publishing(api, backend, time, wanted=TAINTS) as driver:
        backend.faults.recovery[1] = "reset"
        await driver.poll(full=False)
        assert [taint.effect for taint in driver.withheld["gpu-1"]] == ["NoSchedule"]
        backend.faults.recovery[1] = "reboot"
        await driver.poll(full=False)
        [taint] = driver.withheld["gpu-1"]
        assert (taint.key, taint.value, taint.effect) == ("gpu.fairlead.dev/recovery-action", "reboot", "NoExecute")


async def test_device_and_note_change_in_one_generation(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    """A reader never finds the device gone without the note that says why."""
    moments: list[tuple[bool, bool]] = []

    def look(_number: int) -> None:
        if offered := api.offered():
            moments.append(("gpu-1" not in offered, "gpu-1" in withheld.read(api.annotations())))

    async with publishing(api, backend, time, wanted=TAINTS | {"counters"}) as driver:
        api.after_write = look
        backend.faults.lost.add(1)
        await driver.poll(full=False)
        backend.faults.lost.clear()
        await driver.poll(full=False)
    assert moments
    assert all(gone == noted for gone, noted in moments)
    assert {gone for gone, _ in moments} == {True, False}


async def test_a_taint_that_a_stored_slice_lost_withholds_the_device_at_once(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    api.gates.taints = True
    async with publishing(api, backend, time, wanted=TAINTS) as driver:
        api.gates.taints = False
        backend.faults.lost.add(1)
        await driver.poll(full=False)
        assert set(api.offered()) == {"gpu-0"}
        assert driver.withheld["gpu-1"][0].key == LOST
        assert driver.said.reasons == ["TaintsNotKept"]
        writes = len(api.writes)
        await time.advance(60)
        assert len(api.writes) == writes
        api.gates.taints = True
        await time.advance(700)
        assert api.offered()["gpu-1"]["taints"][0]["key"] == LOST
        assert driver.withheld == {}
        assert driver.said.reasons == ["TaintsNotKept", "TaintsKept"]


async def test_the_mig_devices_of_a_broken_gpu_leave_with_it_and_the_others_stay(
    api: SliceApi, time: VirtualTime
) -> None:
    dgx = SimulatedBackend(profiles.load("dgx-a100"), node="n1")
    async with publishing(api, dgx, time, wanted=TAINTS) as driver:
        before = set(api.offered())
        dgx.faults.recovery[6] = "reset"
        await driver.poll(full=False)
        gone = before - set(api.offered())
        assert len(gone) == 7
        assert all(name.startswith("gpu-6-mig-") for name in gone)
        assert set(driver.withheld) == {"gpu-6"}
        assert all(withheld.taints_of(driver.withheld, name) for name in gone)
        assert not any(withheld.taints_of(driver.withheld, name) for name in api.offered())


async def test_where_shares_are_dropped_the_gpu_is_whole_and_the_node_says_that_requests_for_shares_wait(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    async with publishing(api, backend, time, wanted=frozenset({"taints", "shares"})) as driver:
        memory = api.offered()["gpu-0"]["capacity"]["memory"]
        assert memory == {"value": "81559Mi"}
        assert not any(device.allow_multiple_allocations for device in driver.monitor.built.devices)  # nor is it sent
        events = {reason: (kind, message) for kind, reason, message in driver.said.events}
        kind, message = events["SharesNotKept"]
        assert kind == "Warning"
        assert "DRAConsumableCapacity" in message
        assert "each claim is given a whole device" in message
        assert withheld.dropped(api.annotations()) == {"taints", "shares"}
        api.gates.shares = True
        await time.advance(700)
        assert api.offered()["gpu-0"]["allowMultipleAllocations"] is True
        assert withheld.dropped(api.annotations()) == {"taints"}


async def test_shares_that_a_stored_slice_lost_are_not_written_again_and_again(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    api.before_write = lambda _number: setattr(api.gates, "shares", False)
    api.gates.shares = api.gates.taints = True
    async with publishing(api, backend, time, wanted=frozenset({"taints", "shares"})) as driver:
        assert driver.said.reasons == ["SharesNotKept"]
        assert len(api.writes) <= 2
        assert "requestPolicy" not in api.offered()["gpu-0"]["capacity"]["memory"]
