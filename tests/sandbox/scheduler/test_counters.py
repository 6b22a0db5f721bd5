"""What is left of a pool's counters, for one node of several that share it."""

from __future__ import annotations

from typing import Any

from fairlead.sandbox.scheduler import pools


def device(name: str, node: str) -> dict[str, Any]:
    consumes = [{"counterSet": "box", "counters": {"lanes": {"value": "3"}}}]
    return {"name": name, "nodeName": node, "consumesCounters": consumes}


def slice_of(name: str, **spec: Any) -> dict[str, Any]:
    pool = {"name": "shared", "generation": 1, "resourceSliceCount": 2}
    return {"metadata": {"name": name}, "spec": {"driver": "d", "pool": pool, **spec}}


def test_devices_of_other_nodes_consume_the_counters_of_their_pool() -> None:
    slices = [
        slice_of("counters", allNodes=True, sharedCounters=[{"name": "box", "counters": {"lanes": {"value": "8"}}}]),
        slice_of("devices", perDeviceNodeSelection=True, devices=[device("here", "n1"), device("there", "n2")]),
    ]
    found = pools.gather(slices, {"metadata": {"name": "n1", "labels": {}}})
    assert [each.key[2] for each in found[0].candidates] == ["here"]
    for allocated, left in (((), "8"), ((("d", "shared", "there"),), "5")):
        assert [str(each) for each in pools.free_counters(found, allocated).values()] == [left]
