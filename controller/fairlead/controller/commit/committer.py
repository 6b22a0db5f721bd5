"""The gang protocol: a gang's claims written and its pods released, or none of it.

Order: claims created (and named in the pods' status, unless their spec names them), all allocations written, one pod released,
then the others: those without devices first, since nothing but their release says that they were given a place. A failure before the first release undoes everything, and deletes the claims that were made. After it the rest is completed, by `gangs.recovery` should this process end.
Chooses nothing: devices and nodes are the plan's.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from fairlead.api import names
from fairlead.controller.commit.part import Part
from fairlead.controller.commit.writes import CONFLICTS_MAX, GivenUpError, all_done, outcomes
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.claims.allocations import known_allocation_time
from fairlead.controller.gangs.evictions.past_evictions import PastEviction
from fairlead.controller.gangs.membership.gangs import Gang, gang_spec
from fairlead.controller.gangs.membership.members import Member, PodClaim
from fairlead.engine.types.plan import Admission, ClaimAllocation
from fairlead.kube import core, errors, resource, timestamps
from fairlead.kube.objects import to_dict

log = logging.getLogger(__name__)

Claims = dict[str, resource.ResourceClaim]  # by the key of their ClaimAllocation
NO_ANNOTATIONS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`released` pods are on their way. Not done and none released: everything is undone."""

    done: bool
    released: int = 0
    why: str = ""
    written_s: float | None = (
        None  # unix seconds: when all claims were written; None where they were not, or had been before
    )


