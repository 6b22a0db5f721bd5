"""From a tenant's description to its objects: the one source of the command, the kustomize component and, by a test, the chart.

`objects` are the tenant's own, in the order in which they are applied; each bears the label fairlead.dev/tenant. `shared_objects` serve
all tenants: the roles that its RoleBindings name, and the priority classes. Pure. The chart's template reads what is the same for every
tenant from manifests/chart/files/tenant.yaml, which `make manifests` writes from `fixed()`.

A namespace is bound to its queue by two labels, which the Queue's namespaceSelector selects: the tenant's, and fairlead.dev/queue. Who has
a role in the namespace cannot change them, nor quotas, network policies and bindings: no rule of the roles says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fairlead.api import names
from fairlead.api.tenant import Tenant, TenantPeer, TenantQueue

Obj = dict[str, Any]
NAME: Final = "fairlead-tenant"
SHARED_PREFIX: Final = "fairlead"
PER_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
CLAIMS: Final = "count/resourceclaims.resource.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_POD_SECURITY: Final = "pod-security.kubernetes.io"
_SUBJECT_KINDS: Final = {"user": "User", "group": "Group", "serviceaccount": "ServiceAccount"}


def objects(tenant: Tenant) -> list[Obj]:
    """The tenant's own objects."""
    return [
        *(_namespace(tenant, each) for each in tenant.own_namespaces),
        *(_queue(tenant, each) for each in tenant.own_queues if each.create),
        *(_priorities(tenant.name, _labels(tenant)) if tenant.priority_classes == "PerTenant" else ()),
        *(each for namespace in tenant.own_namespaces for each in _of_namespace(tenant, namespace)),
    ]


def shared_objects(tenant: Tenant) -> list[Obj]:
    """What this tenant uses of what all tenants share."""
    roles = [
        _object(f"{_RBAC}/v1", "ClusterRole", name, PART_OF, rules=rules)
        for name, rules in ((ADMIN_ROLE, ADMIN_RULES), (MEMBER_ROLE, MEMBER_RULES))
    ]
    return [*roles, *(_priorities(SHARED_PREFIX, PART_OF) if tenant.priority_classes == "Shared" else ())]


PART_OF: Final = {"app.kubernetes.io/part-of": "fairlead"}


def _labels(tenant: Tenant) -> dict[str, str]:
    return PART_OF | {names.TENANT: tenant.name}


def _object(version: str, kind: str, name: str, labels: dict[str, str], namespace: str = "", **fields: Any) -> Obj:
    where = {"namespace": namespace} if namespace else {}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **where, "labels": dict(labels)}, **fields}


def _namespace(tenant: Tenant, name: str) -> Obj:
    labels = _labels(tenant) | tenant.namespace_labels | {names.QUEUE: tenant.queue_of(name)}
    levels = {"enforce": tenant.pod_security, "warn": "restricted", "audit": "restricted"}
    return _object(
        "v1", "Namespace", name, labels | {f"{_POD_SECURITY}/{mode}": level for mode, level in levels.items()}
    )


def _queue(tenant: Tenant, queue: TenantQueue) -> Obj:
    spec: Obj = {"namespaceSelector": {"matchLabels": {names.TENANT: tenant.name, names.QUEUE: queue.name}}}
    if queue.parent is not None:
        spec["parent"] = queue.parent
    if queue.flavors:
        spec["flavors"] = [each.model_dump(by_alias=True, exclude_unset=True, mode="json") for each in queue.flavors]
    return _object(names.API_VERSION, "Queue", queue.name, _labels(tenant), spec=spec)


def _priorities(prefix: str, labels: dict[str, str]) -> Iterator[Obj]:
    for each in PRIORITIES:
        fields = {key: value for key, value in each.items() if key != "name"}
        yield _object("scheduling.k8s.io/v1", "PriorityClass", f"{prefix}-{each['name']}", labels, **fields)


