"""Carries out recovery: completes, undoes or rolls back an admission, as `gangs.recovery` says.

Undo and rollback start the gang's backoff; a rollback also notes the nodes to avoid and the gang's age.
"""

from __future__ import annotations

import logging

from fairlead.controller.commit.admitter import Admitter
from fairlead.controller.commit.backoff import GangBackoffs
from fairlead.controller.commit.committer import Committer
from fairlead.controller.gangs.admission.recovery import Complete, RollBack, Step, Undo
from fairlead.controller.gangs.evictions.past_evictions import PastEviction, roll_back_of
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.report.telemetry import Telemetry
from fairlead.kube.timing import Time

log = logging.getLogger(__name__)

EVENTS_MAX = 16  # pods of a gang that get an event each
BARE = "the pod is deleted, and has no controller that makes another: apply it again"
"""What the event says of a pod that its end takes out of the cluster: events stay when their pod is gone."""


class Recoverer:
    def __init__(
        self,
        committer: Committer,
        admitter: Admitter,
        backoffs: GangBackoffs,
        telemetry: Telemetry,
        time: Time,
    ) -> None:
        self._committer = committer
        self._admitter = admitter
        self._backoffs = backoffs
        self._events, self._metrics = telemetry.events, telemetry.metrics
        self._wall = time.wall

    async def carry_out(self, gang: Gang, step: Step) -> None:
        self._metrics.recoveries.labels(type(step).__name__).inc()
        if isinstance(step, Complete):
            await self._complete(gang, step)
        elif isinstance(step, Undo):
            await self._undo(gang, step)
        else:
            await self._roll_back(gang, step)

    def no_step(self, gang: Gang) -> None:
        """The informers show the end of the gang's admission: nothing is assumed any more, and a bound gang is healthy."""
        self._admitter.forget(gang.id)
        if gang.released and gang.placed >= gang.size and all(member.bound for member in gang.released):
            self._backoffs.reset(gang.id)
            self._backoffs.refusals.reset(gang)

    async def _complete(self, gang: Gang, step: Complete) -> None:
        log.info("gang %s/%s: completing its admission: %d pods to release", *gang.id, len(step.members))
        outcome = await self._committer.release(step.members, {})
        if not outcome.done:
            self._backoffs.note_failure(gang.id, outcome.why, now=self._wall())

    async def _undo(self, gang: Gang, step: Undo) -> None:
        log.warning("gang %s/%s: undoing the admission of %d pods: %s", *gang.id, len(step.members), step.why)
        if await self._committer.undo(step.members, step.why):
            self._admitter.forget(gang.id)
        self._backoffs.note_failure(gang.id, step.why, now=self._wall())

    async def _roll_back(self, gang: Gang, step: RollBack) -> None:
        log.warning("gang %s/%s: rolled back: %s", *gang.id, step.why)
        self._events.gang(gang.id, "RolledBack", step.why, warning=True)
        for member in step.members[:EVENTS_MAX]:
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
