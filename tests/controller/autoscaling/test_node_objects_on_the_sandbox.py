"""ProvisioningRequests and placeholder pods on the sandbox: made once, followed, removed; what the cluster lacks is said in the status."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.controller.commit import node_requests
from fairlead.kube import errors, resources
from fairlead.kube.client import Patch
from fairlead.kube.resources import PRIORITY_CLASSES, Raw
from tests.controller.autoscaling.test_autoscaling_on_the_sandbox import flavor
from tests.controller.conftest import NAMESPACE, Bench, benches

CRD = {
    "metadata": {"name": "provisioningrequests.autoscaling.x-k8s.io"},
    "spec": {
        "group": "autoscaling.x-k8s.io",
        "names": {"kind": "ProvisioningRequest", "plural": "provisioningrequests", "singular": "provisioningrequest",
                  "listKind": "ProvisioningRequestList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}  # fmt: skip
RULES: list[dict[str, Any]] = [
    {
        "apiGroups": ["autoscaling.x-k8s.io"],
        "resources": ["provisioningrequests"],
        "verbs": ["list", "create", "delete"],
    },
    {"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["create", "delete"]},
    {"apiGroups": ["fairlead.dev"], "resources": ["gangs/finalizers"], "verbs": ["update"]},
]
"""As the chart gives them with autoscaling.provisioningRequests: see tests/manifests/test_chart.py."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_requests, "POLL_S", 0.2)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with benches(tmp_path, count=1, named=True) as made:
        await made.template("eight", 8)
        yield made


async def allow(bench: Bench, rules: list[dict[str, Any]]) -> None:
    await bench.client.create(resources.CLUSTER_ROLES, {"metadata": {"name": "autoscaling"}, "rules": rules})
    binding = resources.Resource(
        group="rbac.authorization.k8s.io", version="v1", plural="clusterrolebindings", kind="ClusterRoleBinding",
        namespaced=False, type=dict,
    )  # fmt: skip
    account = {"kind": "ServiceAccount", "name": names.CONTROLLER_ACCOUNT, "namespace": names.NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "autoscaling"}
    await bench.client.create(binding, {"metadata": {"name": "autoscaling"}, "subjects": [account], "roleRef": role})


async def requests(bench: Bench) -> list[Raw]:
    with contextlib.suppress(errors.NotFound):
        return (await bench.client.list(resources.PROVISIONING_REQUESTS, NAMESPACE)).items
    return []


async def condition(bench: Bench, name: str, kind: str, message: str, at: str = "2026-01-01T00:00:00Z") -> None:
    held = {"type": kind, "status": "True", "reason": "Tested", "message": message, "lastTransitionTime": at}
    await bench.client.patch(
        resources.PROVISIONING_REQUESTS, name, {"status": {"conditions": [held]}}, namespace=NAMESPACE, kind=Patch.MERGE,
        subresource="status",
    )  # fmt: skip


async def said(bench: Bench, gang: str, text: str) -> None:
    await bench.until(
        lambda: text in bench.status(gang).get("nodesAwaited", {}).get("message", ""), f"its status says {text!r}"
    )


async def eventually(bench: Bench, holds: Any, what: str) -> list[Raw]:
    found: list[Raw] = []
    for _ in range(100):
        found = await requests(bench)
        if holds(found):
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"{what}: {[each['metadata']['name'] for each in found]}\n{bench.describe()}")


@pytest.mark.slow
async def test_one_request_is_made_for_a_gang_followed_retried_and_removed(bench: Bench):
    await flavor(bench, mode="ProvisioningRequest", extendedResource="nvidia.com/gpu")
    async with bench.controller():
        await bench.gang("wide", 2, template="eight")
        await said(bench, "wide", "set autoscaling.provisioningRequests=true in the chart's values")
        await allow(bench, RULES)
        await said(bench, "wide", "does not serve provisioningrequests.autoscaling.x-k8s.io/v1: install the CRD")
        await bench.client.create(resources.CRDS, CRD)
        (made,) = await eventually(bench, len, "a request is made")
        assert made["spec"]["podSets"] == [{"podTemplateRef": {"name": f"{made['metadata']['name']}-0"}, "count": 2}]
        assert made["spec"]["provisioningClassName"] == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
        assert made["spec"]["parameters"] == {"ValidUntilSeconds": "1800"}
        assert made["metadata"]["ownerReferences"][0]["kind"] == "Gang"
        (template,) = (await bench.client.list(resources.POD_TEMPLATES, NAMESPACE)).items
        spec = template["template"]["spec"]
        assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
        assert not spec.get("resourceClaims")
        await said(bench, "wide", "is not accepted by an autoscaler yet")
        await condition(bench, made["metadata"]["name"], "Accepted", "")
        await said(bench, "wide", "is accepted by the autoscaler")
    async with bench.controller():
        await condition(bench, made["metadata"]["name"], "Failed", "no node group has room")
        second = await eventually(
            bench, lambda all_: [each["metadata"]["name"][-2:] for each in all_] == ["-2"], "a second attempt"
        )
        assert [each["metadata"]["annotations"][names.ATTEMPT] for each in second] == ["2"]
        await condition(bench, second[0]["metadata"]["name"], "Provisioned", "")
        await said(bench, "wide", "is provisioned: its nodes' devices are awaited")
        await bench.client.patch(
            resources.FLAVORS, "h100", {"spec": {"autoscaling": {"mode": "Off", "extendedResource": None}}}
        )
        await eventually(bench, lambda all_: not all_, "it is removed")
    assert not (await bench.client.list(resources.POD_TEMPLATES, NAMESPACE)).items


async def test_placeholders_are_made_in_fairleads_namespace_and_removed_when_the_gang_runs(bench: Bench):
    await flavor(bench, mode="Placeholder", extendedResource="nvidia.com/gpu", nodeSelector={"pool": "h100"})
    first = await bench.gang("first", 1, template="eight")

    def placeholders() -> list[Any]:
        return [pod for pod in bench.pods.all() if names.PLACEHOLDER in pod.metadata.labels]

    async with bench.controller():
        await bench.until(lambda: bench.running(first), "it runs")
        pods = await bench.gang("next", 1, template="eight")
        await said(bench, "next", "set autoscaling.placeholders=true in the chart's values")
        await allow(bench, [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}])
        body = {"metadata": {"name": names.PLACEHOLDER_PRIORITY}, "value": -10, "preemptionPolicy": "Never"}
        await bench.client.create(PRIORITY_CLASSES, body)
        await bench.until(lambda: len(placeholders()) == 1, "a placeholder is made")
        (made,) = placeholders()
        assert made.metadata.namespace == names.NAMESPACE
        assert made.spec.node_selector == {"pool": "h100"}
        assert made.spec.priority == -10
        await said(bench, "next", "1 placeholder pods ask for nodes, 0 of them have one")
    async with bench.controller():
        await bench.until(lambda: bench.gangs.get(f"{NAMESPACE}/next") is not None, "its Gang is there")
        assert [pod.metadata.uid for pod in placeholders()] == [made.metadata.uid]
        await bench.delete(first)
        await bench.until(lambda: bench.running(pods), "it runs")
        await bench.until(lambda: not placeholders(), "the placeholder is gone")
