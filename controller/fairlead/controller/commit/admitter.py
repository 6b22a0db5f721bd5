"""Carries out an admission, and its recovery: completes, undoes or rolls it back, as `gangs.recovery` says. Decides nothing.

From the decision on its devices and nodes are assumed taken, so that the next decision counts what this one gave though the informers
do not show it yet. The assumption ends when the gang is committed, or known to be undone. Undo and rollback start the gang's backoff;
a rollback also notes the nodes to avoid and the gang's age.
"""

from __future__ import annotations

import logging

from fairlead.controller.book.book import GangState
from fairlead.controller.commit.committer import Committer
from fairlead.controller.commit.gang_tasks import GangBackoffs
from fairlead.controller.commit.nominated_nodes import NominatedNodes
from fairlead.controller.commit.part import Part, Shared
from fairlead.controller.gangs.admission.recovery import Complete, RollBack, Step, Undo
from fairlead.controller.gangs.evictions.past_evictions import PastEviction, roll_back_of
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.types.plan import Admission, ClaimAllocation
from fairlead.kube import resource
from fairlead.kube.objects import ObjectMeta

log = logging.getLogger(__name__)

Span = tuple[float, float]  # of the clock: begin and end
EVENTS_MAX = 64  # pods of a gang that get an event each when it is admitted
ROLLED_BACK_EVENTS_MAX = 16  # and when it is rolled back
BARE = "the pod is deleted, and has no controller that makes another: apply it again"
"""What the event says of a pod that its end takes out of the cluster: events stay when their pod is gone."""


class Admitter(Part):
    def __init__(self, shared: Shared, backoffs: GangBackoffs, nominated: NominatedNodes) -> None:
        super().__init__(shared)
        self._committer = Committer(shared)
        self._tables = shared.caches.tables
        self._backoffs = backoffs
        self._nominated = nominated

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

    # -- recovery --------------------------------------------------------------------------------------------------

    async def recover(self, gang: Gang, step: Step) -> None:
        self._metrics.recoveries.labels(type(step).__name__).inc()
        if isinstance(step, Complete):
            await self._complete(gang, step)
        elif isinstance(step, Undo):
            await self._undo(gang, step)
        else:
            await self._roll_back(gang, step)

    def no_step(self, gang: Gang) -> None:
        """The informers show the end of the gang's admission: nothing is assumed any more, and a bound gang is healthy."""
        self.forget(gang.id)
        if gang.released and gang.placed >= gang.size and all(member.bound for member in gang.released):
            self._book[gang.id].backoff = None
            self._backoffs.refusals.reset(gang)

    async def _complete(self, gang: Gang, step: Complete) -> None:
        log.info("gang %s/%s: completing its admission: %d pods to release", *gang.id, len(step.members))
        outcome = await self._committer.release(step.members, {})
        if not outcome.done:
            self._backoffs.note_failure(gang.id, outcome.why, now=self._wall())

    async def _undo(self, gang: Gang, step: Undo) -> None:
        log.warning("gang %s/%s: undoing the admission of %d pods: %s", *gang.id, len(step.members), step.why)
        if await self._committer.undo(step.members, step.why):
            self.forget(gang.id)
        self._backoffs.note_failure(gang.id, step.why, now=self._wall())

    async def _roll_back(self, gang: Gang, step: RollBack) -> None:
        log.warning("gang %s/%s: rolled back: %s", *gang.id, step.why)
        self._events.gang(gang.id, "RolledBack", step.why, warning=True)
        for member in step.members[:ROLLED_BACK_EVENTS_MAX]:
            self._events.pod(
                member.pod, "RolledBack", step.why if member.owner else f"{step.why}; {BARE}", warning=True
            )
        why = f"rolled back: {step.why}"
        self._backoffs.note_failure(gang.id, why, now=self._wall(), nodes=step.nodes, created=gang.created)
        self._backoffs.refusals.note(gang, step.refused, self._wall())
        await self._committer.roll_back(gang, step.members, self._past(gang, step))

    def _past(self, gang: Gang, step: RollBack) -> PastEviction | None:
        """What the next leader is to know: where kube-scheduler refused a gang that goes whole."""
        now = self._wall()
        refused = self._backoffs.refusals.told(gang, now) if step.refused else ()
        if not refused or len(step.members) < len(gang.released):
            return None
        queued_since = min(self._backoffs.get(gang.id).queued_since or gang.created, gang.created)
        return roll_back_of(gang, step.members, step.why, refused, at=now, queued_since=queued_since)


def _allocated_claim(claim_allocation: ClaimAllocation) -> resource.ResourceClaim:
    """The claim as the inventory should see it while it is being written; its UID is the key of the ClaimAllocation."""
    return resource.ResourceClaim(
        metadata=ObjectMeta(uid=claim_allocation.key, namespace=claim_allocation.namespace, name=claim_allocation.name),
        status=resource.ResourceClaimStatus(allocation=claim_allocation.allocation),
    )
