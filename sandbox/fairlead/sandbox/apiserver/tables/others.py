"""Tables of resource.k8s.io, coordination, rbac and admissionregistration.

Source: pkg/printers/internalversion/printers.go (1.36).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.tables import Col, named


@named(
    Col("Node", "V1ResourceSliceSpec.nodeName"),
    Col("Driver", "V1ResourceSliceSpec.driver"),
    Col("Pool", "V1ResourcePool.name"),
)
def RESOURCE_SLICES(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    spec = obj.get("spec", {})
    return [spec.get("nodeName") or "<unset>", spec.get("driver", ""), (spec.get("pool") or {}).get("name", "")]


@named(Col("State", "A summary of the current state (allocated, pending, reserved, etc.)."))
def RESOURCE_CLAIMS(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    status = obj.get("status") or {}
    deleted = bool(obj.get("metadata", {}).get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation"):
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return [",".join(states)]


@named()
def NAME_AND_AGE(_obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    return []


@named(Col("Holder", "V1LeaseSpec.holderIdentity"))
def LEASES(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    return [obj.get("spec", {}).get("holderIdentity") or ""]


@named(
    Col("Role", "V1RoleBinding.roleRef"),
    Col("Users", "Users in the roleBinding", wide=True),
    Col("Groups", "Groups in the roleBinding", wide=True),
    Col("ServiceAccounts", "ServiceAccounts in the roleBinding", wide=True),
)
def ROLE_BINDINGS(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    role = obj.get("roleRef") or {}
    found: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or []:
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        found.setdefault(subject.get("kind", ""), []).append(name)
    return [
        f"{role.get('kind', '')}/{role.get('name', '')}",
        *(", ".join(found[kind]) for kind in ("User", "Group", "ServiceAccount")),
    ]


@named(Col("Webhooks", "Webhooks indicates the number of webhooks configured in this configuration", type="integer"))
def WEBHOOKS(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    return [len(obj.get("webhooks") or [])]


@named(
    Col(
        "Validations",
        "Validations indicates the number of validation rules defined in this configuration",
        type="integer",
    ),
    Col("ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy"),
)
def POLICIES(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    spec = obj.get("spec", {})
    param = spec.get("paramKind")
    return [
        len(spec.get("validations") or []),
        f"{param.get('apiVersion', '')}/{param.get('kind', '')}" if param else "<unset>",
    ]


@named(
    Col("PolicyName", "PolicyName indicates the policy definition which the policy binding binded to"),
    Col("ParamRef", "ParamRef indicates the param resource which sets the configration param"),
)
def POLICY_BINDINGS(obj: Json, _now: datetime) -> list[Any]:  # noqa: N802
    spec = obj.get("spec", {})
    param = spec.get("paramRef")
    shown = "<unset>"
    if param:
        shown = f"{param.get('namespace', '*')}/{param.get('name', '*')}" if param.get("name") else "<selector>"
    return [spec.get("policyName", ""), shown]
