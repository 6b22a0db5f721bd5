"""The kinds whose rules fit in a few lines: leases, budgets, network policies, classes, RBAC, quotas.

Of what only an administrator's manifests contain, that is checked which the sandbox itself or its users would trip over. A
ResourceQuota that the sandbox would not keep is refused, where a real apiserver takes it.
Source: pkg/apis/{coordination,networking,policy,scheduling,storage,rbac,core}/validation (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, invalid, not_supported, required
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.quota_usage import SCOPE_OPERATORS, is_counted

_HIGHEST_USER_PRIORITY = 1_000_000_000


class LeaseStrategy(BuiltIn):
    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj.get("spec", {})
        duration = spec.get("leaseDurationSeconds")
        if duration is not None and duration <= 0:
            yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
        yield from checks.not_negative(spec.get("leaseTransitions"), "spec.leaseTransitions")


class PodDisruptionBudgetStrategy(BuiltIn):
    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj.get("spec", {})
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
        for key in ("minAvailable", "maxUnavailable"):
            value = spec.get(key)
            yield from checks.not_negative(value, f"spec.{key}")
            if isinstance(value, str) and not (value.endswith("%") and value[:-1].isdigit()):
                yield invalid(
                    f"spec.{key}",
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
                    "regex used for validation is '[0-9]+%')",
                )
        yield from checks.label_selector(spec.get("selector"), "spec.selector")


class NetworkPolicyStrategy(BuiltIn):
    """Stored with its defaults; there is no network to enforce it on."""

    def default(self, obj: Json) -> None:
        super().default(obj)
        spec = obj["spec"]
        spec.setdefault("policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        yield from checks.label_selector(obj["spec"]["podSelector"], "spec.podSelector")
        for index, policy_type in enumerate(obj["spec"]["policyTypes"]):
            yield from checks.unsupported(policy_type, ("Egress", "Ingress"), f"spec.policyTypes[{index}]")


class StorageClassStrategy(BuiltIn):
    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        modes = ("Immediate", "WaitForFirstConsumer")
        yield from checks.unsupported(obj.get("volumeBindingMode"), modes, "volumeBindingMode")


class PriorityClassStrategy(BuiltIn):
    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
        if value > _HIGHEST_USER_PRIORITY and not name.startswith("system-"):
            yield forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}")
        policies = ("Never", "PreemptLowerPriority")
        yield from checks.unsupported(obj.get("preemptionPolicy"), policies, "preemptionPolicy")

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        if new.get("value", 0) != old.get("value", 0):
            yield forbidden("value", "may not be changed in an update.")


class RoleStrategy(BuiltIn):
    """Roles and ClusterRoles."""

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        for index, rule in enumerate(obj.get("rules") or []):
            here, paths = f"rules[{index}]", rule.get("nonResourceURLs")
            if not rule.get("verbs"):
                yield required(f"{here}.verbs", "verbs must contain at least one value")
            if paths:
                if self.kind == "Role":
                    yield invalid(
                        f"{here}.nonResourceURLs", paths, "namespaced rules cannot apply to non-resource URLs"
                    )
                if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                    why = "rules cannot apply to both regular resources and non-resource URLs"
                    yield invalid(f"{here}.nonResourceURLs", paths, why)
                continue
            if not rule.get("apiGroups"):
                yield required(f"{here}.apiGroups", "resource rules must supply at least one api group")
            if not rule.get("resources"):
                yield required(f"{here}.resources", "resource rules must supply at least one resource")


class RoleBindingStrategy(BuiltIn):
    """RoleBindings and ClusterRoleBindings."""

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        role = obj.get("roleRef") or {}
        kinds = ["ClusterRole"] if self.kind == "ClusterRoleBinding" else ["Role", "ClusterRole"]
        if role.get("kind") not in kinds:
            yield not_supported("roleRef.kind", role.get("kind", ""), kinds)
        if not role.get("name"):
            yield required("roleRef.name")
        for index, subject in enumerate(obj.get("subjects") or []):
            here, kind = f"subjects[{index}]", subject.get("kind", "")
            if not subject.get("name"):
                yield required(f"{here}.name")
            if kind not in {"User", "Group", "ServiceAccount"}:
                yield not_supported(f"{here}.kind", kind, ("Group", "ServiceAccount", "User"))
            elif kind == "ServiceAccount" and not subject.get("namespace"):
                yield required(f"{here}.namespace")

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        if new.get("roleRef") != old.get("roleRef"):
            yield invalid("roleRef", new.get("roleRef"), "cannot change roleRef")


class ResourceQuotaStrategy(BuiltIn):
    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj.get("spec") or {}
        for name, value in (spec.get("hard") or {}).items():
            yield from _amount(name, value, f"spec.hard[{name}]")
        if spec.get("scopes"):
            yield forbidden("spec.scopes", "the sandbox keeps no quotas with scopes")
        for index, rule in enumerate((spec.get("scopeSelector") or {}).get("matchExpressions") or []):
            here = f"spec.scopeSelector.matchExpressions[{index}]"
            if rule.get("scopeName") != "PriorityClass":
                yield forbidden(f"{here}.scopeName", "the sandbox keeps quotas with the scope PriorityClass only")
            elif rule.get("operator") not in SCOPE_OPERATORS:
                yield not_supported(f"{here}.operator", rule.get("operator", ""), SCOPE_OPERATORS)
            elif (rule["operator"] in {"In", "NotIn"}) != bool(rule.get("values")):
                yield required(f"{here}.values", "must be given with In and NotIn, and with them only")

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        if (new.get("spec") or {}).get("scopeSelector") != (old.get("spec") or {}).get("scopeSelector"):
            yield invalid("spec.scopes", None, checks.IMMUTABLE)


def _amount(name: str, value: str, path: str) -> Iterator[FieldError]:
    if not is_counted(name):
        known = "pods, cpu, memory, extended resources and resource claims"
        yield forbidden(path, f"the sandbox keeps quotas of {known} only")
    try:
        if int(Quantity.of(value)) < 0:
            yield invalid(path, value, checks.NOT_NEGATIVE)
    except QuantityError:
        yield invalid(path, value, "must be a quantity")
