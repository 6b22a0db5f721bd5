"""The inventory follows slices and claims one by one, and uses only pools that are valid."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.types.values import DeviceRef
from fairlead.kube import resource
from tests.support.engine.objects import gpu, mig_gpu, slice_of

NODE = "node"


def feed(inventory: Inventory, slices: list[dict[str, Any]]) -> None:
    for entry in slices:
        inventory.set_slice(msgspec.convert(entry, resource.ResourceSlice))


def names(inventory: Inventory, node: str = NODE, **labels: str) -> list[str]:
    return [device.name for device in inventory.on_node(node, labels).devices]


def claim(uid: str, *results: dict[str, Any]) -> resource.ResourceClaim:
    body = {
        "metadata": {"uid": uid, "name": uid, "namespace": "ml"},
        "status": {"allocation": {"devices": {"results": [{"request": "r", **result} for result in results]}}},
    }
    return msgspec.convert(body, resource.ResourceClaim)


def held(name: str, **more: Any) -> dict[str, Any]:
    return {"driver": "gpu.fairlead.dev", "pool": NODE, "device": name, **more}


def device(inventory: Inventory, name: str):
    found = inventory.device(DeviceRef("gpu.fairlead.dev", NODE, name))
    assert found is not None
    return found


class TestPools:
    def test_an_incomplete_pool_has_no_devices_until_its_last_slice_is_there(self):
        inventory = Inventory()
        devices, counters = mig_gpu(0)
        slices = slice_of(NODE, devices, counters=[counters])
        feed(inventory, slices[:1])
        assert names(inventory) == []
        assert "is incomplete" in (inventory.on_node(NODE, {}).problems[0].problem or "")
        feed(inventory, slices[1:])
        assert len(names(inventory)) == len(devices)

    def test_only_the_highest_generation_counts(self):
        inventory = Inventory()
        feed(inventory, slice_of(NODE, [gpu(0)]))
        newer = slice_of(NODE, [gpu(1)])
        newer[0]["metadata"]["name"] = "newer"
        newer[0]["spec"]["pool"]["generation"] = 2
        feed(inventory, newer)
        assert names(inventory) == ["gpu-1"]
        inventory.drop_slice("newer")
        assert names(inventory) == ["gpu-0"]

    @pytest.mark.parametrize("fault", ["twice", "counter", "quantity"])
    def test_an_invalid_pool_has_no_devices_and_says_why(self, fault):
        devices = [gpu(0), gpu(0)] if fault == "twice" else [gpu(0), gpu(1)]
        if fault == "counter":
            devices[0]["consumesCounters"] = [{"counterSet": "ghost", "counters": {"x": {"value": "1"}}}]
        if fault == "quantity":
            devices[0] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "lots"}}}
        inventory = Inventory()
        feed(inventory, slice_of(NODE, devices))
        assert names(inventory) == []
        problem = inventory.on_node(NODE, {}).problems[0].problem
        assert problem is not None
        assert "gpu.fairlead.dev/node is invalid" in problem

    def test_a_slice_that_goes_takes_its_devices_along(self):
        inventory = Inventory()
        feed(inventory, slice_of(NODE, [gpu(0)]))
        inventory.drop_slice(f"{NODE}-gpu.fairlead.dev-0")
        assert names(inventory) == []
        assert inventory.pools() == []
        inventory.drop_slice("never-seen")

    def test_the_order_is_by_driver_pool_slice_and_place_whatever_came_first(self):
        slices = [
            *slice_of("b", [gpu(1), gpu(0)]),
            *slice_of("a", [gpu(3)]),
            *slice_of("z", [gpu(9)], driver="a.example.com"),
        ]
        for entry in slices:
            entry["spec"]["allNodes"] = True
            del entry["spec"]["nodeName"]
        for order in (slices, slices[::-1]):
            inventory = Inventory()
            feed(inventory, order)
            assert names(inventory) == ["gpu-9", "gpu-3", "gpu-1", "gpu-0"]

    def test_pools_with_binding_conditions_come_last(self):
        inventory = Inventory()
        slow = gpu(0, bindingConditions=["ready"], bindingFailureConditions=["failed"])
        feed(inventory, [*slice_of(NODE, [slow], driver="a.example.com"), *slice_of(NODE, [gpu(1)])])
        assert names(inventory) == ["gpu-1", "gpu-0"]


class TestNodes:
    def test_devices_reach_nodes_by_name_selector_or_all(self):
        inventory = Inventory()
        term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        by_selector = slice_of("x", [gpu(1)])
        by_selector[0]["spec"] |= {"nodeSelector": {"nodeSelectorTerms": [term]}}
        everywhere = slice_of("y", [gpu(2)])
        everywhere[0]["spec"] |= {"allNodes": True}
        mixed = slice_of("z", [gpu(3, nodeName=NODE), gpu(4, allNodes=True), gpu(5, nodeName="other")])
        mixed[0]["spec"] |= {"perDeviceNodeSelection": True}
        for entry in (by_selector, everywhere, mixed):
            del entry[0]["spec"]["nodeName"]
        feed(inventory, [*slice_of(NODE, [gpu(0)]), *by_selector, *everywhere, *mixed])
        assert names(inventory, zone="a") == ["gpu-0", "gpu-1", "gpu-2", "gpu-3", "gpu-4"]
        assert names(inventory, zone="b") == ["gpu-0", "gpu-2", "gpu-3", "gpu-4"]
        assert names(inventory, "far") == ["gpu-2", "gpu-4"]

    def test_a_change_on_one_node_leaves_the_others_tables_alone(self):
        inventory = Inventory()
        feed(inventory, [*slice_of("a", [gpu(0)]), *slice_of("b", [gpu(0)])])
        before = inventory.on_node("a", {})
        feed(inventory, slice_of("b", [gpu(0), gpu(1)]))
        assert inventory.on_node("a", {}) is before
        assert names(inventory, "b") == ["gpu-0", "gpu-1"]


class TestClaims:
    def test_a_claim_holds_its_devices_until_it_is_dropped(self):
        inventory = Inventory()
        feed(inventory, slice_of(NODE, [gpu(0)]))
        inventory.set_claim(claim("c", held("gpu-0")))
        assert device(inventory, "gpu-0").use is not None
        inventory.set_claim(claim("c", held("gpu-0")))
        inventory.drop_claim("c")
        assert device(inventory, "gpu-0").use is None
        inventory.drop_claim("c")

    def test_a_claim_that_lost_its_allocation_holds_nothing(self):
        inventory = Inventory()
        feed(inventory, slice_of(NODE, [gpu(0)]))
        inventory.set_claim(claim("c", held("gpu-0")))
        inventory.set_claim(msgspec.convert({"metadata": {"uid": "c", "name": "c"}}, resource.ResourceClaim))
        assert device(inventory, "gpu-0").use is None

    def test_allocations_survive_a_republished_slice_and_may_come_before_it(self):
        inventory = Inventory()
        inventory.set_claim(claim("c", held("gpu-0")))
        feed(inventory, slice_of(NODE, [gpu(0)]))
        feed(inventory, slice_of(NODE, [gpu(0), gpu(1)]))
        use = device(inventory, "gpu-0").use
        assert use is not None
        assert list(use.claims) == ["c"]
        assert device(inventory, "gpu-1").use is None

    def test_admin_access_holds_nothing(self):
        inventory = Inventory()
        feed(inventory, slice_of(NODE, [gpu(0)]))
        inventory.set_claim(claim("c", held("gpu-0", adminAccess=True)))
        assert device(inventory, "gpu-0").use is None

    def test_counters_follow_claims_in_any_order_of_events(self):
        devices, counters = mig_gpu(0)
        slices = slice_of(NODE, devices, counters=[counters])
        mine = claim("c", held("gpu-0-mig-1g-10gb-0"))
        for early in (True, False):
            inventory = Inventory()
            if early:
                inventory.set_claim(mine)
            feed(inventory, slices)
            if not early:
                inventory.set_claim(mine)
            pool = inventory.pools()[0]
            used = {name: used for (_, name), used in zip(pool.layout.keys, pool.used, strict=True) if used}
            assert used == {"memory-slice-0": 1, "multiprocessors": 14}
            inventory.drop_claim("c")
            assert not any(pool.used)

    def test_shares_of_one_device_add_up(self):
        inventory = Inventory()
        feed(inventory, slice_of(NODE, [gpu(0, allowMultipleAllocations=True)]))
        for uid, size in (("a", "10Gi"), ("b", "20Gi")):
            inventory.set_claim(claim(uid, held("gpu-0", shareID=uid, consumedCapacity={"memory": size})))
        use = device(inventory, "gpu-0").use
        assert use is not None
        assert use.consumed == {"gpu.fairlead.dev/memory": 30 * 2**30}
        inventory.drop_claim("a")
        assert use.consumed == {"gpu.fairlead.dev/memory": 20 * 2**30}
