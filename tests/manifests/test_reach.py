"""No account of ours reaches the token of another, in one step or in two: computed from what the chart and manifests/base install."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import errors
from fairlead.kube.client import Patch
from fairlead.kube.resources import PODS, raw
from fairlead.sandbox.install import manifests
from fairlead.sandbox.install.apply import Applier
from tests.support import reach
from tests.support.reach import EVERYTHING, Step
from tests.webhook.test_fences import GROUPS, Cluster, cluster

__all__ = ["cluster"]

Json = dict[str, Any]
Template = Callable[..., list[Json]]
BASE = Path(__file__).parents[2] / "manifests" / "base"
ALL = {
    "ui": {"enabled": True, "whatIf": True},
    "driver": {"migLayouts": {"enabled": True}},
    "autoscaling": {"placeholders": True, "provisioningRequests": True},
    "monitoring": {"enabled": True},
}
VALUES: dict[str, Json] = {"default": {}, "everything": ALL, "cert-manager": {**ALL, "certManager": {"enabled": True}}}
# Others of kube-system, where a token is the cluster's.
KUBERNETES = {"system:serviceaccount:kube-system:generic-garbage-collector", "system:serviceaccount:default:default"}


def found(objects: list[Json]) -> list[Step]:
    ours = reach.accounts(objects)
    assert len(ours) >= 3
    known = ours | KUBERNETES
    return [step for each in sorted(ours) for step in reach.steps(objects, each, reach.rights(objects, each), known)]


def reached(objects: list[Json]) -> dict[str, set[str]]:
    """By account, whom it reaches in two steps."""
    first: dict[str, set[str]] = {}
    for step in found(objects):
        first.setdefault(step.account, set()).add(step.reaches)
    return {each: reach.closure(first, each) for each in sorted(reach.accounts(objects))}


@pytest.mark.parametrize("values", VALUES)
def test_no_account_of_the_chart_reaches_another(template: Template, values: str) -> None:
    objects = template(values=VALUES[values], hooks=True)
    assert [str(step) for step in found(objects)] == []
    assert not any(reached(objects).values())


def test_no_account_of_the_base_reaches_another() -> None:
    assert [str(step) for step in found(manifests.load(BASE))] == []


@pytest.mark.parametrize(
    "role",
    ["fairlead-operator", "fairlead-view", "fairlead-edit", "fairlead-queue-reader", "fairlead-tenant-admin", "fairlead-tenant-member"],
)  # fmt: skip
def test_no_role_for_users_reaches_an_account_of_ours(template: Template, role: str) -> None:
    """Those of tenants are bound in the tenant's namespaces, whose own accounts their pods may have."""
    objects = template(values=ALL)
    (rules,) = (each["rules"] for each in objects if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", role))
    where = "ml" if "tenant" in role or role in {"fairlead-view", "fairlead-edit"} else None
    granted = [reach.right(rule, where) for rule in rules]
    assert [str(each) for each in reach.steps(objects, role, granted, reach.accounts(objects) | KUBERNETES)] == []


# -- the computation finds what it should -----------------------------------------------------------------------------

WEBHOOK, CONTROLLER, DRIVER = names.WEBHOOK_USER, names.CONTROLLER_USER, names.DRIVER_USER


def planted(kind: str, name: str, rule: Json, namespace: str | None = None) -> list[Json]:
    objects = copy.deepcopy(manifests.load(BASE))
    for each in objects:
        if (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace")) == (kind, name, namespace):
            each["rules"].append(rule)
            return objects
    raise AssertionError(name)


def rule(group: str, resource: str, *verbs: str, only: str | None = None) -> Json:
    made: Json = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return made | ({} if only is None else {"resourceNames": [only]})


@pytest.mark.parametrize(
    "granted",
    [
        rule("", "secrets", "create"),
        rule("", "secrets", "create", only="fairlead-webhook-tls"),  # resourceNames do not limit create
        rule("", "secrets", "list"),
        rule("", "serviceaccounts/token", "create"),
        rule("", "pods", "create"),
        rule("", "pods/exec", "get"),
        rule("apps", "deployments", "patch"),
        rule("batch", "*", "*"),
        rule("*", "*", "get", "list"),
        rule("", "configmaps", "create"),
    ],
    ids=str,
)
def test_a_planted_right_in_our_namespace_reaches_its_accounts(granted: Json) -> None:
    objects = planted("Role", "fairlead-webhook", granted, names.NAMESPACE)
    assert {step.reaches for step in found(objects) if step.account == WEBHOOK} == {CONTROLLER, DRIVER}


@pytest.mark.parametrize(
    "granted",
    [
        rule("", "users", "impersonate"),
        rule("rbac.authorization.k8s.io", "clusterroles", "escalate"),
        rule("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
        rule("admissionregistration.k8s.io", "validatingadmissionpolicies", "delete"),
        rule("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "patch"),
        rule("", "nodes/proxy", "get"),
        rule("", "nodes", "update"),
        rule("", "pods", "patch"),
        rule("certificates.k8s.io", "signers", "approve"),
    ],
    ids=str,
)
def test_a_planted_right_of_the_cluster_reaches_everything(granted: Json) -> None:
    objects = planted("ClusterRole", "fairlead-driver", granted)
    assert EVERYTHING in {step.reaches for step in found(objects) if step.account == DRIVER}


def test_two_steps_are_found() -> None:
    objects = planted("Role", "fairlead-driver", rule("", "pods", "create"), "default")
    objects += [
        {"kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}},
        {
            "kind": "RoleBinding",
            "metadata": {"name": "x", "namespace": names.NAMESPACE},
            "roleRef": {"kind": "Role", "name": "x"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        },
        {
            "kind": "Role",
            "metadata": {"name": "x", "namespace": names.NAMESPACE},
            "rules": [rule("", "secrets", "get")],
        },
    ]
    assert CONTROLLER not in {step.reaches for step in found(objects) if step.account == DRIVER}
    assert CONTROLLER in reached(objects)[DRIVER]


@pytest.mark.parametrize("policy", ["fairlead-controller-pods", "fairlead-webhook-configurations"])
@pytest.mark.parametrize("change", ["gone", "unbound", "audit", "ignore", "another user", "narrowed"])
def test_a_policy_that_does_not_hold_confines_nothing(policy: str, change: str) -> None:
    objects = copy.deepcopy(manifests.load(BASE))
    for each in list(objects):
        if each["metadata"]["name"] != policy:
            continue
        binding = each["kind"] == "ValidatingAdmissionPolicyBinding"
        if (change == "gone" and not binding) or (change == "unbound" and binding):
            objects.remove(each)
        elif change == "audit" and binding:
            each["spec"]["validationActions"] = ["Audit"]
        elif not binding and change == "ignore":
            each["spec"]["failurePolicy"] = "Ignore"
        elif not binding and change == "another user":
            each["spec"]["matchConditions"][0]["expression"] = "request.userInfo.username == 'x'"
        elif not binding and change == "narrowed":
            each["spec"]["matchConstraints"]["namespaceSelector"] = {"matchLabels": {"a": "b"}}
    assert found(objects) != []


# -- the one policy whose values let an account create pods ----------------------------------------------------------

PLACEHOLDER: Json = {
    "priorityClassName": names.PLACEHOLDER_PRIORITY,
    "automountServiceAccountToken": False,
    "securityContext": {"runAsNonRoot": True, "runAsUser": 65535},
}
PAUSE: Json = {
    "name": "main",
    "image": "registry.k8s.io/pause:3.10",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
ROOT = {"privileged": True}
SECRET_ENV = {"name": "K", "valueFrom": {"secretKeyRef": {"name": "fairlead-webhook-tls", "key": "tls.key"}}}
ESCAPES: dict[str, tuple[Json, Json]] = {
    "image": ({}, {"image": "evil"}),
    "command": ({}, {"command": ["sh"]}),
    "secret in the environment": ({}, {"env": [SECRET_ENV]}),
    "all of a secret": ({}, {"envFrom": [{"secretRef": {"name": "fairlead-webhook-tls"}}]}),
    "privileged": ({}, {"securityContext": ROOT}),
    "capability": ({}, {"securityContext": {**PAUSE["securityContext"], "capabilities": {"add": ["SYS_ADMIN"]}}}),
    "hook": ({}, {"lifecycle": {"postStart": {"exec": {"command": ["sh"]}}}}),
    "privileged beginning": ({"initContainers": [{**PAUSE, "name": "first", "securityContext": ROOT}]}, {}),
    "second container": ({"containers": [PAUSE, {**PAUSE, "name": "second", "image": "evil"}]}, {}),
    "token": ({"automountServiceAccountToken": True}, {}),
    "account": ({"serviceAccountName": "fairlead-webhook"}, {}),
    "volume": ({"volumes": [{"name": "s", "secret": {"secretName": "fairlead-webhook-tls"}}]}, {}),
    "host": ({"hostPID": True}, {}),
    "host's memory": ({"hostIPC": True}, {}),
    "node": ({"nodeName": "n1"}, {}),
    "root": ({"securityContext": {"runAsUser": 0}}, {}),
    "registry": ({"imagePullSecrets": [{"name": "mine"}]}, {}),
    "claim": ({"resourceClaims": [{"name": "g", "resourceClaimName": "c"}]}, {}),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ESCAPES)
async def test_a_placeholder_of_the_controller_runs_nothing_and_reads_nothing(
    cluster: Cluster, template: Template, kind: str
) -> None:
    spec, container = ESCAPES[kind]
    objects = template(values={"autoscaling": {"placeholders": True}})
    wanted = {"PriorityClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "Role"}
    body = {"metadata": {"name": "p", "namespace": names.NAMESPACE}}
    async with cluster.client("admin") as admin, cluster.client(names.CONTROLLER_USER, *GROUPS) as stolen:
        await Applier(admin).apply([each for each in objects if each["kind"] in wanted])
        made = {**body, "spec": {"containers": [{**PAUSE, **container}], **PLACEHOLDER, **spec}}
        with pytest.raises(errors.Forbidden, match="of pods the Fairlead controller may make only"):
            await stolen.create(raw(PODS), made)
        await stolen.create(raw(PODS), {**body, "spec": {"containers": [PAUSE], **PLACEHOLDER}})
        change = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]
        with pytest.raises(errors.Forbidden, match="may not change its spec"):
            await stolen.patch(raw(PODS), "p", change, namespace=names.NAMESPACE, kind=Patch.JSON)
