"""ResourceQuota. One that the sandbox would not keep is refused, where a real apiserver takes it.

Source: pkg/apis/core/validation, `ValidateResourceQuota` (1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.sandbox.apiserver.kinds.base import Context
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.errors import FieldError, forbidden, invalid
from fairlead.sandbox.apiserver.kinds.request import Json
from fairlead.sandbox.quota_usage import is_counted


class ResourceQuotaStrategy(BuiltIn):
    model = "V1ResourceQuota"

    def validate(self, obj: Json, context: Context) -> Iterable[FieldError]:
        spec = obj.get("spec") or {}
        yield from _amounts(spec.get("hard") or {}, "spec.hard")
        for field in ("scopes", "scopeSelector"):
            if spec.get(field):
                yield forbidden(f"spec.{field}", "the sandbox keeps no quotas with scopes")


def _amounts(hard: Json, field: str) -> Iterator[FieldError]:
    for name, value in hard.items():
        path = f"{field}[{name}]"
        if not is_counted(name):
            yield forbidden(path, "the sandbox keeps quotas of pods, extended resources and resource claims only")
        try:
            if int(Quantity.of(value)) < 0:
                yield invalid(path, value, "must be greater than or equal to 0")
        except QuantityError:
            yield invalid(path, value, "must be a quantity")
