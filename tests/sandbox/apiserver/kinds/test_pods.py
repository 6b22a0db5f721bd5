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


async def test_gates_go_and_never_come(api: Served) -> None:
    await api.post(PODS, pod(gated=False))
    code, answer = await api.patch(f"{PODS}/p", {"spec": {"schedulingGates": [{"name": "example.com/late"}]}})
    assert code == 422
    assert "only deletion is allowed, but found new scheduling gate 'example.com/late'" in answer["message"]


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


async def test_what_is_odd_but_allowed_is_warned_of(api: Served) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    selector = {"beta.kubernetes.io/os": "linux"}
    code, _ = await api.post(
        PODS, pod("a.b", containers=[{"name": "c", "image": "x", "env": env}], nodeSelector=selector)
    )
    assert code == 201
    assert api.last is not None
    assert [one.split(": ")[0] for one in api.last.warnings] == [
        "metadata.name",
        "spec.nodeSelector[beta.kubernetes.io/os]",
        "spec.containers[0].env[1]",
    ]


async def test_limits_are_requests_unless_told_otherwise(api: Served) -> None:
    resources = {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}
    _, made = await api.post(PODS, pod(containers=[{"name": "c", "image": "x:1", "resources": resources}]))
    container = made["spec"]["containers"][0]
    assert container["resources"]["requests"] == {"cpu": "1", "nvidia.com/gpu": "1"}
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert made["status"]["qosClass"] == "Burstable"


async def test_a_priority_class_gives_its_number(api: Served) -> None:
    await api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 100})
    _, made = await api.post(PODS, pod(priorityClassName="high"))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (100, "PreemptLowerPriority")
    code, answer = await api.post(PODS, pod("q", priorityClassName="nope"))
    assert code == 403
    assert answer["message"] == 'pods "q" is forbidden: no PriorityClass with name nope was found'


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


async def test_a_pod_on_a_node_dies_slowly_and_one_on_none_at_once(api: Served) -> None:
    await api.post(PODS, pod("waiting"))
    await api.post(PODS, pod("running", gated=False, nodeName="n1", terminationGracePeriodSeconds=5))
    _, gone = await api.delete(f"{PODS}/waiting")
    assert gone["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{PODS}/waiting"))[0] == 404
    _, going = await api.delete(f"{PODS}/running")
    assert going["metadata"]["deletionGracePeriodSeconds"] == 5
    assert (await api.get(f"{PODS}/running"))[0] == 200


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
