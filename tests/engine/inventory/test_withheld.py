"""Devices that their driver withholds since the apiserver drops taints: not given to anyone, and evicted from where the taint says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from fairlead.api import withheld
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.pool import published_slice
from fairlead.engine.types.reasons import Code, Rejection
from fairlead.engine.types.values import DeviceRef
from fairlead.kube import resource
from tests.support.engine.objects import GPU, MIG, Json, claim_spec, device_request, gang, gpu, mig_gpu, slice_of
from tests.support.engine.world import World

LOST = withheld.Taint(key="gpu.fairlead.dev/gpu-lost", effect="NoExecute", reason="it has fallen off the bus")
DRAINED = withheld.Taint(key="gpu.fairlead.dev/drained", effect="NoSchedule")


def slices(devices: Sequence[Json], says: Mapping[str, tuple[withheld.Taint, ...]], generation: int = 2) -> list[Json]:
    made = slice_of("n", devices) or slice_of("n", [gpu(0)])
    made[0]["spec"]["devices"] = list(devices)
    made[0]["metadata"]["annotations"] = {withheld.WITHHELD: withheld.encode(says)}
    for each in made:
        each["spec"]["pool"]["generation"] = generation
    return made


def gang_of(count: int, name: str = "train", device_class: str = GPU):
    return gang(name, 1, claim_spec(device_request(count, device_class=device_class)))


def running(devices: Sequence[Json], request) -> World:
    world = World()
    world.add_node("n", devices)
    assert world.carry_out(world.decide(request), [request]) == []
    return world


def test_a_withheld_device_is_known_with_its_taints_and_not_given():
    world = World()
    world.add_node("n", [gpu(0), gpu(1)])
    world.add_slices(slices([gpu(0)], {"gpu-1": (DRAINED,)}))
    device = world.inventory.device(DeviceRef("gpu.fairlead.dev", "n", "gpu-1"))
    assert device is not None
    assert [(taint.key, taint.effect) for taint in device.kind.taints] == [(DRAINED.key, "NoSchedule")]
    plan = world.decide(gang_of(2))
    assert plan.admissions == ()
    assert len(world.decide(gang_of(1)).admissions) == 1


def test_of_a_withheld_device_no_selector_is_evaluated():
    """Nothing of it is known but its name: a class that asks for its type would fail on it."""
    world = World()
    world.add_node("n", [gpu(0), gpu(1)])
    world.add_slices(slices([gpu(0)], {"gpu-1": (DRAINED,)}))
    (waiting,) = world.decide(gang_of(2)).waiting
    assert (waiting.reason.code, waiting.reason.could_ever_fit) == (Code.NEVER_FITS, False)
    assert dict(waiting.reason.requests[0].removed) == {Rejection.TAINT: 1}
    every = claim_spec(device_request(0, allocationMode="All"))
    assert world.decide(gang("all", 1, every)).admissions == ()


def test_where_all_are_withheld_while_their_node_releases_them_the_reason_says_so_and_that_it_may_fit():
    world = World()
    world.add_node("n", [gpu(0), gpu(1)])
    releasing = withheld.Taint(key=withheld.RELEASING, effect="NoSchedule")
    world.add_slices(slices([], {"gpu-0": (releasing,), "gpu-1": (releasing,)}))
    (waiting,) = world.decide(gang_of(2)).waiting
    assert (waiting.reason.code, waiting.reason.could_ever_fit) == (Code.NO_DEVICES, None)
    assert dict(waiting.reason.requests[0].removed) == {Rejection.RELEASING: 2}
    assert "2 (being released by their nodes)" in str(waiting.reason)


def test_what_holds_a_device_that_is_withheld_for_a_fault_is_evicted():
    world = running([gpu(0), gpu(1)], gang_of(2))
    world.add_slices(slices([gpu(0)], {"gpu-1": (LOST,)}))
    (eviction,) = world.decide().evictions
    assert (eviction.kind, eviction.name) == ("Replace", "train")
    assert f"n/gpu-1 has the taint {LOST.key}:NoExecute" in eviction.reason.message


def test_what_holds_a_device_that_is_drained_stays():
    world = running([gpu(0), gpu(1)], gang_of(2))
    world.add_slices(slices([gpu(0)], {"gpu-1": (DRAINED,)}))
    assert world.decide().evictions == ()


def test_a_mig_device_goes_with_its_gpu():
    parts = [each for each in mig_gpu(0)[0] if each["name"] == "gpu-0-mig-1g-10gb-0"]
    world = running([{**each, "consumesCounters": []} for each in parts], gang_of(1, device_class=MIG))
    world.add_slices(slices([], {"gpu-0": (LOST,)}))
    assert [each.name for each in world.decide().evictions] == ["train"]


def test_it_comes_back_when_it_is_well():
    world = World()
    world.add_node("n", [gpu(0), gpu(1)])
    world.add_slices(slices([gpu(0)], {"gpu-1": (LOST,)}))
    world.add_slices(slices([gpu(0), gpu(1)], {}, generation=3))
    assert len(world.decide(gang_of(2)).admissions) == 1


def test_a_device_that_a_slice_publishes_is_not_withheld_whatever_a_note_of_before_says():
    world = World()
    world.add_node("n", [gpu(0), gpu(1)])
    world.add_slices(slices([gpu(0), gpu(1)], {"gpu-1": (LOST,)}))
    (pool,) = world.inventory.pools()
    assert pool.problem is None
    assert len(world.decide(gang_of(2)).admissions) == 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"gpu-1": []}', '{"gpu-1": [{"key": "k", "effect": "Never"}]}', "{}" + " " * withheld.BYTES_MAX],
    ids=["empty", "a list", "cut off", "no taint", "another effect", "too long"],
)
def test_a_note_that_cannot_be_read_is_none(text: str):
    (body,) = slices([gpu(0)], {})
    body["metadata"]["annotations"] = {withheld.WITHHELD: text}
    inventory = Inventory()
    inventory.set_slice(msgspec.convert(body, resource.ResourceSlice))
    (pool,) = inventory.pools()
    assert list(pool.devices) == ["gpu-0"]


def test_other_drivers_have_no_such_note():
    (body,) = slices([gpu(0)], {"gpu-1": (LOST,)})
    body["spec"]["driver"] = "gpu.nvidia.com"
    inventory = Inventory()
    inventory.set_slice(msgspec.convert(body, resource.ResourceSlice))
    (pool,) = inventory.pools()
    assert list(pool.devices) == ["gpu-0"]


def test_what_is_recorded_of_a_slice_makes_the_same_inventory():
    (body,) = slices([gpu(0)], {"gpu-1": (LOST,), "gpu-0": (DRAINED,)})
    first, again = Inventory(), Inventory()
    first.set_slice(msgspec.convert(body, resource.ResourceSlice))
    name = body["metadata"]["name"]
    entry = first.slice_entry(name)
    assert entry is not None
    recorded = msgspec.structs.replace(msgspec.convert(body, resource.ResourceSlice), spec=published_slice(entry))
    again.set_slice(
        msgspec.structs.replace(recorded, metadata=msgspec.structs.replace(recorded.metadata, annotations={}))
    )
    views = [
        {device.name: device.kind.taints for pool in inventory.pools() for device in pool.devices.values()}
        for inventory in (first, again)
    ]
    assert views[0] == views[1]
    assert [pool.withheld for pool in again.pools()] == [pool.withheld for pool in first.pools()] == [{"gpu-1"}]
    assert set(views[0]) == {"gpu-0", "gpu-1"}
