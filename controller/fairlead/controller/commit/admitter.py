"""Carrying out admissions: devices and nodes assumed taken, the gang committed, and the assumption ended.

Exists between the plan and `commit`, so that the next decision counts what this one gave before the watched copies show it.
Decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from fairlead.controller.commit.committer import Committer
from fairlead.controller.gangs import requests
from fairlead.controller.gangs.gangs import Gang, GangId
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.reporter import Reporter
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.model import Admission, RunningGang
from fairlead.kube import resource
from fairlead.kube.limits import Clock
from fairlead.kube.objects import ObjectMeta

log = logging.getLogger(__name__)


class Admitter:
    def __init__(
        self, committer: Committer, state: Caches, reporter: Reporter, metrics: Metrics, *, clock: Clock, wall: Clock
    ) -> None:
        self._committer = committer
        self._state = state
        self._reporter = reporter
        self._metrics = metrics
        self._clock = clock
        self._wall = wall
        self._assumed: dict[GangId, Admission] = {}

    def assume(self, gang: Gang, admission: Admission) -> None:
        """What the admission gives counts as taken from here on."""
        pods = {member.uid: member.pod for member in gang.members}
        self._assumed[gang.id] = admission
        for planned in admission.claims:
            if not planned.already_allocated:
                self._state.assume_claim(
                    planned.key, _assumed(planned.key, planned.namespace, planned.name, planned.allocation.to_json())
                )
        for assigned in admission.assignments:
            self._state.assume_pod(pods[assigned.pod.uid], assigned.node)

    def assume_no_more(self, gang_id: GangId) -> None:
        """The watched copies show what became of the gang's admission."""
        admission = self._assumed.pop(gang_id, None)
        if admission is None:
            return
        for planned in admission.claims:
            self._state.release_claim(planned.key)
        for assigned in admission.assignments:
            self._state.release_pod(assigned.pod.uid)

    async def carry_out(self, gang: Gang, admission: Admission) -> str:
        """Empty when all its pods are released, else why not. Raises LeaseLostError: then what was written is not certain."""
        began = self._clock()
        log.info("gang %s: admitting %d pods in queue %r", admission.id, len(admission.assignments), admission.queue)
        outcome = await self._committer.admit(gang, admission)
        self.assume_no_more(gang.id)  # not reached on an error
        self._metrics.admissions.labels("admitted" if outcome.done else "failed").inc()
        if not outcome.done:
            return outcome.why or "not released"
        self._metrics.commit_seconds.observe(self._clock() - began)
        self._tell(gang, admission)
        return ""

    def holding(self, gang: Gang, admission: Admission, created: float | None) -> RunningGang:
        """What a gang holds while it is being admitted, what it held before included. It has no members: no victim yet."""
        admitted = {assigned.pod.uid for assigned in admission.assignments}
        others = requests.held([member for member in gang.members if member.uid not in admitted])
        keys = {claim.key for claim in admission.claims} | set(others)
        now = self._wall()
        return RunningGang(
            namespace=gang.namespace,
            name=gang.name,
            uid=admission.uid,
            queue=admission.queue or gang.queue,
            claims=tuple(sorted(keys)),
            namespace_labels=self._state.namespace_labels(gang.namespace),
            priority=gang.priority,
            created=gang.created if created is None else min(created, gang.created),
            started=now,
            size=gang.size,
            min_runtime_s=gang.min_runtime_s,
            checkpoint_grace_s=gang.checkpoint_grace_s,
        )

    def _tell(self, gang: Gang, admission: Admission) -> None:
        pods = {member.uid: member for member in gang.members}
        given = {planned.key: planned for planned in admission.claims}
        for assigned in admission.assignments[:64]:
            member = pods[assigned.pod.uid]
            devices = [
                result.device.device
                for entry in member.entries
                if entry.key in given
                for result in given[entry.key].allocation.results
            ]
            what = f" with {', '.join(devices[:16])}" if devices else ""
            self._reporter.pod_event(member.pod, "Admitted", f"released to node {assigned.node}{what}")


def _assumed(key: str, namespace: str, name: str, allocation: Mapping[str, Any]) -> resource.ResourceClaim:
    """A claim as the inventory should see it while it is being written."""
    return resource.ResourceClaim(
        metadata=ObjectMeta(uid=key, namespace=namespace, name=name),
        status=resource.ResourceClaimStatus(allocation=msgspec.convert(allocation, resource.AllocationResult)),
    )
