"""Puts an apiserver together: the kinds, admission, authorization, and the objects that every cluster starts with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from random import Random

from fairlead.sandbox.apiserver import admission, roles
from fairlead.sandbox.apiserver.authn import Tokens
from fairlead.sandbox.apiserver.kinds import catalogue
from fairlead.sandbox.apiserver.kinds.base import Context, Registry
from fairlead.sandbox.apiserver.kinds.request import Json, UserInfo
from fairlead.sandbox.apiserver.rbac import GROUP, Rbac
from fairlead.sandbox.apiserver.state import State
from fairlead.sandbox.apiserver.store import Store
from fairlead.sandbox.release import NEWEST, Release


def assemble(
    clock: Callable[[], datetime],
    random: Random,
    *,
    authorize: bool,
    bookmark_interval_s: float,
    history_limit: int,
    release: Release = NEWEST,
) -> State:
    """A state whose history starts now: no older revision can be watched, as after the start of a real one."""
    state = State(
        Store(history_limit=history_limit),
        Registry(catalogue.kinds(release)),
        clock,
        random,
        Tokens(random),
        bookmark_interval_s=bookmark_interval_s,
        release=release,
    )
    if authorize:
        state.authorizer = Rbac(state)
    populate(state)
    state.admission = admission.chain(
        state,
        called=state.webhook_called,
        converted=state.converted,
        store=partial(state.replace, "", "resourcequotas"),
    )
    state.store.compact()
    return state


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
    for role in roles.cluster_roles(state.release):
        put(state, GROUP, "v1", "clusterroles", role)
    for binding in roles.cluster_role_bindings(state.release):
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
