"""The ResourceQuotas that limit claims, and what each of their namespaces uses, kept current from quotas and claims.

`status.used` follows a created claim by a watch event of its own, so it may lag behind the claims that this controller has made:
what is in use is the larger of it and of what the known claims add up to. After a deletion it is the apiserver's view that counts,
and that falls when the quota controller has counted anew. Namespaces without such quotas cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from fairlead.controller.gangs.claims import quotas
from fairlead.controller.gangs.claims.quotas import Charge, ClaimCharge, Classes
from fairlead.engine.types.settings import NamespaceQuota
from fairlead.kube import resource
from fairlead.kube.resources import Raw

Claims = Callable[[], Iterable[resource.ResourceClaim]]
_NONE: frozenset[str] = frozenset()


class _Namespace:
    """One namespace with quotas on claims."""

    def __init__(self) -> None:
        self.quotas: dict[str, tuple[NamespaceQuota, ...]] = {}  # by name
        self.limited: frozenset[str] = _NONE
        self.created: Charge = {}  # by all its claims
        self.allocated: Charge = {}  # by legacy claims with devices
        self._claims: dict[str, tuple[ClaimCharge, bool]] = {}  # by UID; whether it has devices

    def set_claim(self, claim: resource.ResourceClaim, classes: Classes) -> None:
        self.drop_claim(claim.metadata.uid)
        charge = quotas.claim_charge(claim.spec, claim.metadata.annotations, classes)
        self._claims[claim.metadata.uid] = (charge, claim.status.allocation is not None)
        self._count(claim.metadata.uid, 1)

    def drop_claim(self, uid: str) -> None:
        if uid in self._claims:
            self._count(uid, -1)
            del self._claims[uid]

    def _count(self, uid: str, times: int) -> None:
        charge, allocated = self._claims[uid]
        quotas.add(self.created, charge.created, times)
        if allocated:
            quotas.add(self.allocated, charge.allocated, times)

    def now(self, writing: Mapping[str, int]) -> Iterable[NamespaceQuota]:
        for quota in (each for _, found in sorted(self.quotas.items()) for each in found):
            name = quota.resource
            used = max(quota.used, self.created.get(name, 0)) + self.allocated.get(name, 0) + writing.get(name, 0)
            yield replace(quota, used=used)


class NamespaceQuotaTable:
    def __init__(self, claims: Claims, classes: Classes) -> None:
        """`claims` gives all claims that are known; `classes` are kept current by others."""
        self._claims = claims
        self._classes = classes
        self._namespaces: dict[str, _Namespace] = {}

    def limited(self, namespace: str) -> frozenset[str]:
        """The resources that quotas of the namespace limit."""
        found = self._namespaces.get(namespace)
        return found.limited if found is not None else _NONE

    def set_quota(self, key: str, quota: Raw | None) -> tuple[bool, bool]:
        """As watched; None: deleted. Returns whether a waiting gang may fit now, and whether other resources are limited."""
        namespace, _, name = key.partition("/")
        limits = quotas.limits(quota) if quota is not None else ()
        known = self._namespaces.get(namespace)
        if known is None and not limits:
            return False, False
        if known is None:
            known = self._namespaces[namespace] = _Namespace()
            self._read_claims(namespace, known)
        before = known.quotas.pop(name, ())
        if limits:
            known.quotas[name] = limits
        limited = frozenset(each.resource for found in known.quotas.values() for each in found)
        changed, known.limited = limited != known.limited, limited
        if not known.quotas:
            del self._namespaces[namespace]
        left = {each.resource: each.limit - each.used for each in limits}
        return any(each.limit - each.used < left.get(each.resource, each.limit) for each in before), changed

    def set_claim(self, old: resource.ResourceClaim | None, new: resource.ResourceClaim | None) -> bool:
        """As watched. Returns whether it is gone, and with it what it counted for."""
        seen = new or old
        known = self._namespaces.get(seen.metadata.namespace) if seen is not None else None
        if known is None:
            return False
        if new is not None:
            known.set_claim(new, self._classes)
        elif old is not None:
            known.drop_claim(old.metadata.uid)
        return new is None

    def classes_changed(self) -> None:
        """Which extended resources classes stand for has changed: count anew."""
        for namespace, known in list(self._namespaces.items()):
            counted = self._namespaces[namespace] = _Namespace()
            counted.quotas, counted.limited = known.quotas, known.limited
            self._read_claims(namespace, counted)

    def now(self, writing: Mapping[str, Mapping[str, int]]) -> tuple[NamespaceQuota, ...]:
        """All of them with what is in use; `writing`: by namespace, what admissions under way still add."""
        return tuple(
            quota
            for namespace, known in sorted(self._namespaces.items())
            for quota in known.now(writing.get(namespace, {}))
        )

    def _read_claims(self, namespace: str, into: _Namespace) -> None:
        for claim in self._claims():
            if claim.metadata.namespace == namespace:
                into.set_claim(claim, self._classes)
