"""Carrying out one decision: a gang's claims written, then its pods released; or nothing of it.

Exists to hold the protocol's order in one place: claims made and named, all allocations written, one pod released, then
the others. A failure before that first release takes everything back; after it the rest is completed (by `recovery`,
should this process end). Chooses nothing: which devices and nodes is the plan's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fairlead.controller.commit.writer import Writer
from fairlead.controller.commit.writes import CONFLICTS_MAX, GivenUpError, LeaseLostError
from fairlead.controller.gangs import claims
from fairlead.controller.gangs.gangs import Gang
from fairlead.controller.gangs.members import Member, PodClaim
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.model import Admission, ClaimAllocation
from fairlead.kube import core, errors, resource, timestamps
from fairlead.kube.limits import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`released` pods are on their way. Not done and none released: all was taken back."""

    done: bool
    released: int = 0
    why: str = ""


class Committer:
    def __init__(self, writer: Writer, state: Caches, *, wall: Clock) -> None:
        self._writer = writer
        self._state = state
        self._wall = wall

    async def admit(self, gang: Gang, admission: Admission) -> Outcome:
        """Raises LeaseLostError; everything else is an Outcome."""
        members = {member.uid: member for member in gang.members}
        chosen = [(members[assigned.pod.uid], assigned.node) for assigned in admission.assignments]
        made: dict[str, resource.ResourceClaim] = {}
        try:
            for settled in await _all(self._settle(member) for member, _ in chosen):
                made |= settled
            await _all(self._allocate(made, planned) for planned in admission.claims)
        except (GivenUpError, errors.ApiError) as error:
            why = str(error)
            log.warning("gang %s: not admitted: %s; taking back what was written", admission.id, why)
            await self._take_back(made, admission)
            return Outcome(done=False, why=why)
        outcome = await self.release(chosen, made)
        if outcome.done or outcome.released:
            return outcome
        # Only the first was tried. Its release may have arrived, or still be on its way.
        if not await self._writer.hold_back(chosen[0][0].pod, outcome.why):
            return Outcome(done=False, released=1, why=outcome.why)
        log.warning("gang %s: not released: %s; taking back what was written", admission.id, outcome.why)
        await self._take_back(made, admission)
        return outcome

    async def release(
        self, chosen: Sequence[tuple[Member, str]], made: Mapping[str, resource.ResourceClaim] | None = None
    ) -> Outcome:
        """Lets members go whose claims are written: one, and when that worked the others."""
        expected = [
            {
                entry.name: claim.metadata.name
                for entry in member.entries
                if (claim := (made or {}).get(entry.key) or entry.claim) is not None
            }
            for member, _ in chosen
        ]
        latest = [self._latest(member.pod) for member, _ in chosen]
        released = 0
        problems: list[str] = []
        for batch in (slice(0, 1), slice(1, None)):
            results = await _settled(
                self._writer.release_pod(pod, node, expect)
                for pod, (_, node), expect in list(zip(latest, chosen, expected, strict=True))[batch]
            )
            for (member, _), result in zip(chosen[batch], results, strict=True):
                if result is True:
                    released += 1
                else:
                    problems.append(str(result) if result else f"pod {member.pod.metadata.key} is gone")
            if problems and not released:
                break
        return Outcome(done=not problems, released=released, why="; ".join(problems[:4]))

    async def undo(self, members: Sequence[Member], why: str) -> bool:
        """Takes back what was written for gated members. Returns when that is certain; false when one was released."""
        if not all(await _all(self._writer.hold_back(member.pod, why) for member in members)):
            return False
        pods: dict[str, list[str]] = {}
        written: dict[str, resource.ResourceClaim] = {}
        for member in members:
            for entry in member.entries:
                if entry.claim is not None and (entry.reserved_for(member.uid)):
                    written[entry.key] = entry.claim
                    pods.setdefault(entry.key, []).append(member.uid)
        await _all(self._writer.take_back(claim, pods[key], keep_allocation=False) for key, claim in written.items())
        return True

    async def roll_back(self, members: Iterable[Member]) -> bool:
        """Evicts; true when every pod is on its way out."""
        return all(await _all(self._writer.evict(member.pod) for member in members))

    # -- claims ----------------------------------------------------------------------------------------------------

    async def _settle(self, member: Member) -> dict[str, resource.ResourceClaim]:
        """The member's claims by the key they were planned under: made where missing, and named in its status."""
        pod = self._latest(member.pod)
        for _ in range(CONFLICTS_MAX):
            if pod.metadata.deletion_timestamp:
                raise GivenUpError(f"pod {pod.metadata.key} is being deleted")
            found: dict[str, resource.ResourceClaim] = {}
            unnamed: dict[str, str] = {}
            for entry in member.entries:
                claim = await self._claim_of(pod, entry)
                found[entry.key] = claim
                if claims.names_used(pod).get(entry.name) != claim.metadata.name:
                    unnamed[entry.name] = claim.metadata.name
            if not unnamed:
                return found
            try:
                await self._writer.name_claims(pod, unnamed)
            except (errors.Conflict, errors.NotFound):
                now = await self._writer.read_pod(pod)
                if now is None:
                    raise GivenUpError(f"pod {pod.metadata.key} is gone") from None
                pod = now
            else:
                return found
        raise GivenUpError(f"pod {pod.metadata.key} changed {CONFLICTS_MAX} times while its claims were named")

    async def _claim_of(self, pod: core.Pod, entry: PodClaim) -> resource.ResourceClaim:
        use = next(use for use in pod.spec.resource_claims if use.name == entry.name)
        if use.resource_claim_name:
            claim = self._state.claim(pod.metadata.namespace, use.resource_claim_name)
            if claim is None or claim.metadata.uid != entry.key:
                raise GivenUpError(f"ResourceClaim {pod.metadata.namespace}/{use.resource_claim_name} is gone")
            return claim
        named = claims.names_used(pod).get(entry.name)
        settled = claims.settled(pod, entry.name, named, self._state.claims_of(pod.metadata.uid))
        if settled is not None:
            return settled
        if entry.template is None:
            template = f"{pod.metadata.namespace}/{use.resource_claim_template_name}"
            raise GivenUpError(f"ResourceClaimTemplate {template} is gone")
        return await self._writer.make_claim(pod, entry.name, entry.template)

    async def _allocate(self, made: dict[str, resource.ResourceClaim], planned: ClaimAllocation) -> None:
        allocation = None
        if not planned.already_allocated:
            allocation = planned.allocation.to_json(timestamp=timestamps.seconds(self._wall()))
        made[planned.key] = await self._writer.allocate(made[planned.key], allocation, planned.reserved_for)

    async def _take_back(self, made: Mapping[str, resource.ResourceClaim], admission: Admission) -> None:
        """Claims that were made but not reached are taken back too: a write of theirs may still be on its way."""
        await _all(
            self._writer.take_back(
                made[planned.key],
                [pod.uid for pod in planned.reserved_for],
                keep_allocation=planned.already_allocated,
            )
            for planned in admission.claims
            if planned.key in made
        )

    def _latest(self, pod: core.Pod) -> core.Pod:
        known = self._state.pods.get(pod.metadata.key)
        return known if known is not None and known.metadata.uid == pod.metadata.uid else pod


async def _settled(steps: Iterable[Awaitable[T]]) -> list[T | Exception]:
    """Every step to its end, whatever the others do: a write must not be left half made. LeaseLostError is raised."""
    results = await asyncio.gather(*steps, return_exceptions=True)
    for result in results:
        if isinstance(result, LeaseLostError) or (
            isinstance(result, BaseException) and not isinstance(result, GivenUpError | errors.ApiError)
        ):
            raise result
    return [result for result in results if not isinstance(result, BaseException) or isinstance(result, Exception)]


async def _all(steps: Iterable[Awaitable[T]]) -> list[T]:
    """Every step to its end; then the first failure is raised."""
    results = await _settled(steps)
    good: list[T] = []
    for result in results:
        if isinstance(result, Exception):
            raise result
        good.append(result)
    return good
