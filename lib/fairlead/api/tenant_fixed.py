"""What is the same for every tenant: what its people may do, priorities, and the traffic that jobs always need.

The chart's template reads the same from manifests/chart/files/tenant.yaml, which `make manifests` writes from `fixed()`.
"""

from typing import Any, Final

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
