"""A tenant's description: what is refused and with which words, and what its objects are."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.base import ManifestError
from fairlead.api.queue import Queue
from fairlead.api.tenant import Tenant
from fairlead.api.tenant_objects import ADMIN_RULES, MEMBER_RULES, objects, shared_objects
from fairlead.kube.labels import Requirement, Selector

TWO = {"name": "ml", "namespaces": ["ml", "ml-dev"]}


def of(kind: str, **fields: Any) -> list[dict[str, Any]]:
    return [each for each in objects(Tenant.read({"name": "ml", **fields})) if each["kind"] == kind]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({}, "name: is required"),
        ({"name": "ML"}, "name: 'ML' is no name: use lower case letters"),
        ({"name": "default"}, "name: 'default' belongs to the cluster or to Fairlead"),
        ({"name": "a" * 64}, "is no name"),
        ({"name": "ml", "namespaces": ["kube-system"]}, "namespaces[0]: 'kube-system' belongs to the cluster"),
        ({"name": "ml", "namespaces": ["a", "a"]}, "namespaces: 'a' is listed twice: remove one"),
        ({"name": "ml", "admins": ["bob"]}, "admins[0]: 'bob' is no subject: write user:NAME, group:NAME or"),
        ({"name": "ml", "members": ["serviceaccount:run"]}, "is no subject"),
        ({"name": "ml", "queus": []}, "queus: unknown field; did you mean queues?"),
        ({"name": "ml", "namespaceLabels": {"fairlead.dev/ignore": "true"}}, "is set by Kubernetes or Fairlead: remove it"),
        ({"name": "ml", "namespaceLabels": {"pod-security.kubernetes.io/enforce": "x"}}, "is set by Kubernetes"),
        ({"name": "ml", "namespaceLabels": {"team": "a b"}}, "'a b' is no label value"),
        ({"name": "ml", "quota": {"gpus": {"gpu.fairlead.dev": -1}}}, "quota.gpus.gpu.fairlead.dev: "),
        ({"name": "ml", "quota": {"cpu": "many"}}, "quota.cpu: 'many' is no quantity"),
        ({"name": "ml", "network": {"egress": [{"cidr": "10.0.0.1/8"}]}}, "is no CIDR (10.0.0.1/8 has host bits set)"),
        ({"name": "ml", "network": {"egress": [{"ports": [1]}]}}, "names no peer, or two: write one of cidr and namespace"),
        ({"name": "ml", "network": {"ingress": [{"namespace": "a", "ports": [70000]}]}}, "ports[0]: "),
        ({"name": "ml", "network": {"isolate": False, "egress": [{"namespace": "a"}]}}, "without isolation all traffic"),
        ({"name": "ml", "podSecurity": "strict"}, "podSecurity: 'strict' is none of 'restricted', 'baseline'"),
        ({**TWO, "queues": [{"name": "a"}, {"name": "b"}]}, "queues[0].namespaces: with several queues each says which"),
        ({**TWO, "queues": [{"name": "a", "namespaces": ["ml"]}]}, "namespace 'ml-dev' is bound to none of them"),
        ({**TWO, "queues": [{"name": "a", "namespaces": ["ml", "x", "ml-dev"]}]}, "'x' is none of the tenant's namespaces"),
        (
            {**TWO, "queues": [{"name": a, "namespaces": ["ml", "ml-dev"]} for a in "ab"]},
            "queues[1].namespaces: 'ml' is bound to a, too",
        ),
        ({"name": "ml", "queues": [{"name": "a", "create": False, "parent": "b"}]}, "Queue a is not created here"),
    ],
)  # fmt: skip
def test_a_wrong_description_is_refused_with_field_value_and_next_step(raw: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError) as refused:
        Tenant.read(raw)
    assert said in str(refused.value)


def test_every_object_bears_the_tenants_label_and_lies_in_its_namespaces() -> None:
    tenant = Tenant.read({**TWO, "admins": ["user:a"], "quota": {"cpu": 4}, "priorityClasses": "PerTenant"})
    found = objects(tenant)
    assert {each["metadata"]["labels"][names.TENANT] for each in found} == {"ml"}
    assert {each["metadata"].get("namespace") for each in found} == {None, "ml", "ml-dev"}
    assert len({(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in found}) == len(found)


@pytest.mark.parametrize(
    "extra", [{}, {"queues": [{"name": "a", "namespaces": ["ml"]}, {"name": "b", "namespaces": ["ml-dev"]}]}]
)
def test_each_namespace_is_selected_by_its_queue_and_no_other(extra: dict[str, Any]) -> None:
    tenant = Tenant.read({**TWO, **extra})
    found = objects(tenant)
    queues = [Queue.read(each) for each in found if each["kind"] == "Queue"]
    for namespace in (each for each in found if each["kind"] == "Namespace"):
        labels = namespace["metadata"]["labels"]
        taken = []
        for queue in queues:
            assert queue.spec.namespace_selector is not None
            wanted = queue.spec.namespace_selector.match_labels.items()
            if Selector(tuple(Requirement(key, "In", (value,)) for key, value in wanted)).matches(labels):
                taken.append(queue.name)
        assert taken == [tenant.queue_of(namespace["metadata"]["name"])]


def test_the_quota_is_in_the_form_of_dynamic_resource_allocation() -> None:
    bounded, critical = of(
        "ResourceQuota", quota={"gpus": {"gpu.fairlead.dev": 8}, "claims": 20, "memory": "1Ti", "pods": 0}
    )
    assert bounded["spec"]["hard"] == {
        "gpu.fairlead.dev.deviceclass.resource.k8s.io/devices": "8",
        "count/resourceclaims.resource.k8s.io": "20",
        "pods": "0",
        "requests.memory": "1Ti",
    }
    assert critical["spec"]["hard"] == {"pods": "0"}
    assert of("LimitRange", quota={"cpu": 4})[0]["spec"]["limits"][0]["defaultRequest"] == {"cpu": "100m"}
    assert of("LimitRange", quota={"gpus": {"a": 1}}) == []


def test_a_queue_that_exists_is_not_written_and_its_labels_are() -> None:
    queue = {"name": "research", "create": False}
    assert of("Queue", queues=[queue]) == []
    (namespace,) = of("Namespace", queues=[queue], namespaceLabels={"team": "ml"})
    assert {"team": "ml", names.QUEUE: "research"}.items() <= namespace["metadata"]["labels"].items()


def test_all_traffic_is_refused_but_within_the_tenant_to_dns_and_what_is_listed() -> None:
    listed = {"egress": [{"cidr": "10.0.0.0/8", "ports": [443]}], "ingress": [{"namespace": "gateway"}]}
    policies = {each["metadata"]["name"]: each["spec"] for each in of("NetworkPolicy", network=listed)}
    assert policies["fairlead-tenant-default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policies["fairlead-tenant-egress"]["egress"] == [
        {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 443, "protocol": "TCP"}]}
    ]
    (rule,) = policies["fairlead-tenant-ingress"]["ingress"]
    assert rule == {"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateway"}}}]}
    assert {"fairlead-tenant-dns", "fairlead-tenant-within"} < policies.keys()
    assert of("NetworkPolicy", network={"isolate": False}) == []


WRITES = {"create", "update", "patch", "delete", "deletecollection", "*"}
ONLY_READ = {
    "queues",
    "namespaces",
    "resourcequotas",
    "limitranges",
    "networkpolicies",
    "roles",
    "rolebindings",
    "pods/status",
    "resourceclaims/status",
}


@pytest.mark.parametrize("rules", [ADMIN_RULES, MEMBER_RULES], ids=["admin", "member"])
def test_no_role_may_change_what_bounds_the_tenant(rules: list[dict[str, Any]]) -> None:
    written = {name for rule in rules if WRITES & {*rule["verbs"]} for name in rule["resources"]}
    assert written & {*ONLY_READ, "*"} == set()
    gangs = {verb for rule in rules for verb in rule["verbs"] if "gangs" in rule["resources"]}
    assert gangs == {"get", "list", "watch", "create", "patch", "update"}, (
        "to hold and resume, and not with the verb hold"
    )
    assert not [rule for rule in rules if "*" in rule["apiGroups"]]


def test_a_member_submits_jobs_and_only_reads_claims() -> None:
    def may(verb: str, resource: str) -> bool:
        return any(verb in rule["verbs"] and resource in rule["resources"] for rule in MEMBER_RULES)

    assert may("create", "jobs")
    assert may("create", "pods")
    for each in ("resourceclaims", "resourceclaimtemplates"):
        assert may("list", each)
        assert not may("create", each)
    assert not any(may("get", each) for each in ("secrets", "pods/exec"))


def test_nothing_but_the_lowest_priority_keeps_its_queue_from_reclaim() -> None:
    classes = [each for each in shared_objects(Tenant.read({"name": "ml"})) if each["kind"] == "PriorityClass"]
    assert [(each["metadata"]["name"], each["preemptionPolicy"]) for each in classes] == [
        ("fairlead-low", "Never"),
        ("fairlead-normal", "PreemptLowerPriority"),
        ("fairlead-high", "PreemptLowerPriority"),
    ]
    assert min(each["value"] for each in classes) >= -10
    assert of("PriorityClass", priorityClasses="PerTenant")[0]["metadata"]["name"] == "ml-low"
