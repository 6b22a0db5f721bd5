"""A slice that names another node's pool counts in no reader: not in the inventory, nor in what doctor looks at."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from fairlead.api import pool_homes
from fairlead.api.names import DRIVER
from fairlead.cli.health.doctor import devices as causes
from fairlead.cli.health.seen import Listed, Seen
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.pool import published_slice
from fairlead.engine.types.values import DeviceRef
from fairlead.kube import resource
from tests.support.engine.objects import gpu, slice_of

Json = dict[str, Any]
NIC = "nic.example.com"


def taking(victim: str, node: str, *, generation: int = 9, driver: str = DRIVER, **spec: Any) -> Json:
    """A slice of `node` that names the victim's pool."""
    made = copy.deepcopy(slice_of(node, [gpu(0), gpu(7)], driver=driver)[0])
    made["metadata"]["name"] = f"taken-by-{node}"
    made["spec"] |= {"pool": {"name": victim, "generation": generation, "resourceSliceCount": 1}, **spec}
    return made


def inventory_of(*slices: Json) -> Inventory:
    made = Inventory()
    made.set_slices([msgspec.convert(each, resource.ResourceSlice) for each in slices])
    return made


def on(inventory: Inventory, node: str) -> list[str]:
    return [f"{device.pool.name}/{device.name}" for device in inventory.on_node(node, {}).devices]


@pytest.mark.parametrize("driver", [DRIVER, NIC])
@pytest.mark.parametrize("generation", [1, 9])
def test_a_slice_of_another_node_neither_replaces_nor_breaks_a_nodes_pool(driver: str, generation: int) -> None:
    own = slice_of("n1", [gpu(0), gpu(1)], driver=driver)
    foreign = taking("n1", "n2", generation=generation, driver=driver)
    for order in ([*own, foreign], [foreign, *own]):
        inventory = inventory_of(*order)
        assert (on(inventory, "n1"), on(inventory, "n2")) == (["n1/gpu-0", "n1/gpu-1"], [])
        assert inventory.on_node("n1", {}).problems == []
        (text,) = inventory.ignored_slices()
        assert "ResourceSlice taken-by-n2 of node n2 is ignored: pool" in text
        assert "kubectl delete resourceslice taken-by-n2" in text
    inventory.drop_slice("taken-by-n2")
    assert inventory.ignored_slices() == []


def test_our_drivers_slice_counts_for_no_other_node_also_while_that_publishes_nothing() -> None:
    """Else the absent node's devices would be allocated before it comes back."""
    inventory = inventory_of(taking("n1", "n2"))
    assert (on(inventory, "n1"), on(inventory, "n2")) == ([], [])
    assert inventory.device(DeviceRef(DRIVER, "n1", "gpu-0")) is None


def test_devices_from_everywhere_do_not_replace_a_nodes_pool() -> None:
    own, foreign = slice_of("n1", [gpu(0)], driver=NIC), taking("n1", "x", driver=NIC, allNodes=True)
    del foreign["spec"]["nodeName"]
    inventory = inventory_of(*own, foreign)
    assert on(inventory, "n1") == ["n1/gpu-0"]
    assert "of no single node" in inventory.ignored_slices()[0]


def test_pools_that_span_nodes_are_as_before() -> None:
    first, second = taking("rack", "n1", driver=NIC), taking("rack", "n2", driver=NIC)
    second["spec"]["devices"] = [gpu(3)]
    for each in (first, second):
        each["spec"]["pool"]["resourceSliceCount"] = 2
    inventory = inventory_of(first, second)
    assert (on(inventory, "n1"), on(inventory, "n2")) == (["rack/gpu-0", "rack/gpu-7"], ["rack/gpu-3"])
    assert inventory.ignored_slices() == []
    assert pool_homes.strangers(NIC, "rack", {"a": "n1", "b": None}) == frozenset()


def test_a_recording_keeps_whose_slices_they_are() -> None:
    """Also of slices without devices, as counters come in slices of their own."""
    counters = [{"name": "set", "counters": {"x": {"value": "1"}}}]
    slices = [*slice_of("n1", [gpu(0)], counters=counters), taking("n1", "n2")]
    inventory = inventory_of(*slices)
    again = Inventory()
    for name in sorted(inventory.slice_names()):
        entry = inventory.slice_entry(name)
        assert entry is not None
        spec = published_slice(entry)
        assert spec.node_name == ("n2" if name == "taken-by-n2" else "n1")
        made = msgspec.convert(taking("n1", "n2"), resource.ResourceSlice)
        metadata = msgspec.structs.replace(made.metadata, name=name)
        again.set_slice(msgspec.structs.replace(made, metadata=metadata, spec=spec))
    assert (on(again, "n1"), on(again, "n2")) == (on(inventory, "n1"), []) == (["n1/gpu-0"], [])
    assert again.ignored_slices() == inventory.ignored_slices()


def test_doctor_names_such_a_slice() -> None:
    node = {
        "metadata": {"name": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    slices = (*slice_of("n1", [gpu(0)]), taking("n1", "n2"))
    seen = Seen(now=0.0, lists={"resourceslices.resource.k8s.io": Listed(items=slices), "nodes": Listed(items=(node,))})
    assert [each["metadata"]["name"] for each in seen.slices] == [f"n1-{DRIVER}-0"]
    (finding,) = causes.stale(seen)
    assert any("ResourceSlice taken-by-n2 of node n2 is ignored" in line for line in finding.evidence)
