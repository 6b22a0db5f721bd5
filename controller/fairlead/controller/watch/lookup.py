"""What gangs are built from beside their pods: the objects that pods name, own or run on. Views over the informers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlead.controller.gangs.claims.allocations import node_of
from fairlead.controller.gangs.claims.volumes import volume_needs
from fairlead.controller.gangs.evictions import disruption
from fairlead.controller.gangs.evictions.past_evictions import PastEviction
from fairlead.controller.gangs.held import leaving
from fairlead.controller.gangs.held.leaving import LostNode
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.gangs.membership.jobs import JobPods, job_pods
from fairlead.controller.gangs.membership.members import GroupTerms, VolumeNeeds
from fairlead.controller.watch import indexes
from fairlead.controller.watch.informers import Informers
from fairlead.controller.watch.tables import Tables
from fairlead.engine.inventory.nodes import NodeNotice
from fairlead.kube import batch, core, resource, timestamps


class Lookup:
    """Implements `members.Lookup`. `drivers`: the managed ones."""

    def __init__(self, informers: Informers, tables: Tables, drivers: tuple[str, ...]) -> None:
        self.drivers = drivers
        self._informers = informers
        self._tables = tables

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
        return self._informers.pod_groups.terms(api, namespace, name)

    def workload_size(self, gang: GangId, source: str) -> int | None:
        return self._informers.workloads.size(*gang, source)

    def workload_priority(self, name: str) -> int | None:
        return self._informers.workload_priorities.value(name)

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
            return self._informers.workloads.end(pod.metadata.namespace, owner)
        job = self.job_of(pod)
        if job is None or job.spec.active_deadline_seconds is None or not job.status.start_time:
            return None
        return timestamps.parse(job.status.start_time) + job.spec.active_deadline_seconds

    def notice(self, gang: Gang) -> tuple[str, NodeNotice] | None:
        """Of the nodes on which it runs the one that goes first, if one does."""
        noticed = self._tables.nodes.noticed
        if not noticed:
            return None
        found = [(node, noticed[node]) for each in gang.running if (node := node_of(each)) in noticed and node]
        return min(found, key=lambda each: (each[1].by is None, each[1].by or 0.0, each[0]), default=None)

    def lost_nodes(self, gang: Gang) -> tuple[LostNode, ...]:
        """Those of its members that do not answer."""
        return leaving.lost_nodes(gang, self._informers.nodes.get) if self._tables.nodes.unready else ()
