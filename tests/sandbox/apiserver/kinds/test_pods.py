"""Pods as schedulers see them: gates and pins, defaults, priorities, what may change and when."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.apiserver.served import Served

PODS = "/api/v1/namespaces/ml/pods"
PIN = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
HARD = "requiredDuringSchedulingIgnoredDuringExecution"


def pod(name: str = "p", *, gated: bool = True, **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"containers": [{"name": "c", "image": "x"}], "automountServiceAccountToken": False, **spec}
    if gated:
        found["schedulingGates"] = [{"name": "example.com/g"}]
    return {"metadata": {"name": name}, "spec": found}


def pinned(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {HARD: {"nodeSelectorTerms": list(terms) or [PIN]}}}


async def test_one_patch_pins_a_gated_pod_and_opens_its_gate(api: Served) -> None:
    await api.post(PODS, pod())
    patch = [
        {"op": "add", "path": "/spec/affinity", "value": pinned()},
        {"op": "remove", "path": "/spec/schedulingGates"},
    ]
    code, released = await api.patch(f"{PODS}/p", patch, "json")
    assert code == 200
    assert released["spec"]["affinity"] == pinned()
    code, _ = await api.patch(f"{PODS}/p", {"spec": {"affinity": None}})
    assert code == 422


async def test_a_pin_may_be_added_to_every_term_but_to_no_new_one(api: Served) -> None:
    first = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    second = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    await api.post(PODS, pod(affinity=pinned(first, second)))
    path = f"/spec/affinity/nodeAffinity/{HARD}/nodeSelectorTerms"
    code, answer = await api.patch(f"{PODS}/p", [{"op": "add", "path": f"{path}/-", "value": PIN}], "json")
    assert "no additions/deletions to non-empty NodeSelectorTerms list are allowed" in answer["message"]
    replaced = [{"op": "replace", "path": f"{path}/0", "value": PIN}]
    code, answer = await api.patch(f"{PODS}/p", replaced, "json")
    assert "only additions are allowed (no mutations or deletions)" in answer["message"]
    both = [{"op": "add", "path": f"{path}/{i}/matchFields", "value": PIN["matchFields"]} for i in (0, 1)]
    code, _ = await api.patch(f"{PODS}/p", both, "json")
    assert code == 200


async def test_a_gated_pod_may_be_told_more_about_nodes_but_not_otherwise(api: Served) -> None:
    await api.post(PODS, pod(nodeSelector={"a": "b"}))
    code, _ = await api.patch(f"{PODS}/p", {"spec": {"nodeSelector": {"c": "d"}}})
    assert code == 200
    code, answer = await api.patch(f"{PODS}/p", {"spec": {"nodeSelector": {"a": "x"}}})
    assert "only additions to spec.nodeSelector are allowed" in answer["message"]


async def test_tolerations_only_grow(api: Served) -> None:
    _, made = await api.post(PODS, pod(gated=False))
    given = made["spec"]["tolerations"]
    more = [*given, {"key": "a", "operator": "Exists"}]
    code, _ = await api.patch(f"{PODS}/p", {"spec": {"tolerations": more}})
    assert code == 200
    code, answer = await api.patch(f"{PODS}/p", {"spec": {"tolerations": given[:1]}})
    assert "existing toleration can not be modified except its tolerationSeconds" in answer["message"]


async def test_a_node_name_waits_for_the_gates(api: Served) -> None:
    assert await api.refused(PODS, pod(nodeName="n1")) == [
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"
    ]


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"name": "C", "image": "x"}]}, 'spec.containers[0].name: Invalid value: "C"'),
        ({"restartPolicy": "Maybe"}, 'spec.restartPolicy: Unsupported value: "Maybe"'),
        (
            {"resourceClaims": [{"name": "g", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}]},
            "spec.resourceClaims[0]: Invalid value: {",
        ),
        ({"affinity": pinned({"matchFields": [{"key": "x", "operator": "In", "values": ["a"]}]})}, "spec.affinity"),
        (
            {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"gpu": "1"}}}]},
            'spec.containers[0].resources.limits: Invalid value: "gpu": must be a standard resource type',
        ),
        (
            {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            {"containers": [{"name": "c", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
            'spec.containers[0].volumeMounts[0].name: Not found: "v"',
        ),
    ],
)
async def test_a_bad_pod_is_named_by_its_field(api: Served, spec: dict[str, Any], complaint: str) -> None:
    assert (await api.refused(PODS, pod(**spec)))[0].startswith(complaint)


async def test_a_service_account_must_exist_and_is_mounted(api: Served) -> None:
    code, answer = await api.post(PODS, pod(serviceAccountName="bot"))
    assert (code, 'serviceaccount "bot" not found' in answer["message"]) == (403, True)
    await api.post("/api/v1/namespaces/ml/serviceaccounts", {"metadata": {"name": "bot"}})
    wanted = pod(serviceAccountName="bot")
    del wanted["spec"]["automountServiceAccountToken"]
    _, made = await api.post(PODS, wanted)
    volume = made["spec"]["volumes"][0]["name"]
    assert volume.startswith("kube-api-access-")
    assert made["spec"]["containers"][0]["volumeMounts"][0]["name"] == volume


async def test_a_claim_status_must_be_of_a_claim_of_the_pod(api: Served) -> None:
    await api.post(PODS, pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]))
    named = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-1"}]}}
    code, _ = await api.patch(f"{PODS}/p/status", named, "strategic")
    assert code == 200
    wrong = {"status": {"resourceClaimStatuses": [{"name": "nic", "resourceClaimName": "p-nic-1"}]}}
    code, answer = await api.patch(f"{PODS}/p/status", wrong)
    assert code == 422
    assert "must match the name of an entry in `spec.resourceClaims`" in answer["message"]


@pytest.mark.parametrize(
    ("policy", "exit_code", "code"),
    [("Never", 0, 422), ("Never", 1, 422), ("OnFailure", 0, 422), ("OnFailure", 1, 200), ("Always", 0, 200)],
)
async def test_a_container_that_ended_runs_again_only_where_it_may(
    api: Served, policy: str, exit_code: int, code: int
) -> None:
    """A kubelet's write that arrives late says that it still runs."""
    await api.post(PODS, pod(restartPolicy=policy))

    def status(state: str, **more: int) -> dict[str, object]:
        named = {"name": "c", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": {state: more}}
        return {"status": {"containerStatuses": [named]}}

    assert (await api.patch(f"{PODS}/p/status", status("running"), "strategic"))[0] == 200
    assert (await api.patch(f"{PODS}/p/status", status("terminated", exitCode=exit_code)))[0] == 200
    found, answer = await api.patch(f"{PODS}/p/status", status("running"))
    assert found == code
    if code == 422:
        assert (
            "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"
            in answer["message"]
        )
