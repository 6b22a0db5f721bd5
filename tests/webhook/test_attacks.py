"""Attacks by a tenant or a client, and accidents alike: each is denied or limited. The gate removed by hand is in test_app.py."""

import json
from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.policy import TenancyPolicy
from fairlead.kube import errors
from fairlead.kube.client import Patch
from fairlead.kube.resources import (
    CLUSTER_ROLES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    TENANCY_POLICIES,
    raw,
)
from fairlead.sandbox.install.apply import Applier
from fairlead.webhook.handlers import dispatch
from tests.support import cpu
from tests.support.webhook import admitted, claim_spec, facts, review

Json = dict[str, Any]


def pod(containers: int = 1, **metadata: Any) -> Json:
    made = [{"name": f"c{i}", "resources": {"limits": {names.LEGACY_GPU: 1}}} for i in range(containers)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml", **metadata},
        "spec": {"containers": made},
    }


def policy(**spec: Any) -> TenancyPolicy:
    return TenancyPolicy.read({"metadata": {"name": "p"}, "spec": spec})


# -- by a tenant, through the API ------------------------------------------------------------------------------------


async def test_a_tenant_forges_no_claim_status_and_edits_no_policy(cluster: Any) -> None:
    """Even a tenant that RBAC lets write claims' status by mistake cannot allocate devices: the fence requires more."""
    role = await cluster.admin.get(CLUSTER_ROLES, "tenant")
    rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["*"]}
    await cluster.admin.patch(CLUSTER_ROLES, "tenant", {"rules": [*role["rules"], rule]})
    await Applier(cluster.admin).apply(
        [
            {
                "apiVersion": names.API_VERSION,
                "kind": "TenancyPolicy",
                "metadata": {"name": "p"},
                "spec": {"maxGangSize": 2},
            }
        ]
    )
    request = {"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS}}
    body = {"metadata": {"name": "c", "namespace": "ml"}, "spec": {"devices": {"requests": [request]}}}
    async with cluster.webhook():
        claim = await cluster.alice.create(raw(RESOURCE_CLAIMS), body)
        result = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": "gpu-0"}
        forged = claim | {"status": {"allocation": {"devices": {"results": [result]}}}}
        with pytest.raises(errors.ApiError, match=r"resourceclaims/binding|Fairlead"):
            await cluster.alice.replace(raw(RESOURCE_CLAIMS), forged, subresource="status")
        for call in (
            cluster.alice.patch(TENANCY_POLICIES, "p", {"spec": {"maxGangSize": 1000}}),
            cluster.alice.delete(TENANCY_POLICIES, "p"),
        ):
            with pytest.raises(errors.Forbidden):
                await call


async def test_annotations_are_fixed_once_the_pod_is_gated(cluster: Any) -> None:
    async with cluster.webhook():
        notes = {names.GANG: "llm", names.GANG_SIZE: "2"}
        await cluster.alice.create(PODS, pod(annotations=notes) | {"spec": _runnable()})
        changes = {"metadata": {"annotations": {names.GANG_SIZE: "1"}}}
        with pytest.raises(errors.ApiError, match="since the pod was admitted"):
            await cluster.alice.patch(PODS, "p", changes, namespace="ml", kind=Patch.MERGE)


async def test_other_systems_words_are_fixed_too_and_only_on_gated_pods(cluster: Any) -> None:
    theirs = {names.KUEUE_GROUP_LABEL: "group", names.KUEUE_QUEUE: "user-queue"}
    hop = {"metadata": {"labels": {names.KUEUE_GROUP_LABEL: "other"}}}
    other = {"metadata": {"labels": {names.KUEUE_QUEUE: "faster"}}}
    async with cluster.webhook():
        ours = pod(annotations={names.KUEUE_SIZE: "2"}) | {"spec": _runnable()}
        ours["metadata"]["labels"] = theirs
        await cluster.alice.create(PODS, ours)
        for changes in (hop, other):
            with pytest.raises(
                errors.ApiError, match=r"since the pod was admitted, .*; delete the pod and create it again"
            ):
                await cluster.alice.patch(PODS, "p", changes, namespace="ml", kind=Patch.MERGE)
    unmanaged = {"containers": [{"name": "c", "image": "busybox"}]}
    plain = {"metadata": {"name": "plain", "namespace": "ml", "labels": theirs}, "spec": unmanaged}
    await cluster.alice.create(PODS, plain)
    for changes in (hop, other):  # while the webhook is down
        await cluster.alice.patch(PODS, "plain", changes, namespace="ml", kind=Patch.MERGE)


async def test_another_namespaces_template_gives_nothing(cluster: Any) -> None:
    """A pod names templates of its own namespace only: the other namespace's is not looked up, and the pod waits."""
    request = {"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    await Applier(cluster.admin).apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}])
    body = {"metadata": {"name": "theirs", "namespace": "other"}, "spec": spec}
    await cluster.admin.create(raw(RESOURCE_CLAIM_TEMPLATES), body)
    mine = pod() | {"spec": _runnable("theirs")}
    async with cluster.webhook():
        stored = await cluster.alice.create(raw(PODS), mine)
    assert [gate["name"] for gate in stored["spec"]["schedulingGates"]] == [names.ADMISSION_GATE]
    # Whatever the other namespace's template says, it makes no finding and no fact of this one.
    known = facts(templates={("other", "theirs"): claim_spec()}, policies=(policy(wholeGpus="Forbid"),))
    verdict = dispatch.mutate(review(mine), known)
    assert verdict.warnings == (
        "spec.resourceClaims[0]: ResourceClaimTemplate ml/theirs does not exist; the pod waits until it does",
    )


def _runnable(template: str | None = None) -> Json:
    container: Json = {"name": "c", "image": "busybox"}
    if template is None:
        return {"containers": [container | {"resources": {"limits": {names.LEGACY_GPU: 1}}}]}
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return {"containers": [container | {"resources": {"claims": [{"name": "gpu"}]}}], "resourceClaims": claims}


@pytest.mark.parametrize("look_alike", ["nvidi\u0430.com/gpu", "nvidia.com/g\u0440u", "nvidia.com/gpu\u200b"])
async def test_a_resource_in_letters_that_look_alike_is_no_bypass(cluster: Any, look_alike: str) -> None:
    body = pod() | {"spec": {"containers": [{"name": "c", "image": "b", "resources": {"limits": {look_alike: 1}}}]}}
    async with cluster.webhook():
        with pytest.raises(errors.ApiError):
            await cluster.alice.create(PODS, body)


@pytest.mark.parametrize("size", ["\u0662", "２", "²", "1_0", "0x10", "1e1", "+2", " 2"])
def test_a_size_in_digits_of_another_script_is_denied(size: str) -> None:
    _, verdict = admitted(pod(annotations={names.GANG: "llm", names.GANG_SIZE: size}), facts())
    assert "is no gang size" in verdict.message


# -- by size ---------------------------------------------------------------------------------------------------------


def test_a_deep_expression_is_denied_and_an_expensive_one_exceeds_its_budget() -> None:
    deep = "(" * 3_000 + "true" + ")" * 3_000
    body = {"kind": "TenancyPolicy", "metadata": {"name": "p"}, "spec": {"rules": [{"name": "r", "expression": deep}]}}
    refused = dispatch.validate(review(body), facts())
    assert not refused.allowed
    assert "spec.rules[0].expression" in refused.message
    dear = "object.spec.containers.all(a, object.spec.containers.all(b, object.spec.containers.all(c, a == b || a != b || c == c)))"
    with cpu.at_most(3.0):
        _, verdict = admitted(pod(300), facts(policies=(policy(rules=[{"name": "r", "expression": dear}]),)))
    assert "r: cannot be judged" in verdict.message


# -- by connection ---------------------------------------------------------------------------------------------------


def envelope(object_: Json) -> bytes:
    request = {
        "uid": "u1",
        "kind": {"kind": "Pod"},
        "resource": {"group": "", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "ml",
        "name": "p",
        "userInfo": {"username": "alice"},
        "object": object_,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
