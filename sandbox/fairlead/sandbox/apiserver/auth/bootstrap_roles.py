"""The roles that a cluster starts with, for the users that this sandbox has.

The system's own loops have the permissions that they have in a real cluster, and no more: the rules of the real bootstrap
policy, without the resources that are not served here. Nodes, for which the real one has an authorizer, have a binding.
Source: k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.sandbox.apiserver.auth.rbac import GROUP
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.release import NEWEST, Release

_READ = ("get", "list", "watch")
_ALL = ("*",)
_EDIT = ("create", "delete", "deletecollection", "patch", "update")
_CLAIMS, _SLICES = "resourceclaims", "resourceslices"
_RESOURCE = "resource.k8s.io"
_AUTHENTICATED, _UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


def _rule(verbs: Sequence[str], group: str, *resources: str) -> Json:
    return {"verbs": list(verbs), "apiGroups": [group], "resources": list(resources)}


def _paths(*urls: str) -> Json:
    return {"verbs": ["get"], "nonResourceURLs": list(urls)}


_EVENTS = (
    _rule(("create", "patch", "update"), "", "events"),
    _rule(("create", "patch", "update"), "events.k8s.io", "events"),
)
_HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")

_EXTENDED = _rule(("create", "delete"), _RESOURCE, _CLAIMS)
_BINDING = _rule(("patch", "update"), _RESOURCE, f"{_CLAIMS}/binding")
_KUBE_SCHEDULER = (
    *_EVENTS,
    _rule(("create", "get", "list", "watch", "patch", "update"), "coordination.k8s.io", "leases"),
    _rule(_READ, "", "nodes"),
    _rule(("delete", "get", "list", "watch"), "", "pods"),
    _rule(("create",), "", "bindings", "pods/binding"),
    _rule(("patch", "update"), "", "pods/status"),
    _rule(_READ, "", "replicationcontrollers", "services"),
    _rule(_READ, "apps", "replicasets", "statefulsets"),
    _rule(_READ, "policy", "poddisruptionbudgets"),
    _rule(_READ, "", "persistentvolumeclaims", "persistentvolumes", "namespaces"),
    _rule(_READ, "storage.k8s.io", "*"),
    _rule(("create",), "authentication.k8s.io", "tokenreviews"),
    _rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
    _rule(_READ, _RESOURCE, "deviceclasses", _SLICES),
    _rule(("get", "list", "watch", "patch", "update"), _RESOURCE, _CLAIMS),
    _rule(("patch", "update"), _RESOURCE, f"{_CLAIMS}/status"),
)

_KCM = (
    *_EVENTS,
    _rule(("create", "get", "list", "watch", "patch", "update"), "coordination.k8s.io", "leases"),
    _rule(("create", "delete", "get", "update"), "", "secrets", "serviceaccounts", "configmaps"),
    _rule(("create",), "", "serviceaccounts/token"),
    _rule(("create",), "authentication.k8s.io", "tokenreviews"),
    _rule(("create",), "authorization.k8s.io", "subjectaccessreviews"),
    _rule(_READ, "*", "*"),
)

_NODE = (
    _rule(("create",), "authentication.k8s.io", "tokenreviews"),
    _rule(("create",), "authorization.k8s.io", "localsubjectaccessreviews", "subjectaccessreviews"),
    _rule(_READ, "", "services"),
    _rule(("create", "get", "list", "watch", "delete", "patch", "update"), "", "nodes"),
    _rule(("patch", "update"), "", "nodes/status"),
    *_EVENTS,
    _rule(("get", "list", "watch", "create", "delete"), "", "pods"),
    _rule(("patch", "update"), "", "pods/status"),
    _rule(("create",), "", "pods/eviction"),
    _rule(_READ, "", "configmaps", "secrets", "namespaces"),
    _rule(("get",), "", "persistentvolumeclaims", "persistentvolumes"),
    _rule(("create",), "", "serviceaccounts/token"),
    _rule(("get",), "", "serviceaccounts"),
    _rule(("create", "delete", "get", "patch", "update"), "coordination.k8s.io", "leases"),
    _rule(("get", "list", "watch"), _RESOURCE, _CLAIMS),
    _rule(("deletecollection", "list", "watch", "get"), _RESOURCE, _SLICES),
)

_EVICTION_BY_TAINT = "device-taint-eviction-controller"
# kube-controller-manager's loops run as service accounts of kube-system, each with its own role.
_CONTROLLERS: dict[str, tuple[Json, ...]] = {
    "generic-garbage-collector": (*_EVENTS, _rule(("delete", "get", "list", "patch", "update", "watch"), "*", "*")),
    "namespace-controller": (
        _rule(("delete", "get", "list", "watch"), "", "namespaces"),
        _rule(("update",), "", "namespaces/finalize", "namespaces/status"),
        _rule(("delete", "deletecollection", "get", "list"), "*", "*"),
    ),
    "job-controller": (
        _rule(("get", "list", "patch", "update", "watch"), "batch", "jobs"),
        _rule(("patch", "update"), "batch", "jobs/status"),
        _rule(("update",), "batch", "jobs/finalizers"),
        _rule(("create", "delete", "list", "patch", "watch", "get"), "", "pods"),
        *_EVENTS,
    ),
    "resource-claim-controller": (
        _rule(_READ, "", "pods"),
        _rule(("patch", "update"), "", "pods/status", "pods/finalizers"),
        _rule((*_READ, "create", "delete", "patch", "update"), _RESOURCE, _CLAIMS),
        _rule(_READ, _RESOURCE, "resourceclaimtemplates", "deviceclasses"),
        _rule(("patch", "update"), _RESOURCE, f"{_CLAIMS}/status"),
        *_EVENTS,
    ),
    _EVICTION_BY_TAINT: (
        _rule((*_READ, "delete"), "", "pods"),
        _rule(("patch", "update"), "", "pods/status"),
        _rule(_READ, _RESOURCE, _CLAIMS, _SLICES, "deviceclasses", "devicetaintrules"),
        _rule(("patch", "update"), _RESOURCE, "devicetaintrules/status"),
        *_EVENTS,
    ),
    "node-controller": (
        _rule((*_READ, "delete", "patch", "update"), "", "nodes"),
        _rule(("patch", "update"), "", "nodes/status", "pods/status"),
        _rule((*_READ, "delete"), "", "pods"),
        _rule(_READ, "coordination.k8s.io", "leases"),
        *_EVENTS,
    ),
    "pod-garbage-collector": (
        _rule((*_READ, "delete"), "", "pods"),
        _rule(_READ, "", "nodes"),
        _rule(("patch",), "", "pods/status"),
    ),
    "disruption-controller": (
        _rule(_READ, "apps", "deployments", "replicasets", "statefulsets"),
        _rule(_READ, "", "replicationcontrollers", "pods"),
        _rule(_READ, "policy", "poddisruptionbudgets"),
        _rule(("update", "patch"), "policy", "poddisruptionbudgets/status"),
        _rule(("patch", "update"), "", "pods/status"),
        *_EVENTS,
    ),
    "resourcequota-controller": (
        _rule(("list", "watch"), "*", "*"),
        _rule(("update",), "", "resourcequotas/status"),
        *_EVENTS,
    ),
    "deployment-controller": (
        _rule((*_READ, "update"), "apps", "deployments"),
        _rule(("update",), "apps", "deployments/status", "deployments/finalizers"),
        _rule((*_READ, "create", "delete", "patch", "update"), "apps", "replicasets"),
        _rule((*_READ, "update"), "", "pods"),
        *_EVENTS,
    ),
    "replicaset-controller": (
        _rule((*_READ, "update"), "apps", "replicasets"),
        _rule(("update",), "apps", "replicasets/status", "replicasets/finalizers"),
        _rule((*_READ, "create", "delete", "patch"), "", "pods"),
        *_EVENTS,
    ),
    "daemon-set-controller": (
        _rule(_READ, "apps", "daemonsets"),
        _rule(("update",), "apps", "daemonsets/status", "daemonsets/finalizers"),
        _rule((*_READ, "create", "delete", "patch"), "", "pods"),
        _rule(("create",), "", "pods/binding"),
        _rule((*_READ, "create", "delete", "patch", "update"), "apps", "controllerrevisions"),
        _rule(_READ, "", "nodes"),
        *_EVENTS,
    ),
    "service-account-controller": (
        _rule(("create",), "", "serviceaccounts"),
        _rule(_READ, "", "serviceaccounts", "namespaces"),
    ),
    "root-ca-cert-publisher": (
        _rule(("create", "update"), "", "configmaps"),
        _rule(_READ, "", "namespaces", "configmaps"),
    ),
}

# What namespace users get from `view`, `edit` and `admin`, by whole groups.
_USER_GROUPS = ("apps", "batch", "autoscaling", "policy", _RESOURCE)
_VIEW = (
    _rule(
        _READ,
        "",
        "pods",
        "pods/log",
        "pods/status",
        "configmaps",
        "services",
        "serviceaccounts",
        "events",
        "persistentvolumeclaims",
        "resourcequotas",
        "limitranges",
        "namespaces",
        "replicationcontrollers",
    ),
    *(_rule(_READ, group, "*") for group in _USER_GROUPS),
)
_EDITS = (
    *_VIEW,
    _rule(
        (*_READ, *_EDIT), "", "pods", "configmaps", "secrets", "services", "serviceaccounts", "persistentvolumeclaims"
    ),
    _rule(("create",), "", "pods/eviction", "serviceaccounts/token"),
    *(_rule(_EDIT, group, "*") for group in ("apps", "batch", "autoscaling", "policy")),
    _rule(_EDIT, _RESOURCE, _CLAIMS, "resourceclaimtemplates"),
)
_ADMIN = (*_EDITS, _rule((*_READ, *_EDIT), GROUP, "roles", "rolebindings"))


def _roles(release: Release) -> Iterator[tuple[str, Sequence[Json]]]:
    binding = (_BINDING,) if release.has("granular-status-authorization") else ()
    yield (
        "cluster-admin",
        ({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}, {"verbs": ["*"], "nonResourceURLs": ["*"]}),
    )
    yield "system:discovery", (_paths("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH),)
    yield "system:public-info-viewer", (_paths(*_HEALTH),)
    yield (
        "system:basic-user",
        (
            _rule(("create",), "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
            _rule(("create",), "authentication.k8s.io", "selfsubjectreviews"),
        ),
    )
    extended = (_EXTENDED,) if release.has("extended-resources") else ()
    yield "system:kube-scheduler", (*_KUBE_SCHEDULER, *extended, *binding)
    yield "system:kube-controller-manager", _KCM
    yield "system:node", _NODE
    for name, rules in _controllers(release):
        yield f"system:controller:{name}", (*rules, *(binding if name == "resource-claim-controller" else ()))


def _controllers(release: Release) -> Iterator[tuple[str, tuple[Json, ...]]]:
    for name, rules in _CONTROLLERS.items():
        if name != _EVICTION_BY_TAINT or release.has("device-taints"):
            yield name, rules


def cluster_roles(release: Release = NEWEST) -> Iterator[Json]:
    for name, rules in _roles(release):
        yield {"metadata": _metadata(name), "rules": list(rules)}
    previous = ""
    for name, rules in (("view", _VIEW), ("edit", _EDITS), ("admin", _ADMIN)):
        # `kubectl create clusterrole --aggregation-rule` and CRD authors add to these by label.
        labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
        yield {
            "metadata": _metadata(f"system:aggregate-to-{name}", {f"{GROUP}/aggregate-to-{name}": "true"}),
            "rules": list(rules),
        }
        yield {
            "metadata": {"name": name, "labels": labels},
            "aggregationRule": {
                "clusterRoleSelectors": [{"matchLabels": {f"{GROUP}/aggregate-to-{name}": "true"}}]
                + ([{"matchLabels": {f"{GROUP}/aggregate-to-{previous}": "true"}}] if previous else [])
            },
            "rules": [],
        }
        previous = name


def cluster_role_bindings(release: Release = NEWEST) -> Iterator[Json]:
    yield _binding("cluster-admin", "cluster-admin", _group("system:masters"))
    yield _binding("system:discovery", "system:discovery", _group(_AUTHENTICATED))
    yield _binding("system:basic-user", "system:basic-user", _group(_AUTHENTICATED))
    viewer = "system:public-info-viewer"
    yield _binding(viewer, viewer, _group(_AUTHENTICATED), _group(_UNAUTHENTICATED))
    yield _binding("system:kube-scheduler", "system:kube-scheduler", _user("system:kube-scheduler"))
    kcm = "system:kube-controller-manager"
    yield _binding(kcm, kcm, _user(kcm))
    yield _binding("system:node", "system:node", _group("system:nodes"))
    for name, _ in _controllers(release):
        full = f"system:controller:{name}"
        account = {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
        yield _binding(full, full, account)


def _metadata(name: str, labels: dict[str, str] | None = None) -> Json:
    return {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", **(labels or {})},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }


def _group(name: str) -> Json:
    return {"kind": "Group", "apiGroup": GROUP, "name": name}


def _user(name: str) -> Json:
    return {"kind": "User", "apiGroup": GROUP, "name": name}


def _binding(name: str, role: str, *subjects: Json) -> Json:
    return {
        "metadata": _metadata(name),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": list(subjects),
    }
