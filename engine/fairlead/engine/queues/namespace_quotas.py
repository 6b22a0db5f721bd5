"""ResourceQuotas of namespaces, during one decision: whether all the claims of a gang would be allowed.

The apiserver refuses a claim that exceeds a quota of its namespace. So a gang whose claims exceed one together is not started,
and no quota is held by a part of a gang. What a decision admits or nominates counts at once: two gangs that fit each alone, but not
together, do not start together. A quota is no reason to evict, and a gang that one stops counts as no demand of its queue.

Example: a quota of 8 devices, 0 used, gangs of 8 and 4. The first takes all; the second waits with "8 used + 4 asked > 8" until
the use of the quota falls.
Source: `CheckRequest` of k8s.io/apiserver/pkg/admission/plugin/resourcequota (1.36): used + asked <= hard, for each quota.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.types.reasons import Code, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.settings import NamespaceQuota


class NamespaceQuotas:
    """The quotas of namespaces in one decision."""

    def __init__(self, quotas: Iterable[NamespaceQuota]) -> None:
        self._quotas: dict[tuple[str, str], list[NamespaceQuota]] = {}  # by namespace and resource
        for quota in quotas:
            self._quotas.setdefault((quota.namespace, quota.resource), []).append(quota)
        self._charged: dict[str, GangRequest] = {}  # by gang id
        self._taken: dict[tuple[str, str], int] = {}  # by those

    def copy(self) -> NamespaceQuotas:
        """With what is charged now; later charges of the one do not count for the other."""
        new = NamespaceQuotas(())
        new._quotas, new._charged, new._taken = self._quotas, dict(self._charged), dict(self._taken)
        return new

    def shortage(self, gang: GangRequest) -> Reason | None:
        """Why the gang may not start now: the first quota that it would exceed, those first that it exceeds by itself."""
        if not gang.quota_charge or gang.id in self._charged:
            return None
        broken = [
            (quota, asked)
            for resource, asked in gang.quota_charge
            for quota in self._quotas.get((gang.namespace, resource), ())
            if self._used(quota) + asked > quota.limit
        ]
        if not broken:
            return None
        first = min(broken, key=lambda each: (each[1] <= each[0].limit, each[0].name, each[0].resource))
        return self._reason(*first)

    def beyond(self, gang: GangRequest) -> bool:
        """Whether it asks by itself for more than the whole of a quota."""
        return any(
            asked > quota.limit
            for resource, asked in gang.quota_charge
            for quota in self._quotas.get((gang.namespace, resource), ())
        )

    def charge(self, gang: GangRequest) -> None:
        """The gang starts, or is nominated."""
        if gang.quota_charge and gang.id not in self._charged:
            self._charged[gang.id] = gang
            self._count(gang, 1)

    def withdraw(self, gang_id: str) -> None:
        """As if it had not been charged."""
        gang = self._charged.pop(gang_id, None)
        if gang is not None:
            self._count(gang, -1)

    def _count(self, gang: GangRequest, times: int) -> None:
        for resource, asked in gang.quota_charge:
            key = (gang.namespace, resource)
            self._taken[key] = self._taken.get(key, 0) + asked * times

    def _used(self, quota: NamespaceQuota) -> int:
        return quota.used + self._taken.get((quota.namespace, quota.resource), 0)

    def _reason(self, quota: NamespaceQuota, asked: int) -> Reason:
        fits = asked <= quota.limit
        cure = f"raise spec.hard[{quota.resource}] of ResourceQuota {quota.namespace}/{quota.name}"
        return Reason(
            code=Code.OVER_QUOTA,
            message=f"ResourceQuota {quota.namespace}/{quota.name} does not allow all claims of the gang: {quota.resource}: "
            f"{self._used(quota)} used + {asked} asked > {quota.limit}",
            could_ever_fit=None if fits else False,
            advice=f"wait until others of the namespace end, or {cure}"
            if fits
            else f"it asks for more than the whole quota: {cure}, or ask for less",
        )
