"""ResourceQuota: the last step of admission. What a new object counts for is added to `status.used`, or it is refused.

As in the real one, `status` decides: a quota counts from when its controller has written `status.hard`, and what was added for
an object that was not stored after all (its name exists) stays until the controller counts again.
Source: k8s.io/apiserver/pkg/admission/plugin/resourcequota, `CheckRequest`, `checkQuotas` (1.36.2). What an object counts for is
in `quota_usage`. Updates change no count: the specs of claims are immutable, and pods are not resized here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from fairlead.sandbox.apiserver.jsonvalue import clone
from fairlead.sandbox.apiserver.kinds.attributes import Attributes
from fairlead.sandbox.apiserver.kinds.base import Services
from fairlead.sandbox.apiserver.kinds.errors import quote
from fairlead.sandbox.apiserver.kinds.request import Json, Rejected
from fairlead.sandbox.quota_usage import concerns, extended_resources, selects, shown, units, unspecified, usage

Store = Callable[[Json], None]
"""Replaces a ResourceQuota."""


class Quotas:
    def __init__(self, services: Services, store: Store) -> None:
        self._services = services
        self._store = store

    def charge(self, attributes: Attributes) -> None:
        """Raises Rejected where a quota would be exceeded; a dry run changes no quota."""
        if attributes.operation != "CREATE" or attributes.subresource or attributes.object is None:
            return
        quotas = self._services.list("", "resourcequotas", attributes.namespace) if attributes.namespace else ()
        if not quotas:
            return
        resource = str(attributes.kind.group_resource)
        extended = extended_resources(list(self._services.list("resource.k8s.io", "deviceclasses")))
        asked = usage(resource, attributes.object, extended, now_s=self._services.now().timestamp())
        changed: list[Json] = []
        for quota in quotas:
            status = quota.get("status") or {}
            hard, used = status.get("hard") or {}, status.get("used") or {}
            names = sorted(name for name in hard if concerns(name, resource, extended))
            if not names or not selects(quota, resource, attributes.object):
                continue
            missing = unspecified(names, attributes.object) if resource == "pods" else {}
            if missing:
                said = "; ".join(f"{name} for: {','.join(silent)}" for name, silent in sorted(missing.items()))
                raise _forbidden(attributes, f"failed quota: {quota['metadata']['name']}: must specify {said}")
            unknown = [name for name in names if name not in used]
            if unknown:
                raise _forbidden(
                    attributes,
                    f"status unknown for quota: {quota['metadata']['name']}, resources: {','.join(names)}",
                )
            more = {name: asked[name] for name in names if asked.get(name)}
            over = [name for name in more if units(name, used[name]) + more[name] > units(name, hard[name])]
            if over:
                raise _forbidden(
                    attributes,
                    f"exceeded quota: {quota['metadata']['name']}, requested: {_shown(_quantities(more), over)}, "
                    f"used: {_shown(used, over)}, limited: {_shown(hard, over)}",
                )
            if more:
                total = _quantities({name: units(name, used[name]) + value for name, value in more.items()})
                changed.append({**clone(quota), "status": {**status, "used": {**used, **total}}})
        if not attributes.dry_run:
            for quota in changed:
                self._store(quota)


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: shown(name, value) for name, value in amounts.items()}


def _shown(amounts: Mapping[str, object], names: Iterable[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names)


def _forbidden(attributes: Attributes, why: str) -> Rejected:
    kind = attributes.kind
    details = {"name": attributes.name, "group": kind.group, "kind": kind.plural}
    text = f"{kind.group_resource} {quote(attributes.name)} is forbidden: {why}"
    return Rejected(403, "Forbidden", text, {key: value for key, value in details.items() if value})