def _of_namespace(tenant: Tenant, namespace: str) -> Iterator[Obj]:
    labels = _labels(tenant)
    if hard := _hard(tenant):
        yield _object("v1", "ResourceQuota", NAME, labels, namespace, spec={"hard": hard})
    yield _object("v1", "ResourceQuota", f"{NAME}-critical", labels, namespace, spec=CRITICAL_QUOTA)
    if requests := _default_requests(tenant):
        limits = [{"type": "Container", "defaultRequest": requests}]
        yield _object("v1", "LimitRange", NAME, labels, namespace, spec={"limits": limits})
    for name, spec in _policies(tenant):
        yield _object("networking.k8s.io/v1", "NetworkPolicy", f"{NAME}-{name}", labels, namespace, spec=spec)
    for role, subjects in ((ADMIN_ROLE, tenant.admins), (MEMBER_ROLE, tenant.members)):
        if subjects:
            reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
            bound = [_subject(each) for each in subjects]
            yield _object(f"{_RBAC}/v1", "RoleBinding", role, labels, namespace, roleRef=reference, subjects=bound)


def _hard(tenant: Tenant) -> dict[str, str]:
    quota = tenant.quota
    bounds = {
        **{f"{name}{PER_CLASS}": count for name, count in quota.gpus.items()},
        CLAIMS: quota.claims,
        "pods": quota.pods,
        "requests.cpu": quota.cpu,
        "requests.memory": quota.memory,
    }
    return {name: str(value) for name, value in bounds.items() if value is not None}


def _default_requests(tenant: Tenant) -> dict[str, str]:
    quota = tenant.quota
    bounded = {"cpu": (quota.cpu, quota.default_cpu), "memory": (quota.memory, quota.default_memory)}
    return {name: str(default) for name, (bound, default) in bounded.items() if bound is not None}


def _policies(tenant: Tenant) -> Iterator[tuple[str, Obj]]:
    network = tenant.network
    if not network.isolate:
        return
    own = [{"namespaceSelector": {"matchLabels": {names.TENANT: tenant.name}}}]
    yield "default-deny", DEFAULT_DENY
    yield "dns", DNS
    yield (
        "within",
        {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": own}],
            "egress": [{"to": own}],
        },
    )
    for direction, peers, field in (("egress", network.egress, "to"), ("ingress", network.ingress, "from")):
        if peers:
            rules = [_traffic(each, field) for each in peers]
            yield direction, {"podSelector": {}, "policyTypes": [direction.capitalize()], direction: rules}


