"""ResourceQuota. One that the sandbox would not keep is refused, where a real apiserver takes it.

Source: pkg/apis/core/validation, `ValidateResourceQuota` (1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, invalid, not_supported, required
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.quota_usage import SCOPE_OPERATORS, is_counted


class ResourceQuotaStrategy(BuiltIn):
    model = "V1ResourceQuota"

    def validate(self, obj: Json, context: Context) -> Iterable[FieldError]:
        spec = obj.get("spec") or {}
        yield from _amounts(spec.get("hard") or {}, "spec.hard")
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

    def validate_change(self, new: Json, old: Json, context: Context) -> Iterable[FieldError]:
        if (new.get("spec") or {}).get("scopeSelector") != (old.get("spec") or {}).get("scopeSelector"):
            yield invalid("spec.scopes", None, "field is immutable")


def _amounts(hard: Json, field: str) -> Iterator[FieldError]:
    for name, value in hard.items():
        path = f"{field}[{name}]"
        if not is_counted(name):
            yield forbidden(
                path, "the sandbox keeps quotas of pods, cpu, memory, extended resources and resource claims only"
            )
        try:
            if int(Quantity.of(value)) < 0:
                yield invalid(path, value, "must be greater than or equal to 0")
        except QuantityError:
            yield invalid(path, value, "must be a quantity")
