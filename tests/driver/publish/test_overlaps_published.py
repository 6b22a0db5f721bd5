"""Devices that overlap are offered together only where the apiserver kept their counters: at every moment, in every order of writes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from fairlead.api import withheld
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.publish import slices
from fairlead.driver.publish.slices import Layout
from fairlead.kube import errors
from tests.support.driver.publishing import Killed, Publishing, publishing, two_h100s
from tests.support.driver.slice_api import SliceApi
from tests.support.kube import VirtualTime

WHOLE = {"gpu-0", "gpu-1"}
ALL = 2 * 26


@pytest.fixture
def backend(tmp_path: Path) -> SimulatedBackend:
    return two_h100s(tmp_path)


@pytest.fixture
def api() -> SliceApi:
    return SliceApi()


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.mark.parametrize("layout", ["split", "combined"])
async def test_where_counters_are_kept_every_placement_is_offered_in_the_layout_that_is_taken(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime, layout: Layout
) -> None:
    api.gates.layout = layout
    async with publishing(api, backend, time) as driver:
        assert len(api.offered()) == ALL
        assert (len(api.stored), api.trials) == ((2, 3) if layout == "split" else (3, 1))
        assert driver.said.reasons == []
        assert driver.publisher.problem is None
        await time.advance(3600)
        assert api.trials <= 3  # nothing is asked while all is kept
    assert api.wrong == []


async def test_where_they_are_dropped_whole_gpus_are_offered_and_the_node_says_so(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    api.gates.counters = False
    async with publishing(api, backend, time) as driver:
        assert set(api.offered()) == WHOLE
        [(kind, reason, message)] = driver.said.events
        assert (kind, reason) == ("Warning", "CountersNotKept")
        assert "DRAPartitionableDevices" in message
        assert "--dynamic-mig" in message
        assert withheld.dropped(api.annotations()) == {"counters"}
        value = driver.metrics.registry.get_sample_value("fairlead_driver_slice_fields_kept", {"fields": "counters"})
        assert value == 0
        assert driver.publisher.problem is None  # whole GPUs can be used
    assert api.wrong == []


async def test_a_gate_that_is_turned_on_later_is_found_without_a_restart(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    api.gates.counters = False
    async with publishing(api, backend, time) as driver:
        await time.advance(3600)
        assert 5 <= api.trials <= 8
        api.gates.counters = True
        await time.advance(700)
        assert len(api.offered()) == ALL
        assert driver.said.reasons == ["CountersNotKept", "CountersKept"]
        assert withheld.DROPPED not in api.annotations()
    assert api.wrong == []


async def test_a_gpu_of_which_claims_have_mig_devices_is_withheld_until_they_have_ended(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    api.gates.counters = False
    gpu = backend.inventory().gpus[0]
    profile = next(each for each in gpu.mig_profiles if each.name == "1g.10gb")
    async with publishing(api, backend, time) as driver:
        backend.create_mig(gpu.uuid, profile.id, 0)
        driver.own = frozenset({(gpu.uuid, profile.id, 0)})
        await driver.poll()
        assert set(api.offered()) == {"gpu-1"}
        [taint] = driver.withheld["gpu-0"]
        assert (taint.key, taint.effect) == (withheld.NO_COUNTERS, "NoSchedule")
        assert withheld.taints_of(driver.withheld, "gpu-0-mig-1g10gb-19-0") == (taint,)
        name = "gpu-0-mig-1g10gb-19-0"
        assert name in {device.name for device in driver.monitor.built.known}  # its claim's health and attributes
        driver.own = frozenset()
        backend.destroy_mig(gpu.uuid, profile.id, 0)
        await driver.poll()
        assert set(api.offered()) == WHOLE
        assert driver.withheld == {}
    assert api.wrong == []


async def test_an_apiserver_that_answers_the_trial_and_drops_in_the_write_gets_whole_gpus_at_once(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    def turned_off_for_the_writes() -> None:
        api.gates.counters = not api.writes

    api.turns = turned_off_for_the_writes
    api.before_write = lambda _number: setattr(api.gates, "counters", False)
    async with publishing(api, backend, time) as driver:
        assert set(api.offered()) == WHOLE  # no time has passed
        assert driver.said.reasons == ["CountersNotKept"]
    assert api.wrong == []


async def test_an_upgrade_to_the_other_layout_is_followed(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    api.gates.layout = "combined"
    async with publishing(api, backend, time) as driver:
        api.gates.layout = "split"
        backend.faults.recovery[0] = "reset"
        await driver.poll()  # the write of the old layout is refused, which is why it is asked again
        await time.advance(60)
        assert len(api.offered()) == ALL
        assert {device["name"] for device in api.offered().values() if device.get("taints")} >= {"gpu-0"}
        assert driver.publisher.problem is None
    assert api.wrong == []


async def test_a_trial_that_is_refused_leaves_whole_gpus_and_says_why(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    refusal = errors.Forbidden("no dry run for you", status=403)
    create = api.create

    async def refusing(resource: object, obj: dict[str, object], *, dry_run: bool = False) -> dict[str, object]:
        if dry_run:
            raise refusal
        return await create(resource, obj)

    api.create = refusing  # type: ignore[method-assign, assignment]
    async with publishing(api, backend, time) as driver:
        assert set(api.offered()) == WHOLE
        [(kind, reason, message)] = driver.said.events
        assert (kind, reason) == ("Warning", "SliceFieldsUnknown")
        assert "no dry run for you" in message
    assert api.wrong == []


async def test_slices_that_overlap_are_not_written_whoever_asks(
    api: SliceApi, backend: SimulatedBackend, time: VirtualTime
) -> None:
    api.gates.counters = False
    async with publishing(api, backend, time) as driver:
        writes = len(api.writes)
        inventory = driver.monitor.inventory
        wrong = slices.build(inventory, slices.Facts(partitionable=frozenset(gpu.uuid for gpu in inventory.gpus)))
        driver.publisher.publish(wrong.slices)
        await time.advance(60)
        assert len(api.writes) == writes
        assert "overlap" in str(driver.publisher.problem)
        driver.publisher.publish(driver.monitor.built.slices)
        await time.advance(60)
        assert driver.publisher.problem is None
    assert api.wrong == []


@pytest.mark.one_in(7)
@pytest.mark.parametrize("layout", ["split", "combined"])
@pytest.mark.parametrize("sticky", [True, False])
@pytest.mark.parametrize("seed", range(4))
async def test_no_order_of_writes_kills_and_turned_gates_offers_two_that_overlap(
    backend: SimulatedBackend, time: VirtualTime, seed: int, sticky: bool, layout: Layout
) -> None:
    """Gates turn at any request, writes fail with and without being stored, and the process dies before or after a write."""
    api, random = SliceApi(), Random(f"{seed} {sticky} {layout}")
    api.sticky, api.gates.layout = sticky, layout

    def turn() -> None:
        if random.random() < 0.15:
            api.gates.counters = not api.gates.counters
        if random.random() < 0.05:
            api.gates.taints = not api.gates.taints

    def disturb(_number: int) -> None:
        if random.random() < 0.06:
            raise Killed
        if random.random() < 0.06:
            raise errors.Unreachable("connection reset")

    api.turns, api.before_write, api.after_write = turn, disturb, disturb
    for _ in range(6):  # processes
        async with publishing(api, backend, time, random=random) as driver:
            for _ in range(12):
                if driver.task is None or driver.task.done():
                    break
                gpu = random.choice((0, 1))
                if backend.faults.recovery.pop(gpu, None) is None:
                    backend.faults.recovery[gpu] = "reset"
                await driver.poll(full=False)
                await time.advance(random.choice((0.0, 3.0, 700.0)))
    assert api.wrong == [], f"seed {seed}"

    api.turns, api.before_write, api.after_write = (lambda: None), (lambda _number: None), (lambda _number: None)
    for counters in (False, True):
        await _settles(api, backend, time, counters=counters)
    assert api.wrong == []


async def _settles(api: SliceApi, backend: SimulatedBackend, time: VirtualTime, *, counters: bool) -> None:
    """Left in peace, the node offers what it can."""
    backend.faults.recovery.clear()
    api.gates.counters = api.gates.taints = counters
    async with publishing(api, backend, time) as driver:
        await time.advance(120)
        assert isinstance(driver, Publishing)
        assert len(api.offered()) == (ALL if counters else 2)