def _traffic(peer: TenantPeer, field: str) -> Obj:
    chosen: Obj = (
        {"ipBlock": {"cidr": peer.cidr}}
        if peer.cidr is not None
        else {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": peer.namespace}}}
    )
    ports = [{"port": port, "protocol": peer.protocol} for port in peer.ports]
    return {field: [chosen]} | ({"ports": ports} if ports else {})


def _subject(text: str) -> Obj:
    kind, _, name = text.partition(":")
    if kind == "serviceaccount":
        namespace, _, name = name.partition("/")
        return {"kind": _SUBJECT_KINDS[kind], "name": name, "namespace": namespace}
    return {"kind": _SUBJECT_KINDS[kind], "name": name, "apiGroup": _RBAC}


ADMIN_ROLE: Final = "fairlead-tenant-admin"
MEMBER_ROLE: Final = "fairlead-tenant-member"

_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_SUBMIT = ["create", "delete", "patch", "update"]
_HOLD: Final = ["create", "patch", "update"]  # of a Gang users write spec.hold; the controller puts all else back

WORKLOADS: Final = (
    ("batch", ("jobs", "cronjobs")),
    ("jobset.x-k8s.io", ("jobsets",)),
    ("leaderworkerset.x-k8s.io", ("leaderworkersets",)),
    ("trainer.kubeflow.org", ("trainjobs",)),
    ("kubeflow.org", ("mpijobs", "pytorchjobs")),
    ("ray.io", ("rayclusters", "rayjobs", "rayservices")),
)
"""What a member submits. A kind that the cluster does not serve grants nothing."""


def _rule(verbs: list[str], group: str, *resources: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


_READ_RULES = [
    _rule(
        _READ,
        "",
        "namespaces",
        "pods",
        "pods/log",
        "pods/status",
        "configmaps",
        "services",
        "endpoints",
        "events",
        "persistentvolumeclaims",
        "serviceaccounts",
        "resourcequotas",
        "limitranges",
    ),
    _rule(_READ, "events.k8s.io", "events"),
    _rule(_READ, "apps", "deployments", "replicasets", "statefulsets"),
    _rule(_READ, "policy", "poddisruptionbudgets"),
    _rule(_READ, "networking.k8s.io", "networkpolicies"),
    _rule(_READ, "rbac.authorization.k8s.io", "rolebindings"),
    _rule(_READ, "resource.k8s.io", "resourceclaims", "resourceclaimtemplates"),
    _rule(_READ, "fairlead.dev", "gangs"),
]
MEMBER_RULES: Final = [
    *_READ_RULES,
    *(_rule([*_READ, *_SUBMIT], group, *kinds) for group, kinds in WORKLOADS),
    _rule(["create", "delete"], "", "pods"),
    _rule(_HOLD, "fairlead.dev", "gangs"),
    _rule(_SUBMIT, "", "configmaps"),
]
ADMIN_RULES: Final = [
    *_READ_RULES,
    *(_rule([*_READ, *_WRITE], group, *kinds) for group, kinds in WORKLOADS),
    _rule(_WRITE, "", "pods", "configmaps", "services", "persistentvolumeclaims"),
    _rule([*_READ, *_WRITE], "", "secrets"),
    _rule(_WRITE, "", "serviceaccounts"),
    _rule(["create"], "", "pods/eviction"),
    _rule(["create", "get"], "", "pods/exec", "pods/attach", "pods/portforward"),
    _rule(_WRITE, "apps", "deployments", "statefulsets"),
    _rule(["patch", "update"], "apps", "deployments/scale", "statefulsets/scale"),
    _rule(_WRITE, "policy", "poddisruptionbudgets"),
    _rule(_HOLD, "fairlead.dev", "gangs"),
    _rule(_WRITE, "resource.k8s.io", "resourceclaims", "resourceclaimtemplates"),
]

PRIORITIES: Final[tuple[dict[str, Any], ...]] = (
    {
        "name": "low",
        "value": -10,
        "preemptionPolicy": "Never",
        "description": "Uses what is free: nothing is evicted for it.",
    },
    {
        "name": "normal",
        "value": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "description": "As pods without a class: takes back what its queue deserves.",
    },
    {
        "name": "high",
        "value": 1000,
        "preemptionPolicy": "PreemptLowerPriority",
        "description": "Goes first in its queue, and may evict gangs of lower priority there.",
    },
)
"""Not below -10: cluster-autoscaler takes pods below that for expendable. `Never` would also keep a queue from taking back what it
deserves, so only the lowest says it."""

CRITICAL_QUOTA: Final[dict[str, Any]] = {
    "hard": {"pods": "0"},
    "scopeSelector": {
        "matchExpressions": [
            {
                "scopeName": "PriorityClass",
                "operator": "In",
                "values": ["system-node-critical", "system-cluster-critical"],
            }
        ]
    },
}
"""No pod of a tenant has the priority of the cluster's own, which would preempt every other tenant's."""

DEFAULT_DENY: Final[dict[str, Any]] = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
DNS: Final[dict[str, Any]] = {
    "podSelector": {},
    "policyTypes": ["Egress"],
    "egress": [
        {
            "to": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}},
                # NodeLocal DNSCache, and the resolvers of clouds
                {"ipBlock": {"cidr": "169.254.0.0/16"}},
            ],
            "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
        }
    ],
}


def fixed() -> dict[str, Any]:
    """What the chart's template takes over as it is."""
    return {
        "roles": {ADMIN_ROLE: ADMIN_RULES, MEMBER_ROLE: MEMBER_RULES},
        "priorities": list(PRIORITIES),
        "criticalQuota": CRITICAL_QUOTA,
        "defaultDeny": DEFAULT_DENY,
        "dns": DNS,
    }
