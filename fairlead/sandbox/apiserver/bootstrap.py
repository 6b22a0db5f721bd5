"""What every cluster holds before anyone comes: the system's namespaces, priority classes, roles and bindings."""

from __future__ import annotations

from fairlead.sandbox.apiserver.kinds.base import Context, Json, UserInfo
from fairlead.sandbox.apiserver.state import State

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_SYSTEM = UserInfo("system:apiserver", ("system:masters",))


def populate(state: State) -> None:
    for name in _NAMESPACES:
        put(
            state,
            "",
            "v1",
            "namespaces",
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            },
        )


def put(state: State, group: str, version: str, plural: str, obj: Json) -> None:
    """Store one object as the apiserver itself would, if its kind is served."""
    kind = state.registry.find(group, version, plural)
    if kind is None:
        return
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
    kind.strategy.default(obj)
    metadata = obj["metadata"]
    metadata["uid"] = state.new_uid()
    metadata["creationTimestamp"] = Context(_SYSTEM, state, "create").timestamp()
    state.store.put(kind.storage, (metadata.get("namespace", ""), metadata["name"]), obj, expect=None)
