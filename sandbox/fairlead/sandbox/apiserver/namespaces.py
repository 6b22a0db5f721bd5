"""Namespace lifecycle: no object is created in a missing or terminating namespace; the system's own cannot be deleted.

A terminating namespace is emptied by the namespace controller, which ends with PUT /finalize.
Source: k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go (1.36).
"""

from __future__ import annotations

from fairlead.sandbox.apiserver import statuses
from fairlead.sandbox.apiserver.call import Call
from fairlead.sandbox.apiserver.kinds.request import Json

UNDELETABLE = ("default", "kube-system", "kube-public")


def check_open(call: Call, obj: Json) -> None:
    """Raises 404 for a namespace that does not exist, 403 for one that is terminating."""
    if not call.kind.namespaced or call.kind.group in {"authorization.k8s.io", "authentication.k8s.io"}:
        return
    namespace = call.state.get("", "namespaces", call.namespace)
    if namespace is None:
        raise statuses.not_found_resource("", "namespaces", call.namespace)
    if namespace.get("status", {}).get("phase") != "Terminating":
        return
    name = obj["metadata"].get("name", "")
    error = statuses.forbidden(
        call.kind.group,
        call.kind.plural,
        name,
        f"unable to create new content in namespace {call.namespace} because it is being terminated",
    )
    assert error.details is not None
    error.details["causes"] = [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {call.namespace} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    raise error


def check_deletable(call: Call) -> None:
    """Raises 403 for the deletion of a namespace that the system needs."""
    if call.kind.plural == "namespaces" and not call.kind.group and call.target.name in UNDELETABLE:
        raise statuses.forbidden("", "namespaces", call.target.name, "this namespace may not be deleted")