class Committer(Part):
    async def admit(self, gang: Gang, admission: Admission, annotations: Mapping[str, str] = NO_ANNOTATIONS) -> Outcome:
        """`annotations` are for the claims that it makes. Raises LeaseLostError; everything else is an Outcome."""
        members = {member.uid: member for member in gang.members}
        placed = [(members[assigned.pod.uid], assigned.node) for assigned in admission.assignments]
        placed.sort(key=lambda each: not each[0].without_devices)
        released = [
            member.pod for member, _ in placed if not self._caches.latest(member.pod).has_gate(names.ADMISSION_GATE)
        ]
        if released:  # its claims are in use: nothing of them is to be undone
            return Outcome(done=False, why=f"pod {released[0].metadata.key} is released already")
        written: Claims = {}
        try:
            await all_done(self._find_claims(member, written, annotations) for member, _ in placed)
            await all_done(self._allocate(written, allocation) for allocation in admission.claims)
        except (GivenUpError, errors.ApiError) as error:
            log.warning("gang %s: not admitted: %s; undoing what was written", admission.id, error)
            await self._undo_claims(written, admission, placed)
            return Outcome(done=False, why=str(error))
        written_s = self._wall()
        outcome = replace(await self.release(placed, written), written_s=written_s)
        if outcome.done or outcome.released:
            return outcome
        # Only the first release was tried. It may have arrived, or still be on its way.
        if not await self._writer.ensure_gated(placed[0][0].pod, outcome.why):
            return replace(outcome, released=1)
        log.warning("gang %s: not released: %s; undoing what was written", admission.id, outcome.why)
        await self._undo_claims(written, admission, placed)
        return outcome

    async def release(
        self, placed: Sequence[tuple[Member, str]], written: Mapping[str, resource.ResourceClaim]
    ) -> Outcome:
        """Releases members whose claims are written, in the order of `placed`: one, and when that succeeded the others.

        None with devices before all those without. `written` are their claims where they are newer than the members'.
        """
        pods = [self._caches.latest(member.pod) for member, _ in placed]

        def release(index: int) -> Awaitable[bool]:
            member, node = placed[index]
            found = _claims_of(member, written)
            named = {entry: claim.metadata.name for entry, claim in found.items()}
            untimed = member.without_devices or any(
                known_allocation_time(claim, ()) is None for claim in found.values()
            )
            return self._writer.release_pod(pods[index], node, named, note_time=untimed)

        without = sum(member.without_devices for member, _ in placed)
        results: list[bool | Exception] = []
        for end in sorted({1, max(1, without), len(placed)}):
            if all(result is True for result in results):
                results += await outcomes(map(release, range(len(results), end)))
        released = sum(result is True for result in results)
        problems = [
            str(result) if result else f"pod {member.pod.metadata.key} is gone"
            for (member, _), result in zip(placed, results, strict=False)
            if result is not True
        ]
        return Outcome(done=not problems, released=released, why="; ".join(problems[:4]))

    async def undo(self, members: Sequence[Member], why: str) -> bool:
        """Removes what was written for gated members. Returns when that is certain; False when one was released."""
        if not all(await all_done(self._writer.ensure_gated(member.pod, why) for member in members)):
            return False
        pods: dict[str, list[str]] = {}
        reserved: Claims = {}
        for member in members:
            for pod_claim in member.claims:
                if pod_claim.claim is not None and pod_claim.reserved_for(member.uid):
                    reserved[pod_claim.key] = pod_claim.claim
                    pods.setdefault(pod_claim.key, []).append(member.uid)
        await all_done(
            self._writer.deallocate(claim, pods[key], keep_allocation=False) for key, claim in reserved.items()
        )
        await self._delete_made(members)
        return True

    async def roll_back(self, gang: Gang, members: Iterable[Member], past: PastEviction | None) -> None:
        """Evicts members of a gang that did not start; what budgets refuse now is tried again with the gang's next step.

        `past` is noted before: it tells the next leader which nodes were refused.
        """
        if past is not None:
            await self._writer.note_past_eviction(gang.id, past, gang_spec(gang))
        await all_done(self._writer.evict_late(member.pod) for member in members)

    # -- claims ----------------------------------------------------------------------------------------------------

    async def _find_claims(self, member: Member, written: Claims, annotations: Mapping[str, str]) -> None:
        """Adds the member's claims to `written`: created where missing, and named in the pod's status."""
        pod = self._caches.latest(member.pod)
        for _ in range(CONFLICTS_MAX):
            if pod.metadata.deletion_timestamp:
                raise GivenUpError(f"pod {pod.metadata.key} is being deleted")
            unnamed: dict[str, str] = {}
            for pod_claim in member.claims:
                claim = await self._find_or_create(pod, pod_claim, annotations)
                written[pod_claim.key] = claim
                if claims.names_used(pod).get(pod_claim.name) != claim.metadata.name:
                    unnamed[pod_claim.name] = claim.metadata.name
            if not unnamed:
                return
            try:
                await self._writer.name_claims(pod, unnamed)
            except (errors.Conflict, errors.NotFound):
                now = await self._writer.read_pod(pod)
                if now is None:
                    raise GivenUpError(f"pod {pod.metadata.key} is gone") from None
                pod = now
            else:
                return
        raise GivenUpError(f"pod {pod.metadata.key} changed {CONFLICTS_MAX} times while its claims were named")

    async def _find_or_create(
        self, pod: core.Pod, pod_claim: PodClaim, annotations: Mapping[str, str]
    ) -> resource.ResourceClaim:
        use = next(use for use in pod.spec.resource_claims if use.name == pod_claim.name)
        if pod_claim.source is not None:
            made = pod_claim.claim and self._caches.lookup.claim(pod.metadata.namespace, pod_claim.source.claim)
            return made or await self._create(pod, pod_claim, pod_claim.source.template, annotations)
        if use.resource_claim_name:
            claim = self._caches.lookup.claim(pod.metadata.namespace, use.resource_claim_name)
            if claim is None or claim.metadata.uid != pod_claim.key:
                raise GivenUpError(f"ResourceClaim {pod.metadata.namespace}/{use.resource_claim_name} is gone")
            return claim
        named = claims.names_used(pod).get(pod_claim.name)
        if pod_claim.claim is not None and claims.owned_by_group(pod_claim.claim, pod):  # never made here
            made = self._caches.lookup.claim(pod.metadata.namespace, pod_claim.claim.metadata.name)
            if made is None or made.metadata.uid != pod_claim.key:
                raise GivenUpError(f"ResourceClaim {pod_claim.claim.metadata.key} of the pod's PodGroup is gone")
            return made
        in_use = claims.claim_in_use(pod, pod_claim.name, named, self._caches.lookup.claims_of(pod))
        if in_use is not None:
            return in_use
        return await self._create(pod, pod_claim, use.resource_claim_template_name, annotations)

    async def _create(
        self, pod: core.Pod, pod_claim: PodClaim, template: str | None, annotations: Mapping[str, str]
    ) -> resource.ResourceClaim:
        if pod_claim.template is None:
            raise GivenUpError(f"ResourceClaimTemplate {pod.metadata.namespace}/{template} is gone")
        return await self._writer.create_claim(pod, pod_claim.name, pod_claim.template, pod_claim.source, annotations)

    async def _allocate(self, written: Claims, claim_allocation: ClaimAllocation) -> None:
        allocation = None
        if not claim_allocation.already_allocated:
            now = timestamps.seconds(self._wall())
            allocation = to_dict(msgspec.structs.replace(claim_allocation.allocation, allocation_timestamp=now))
        written[claim_allocation.key] = await self._writer.allocate(
            written[claim_allocation.key], allocation, claim_allocation.reserved_for
        )

    async def _undo_claims(self, written: Claims, admission: Admission, placed: Sequence[tuple[Member, str]]) -> None:
        """Also of claims whose allocation was not reached or failed: that write may still be on its way."""
        await all_done(
            self._writer.deallocate(
                written[claim_allocation.key],
                [pod.uid for pod in claim_allocation.reserved_for],
                keep_allocation=claim_allocation.already_allocated,
            )
            for claim_allocation in admission.claims
            if claim_allocation.key in written
        )
        await self._delete_made([member for member, _ in placed])

    async def _delete_made(self, members: Iterable[Member]) -> None:
        """The claims that only an admission makes, also those whose creation may not have been answered."""
        await all_done(
            self._writer.delete_made(member.pod, pod_claim.name, pod_claim.source.claim)
            for member in members
            for pod_claim in member.claims
            if pod_claim.source is not None
        )


def _claims_of(member: Member, written: Mapping[str, resource.ResourceClaim]) -> dict[str, resource.ResourceClaim]:
    """By entry the member's claims as they were written last."""
    return {
        pod_claim.name: claim
        for pod_claim in member.claims
        if (claim := written.get(pod_claim.key) or pod_claim.claim) is not None
    }
