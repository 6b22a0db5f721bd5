"""ResourceQuota at creation: what is added to its use, what is refused, and with which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.apiserver.served import Served

QUOTAS = "/api/v1/namespaces/ml/resourcequotas"
PODS = "/api/v1/namespaces/ml/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims"
GPUS = "gpu.example.com.deviceclass.resource.k8s.io/devices"
COUNT = "count/resourceclaims.resource.k8s.io"
EXTENDED = "requests.example.com/gpu"


async def with_limits(
    api: Served, hard: dict[str, str], name: str = "q", used: dict[str, str] | None = None, *, counted: bool = True
) -> None:
    code, made = await api.post(QUOTAS, {"metadata": {"name": name}, "spec": {"hard": hard}})
    assert code == 201, made
    if counted:
        status = {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}}
        code, answer = await api.put(f"{QUOTAS}/{name}/status", {**made, "status": status})
        assert code == 200, answer


async def used(api: Served, name: str = "q") -> dict[str, str]:
    _, found = await api.get(f"{QUOTAS}/{name}")
    return dict(found["status"]["used"])


def claim(*requests: dict[str, Any], name: str = "c") -> dict[str, Any]:
    named = [{"name": f"r{number}", **request} for number, request in enumerate(requests)]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": named}}}


def exactly(count: int = 1, name: str = "gpu.example.com", **more: Any) -> dict[str, Any]:
    return {"exactly": {"deviceClassName": name, "count": count, "allocationMode": "ExactCount", **more}}


ALL = {"exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "All"}}
EITHER = {
    "firstAvailable": [
        {"name": "a", "deviceClassName": "gpu.example.com", "count": 2},
        {"name": "b", "deviceClassName": "gpu.example.com", "count": 3},
        {"name": "c", "deviceClassName": "mig.example.com", "count": 7},
    ]
}


@pytest.mark.parametrize(
    ("requests", "devices"),
    [
        ([exactly()], 1),
        ([exactly(5)], 5),
        ([exactly(2), exactly(3)], 5),
        ([exactly(2, "other.example.com")], 0),
        ([ALL], 32),
        ([EITHER], 3),
        ([EITHER, exactly(2)], 5),
    ],
)
async def test_a_claim_counts_for_the_devices_that_it_may_get(
    api: Served, requests: list[dict[str, Any]], devices: int
) -> None:
    await with_limits(api, {GPUS: "40", COUNT: "1"})
    code, answer = await api.post(CLAIMS, claim(*requests))
    assert code == 201, answer
    assert await used(api) == {GPUS: str(devices), COUNT: "1"}


async def test_what_exceeds_a_quota_is_refused_in_the_words_of_the_real_one(api: Served) -> None:
    await with_limits(api, {GPUS: "8", COUNT: "10"}, used={GPUS: "7"})
    code, answer = await api.post(CLAIMS, claim(exactly(2)))
    assert (code, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'resourceclaims.resource.k8s.io "c" is forbidden: exceeded quota: q, '
        f"requested: {GPUS}=2, used: {GPUS}=7, limited: {GPUS}=8"
    )
    assert await used(api) == {GPUS: "7", COUNT: "0"}
    code, _ = await api.post(CLAIMS, claim(exactly(1)))
    assert code == 201
    assert await used(api) == {GPUS: "8", COUNT: "1"}


async def test_each_quota_of_the_namespace_must_allow_it_and_none_is_charged_where_one_does_not(api: Served) -> None:
    await with_limits(api, {GPUS: "8"}, "a")
    await with_limits(api, {GPUS: "1"}, "b")
    code, answer = await api.post(CLAIMS, claim(exactly(2)))
    assert (code, "exceeded quota: b," in answer["message"]) == (403, True)
    assert (await used(api, "a"), await used(api, "b")) == ({GPUS: "0"}, {GPUS: "0"})


@pytest.mark.parametrize(("mode", "devices"), [(None, 0), ("example.com/gpu", 2)])
async def test_a_class_counts_for_the_extended_resources_that_it_stands_for(
    api: Served, mode: str | None, devices: int
) -> None:
    spec = {"extendedResourceName": mode} if mode else {}
    code, answer = await api.post(
        "/apis/resource.k8s.io/v1/deviceclasses", {"metadata": {"name": "gpu.example.com"}, "spec": spec}
    )
    assert code == 201, answer
    implicit = "requests.deviceclass.resource.kubernetes.io/gpu.example.com"
    await with_limits(api, {EXTENDED: "4", implicit: "4"})
    code, answer = await api.post(CLAIMS, claim(exactly(2)))
    assert code == 201, answer
    assert await used(api) == {EXTENDED: str(devices), implicit: "2"}


async def test_pods_count_by_number_and_extended_resource(api: Served) -> None:
    await with_limits(api, {"pods": "2", "count/pods": "5", EXTENDED: "4"})
    amounts = {"limits": {"example.com/gpu": "3"}, "requests": {"example.com/gpu": "3"}}
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": amounts}]}}
    code, answer = await api.post(PODS, body)
    assert code == 201, answer
    assert await used(api) == {"pods": "1", "count/pods": "1", EXTENDED: "3"}
    code, answer = await api.post(PODS, {**body, "metadata": {"name": "p2"}})
    assert code == 403
    said = f"exceeded quota: q, requested: {EXTENDED}=3, used: {EXTENDED}=3, limited: {EXTENDED}=4"
    assert answer["message"] == f'pods "p2" is forbidden: {said}'


def pod(name: str, priority_class: str = "", **requests: str) -> dict[str, Any]:
    named = {"priorityClassName": priority_class} if priority_class else {}
    containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, **named}}


async def test_a_pod_that_requests_none_of_what_a_quota_counts_is_refused_unless_a_limit_range_gives_it(
    api: Served,
) -> None:
    await with_limits(api, {"requests.cpu": "2", "requests.memory": "2Gi"})
    code, answer = await api.post(PODS, pod("a", cpu="1"))
    assert (code, answer["message"]) == (
        403,
        'pods "a" is forbidden: failed quota: q: must specify requests.memory for: c',
    )
    limits = [{"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "1Gi"}}]
    code, answer = await api.post(
        "/api/v1/namespaces/ml/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": limits}}
    )
    assert code == 201, answer
    code, answer = await api.post(PODS, pod("a", cpu="1"))
    assert code == 201, answer
    assert answer["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}}
    said = "LimitRanger plugin set: memory request for container c"
    assert answer["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == said
    assert await used(api) == {"requests.cpu": "1", "requests.memory": "1Gi"}


async def test_a_quota_of_priority_classes_counts_their_pods_only(api: Served) -> None:
    values = ["system-node-critical"]
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": values}
    spec = {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [rule]}}
    code, made = await api.post(QUOTAS, {"metadata": {"name": "q"}, "spec": spec})
    assert code == 201, made
    await api.put(f"{QUOTAS}/q/status", {**made, "status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}})
    code, answer = await api.post(PODS, pod("a"))
    assert code == 201, answer
    code, answer = await api.post(PODS, pod("b", "system-node-critical"))
    assert (code, "exceeded quota: q, requested: pods=1" in answer["message"]) == (403, True)
    (complaint,) = await api.refused(
        QUOTAS,
        {"metadata": {"name": "r"}, "spec": {**spec, "scopeSelector": {"matchExpressions": [{**rule, "values": []}]}}},
    )
    assert "must be given with In and NotIn" in complaint
