"""Which fields each release stores, drops or calls unknown: as control planes of 1.34.9 and 1.35.6 answered the same requests."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from fairlead.kube.releases import Minor
from fairlead.kube.resource import Device
from fairlead.sandbox.release import Release
from tests.sandbox.releases.conftest import Of

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaimtemplates"
PODS = "/api/v1/namespaces/ml/pods"
OLDER: tuple[Minor, ...] = ((1, 34), (1, 35))
DRIVER = "gpu.example.com"
SHARE = "6f3c1a52-9f0b-4a8e-8d5b-3f8f0f4c2e11"
Json = dict[str, Any]

COUNTERS = [{"name": "c", "counters": {"m": {"value": "1"}}}]
DEVICE: Json = {
    "name": "gpu-0",
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi"}}},
    "taints": [{"key": "a.example.com/b", "effect": "NoSchedule"}],
    "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}],
    "bindsToNode": True,
    "bindingConditions": ["a.example.com/c"],
    "bindingFailureConditions": ["a.example.com/f"],
}
BARE: Json = {"name": "gpu-0", "capacity": {"memory": {"value": "80Gi"}}}
TOLERATIONS = [{"key": "k", "operator": "Exists"}]
WANTED: Json = {
    "deviceClassName": "x",
    "tolerations": TOLERATIONS,
    "capacity": {"requests": {f"{DRIVER}/memory": "1Gi"}},
}
RESULT: Json = {
    "request": "a",
    "driver": DRIVER,
    "pool": "n1",
    "device": "gpu-0",
    "tolerations": TOLERATIONS,
    "shareID": SHARE,
    "consumedCapacity": {"memory": "1Gi"},
    "bindingConditions": ["b"],
    "bindingFailureConditions": ["f"],
}
STATUS: Json = {
    "allocation": {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [RESULT]}},
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
}


def slice_(name: str = "n1", **spec: Any) -> Json:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return copy.deepcopy(
        {"metadata": {"name": name}, "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, **spec}}
    )


def claim(wanted: Json, **devices: Any) -> Json:
    request = {"name": "a", "exactly": wanted}
    return copy.deepcopy({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request], **devices}}})


def without(what: Json, *names: str) -> Json:
    return {name: value for name, value in what.items() if name not in names}


@pytest.mark.parametrize("minor", OLDER)
async def test_before_1_36_a_slice_loses_all_that_alpha_gates_guard(of: Of, minor: Minor) -> None:
    async with of(minor) as api:
        status, made = await api.post(SLICES, slice_(devices=[DEVICE], sharedCounters=COUNTERS))
        assert status == 201
        assert made["spec"]["devices"] == [BARE]
        assert "sharedCounters" not in made["spec"]
        assert api.last is not None
        assert api.last.warnings == []  # dropped without a word


@pytest.mark.parametrize("minor", OLDER)
async def test_a_slice_that_is_for_each_device_is_refused_where_that_is_dropped(of: Of, minor: Minor) -> None:
    body = slice_(devices=[{"name": "g", "nodeName": "n1"}], perDeviceNodeSelection=True)
    del body["spec"]["nodeName"]
    async with of(minor) as api:
        (refused,) = await api.refused(SLICES, body)
        assert refused.startswith("spec: Required value: exactly one of `nodeName`")


async def test_1_34_shows_devices_where_there_are_none(of: Of) -> None:
    async with of((1, 34)) as api:
        _, made = await api.post(SLICES, slice_(sharedCounters=COUNTERS))
        assert made["spec"]["devices"] is None
    async with of((1, 35)) as api:
        _, made = await api.post(SLICES, slice_("n2", sharedCounters=COUNTERS))
        assert "devices" not in made["spec"]


@pytest.mark.parametrize("minor", OLDER)
async def test_each_write_of_a_dropped_taint_is_a_change(of: Of, minor: Minor) -> None:
    """The generation is counted before the drop, so a driver that publishes taints again and again writes each time."""
    async with of(minor) as api:
        _, made = await api.post(SLICES, slice_(devices=[DEVICE]))
        _, changed = await api.patch(f"{SLICES}/n1", {"spec": {"devices": [DEVICE]}})
        assert changed["metadata"]["generation"] == made["metadata"]["generation"] + 1
        assert changed["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
        assert changed["spec"] == made["spec"]


@pytest.mark.parametrize("minor", OLDER)
async def test_what_a_stored_slice_uses_an_update_keeps(of: Of, minor: Minor) -> None:
    """As after a gate was switched off."""
    async with of(minor) as api:
        await api.post(SLICES, slice_(devices=[BARE]))
        stored = copy.deepcopy(api.state.get("resource.k8s.io", "resourceslices", "n1"))
        assert stored is not None
        stored["spec"]["devices"] = [{"name": "gpu-0", "taints": DEVICE["taints"]}]
        api.state.replace("resource.k8s.io", "resourceslices", stored)
        _, changed = await api.patch(f"{SLICES}/n1", {"spec": {"devices": [DEVICE]}})
        (device,) = changed["spec"]["devices"]
        assert "taints" in device
        assert "consumesCounters" not in device


@pytest.mark.parametrize(
    ("minor", "kept"), [((1, 34), {"tolerations"}), ((1, 35), set()), ((1, 36), {"tolerations", "capacity"})]
)
async def test_what_requests_of_claims_and_templates_keep(of: Of, minor: Minor, kept: set[str]) -> None:
    async with of(minor) as api:
        _, made = await api.post(CLAIMS, claim(WANTED))
        template = {"metadata": {"name": "t"}, "spec": {"spec": claim(WANTED)["spec"]}}
        _, template = await api.post(TEMPLATES, template)
        alternative = {"name": "a", "firstAvailable": [{"name": "s", **WANTED}]}
        listed = {"metadata": {"name": "d"}, "spec": {"devices": {"requests": [alternative]}}}
        _, first = await api.post(CLAIMS, listed)
        for found in (
            made["spec"]["devices"]["requests"][0]["exactly"],
            template["spec"]["spec"]["devices"]["requests"][0]["exactly"],
            first["spec"]["devices"]["requests"][0]["firstAvailable"][0],
        ):
            assert found.keys() & {"tolerations", "capacity"} == kept


async def test_a_distinct_attribute_stays_in_1_34_and_is_missed_in_1_35(of: Of) -> None:
    """1.34 clears a copy of each constraint."""
    distinct = [{"requests": ["a"], "distinctAttribute": f"{DRIVER}/x"}]
    async with of((1, 34)) as api:
        _, made = await api.post(CLAIMS, claim({"deviceClassName": "x"}, constraints=distinct))
        assert made["spec"]["devices"]["constraints"] == distinct
    async with of((1, 35)) as api:
        refused = await api.refused(CLAIMS, claim({"deviceClassName": "x"}, constraints=distinct))
        assert refused == ["spec.devices.constraints[0].matchAttribute: Required value"]


@pytest.mark.parametrize(
    ("minor", "timestamp", "result"),
    [
        ((1, 34), False, without(RESULT, "shareID", "consumedCapacity", "bindingConditions", "bindingFailureConditions")),
        ((1, 35), True, without(RESULT, "shareID", "consumedCapacity", "bindingConditions", "bindingFailureConditions")),
        ((1, 36), True, RESULT),
    ],
)  # fmt: skip
async def test_what_an_allocation_keeps(of: Of, minor: Minor, timestamp: bool, result: Json) -> None:
    async with of(minor) as api:
        _, made = await api.post(CLAIMS, claim({"deviceClassName": "x"}))
        status, written = await api.put(f"{CLAIMS}/c/status", {**made, "status": copy.deepcopy(STATUS)})
        assert status == 200, written
        assert written["status"]["allocation"]["devices"]["results"] == [result]
        assert ("allocationTimestamp" in written["status"]["allocation"]) is timestamp
        assert written["status"]["reservedFor"] == STATUS["reservedFor"]


@pytest.mark.parametrize(("minor", "stored"), [((1, 34), False), ((1, 35), False), ((1, 36), True)])
async def test_the_extended_resource_of_a_class_and_the_health_of_a_pods_devices(
    of: Of, minor: Minor, stored: bool
) -> None:
    async with of(minor) as api:
        _, made = await api.post(CLASSES, {"metadata": {"name": "x"}, "spec": {"extendedResourceName": "a.b/gpu"}})
        assert ("extendedResourceName" in made["spec"]) is stored
        await api.post("/api/v1/namespaces/ml/serviceaccounts", {"metadata": {"name": "default"}})
        await api.post(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "x"}]}})
        health = [{"name": "claim:a", "resources": [{"resourceID": "r", "health": "Healthy"}]}]
        container = {"name": "a", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
        body = {"containerStatuses": [{**container, "allocatedResourcesStatus": health}]}
        _, written = await api.patch(f"{PODS}/p/status", {"status": body})
        assert ("allocatedResourcesStatus" in written["status"]["containerStatuses"][0]) is stored


LISTS = slice_(devices=[{"name": "g", "attributes": {"a": {"string": "x"}, "b": {"strings": ["x"], "string": "y"}}}])
UNKNOWN = 'unknown field "spec.devices[0].attributes.b.strings"'


@pytest.mark.parametrize("minor", OLDER)
async def test_a_field_of_a_later_release_is_unknown(of: Of, minor: Minor) -> None:
    async with of(minor) as api:
        status, _ = await api.post(SLICES, LISTS)
        assert status == 201
        assert api.last is not None
        assert api.last.warnings == [UNKNOWN]
        status, refused = await api.post(f"{SLICES}?fieldValidation=Strict", LISTS)
        assert status == 400
        assert refused["message"].endswith(f"strict decoding error: {UNKNOWN}")
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [], "schedulingGroup": {"podGroupName": "g"}}}
        status, refused = await api.post(f"{PODS}?fieldValidation=Strict", pod)
        assert refused["message"].endswith('unknown field "spec.schedulingGroup"')


async def test_1_36_knows_list_attributes_and_drops_them(of: Of) -> None:
    async with of((1, 36)) as api:
        status, made = await api.post(f"{SLICES}?fieldValidation=Strict", LISTS)
        assert status == 201
        assert made["spec"]["devices"][0]["attributes"]["b"] == {"string": "y"}


@pytest.mark.parametrize("minor", OLDER)
async def test_without_counters_and_taints_a_slice_has_128_devices(of: Of, minor: Minor) -> None:
    tainted = [{"name": f"g{index}", "taints": DEVICE["taints"]} for index in range(128)]
    async with of(minor) as api:
        assert (await api.post(SLICES, slice_(devices=tainted)))[0] == 201
    async with of((1, 36)) as api:
        (refused,) = await api.refused(SLICES, slice_(devices=tainted))
        assert "must have at most 64 items" in refused


def test_every_dropped_field_of_a_device_is_one_of_the_api() -> None:
    """A typing error in the table would drop nothing."""
    known = {field.encode_name for field in msgspec.structs.fields(Device)}
    for minor in OLDER:
        for guarded in Release.of(minor).guarded("ResourceSlice"):
            for path in guarded.paths:
                parts = path.split(".")
                assert parts[1] != "devices[]" or parts[2].rstrip("{}") in known | {"nodeSelector", "allNodes"}
