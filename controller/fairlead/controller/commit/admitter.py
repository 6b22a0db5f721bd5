"""Carries out an admission: its devices and nodes assumed taken, the gang committed, the assumption ended.

While the commit runs, the next decision counts what this one gave though the informers do not show it yet. Decides nothing.
"""

from __future__ import annotations

import logging

from fairlead.controller.book.book import Book
from fairlead.controller.book.gang_state import GangState
from fairlead.controller.commit.committer import Committer
from fairlead.controller.commit.nominated_nodes import NominatedNodes
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.report.telemetry import Telemetry
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.plan import Admission, ClaimAllocation
from fairlead.kube import resource
from fairlead.kube.objects import ObjectMeta
from fairlead.kube.timing import Time

log = logging.getLogger(__name__)

Span = tuple[float, float]  # of the clock: begin and end
EVENTS_MAX = 64  # pods of a gang that get an event each


class Admitter:
    def __init__(
        self,
        committer: Committer,
        caches: Caches,
        book: Book,
        nominated: NominatedNodes,
        telemetry: Telemetry,
        time: Time,
    ) -> None:
        self._committer = committer
        self._caches = caches
        self._book = book
        self._tables = caches.tables
        self._events, self._metrics, self._traces = telemetry.events, telemetry.metrics, telemetry.traces
        self._nominated = nominated
        self._clock = time.clock

    def assume(self, gang: Gang, admission: Admission, decided: Span) -> None:
        """From here on the admission's devices and nodes are taken. `decided`: when the decision was made."""
        pods = {member.uid: member.pod for member in gang.members}
        state = self._book[gang.id]
        state.assumed = admission
        self._traces.decided(gang, admission, state.waiting, decided)
        for claim_allocation in admission.claims:
            if not claim_allocation.already_allocated:
                self._tables.assume_claim(claim_allocation.key, _allocated_claim(claim_allocation))
        for assigned in admission.assignments:
            self._tables.assume_pod(pods[assigned.pod.uid], assigned.node)

    def forget(self, gang_id: GangId) -> None:
        """From here on the informers show what became of the admission."""
        admission = self._book.take(gang_id, GangState.assumed)
        if admission is None:
            return
        for claim_allocation in admission.claims:
            self._tables.forget_claim(claim_allocation.key)
        for assigned in admission.assignments:
            self._tables.forget_pod(assigned.pod.uid)

    async def admit(self, gang: Gang, admission: Admission) -> str:
        """Returns "" when all its pods are released, else why not.

        Raises LeaseLostError: then it is not certain what was written, and the assumption stays.
        """
        began, waited = self._clock(), self._waits(gang)
        await self._nominated.make_way(gang.id, {assigned.node for assigned in admission.assignments})
        outcome = await self._committer.admit(gang, admission, self._traces.annotations(gang))
        self.forget(gang.id)  # not reached on an error
        why = "" if outcome.done else outcome.why or "not released"
        self._traces.committed(gang.id, began=began, written_s=outcome.written_s, why=why)
        self._metrics.admissions.labels("admitted" if outcome.done else "failed").inc()
        if why:
            return why
        took_s = self._clock() - began
        self._metrics.commit_seconds.observe(took_s)
        log.info(
            "gang %s: admitted %d pods in queue %r in %.3f s",
            admission.id, len(admission.assignments), admission.queue, took_s,
        )  # fmt: skip
        if waited:
            self._record_events(gang, admission)
        return ""

    def _waits(self, gang: Gang) -> bool:
        """Whether it was reported as waiting: only then do its pods get an event when it waits no more."""
        raw = self._caches.gang_object(gang.id) or {}
        return (raw.get("status") or {}).get("phase") == "Waiting"

    def _record_events(self, gang: Gang, admission: Admission) -> None:
        members = {member.uid: member for member in gang.members}
        by_key = {claim_allocation.key: claim_allocation for claim_allocation in admission.claims}
        for assigned in admission.assignments[:EVENTS_MAX]:
            member = members[assigned.pod.uid]
            devices = [
                result.device
                for pod_claim in member.claims
                if pod_claim.key in by_key
                for result in by_key[pod_claim.key].allocation.devices.results
            ]
            what = f" with {', '.join(devices[:16])}" if devices else ""
            self._events.pod(member.pod, "Admitted", f"released to node {assigned.node}{what}")


def _allocated_claim(claim_allocation: ClaimAllocation) -> resource.ResourceClaim:
    """The claim as the inventory should see it while it is being written; its UID is the key of the ClaimAllocation."""
    return resource.ResourceClaim(
        metadata=ObjectMeta(uid=claim_allocation.key, namespace=claim_allocation.namespace, name=claim_allocation.name),
        status=resource.ResourceClaimStatus(allocation=claim_allocation.allocation),
    )
