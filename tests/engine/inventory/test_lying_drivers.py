"""What one node's driver publishes costs the others nothing: too many devices, ever new names and counters, unlike partitions."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.drivers import part_class
from fairlead.api.pool_homes import DEVICES_MAX
from fairlead.cli.health.doctor import devices as causes
from fairlead.cli.health.seen import Listed, Seen
from fairlead.engine.inventory import device
from fairlead.engine.inventory.counters import PARTITIONS_MAX
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.pool import Pool
from fairlead.kube import resource
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, mig_gpu, slice_of
from tests.support.engine.world import World

Json = dict[str, Any]
LIAR = "liar"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def publish(inventory: Inventory, slices: Sequence[Json]) -> None:
    inventory.set_slices(msgspec.convert(list(slices), list[resource.ResourceSlice]))


def sets(count: int) -> list[Json]:
    return [{"name": f"s{number}", "counters": {"memory": {"value": "1"}}} for number in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "counters"), [(DEVICES_MAX + 1, 0), (10_000, 0), (1, DEVICES_MAX)], ids=["one", "all", "counters"]
)
def test_a_pool_of_more_devices_than_a_node_has_counts_in_no_reader(devices: int, counters: int) -> None:
    inventory = Inventory()
    honest = slice_of("n1", [gpu(0)])
    lies = slice_of(LIAR, [gpu(number) for number in range(devices)], counters=sets(counters))
    publish(inventory, [*honest, *lies])
    assert [device.name for device in inventory.on_node("n1", {}).devices] == ["gpu-0"]
    assert inventory.on_node(LIAR, {}).devices == ()
    (problem,) = (pool.problem for pool in inventory.on_node(LIAR, {}).problems)
    assert f"more than {DEVICES_MAX} devices and counter sets of node liar" in (problem or "")
    assert inventory.ignored_slices() == [problem]
    nodes = tuple({"metadata": {"name": name}, "status": READY} for name in ("n1", LIAR))
    seen = Seen(
        now=0.0,
        lists={"resourceslices.resource.k8s.io": Listed(items=(*honest, *lies)), "nodes": Listed(items=nodes)},
    )
    (finding,) = causes.stale(seen)
    assert problem in finding.evidence
    publish(inventory, slice_of(LIAR, [gpu(0)]))
    for each in lies[1:]:
        inventory.drop_slice(each["metadata"]["name"])
    assert [device.name for device in inventory.on_node(LIAR, {}).devices] == ["gpu-0"]
    assert inventory.ignored_slices() == []


def test_sixteen_gpus_with_all_their_mig_devices_and_a_pool_of_many_nodes_count() -> None:
    inventory = Inventory()
    gpus = [mig_gpu(minor) for minor in range(16)]
    publish(
        inventory, slice_of("n1", [device for own, _ in gpus for device in own], counters=[each for _, each in gpus])
    )
    assert inventory.on_node("n1", {}).problems == []
    wide = [each for node in range(40) for each in slice_of(f"w{node}", [gpu(100 * node + n) for n in range(64)])]
    for each in wide:
        each["spec"] |= {
            "driver": "nic.example.com",
            "pool": {"name": "all", "generation": 1, "resourceSliceCount": 40},
        }
    publish(inventory, wide)
    assert len(inventory.on_node("w3", {}).devices) == 64


def new_names(turn: int) -> list[Json]:
    return slice_of(LIAR, [gpu(0) | {"name": f"gpu-{turn}-{number}"} for number in range(64)])


def new_attributes(turn: int) -> list[Json]:
    named = {f"a{turn}-{number}": {"bool": True} for number in range(30)}
    return slice_of(LIAR, [gpu(number) | {"attributes": named | {f"b{number}": {"int": turn}}} for number in range(64)])


def new_counters(turn: int) -> list[Json]:
    counters = {f"memory-slice-{number}": {"value": str(turn + 1)} for number in range(32)}
    return slice_of(LIAR, [], counters=[{"name": f"s{number}", "counters": counters} for number in range(8)])


def new_partitions(turn: int) -> list[Json]:
    _, counters = mig_gpu(0)
    return slice_of(LIAR, [part(64 * turn + number) for number in range(64)], counters=[counters])


def part(number: int) -> Json:
    draws = [{"counterSet": "gpu-0-counters", "counters": {"multiprocessors": {"value": f"{number}e-9"}}}]
    return {"name": f"part-{number % 64}", "attributes": {"type": {"string": "mig"}}, "consumesCounters": draws}


@pytest.mark.slow
@pytest.mark.parametrize("lies", [new_names, new_attributes, new_counters, new_partitions])
def test_what_is_published_and_taken_back_again_and_again_leaves_nothing(
    lies: Callable[[int], list[Json]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered for sharing is bounded: here by a fiftieth, so that it is full soon."""
    monkeypatch.setattr(device, "ALL_KINDS_MAX", 400, raising=False)
    monkeypatch.setattr(device, "SCHEMAS_MAX", 80, raising=False)
    inventory = Inventory()
    sizes: list[int] = []
    tracemalloc.start()
    try:
        for turn in range(120):
            slices = lies(turn)
            for each in slices:
                each["spec"]["pool"]["generation"] = turn + 1
            publish(inventory, slices)
            if turn in {40, 119}:
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[1] - sizes[0] < 2 * 2**20, sizes


def test_unlike_partitions_of_one_node_change_nothing_of_alike_counters_on_another() -> None:
    honest, counters = mig_gpu(0)
    found: list[list[tuple[float, ...]]] = []
    for lies in ([], slice_of(LIAR, [part(number) for number in range(64)], counters=[counters])):
        inventory = Inventory()
        publish(inventory, lies)
        for node in ("n1", "n2"):
            publish(inventory, slice_of(node, honest, counters=[counters]))
        one, two = (inventory.pool(names.DRIVER, node) for node in ("n1", "n2"))
        assert one is not None
        assert two is not None
        assert one.layout is two.layout
        found.append(ranks(one))
    assert found[0] == found[1]


def ranks(pool: Pool) -> list[tuple[float, ...]]:
    free = tuple(pool.layout.totals)
    return [pool.layout.remaining_shares(device.counter_consumption, free) for device in pool.devices.values()]


def test_a_node_of_a_thousand_unlike_partitions_is_decided_on_without_ranking_what_each_would_leave() -> None:
    """Ranked, forty pods took 76 s and 1.6 GB."""
    world = World()
    counters = {"name": "gpu-0-counters", "counters": {"multiprocessors": {"value": "98"}}}
    world.add_node(LIAR, [part(number) | {"name": f"part-{number}"} for number in range(1000)], counters=[counters])
    pool = world.inventory.pool(names.DRIVER, LIAR)
    assert pool is not None
    assert pool.problem is None
    assert len({device.counter_consumption for device in pool.devices.values()}) > PARTITIONS_MAX
    assert set(ranks(pool)) == {()}
    mig = claim_spec(device_request(device_class=part_class(names.DRIVER)))
    assert len(world.decide(gang("train", 8, mig)).admissions) == 1
