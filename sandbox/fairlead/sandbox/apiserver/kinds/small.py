"""The kinds whose rules fit in a few lines: leases, budgets, network policies, priority classes, RBAC.

Source: pkg/apis/{coordination,networking,policy,scheduling,rbac}/validation (1.36).
"""

from __future__ import annotations

from collections.abc import Iterator

from fairlead.sandbox.apiserver.kinds import checks
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, invalid, not_supported, required
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.apiserver.names import path_segment_complaints
from fairlead.sandbox.apiserver.tables import others, workloads

RBAC_GROUP = "rbac.authorization.k8s.io"
HIGHEST_USER_PRIORITY = 1_000_000_000


class LeaseStrategy(BuiltIn):
    model = "V1Lease"
    table = others.LEASES
    allow_create_on_update = True
    allow_unconditional_update = False

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj.get("spec", {})
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
        if transitions is not None and transitions < 0:
            yield invalid("spec.leaseTransitions", transitions, checks.NOT_NEGATIVE)


class PodDisruptionBudgetStrategy(BuiltIn):
    model = "V1PodDisruptionBudget"
    table = workloads.POD_DISRUPTION_BUDGETS
    generation = True
    allow_unconditional_update = False

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj.get("spec", {})
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            yield invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set")
        for key in ("minAvailable", "maxUnavailable"):
            value = spec.get(key)
            if isinstance(value, int):
                yield from checks.not_negative(value, f"spec.{key}")
            elif isinstance(value, str) and not (value.endswith("%") and value[:-1].isdigit()):
                yield invalid(
                    f"spec.{key}",
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
                    "regex used for validation is '[0-9]+%')",
                )
            elif isinstance(value, str) and int(value[:-1]) > 100:
                yield invalid(f"spec.{key}", value, "must not be greater than 100%")
        yield from checks.label_selector(spec.get("selector"), "spec.selector")


class NetworkPolicyStrategy(BuiltIn):
    """Stored and validated; there is no network to enforce it on."""

    model = "V1NetworkPolicy"
    generation = True

    def default(self, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("podSelector", {})
        spec.setdefault("policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])
        for rule in (spec.get("ingress") or []) + (spec.get("egress") or []):
            for port in rule.get("ports") or []:
                port.setdefault("protocol", "TCP")

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        spec = obj["spec"]
        yield from checks.label_selector(spec["podSelector"], "spec.podSelector")
        for index, policy_type in enumerate(spec["policyTypes"]):
            yield from checks.unsupported(policy_type, ("Egress", "Ingress"), f"spec.policyTypes[{index}]")
        for direction in ("ingress", "egress"):
            for index, rule in enumerate(spec.get(direction) or []):
                for at, port in enumerate(rule.get("ports") or []):
                    here = f"spec.{direction}[{index}].ports[{at}]"
                    yield from checks.unsupported(port.get("protocol"), ("SCTP", "TCP", "UDP"), f"{here}.protocol")
                    number = port.get("port")
                    if isinstance(number, int) and not 1 <= number <= 65535:
                        yield invalid(f"{here}.port", number, "must be between 1 and 65535, inclusive")


class StorageClassStrategy(BuiltIn):
    model = "V1StorageClass"

    def default(self, obj: Json) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        if not obj.get("provisioner"):
            yield required("provisioner", "")
        modes = ("Immediate", "WaitForFirstConsumer")
        yield from checks.unsupported(obj.get("volumeBindingMode"), modes, "volumeBindingMode")

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        for name in ("parameters", "provisioner"):
            if new.get(name) != old.get(name):
                yield forbidden(name, "updates to " + name + " are forbidden.")


class PriorityClassStrategy(BuiltIn):
    model = "V1PriorityClass"
    table = workloads.PRIORITY_CLASSES
    generation = True

    def default(self, obj: Json) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
        if value > HIGHEST_USER_PRIORITY and not name.startswith("system-"):
            yield forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}")
        yield from checks.unsupported(
            obj.get("preemptionPolicy"), ("Never", "PreemptLowerPriority"), "preemptionPolicy"
        )

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        if new.get("value", 0) != old.get("value", 0):
            yield forbidden("value", "may not be changed in an update.")
        yield from checks.unchanged(new.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy")


class RoleStrategy(BuiltIn):
    model = "V1Role"
    allow_create_on_update = True
    name_check = staticmethod(path_segment_complaints)

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        for index, rule in enumerate(obj.get("rules") or []):
            here = f"rules[{index}]"
            if not rule.get("verbs"):
                yield required(f"{here}.verbs", "verbs must contain at least one value")
            if rule.get("nonResourceURLs"):
                if self.model == "V1Role":
                    yield invalid(
                        f"{here}.nonResourceURLs",
                        rule["nonResourceURLs"],
                        "namespaced rules cannot apply to non-resource URLs",
                    )
                if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                    yield invalid(
                        f"{here}.nonResourceURLs",
                        rule["nonResourceURLs"],
                        "rules cannot apply to both regular resources and non-resource URLs",
                    )
                continue
            if not rule.get("apiGroups"):
                yield required(f"{here}.apiGroups", "resource rules must supply at least one api group")
            if not rule.get("resources"):
                yield required(f"{here}.resources", "resource rules must supply at least one resource")


class ClusterRoleStrategy(RoleStrategy):
    model = "V1ClusterRole"


class RoleBindingStrategy(BuiltIn):
    model = "V1RoleBinding"
    allow_create_on_update = True
    name_check = staticmethod(path_segment_complaints)
    role_kinds: tuple[str, ...] = ("ClusterRole", "Role")

    def default(self, obj: Json) -> None:
        obj.setdefault("roleRef", {}).setdefault("apiGroup", RBAC_GROUP)
        if not obj["roleRef"]["apiGroup"]:
            obj["roleRef"]["apiGroup"] = RBAC_GROUP
        for subject in obj.get("subjects") or []:
            if subject.get("kind") in {"User", "Group"} and not subject.get("apiGroup"):
                subject["apiGroup"] = RBAC_GROUP

    def validate(self, obj: Json, context: Context) -> Iterator[FieldError]:
        role = obj.get("roleRef") or {}
        if role.get("apiGroup") != RBAC_GROUP:
            yield not_supported("roleRef.apiGroup", role.get("apiGroup", ""), (RBAC_GROUP,))
        if role.get("kind") not in self.role_kinds:
            yield not_supported("roleRef.kind", role.get("kind", ""), sorted(self.role_kinds, reverse=True))
        if not role.get("name"):
            yield required("roleRef.name")
        for index, subject in enumerate(obj.get("subjects") or []):
            here = f"subjects[{index}]"
            if not subject.get("name"):
                yield required(f"{here}.name")
            if subject.get("kind") == "ServiceAccount":
                if not subject.get("namespace"):
                    yield required(f"{here}.namespace")
            elif subject.get("kind") not in {"User", "Group"}:
                yield not_supported(f"{here}.kind", subject.get("kind", ""), ("Group", "ServiceAccount", "User"))

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterator[FieldError]:
        if new.get("roleRef") != old.get("roleRef"):
            yield invalid("roleRef", new.get("roleRef"), "cannot change roleRef")


class ClusterRoleBindingStrategy(RoleBindingStrategy):
    model = "V1ClusterRoleBinding"
    role_kinds = ("ClusterRole",)
