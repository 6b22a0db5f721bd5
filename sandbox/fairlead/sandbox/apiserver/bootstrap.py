"""The objects that a new cluster holds: the system's namespaces, priority classes, roles and bindings."""

from __future__ import annotations

from fairlead.sandbox.apiserver.auth import bootstrap_roles
from fairlead.sandbox.apiserver.auth.rbac import GROUP
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.request import Json, UserInfo
from fairlead.sandbox.apiserver.state import State

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITY_CLASSES = {
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}
_SYSTEM = UserInfo("system:apiserver", ("system:masters",))


def populate(state: State) -> None:
    """Store them all, without admission, which needs them itself."""
    for name in _NAMESPACES:
        namespace = {
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        put(state, "", "v1", "namespaces", namespace)
    for name, (value, description) in _PRIORITY_CLASSES.items():
        priority = {"metadata": {"name": name, "generation": 1}, "value": value, "description": description}
        put(
            state,
            "scheduling.k8s.io",
            "v1",
            "priorityclasses",
            {**priority, "preemptionPolicy": "PreemptLowerPriority"},
        )
    for role in bootstrap_roles.cluster_roles(state.release):
        put(state, GROUP, "v1", "clusterroles", role)
    for binding in bootstrap_roles.cluster_role_bindings(state.release):
        put(state, GROUP, "v1", "clusterrolebindings", binding)


def put(state: State, group: str, version: str, plural: str, obj: Json) -> None:
    """Store one object as the apiserver itself does, if its kind is served."""
    kind = state.registry.find(group, version, plural)
    if kind is None:
        return
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
    kind.strategy.default(obj)
    metadata = obj["metadata"]
    metadata["uid"] = state.new_uid()
    metadata["creationTimestamp"] = Context(_SYSTEM, state, "create").timestamp()
    state.store.put(kind.storage, (metadata.get("namespace", ""), metadata["name"]), obj, expect=None)
