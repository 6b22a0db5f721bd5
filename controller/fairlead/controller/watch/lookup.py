"""Views over the informers, of one gang: what it is built from beside its pods (the objects that pods name, own or run on), and what Gang
objects record of it: evictions, so that pods which are made again keep their age, and holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fairlead.controller.gangs.admission import holds
from fairlead.controller.gangs.claims.allocations import node_of
from fairlead.controller.gangs.claims.volumes import volume_needs
from fairlead.controller.gangs.evictions import disruption, past_evictions
from fairlead.controller.gangs.evictions.past_evictions import PastEviction
from fairlead.controller.gangs.held import leaving
from fairlead.controller.gangs.held.leaving import LostNode
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.gangs.membership.jobs import JobPods, job_pods
from fairlead.controller.gangs.membership.members import GroupTerms, VolumeNeeds
from fairlead.controller.watch import indexes
from fairlead.controller.watch.informers import Informers
from fairlead.engine.inventory.nodes import NodeNotice
from fairlead.engine.types.gangs import Hold
from fairlead.kube import batch, core, resource, timestamps
from fairlead.kube.resources import Raw


class Lookup:
    """Implements `members.Lookup`."""

    def __init__(self, informers: Informers) -> None:
        self.drivers, self.shared_drivers = informers.drivers, informers.shared_drivers
        self._informers = informers
        self._tables = informers.tables

    @property
    def classes(self) -> Mapping[str, resource.DeviceClass]:
        return self._tables.classes

    def claim(self, namespace: str, name: str) -> resource.ResourceClaim | None:
        return self._informers.claims.get(f"{namespace}/{name}")

    def claims_of(self, pod: core.Pod) -> Iterable[resource.ResourceClaim]:
        return self._informers.claims.by_index("owner", indexes.in_namespace(pod.metadata.namespace, pod.metadata.uid))

    def template(self, namespace: str, name: str) -> resource.ResourceClaimTemplate | None:
        return self._informers.templates.get(f"{namespace}/{name}")

    def pod_group(self, api: str, namespace: str, name: str) -> GroupTerms | None:
        return self._informers.others.pod_group(api, namespace, name)

    def workload_size(self, gang: GangId, source: str) -> int | None:
        return self._informers.others.size(*gang, source)

    def workload_priority(self, name: str) -> int | None:
        return self._informers.others.priority(name)

    def jobs_of(self, gang: GangId) -> Iterable[batch.Job]:
        return self._informers.jobs.by_index("gang", "/".join(gang))

    def job_of(self, pod: core.Pod) -> batch.Job | None:
        owner = pod.metadata.controller
        if owner is None or owner.kind != "Job":
            return None
        job = self._informers.jobs.get(f"{pod.metadata.namespace}/{owner.name}")
        return job if job is not None and job.metadata.uid == owner.uid else None

    def makers(self, gang: GangId, past: PastEviction) -> tuple[JobPods, ...]:
        """The Jobs of an evicted gang without pods."""
        found = {job.metadata.uid: job for job in self.jobs_of(gang)}
        owners = self._informers.jobs.by_index("uid", past.owner) if past.owner else ()
        found |= {job.metadata.uid: job for job in owners if job.metadata.namespace == gang[0]}
        return tuple(job_pods(job, ()) for _, job in sorted(found.items()) if not job.metadata.deletion_timestamp)

    # -- other lookups ---------------------------------------------------------------------------------------------

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return self._informers.namespace_labels(namespace)

    def volume_needs(self, pod: core.Pod) -> VolumeNeeds:
        return volume_needs(pod, self._informers.volumes)

    def budgets_of(self, pod: core.Pod) -> tuple[str, ...]:
        """Names of the PodDisruptionBudgets that select the pod."""
        budgets = self._tables.pod_budgets
        return disruption.budgets_of(pod, budgets.values()) if budgets else ()

    def job_deadline(self, pod: core.Pod) -> float | None:
        """When activeDeadlineSeconds of the pod's Job, PyTorchJob or MPIJob ends it, unix seconds."""
        owner = pod.metadata.controller
        if owner is not None and owner.kind != "Job":
            return self._informers.others.end(pod.metadata.namespace, owner)
        job = self.job_of(pod)
        if job is None or job.spec.active_deadline_seconds is None or not job.status.start_time:
            return None
        return timestamps.parse(job.status.start_time) + job.spec.active_deadline_seconds

    def notice(self, gang: Gang) -> tuple[str, NodeNotice] | None:
        """The node that goes first of those on which it runs, if one does."""
        noticed = self._tables.nodes.noticed
        if not noticed:
            return None
        found = [(node, noticed[node]) for each in gang.running if (node := node_of(each)) in noticed and node]
        return min(found, key=lambda each: (each[1].by is None, each[1].by or 0.0, each[0]), default=None)

    def lost_nodes(self, gang: Gang) -> tuple[LostNode, ...]:
        """Those of its members that do not answer."""
        return leaving.lost_nodes(gang, self._informers.nodes.get) if self._tables.nodes.unready else ()


class GangRecords:
    def __init__(self, informers: Informers) -> None:
        self._informers = informers

    def past_eviction(self, gang: Gang, now: float) -> PastEviction | None:
        """The gang's last eviction as its Gang object has it, for a gang of one also those of evicted pods of its owner: the latest of
        them, with the age of the oldest.
        """
        found = self.past_evictions(gang, now)
        if not found:
            return None
        last = max(found, key=lambda past: past.at)
        return dataclasses.replace(last, queued_since=min(past.queued_since for past in found))

    def past_evictions(self, gang: Gang, now: float) -> list[PastEviction]:
        """The same, all that there are."""
        raw = self._informers.gang_object(gang.id)
        objects = [*(() if raw is None else (raw,)), *self._predecessors(gang)]
        found = (past_evictions.past_eviction(each, now) for each in objects)
        return [past for past in found if past is not None]

    def _predecessors(self, gang: Gang) -> Iterator[Raw]:
        """For a gang of one, the Gang objects of evicted pods of its owner that are gone."""
        owner = gang.members[0].owner if gang.solo and gang.members else ""
        if owner:
            key = indexes.in_namespace(gang.namespace, owner)
            yield from (each for each in self._informers.gang_objects.by_index("owner", key) if not self._exists(each))

    def hold_of(self, gang: Gang) -> Hold | None:
        """As its Gang object says; until that has a status, for a gang of one also that of an evicted pod of its owner.

        So a hold outlives the pod, and a user who makes the Gang object of the next pod does not end it.
        """
        return holds.of_object({"spec": {"hold": self.hold_object(gang)}})

    def hold_object(self, gang: Gang) -> Any:
        """The same, as it is written; None where there is none."""
        raw = self._informers.gang_object(gang.id)
        objects: list[Raw] = [] if raw is None else [raw]
        if raw is None or not decisions.without_records(raw.get("status") or {}):
            objects += self._predecessors(gang)
        found = ((each.get("spec") or {}).get("hold") for each in objects)
        return next((hold for hold in found if hold is not None), None)

    def _exists(self, gang_object: Raw) -> bool:
        meta = gang_object["metadata"]
        return (meta["namespace"], meta["name"]) in self._informers.gangs
