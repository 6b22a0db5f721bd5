"""Decides, and says of each gang that waits why it cannot start: as a certificate, with a proof where there is one.

A proof is first looked for in the snapshot alone. Where there is none, what the decision gives to others or holds for them comes
in as a premise, which the certificate names. What is proven is that the gang does not start *now*, with nothing evicted:
whether evicting others would be lawful is the queues' policy, which the reason explains and no certificate proves.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from fairlead.api import certificate as form
from fairlead.engine.allocator.requests import InvalidClaimError
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.inventory.mig_share import mig_share
from fairlead.engine.placement.topology import parse
from fairlead.engine.plan.decide import Decision
from fairlead.engine.plan.session import Session
from fairlead.engine.prove.places import PlaceProof
from fairlead.engine.prove.premises import Premises
from fairlead.engine.queues.tree import Queue
from fairlead.engine.types.reasons import Code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairlead.engine.inventory.device import Device
    from fairlead.engine.queues.gangs import PendingGang
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.amounts import Amount
    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.plan import Waiting

_FIELD = re.compile(
    r"spec\.devices\.(?P<request>requests\[(?P<number>\d+)\])"
    r"(\.exactly|\.firstAvailable\[(?P<sub>\d+)\])?"
    r"(\.(?P<field>deviceClassName|allocationMode|count|selectors)|:)"
)
_CONSTRAINT = re.compile(r"spec\.devices\.(constraints\[\d+\])")
_FAULTS = {
    Code.UNKNOWN_QUEUE: ("Unknown", "None"),
    Code.QUEUE_NOT_LEAF: ("NotLeaf",),
    Code.QUEUE_NOT_FOR_NAMESPACE: ("Namespace",),
}


class Prover:
    """Of one decision. `plan` is the decision's; the tables must not change before the last certificate is made."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self._snapshot = snapshot
        self._decision = Decision(Session(snapshot, now))
        self.plan = self._decision.run()
        self._waiting = {waiting.id: waiting for waiting in self.plan.waiting}
        self._gangs = {gang.id: gang for gang in snapshot.gangs}
        self._shares = {flavor.name for flavor in snapshot.flavors if flavor.measure == "Share"}

    @cached_property
    def _static_mig(self) -> bool:
        """Whether there are MIG devices whose share is not a part of published counters: the verifier knows no other."""
        pools = self._snapshot.inventory.pools_unordered()
        devices = (device for pool in pools for device in pool.devices.values())
        return any(not device.counter_consumption and mig_share(device) is not None for device in devices)

    def certificate(self, gang_id: str, digest: str) -> form.Certificate:
        """Of a gang of `plan.waiting`; `digest` is that of the facts. Raises KeyError for another."""
        waiting, gang = self._waiting[gang_id], self._gangs[gang_id]
        alone = self._because(gang, waiting, Ledger(), {}, ())
        if alone is not None:
            return form.Certificate(gang=gang_id, uid=gang.uid, snapshot=digest, because=alone)
        premises = Premises(self._decision, gang_id)
        with premises.lent():
            ledger = self._decision.session.statement.ledger
            found = self._because(gang, waiting, ledger, premises.taken_by, tuple(premises.given))
        if found is None:
            code = form.NotProven(code=str(waiting.reason.code))
            return form.Certificate(gang=gang_id, uid=gang.uid, snapshot=digest, because=code)
        given = tuple(premises.given)
        return form.Certificate(gang=gang_id, uid=gang.uid, snapshot=digest, given=given, because=found)

    def _because(
        self,
        gang: GangRequest,
        waiting: Waiting,
        ledger: Ledger,
        taken_by: Mapping[Device, str],
        given: tuple[form.Given, ...],
    ) -> form.Because | None:
        code = waiting.reason.code
        if code in _FAULTS:
            fault = _FAULTS[code][0 if gang.queue else -1]
            return form.QueueRefuses(queue=gang.queue or None, fault=fault)
        found = self._own(gang, waiting, ledger, taken_by, given)
        return self._behind(gang, ledger, taken_by, given) if found is None and code is Code.BEHIND_HEAD else found

    def _own(
        self,
        gang: GangRequest,
        waiting: Waiting,
        ledger: Ledger,
        taken_by: Mapping[Device, str],
        given: tuple[form.Given, ...],
    ) -> form.Place | form.Gathering | form.Invalid | form.Limit | form.Quota | form.ClaimTaken | None:
        """What keeps the gang itself from starting, whatever others of its queue do."""
        present = len(gang.members) + len(gang.placed_nodes)
        if present < gang.size:
            return form.Gathering(present=present, size=gang.size)
        if waiting.reason.code is Code.INVALID:
            return self._invalid(gang)
        for each in given:
            shared = [claim.key for claim in gang.claims if claim.key in each.claims and claim.allocation is None]
            if shared:
                return form.ClaimTaken(claim=shared[0], gang=each.gang)
        quota = next(self._quotas(gang), None)
        if quota is not None:
            return quota
        pending = self._decision.session.pending.by_id.get(gang.id)
        if pending is None:
            return None
        limit = next(self._limits(pending, {each.gang for each in given}), None)
        if limit is not None:
            return limit
        if any(pool.added for pool in self._snapshot.inventory.pools_unordered()):
            return None  # the verifier knows published counters only
        try:
            return PlaceProof(self._decision.session.cache, ledger, taken_by, gang, pending.units).proof()
        except InvalidClaimError:
            return self._invalid(gang)

    def _behind(
        self, gang: GangRequest, ledger: Ledger, taken_by: Mapping[Device, str], given: tuple[form.Given, ...]
    ) -> form.Behind | None:
        by_id = self._decision.session.pending.by_id
        pending = by_id[gang.id]
        before = [
            other
            for other in by_id.values()
            if other.queue is pending.queue and other.rank < pending.rank and other.id in self._waiting
        ]
        if not before:
            return None
        head = min(before, key=lambda other: other.rank)
        found = self._own(head.gang, self._waiting[head.id], ledger, taken_by, given)
        return None if found is None else form.Behind(queue=pending.queue.name, head=head.id, because=found)

    def _quotas(self, gang: GangRequest) -> Iterator[form.Quota]:
        for resource, asked in gang.quota_charge:
            for quota in self._snapshot.namespace_quotas:
                exceeded = quota.used + asked > quota.limit
                if (quota.namespace, quota.resource) == (gang.namespace, resource) and exceeded:
                    yield form.Quota(
                        quota=quota.name, resource=resource, used=quota.used, asked=asked, limit=quota.limit
                    )

    def _limits(self, pending: PendingGang, given: set[str]) -> Iterator[form.Limit]:
        """Bounds by quota on the way up that its least charge breaks. What is spent of a budget no object of the snapshot shows."""
        for queue in pending.queue.path():
            for flavor, charge in sorted(pending.charge.items()):
                bounds = queue.quota_bounds(flavor)
                used = self._used(queue, flavor, given)
                if not bounds or used + charge <= min(bounds) or (self._static_mig and flavor in self._shares):
                    continue
                limited = queue.quotas[flavor].limit is not None and queue.quotas[flavor].limit == min(bounds)
                yield form.Limit(
                    queue=queue.name,
                    flavor=flavor,
                    used=str(used),
                    charge=str(charge),
                    limit=str(min(bounds)),
                    bound="limit" if limited else "borrowingLimit",
                )

    def _used(self, queue: Queue, flavor: str, given: set[str]) -> Amount:
        """By running gangs, and those of `given` that are admitted or nominated; what they were charged in the decision."""
        session = self._decision.session
        used = queue.used.get(flavor, 0)  # as settled: with what is leaving and those admitted
        for gang_id, assumed in session.admitted.gangs.items():
            if gang_id not in given and queue in assumed.pending.queue.path():
                used -= assumed.charge.get(flavor, 0)
        return used

    def _invalid(self, gang: GangRequest) -> form.Invalid | None:
        try:
            parse(gang.topology)
        except InvalidClaimError:
            return form.Invalid(claim="", field="topology")
        known = {claim.key for claim in gang.claims}
        missing = next((key for member in gang.members for key in member.claims if key not in known), None)
        if missing is not None:
            return form.Invalid(claim=missing, field="missing")
        for claim in gang.claims:
            try:
                self._decision.session.cache.compiler.compile_spec(claim.spec)
            except InvalidClaimError as error:
                text = str(error)
                requests = claim.spec.devices.requests
                constraint, found = _CONSTRAINT.search(text), _FIELD.search(text)
                if constraint is not None:
                    return form.Invalid(claim=claim.key, field=constraint[1])
                if found is None:
                    return form.Invalid(claim=claim.key, field="requests") if "requests: " in text else None
                sub = (
                    ""
                    if found["sub"] is None
                    else f".{requests[int(found['number'])].first_available[int(found['sub'])].name}"
                )
                field = "" if found["field"] is None else f".{found['field']}"
                return form.Invalid(claim=claim.key, field=f"{found['request']}{sub}{field}")
        return None
