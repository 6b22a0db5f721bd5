"""ResourceClaims as the gang protocol needs them: limits, immutability, one allocation, rights to parts of a status."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.apiserver.served import Served

ROOT = "/apis/resource.k8s.io/v1"
CLAIMS = f"{ROOT}/namespaces/ml/resourceclaims"
CLASS = "gpu.example.com"


def claim(name: str = "c", *requests: dict[str, Any], **devices: Any) -> dict[str, Any]:
    given = list(requests) or [{"name": "gpu", "exactly": {"deviceClassName": CLASS}}]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": given, **devices}}}


def allocation(device: str = "gpu-0", request: str = "gpu", **more: Any) -> dict[str, Any]:
    result = {"request": request, "driver": CLASS, "pool": "n1", "device": device, **more}
    return {"devices": {"results": [result]}, "allocationTimestamp": "2026-11-20T10:00:00Z"}


def consumer(uid: str = "u1") -> dict[str, Any]:
    return {"resource": "pods", "name": "p", "uid": uid}


async def status(api: Served, body: dict[str, Any], **more: Any) -> tuple[int, Any]:
    return await api.patch(f"{CLAIMS}/c/status", {"status": body}, **more)


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"exactly": {}}, "exactly.deviceClassName: Required value"),
        (
            {"exactly": {"deviceClassName": CLASS, "count": -1}},
            "exactly.count: Invalid value: -1: must be greater than zero",
        ),
        (
            {"exactly": {"deviceClassName": CLASS, "allocationMode": "Some"}},
            'exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"',
        ),
        ({"exactly": {"deviceClassName": CLASS, "selectors": [{}]}}, "exactly.selectors[0].cel: Required value"),
        (
            {"exactly": {"deviceClassName": CLASS, "tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}},
            'exactly.tolerations[0].value: Invalid value: "x": must be empty for operator `Exists`',
        ),
    ],
)
async def test_a_bad_request_is_named_by_its_field(api: Served, request_: dict[str, Any], complaint: str) -> None:
    assert await api.refused(CLAIMS, claim("c", {"name": "gpu", **request_})) == [
        f"spec.devices.requests[0].{complaint}"
    ]


async def test_an_expression_that_is_too_long_or_too_dear_is_refused(api: Served) -> None:
    def selecting(text: str) -> dict[str, Any]:
        return claim(
            "c", {"name": "g", "exactly": {"deviceClassName": CLASS, "selectors": [{"cel": {"expression": text}}]}}
        )

    path = "spec.devices.requests[0].exactly.selectors[0].cel.expression"
    assert await api.refused(CLAIMS, selecting("true || " * 2000 + "true")) == [
        f"{path}: Too long: may not be more than 10240 bytes"
    ]
    dear = "[1,2,3,4,5,6,7,8,9,10]"
    nested = "".join(f"{dear}.all(x{i}, " for i in range(7)) + "true" + ")" * 7
    assert await api.refused(CLAIMS, selecting(nested)) == [f"{path}: Forbidden: too complex, exceeds cost limit"]


async def test_no_more_of_anything_than_the_limits_allow(api: Served) -> None:
    one = {"exactly": {"deviceClassName": CLASS}}
    many = [{"name": f"r{i}", **one} for i in range(33)]
    assert await api.refused(CLAIMS, claim("c", *many)) == [
        "spec.devices.requests: Too many: 33: must have at most 32 items"
    ]
    subs = [{"name": f"s{i}", "deviceClassName": CLASS} for i in range(9)]
    assert await api.refused(CLAIMS, claim("c", {"name": "g", "firstAvailable": subs})) == [
        "spec.devices.requests[0].firstAvailable: Too many: 9: must have at most 8 items"
    ]
    big = {"opaque": {"driver": CLASS, "parameters": {"x": "y" * 10240}}}
    assert await api.refused(CLAIMS, claim("c", config=[big])) == [
        "spec.devices.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"
    ]


async def test_the_spec_never_changes(api: Served) -> None:
    await api.post(CLAIMS, claim())
    code, answer = await api.patch(f"{CLAIMS}/c", {"spec": {"devices": {"requests": []}}})
    assert code == 422
    assert answer["details"]["causes"][0]["field"] == "spec"
    assert answer["message"].endswith("field is immutable")


async def test_an_allocation_is_set_once_and_changed_only_by_way_of_none(api: Served) -> None:
    await api.post(CLAIMS, claim())
    code, _ = await status(api, {"allocation": allocation("gpu-0"), "reservedFor": [consumer()]})
    assert code == 200
    code, answer = await status(api, {"allocation": allocation("gpu-1")})
    assert (code, answer["details"]["causes"][0]["field"]) == (422, "status.allocation")
    code, answer = await status(api, {"allocation": None})
    assert "status.reservedFor: Forbidden: may not be specified when `allocated` is not set" in answer["message"]
    code, cleared = await status(api, {"allocation": None, "reservedFor": None})
    assert (code, cleared["status"]) == (200, {})
    code, _ = await status(api, {"allocation": allocation("gpu-1")})
    assert code == 200


async def test_no_consumer_comes_to_a_claim_that_goes(api: Served) -> None:
    body = claim()
    body["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    await api.post(CLAIMS, body)
    await status(api, {"allocation": allocation(), "reservedFor": [consumer("u1")]})
    await api.delete(f"{CLAIMS}/c")
    code, answer = await status(api, {"reservedFor": [consumer("u1"), consumer("u2")]})
    assert code == 422
    assert "new entries may not be added" in answer["message"]
    code, _ = await status(api, {"reservedFor": None})
    assert code == 200


async def test_writing_an_allocation_takes_the_right_to_the_binding(api: Served) -> None:
    await api.post(CLAIMS, claim())
    rbac = "/apis/rbac.authorization.k8s.io/v1"

    async def allow(name: str, *resources: str) -> None:
        rule = {"apiGroups": ["resource.k8s.io"], "resources": list(resources), "verbs": ["patch", "update"]}
        await api.post(f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})
        reference = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        subject = {"kind": "User", "name": "allocator", "apiGroup": "rbac.authorization.k8s.io"}
        code, _ = await api.post(
            f"{rbac}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        )
        assert code == 201

    code, _ = await status(api, {"allocation": allocation()}, user="allocator")
    assert code == 403
    await allow("status", "resourceclaims/status")
    code, answer = await status(api, {"allocation": allocation()}, user="allocator")
    assert code == 422
    assert 'requires resource="resourceclaims/binding", verb="patch"' in answer["message"]
    await allow("binding", "resourceclaims/binding")
    code, _ = await status(api, {"allocation": allocation()}, user="allocator")
    assert code == 200


async def test_admin_access_needs_a_namespace_that_is_open_for_it(api: Served) -> None:
    wanted = claim("c", {"name": "g", "exactly": {"deviceClassName": CLASS, "adminAccess": True}})
    assert "resource.kubernetes.io/admin-access" in (await api.refused(CLAIMS, wanted))[0]
    await api.patch("/api/v1/namespaces/ml", {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    code, _ = await api.post(CLAIMS, wanted)
    assert code == 201


async def test_device_statuses_go_with_their_allocation(api: Served) -> None:
    await api.post(CLAIMS, claim())
    device = {"driver": CLASS, "pool": "n1", "device": "gpu-0", "data": {"a": 1}}
    code, answer = await status(api, {"allocation": allocation(), "devices": [device]})
    assert (code, answer["status"]["devices"]) == (200, [{**device, "conditions": None}])
    code, answer = await status(api, {"allocation": None})
    assert (code, answer["status"]) == (200, {})
    code, answer = await status(api, {"allocation": allocation(), "devices": [{**device, "device": "gpu-9"}]})
    assert code == 422
    assert "must be an allocated device in the claim" in answer["message"]


async def test_a_status_for_a_claim_of_another_uid_is_refused(api: Served) -> None:
    _, made = await api.post(CLAIMS, claim())
    await status(api, {"allocation": allocation()})
    device = {"driver": CLASS, "pool": "n1", "device": "gpu-0", "data": {"a": 1}}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "status": {"devices": [device]}}
    for uid, expected in ((made["metadata"]["uid"], 200), ("another", 422)):
        for content, path in (("apply", f"{CLAIMS}/c/status?fieldManager=driver"), ("merge", f"{CLAIMS}/c/status")):
            code, answer = await api.patch(path, {**body, "metadata": {"uid": uid}}, content)
            assert code == expected
            if code == 422:
                assert answer["details"]["causes"][0]["field"] == "metadata.uid"
