"""Admission policies: the two that the project ships, and what bindings, parameters and failures do."""

from __future__ import annotations

from typing import Any

from tests.support.apiserver.served import Served

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/ml/configmaps"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims"
SCHEDULER = "system:kube-scheduler"
MASTERS = ("system:masters",)

FENCE = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": ["resource.k8s.io"],
                "apiVersions": ["v1"],
                "operations": ["UPDATE"],
                "resources": ["resourceclaims/status"],
            }
        ]
    },
    "matchConditions": [{"name": "sched", "expression": f"request.userInfo.username == '{SCHEDULER}'"}],
    "variables": [
        {
            "name": name,
            "expression": f"{side}.?status.?allocation.?devices.?results.orValue([])"
            ".filter(r, r.driver == 'gpu.example.com').size()",
        }
        for name, side in (("after", "object"), ("before", "oldObject"))
    ],
    "validations": [{"expression": "variables.after == variables.before", "message": "gpu.example.com is ours"}],
}


def on_maps(*validations: dict[str, Any], **more: Any) -> dict[str, Any]:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}
    return {"matchConstraints": {"resourceRules": [rule]}, "validations": list(validations), **more}


async def install(api: Served, spec: dict[str, Any], name: str = "p", **binding: Any) -> None:
    code, answer = await api.post(f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
    assert code == 201, answer
    body = {"policyName": name, "validationActions": ["Deny"], **binding}
    code, answer = await api.post(
        f"{GROUP}/validatingadmissionpolicybindings", {"metadata": {"name": f"{name}-b"}, "spec": body}
    )
    assert code == 201, answer


async def create(api: Served, name: str = "m", **data: str) -> tuple[int, Any]:
    return await api.post(MAPS, {"metadata": {"name": name}, "data": data})


async def test_the_fence_keeps_the_scheduler_off_our_devices_and_lets_it_reserve(api: Served) -> None:
    await install(api, FENCE, "fence")
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    await api.post(CLAIMS, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}})

    def allocation(driver: str) -> dict[str, Any]:
        result = {"request": "gpu", "driver": driver, "pool": "n1", "device": "gpu-0"}
        return {"status": {"allocation": {"devices": {"results": [result]}}}}

    path = f"{CLAIMS}/c/status"
    code, answer = await api.patch(path, allocation("gpu.example.com"), user=SCHEDULER, groups=MASTERS)
    assert code == 422
    assert answer["message"] == (
        "resourceclaims.resource.k8s.io \"c\" is forbidden: ValidatingAdmissionPolicy 'fence' with binding 'fence-b' "
        "denied request: gpu.example.com is ours"
    )
    code, _ = await api.patch(path, allocation("gpu.example.com"))
    assert code == 200
    reserved = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}
    code, _ = await api.patch(path, reserved, user=SCHEDULER, groups=MASTERS)
    assert code == 200
    cleared = {"status": {"allocation": None, "reservedFor": None}}
    code, _ = await api.patch(path, cleared, user=SCHEDULER, groups=MASTERS)
    assert code == 422
    code, _ = await api.patch(path, cleared)
    assert code == 200
    code, _ = await api.patch(path, allocation("nic.example.com"), user=SCHEDULER, groups=MASTERS)
    assert code == 200


async def test_without_a_binding_a_policy_does_nothing(api: Served) -> None:
    spec = on_maps({"expression": "false"})
    await api.post(f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": "p"}, "spec": spec})
    assert (await create(api))[0] == 201


async def test_an_expression_that_fails_counts_as_the_failure_policy_says(api: Served) -> None:
    await install(api, on_maps({"expression": "object.data.x == 'y'"}, failurePolicy="Ignore"), "lax")
    assert (await create(api))[0] == 201
    await install(api, on_maps({"expression": "object.data.x == 'y'"}), "strict")
    code, answer = await create(api, "n")
    assert code == 422
    assert "resulted in error: no such key: data" in answer["message"]


async def test_parameters_come_from_an_object(api: Served) -> None:
    await create(api, "limits", most="2")
    spec = on_maps(
        {"expression": "object.metadata.name == 'limits' || size(object.data) <= int(params.data.most)"},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    reference = {"name": "limits", "namespace": "ml", "parameterNotFoundAction": "Deny"}
    await install(api, spec, paramRef=reference)
    assert (await create(api, "a", x="1", y="2"))[0] == 201
    assert (await create(api, "b", x="1", y="2", z="3"))[0] == 422
    await api.delete(f"{MAPS}/limits")
    code, answer = await create(api, "c")
    assert (code, "no params found for policy binding" in answer["message"]) == (422, True)


async def test_the_authorizer_answers_for_the_requester(api: Served) -> None:
    check = "authorizer.group('').resource('configmaps').namespace('ml').check('delete').allowed()"
    await install(api, on_maps({"expression": check, "message": "who may not delete may not create"}))
    assert (await create(api))[0] == 201
