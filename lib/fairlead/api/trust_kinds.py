"""The vocabulary of the table of trust (`trust`): writers, guards, and a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Writer = Literal[
    "users", "workload", "webhook", "controller", "driver", "administrators", "Kubernetes", "other controllers"
]
"""`users`: tenants, for objects of their namespaces. `workload`: the pod itself, with a user's rights."""
Form = Literal["field", "annotation", "label", "annotation or label", "condition", "gate", "finalizer", "name", "taint"]
Guard = str

WEBHOOK_MARKS: Final = "webhook: taken off new pods, refused in templates and updates"
WEBHOOK_SIGNED: Final = "webhook: signed when the pod is created, then fixed"
WEBHOOK_STAMPED: Final = "webhook: written over when the object is created, then fixed"
WEBHOOK_CHECKED: Final = "webhook: checked when created, fixed while gated"
WEBHOOK_FIXED: Final = "webhook: written when the pod is created, then fixed"
POD_POLICY: Final = "fairlead-controller-pods"
GANG_POLICY: Final = "fairlead-gangs"
HOLD_POLICY: Final = "fairlead-holds"
FENCE: Final = "fairlead-allocation-fence"
SLICE_POLICY: Final = "fairlead-driver-slices"
NAMESPACE_POLICY: Final = "fairlead-namespaces"
SUBRESOURCE: Final = "RBAC: status is a subresource"
RBAC: Final = "RBAC: only administrators write it"
APISERVER: Final = "the apiserver sets it"

NAMESPACE: Final = "its namespace"
CLUSTER: Final = "the cluster"
NODE: Final = "driver, pool and node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`on`: kinds. `absurd`: what an absurd value becomes. `scope`: within what the key, or what it names, is looked up."""

    on: tuple[str, ...]
    keys: tuple[str, ...]
    form: Form = "field"
    writers: tuple[Writer, ...]
    guards: tuple[Guard, ...] = ()
    absurd: str
    scope: str = NAMESPACE
