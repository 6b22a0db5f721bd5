"""ResourceSlices and DeviceClasses: what a driver may publish and an operator may select."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.apiserver.served import Served

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


def slice_of(*devices: dict[str, Any], **spec: Any) -> dict[str, Any]:
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    found: dict[str, Any] = {"driver": "gpu.example.com", "pool": pool, **spec}
    if not {"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"} & set(spec):
        found["nodeName"] = "n1"
    if devices:
        found["devices"] = list(devices)
    return {"metadata": {"name": "s"}, "spec": found}


@pytest.mark.parametrize(
    ("device", "complaint"),
    [
        ({"attributes": {"a-b": {"int": 1}}}, 'attributes[a-b]: Invalid value: "a-b": a valid C identifier must'),
        ({"attributes": {"a": {"int": 1, "bool": True}}}, "attributes[a]: Invalid value: {"),
        ({"attributes": {"X Y/z": {"int": 1}}}, 'attributes[X Y/z]: Invalid value: "X Y": a lowercase RFC 1123'),
        ({"capacity": {"m" * 33: {"value": "1"}}}, f"capacity[{'m' * 33}]: Too long: may not be more than 32 bytes"),
        ({"taints": [{"key": "k"}]}, "taints[0].effect: Required value"),
        ({"taints": [{"key": "", "effect": "None"}]}, 'taints[0].key: Invalid value: "": name part must be non-empty'),
        (
            {"consumesCounters": [{"counterSet": c, "counters": {"x": {"value": "1"}}} for c in "abc"]},
            "consumesCounters: Too many: 3: must have at most 2 items",
        ),
        ({"consumesCounters": [{"counterSet": "a", "counters": {}}]}, "consumesCounters[0].counters: Required value"),
        (
            {"bindingConditions": ["a"]},
            "bindingFailureConditions: Required value: bindingFailureConditions are required",
        ),
    ],
)
async def test_a_bad_device_is_named_by_its_field(api: Served, device: dict[str, Any], complaint: str) -> None:
    found = await api.refused(SLICES, slice_of({"name": "g", **device}))
    assert found[0].startswith(f"spec.devices[0].{complaint}")


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (
            {"default": "1Gi", "validValues": ["2Gi", "1Gi"]},
            'validValues[1]: Invalid value: "1Gi": values must be sorted',
        ),
        ({"validValues": ["1Gi"]}, "default: Required value"),
        ({"default": "3Gi", "validValues": ["1Gi"]}, 'validValues: Invalid value: "3Gi": default value is not valid'),
        ({"default": "1Gi", "validRange": {"min": "2Gi"}}, 'default: Invalid value: "1Gi": default value is not valid'),
        ({"default": "90Gi"}, 'default: Invalid value: "90Gi": default is larger than capacity'),
    ],
)
async def test_a_policy_of_shared_capacity_must_make_sense(api: Served, policy: dict[str, Any], complaint: str) -> None:
    capacity = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    found = await api.refused(SLICES, slice_of({"name": "g", "allowMultipleAllocations": True, "capacity": capacity}))
    assert found[0].startswith(f"spec.devices[0].capacity[memory].requestPolicy.{complaint}")


async def test_a_slice_is_somewhere_exactly_once(api: Served) -> None:
    nowhere = slice_of()
    del nowhere["spec"]["nodeName"]
    where = "`nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection`"
    assert await api.refused(SLICES, nowhere) == [f"spec: Required value: exactly one of {where} is required"]
    assert await api.refused(SLICES, slice_of(allNodes=False)) == [
        f"spec: Required value: exactly one of {where} is required",
        "spec.allNodes: Invalid value: false: must be either unset or set to true",
    ]
    terms = [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * 2
    assert (
        "must have exactly one node selector term"
        in (await api.refused(SLICES, slice_of(nodeSelector={"nodeSelectorTerms": terms})))[0]
    )


async def test_a_pool_counts_from_one_slice_and_generation_zero(api: Served) -> None:
    pool = {"name": "a//b", "generation": -1, "resourceSliceCount": 0}
    found = await api.refused(SLICES, slice_of(pool=pool))
    assert [one.partition(":")[0] for one in found] == [
        "spec.pool.name",
        "spec.pool.resourceSliceCount",
        "spec.pool.generation",
    ]


async def test_devices_change_but_the_slice_stays_where_it_is(api: Served) -> None:
    await api.post(SLICES, slice_of({"name": "g"}))
    code, changed = await api.patch(f"{SLICES}/s", {"spec": {"devices": [{"name": "h"}]}})
    assert (code, changed["metadata"]["generation"]) == (200, 2)
    for field, value in (("nodeName", "n2"), ("driver", "x.example.com"), ("pool", {"name": "n2"})):
        code, answer = await api.patch(f"{SLICES}/s", {"spec": {field: value}})
        assert code == 422
        assert "field is immutable" in answer["message"]


async def test_a_class_may_change_and_counts_its_changes(api: Served) -> None:
    selector = {"cel": {"expression": "device.driver == 'gpu.example.com'"}}
    code, made = await api.post(CLASSES, {"metadata": {"name": "a"}, "spec": {"selectors": [selector]}})
    assert (code, made["metadata"]["generation"]) == (201, 1)
    code, made = await api.patch(f"{CLASSES}/a", {"spec": {"extendedResourceName": "example.com/gpu"}})
    assert (code, made["metadata"]["generation"]) == (200, 2)
    code, answer = await api.patch(f"{CLASSES}/a", {"spec": {"extendedResourceName": "gpu"}})
    assert (code, answer["details"]["causes"][0]["field"]) == (422, "spec.extendedResourceName")
