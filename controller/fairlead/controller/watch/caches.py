"""What the controller has read of the cluster: informers, the engine's tables, and the gangs built from pods and claims.

Every change is applied to the tables as it arrives, so a decision starts from tables that are current. `refresh` rebuilds
the gangs that changed since the last call. Writes nothing to the cluster.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fairlead.api.bounds import NO_BOUNDS, Bounds
from fairlead.api.models import Models
from fairlead.api.namespaces import is_exempt
from fairlead.cel.allowance import allowance
from fairlead.cel.errors import AllowanceError
from fairlead.controller.gangs.admission import holds
from fairlead.controller.gangs.build import build_gang
from fairlead.controller.gangs.claims.allocations import node_of
from fairlead.controller.gangs.claims.volumes import volume_needs
from fairlead.controller.gangs.evictions import disruption, past_evictions
from fairlead.controller.gangs.evictions.past_evictions import PastEviction
from fairlead.controller.gangs.held import idleness, lost_nodes
from fairlead.controller.gangs.held.lost_nodes import LostNode
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.gangs.membership.gangs import gang_id as gang_id_of
from fairlead.controller.gangs.membership.jobs import JobPods, job_pods
from fairlead.controller.gangs.membership.members import GroupTerms, VolumeNeeds
from fairlead.controller.watch import indexes, settings
from fairlead.controller.watch.handlers import Handlers
from fairlead.controller.watch.informers import Informers
from fairlead.controller.watch.policy_bounds import PolicyBounds, bounds_of, models_of, read_policies
from fairlead.controller.watch.tables import Tables
from fairlead.controller.watch.triggers import Triggers
from fairlead.engine.inventory.notices import NodeNotice
from fairlead.engine.types.gangs import IdleSpan
from fairlead.engine.types.hold import Hold
from fairlead.engine.types.settings import IdlePolicy
from fairlead.kube import batch, core, labels, resource, storage, timestamps
from fairlead.kube.informer import Change, Source
from fairlead.kube.objects import LabelSelector
from fairlead.kube.resources import Raw

log = logging.getLogger(__name__)

TOKENS_A_RUN = 6_000  # of selectors of one namespace that are compiled in a call: a twentieth of a second or more
READ_BY_GANGS = ("hold", "maxPriority", "lostNodeTimeout")
"""Fields of a queue by which its gangs are looked at again: evictions that a hold asked for are cancelled, and statuses say what holds."""


class Caches(Informers):
    """`drivers` are the managed ones; `forecasts`: whether any are made. Implements `members.Lookup`."""

    def __init__(self, client: Source, drivers: tuple[str, ...], *, forecasts: bool = True) -> None:
        super().__init__(client, forecasts=forecasts)
        self.drivers = drivers
        self.gangs: dict[GangId, Gang] = {}
        self.triggers = Triggers()
        self.tables = Tables(self.pods, self.claims)
        self._settings: settings.Settings | None = None
        self._policy_bounds: tuple[PolicyBounds, ...] | None = None
        Handlers(
            self, self.tables, self.gangs, self.triggers, drivers=drivers, reads_usage=lambda: self.settings().any_idle
        )
        for informer in (self.queues, self.flavors):
            informer.subscribe(self._setting)
        self.tables.nodes.namespaces = self.namespaces_of
        self.namespaces.subscribe(self._namespace)
        self.policies.subscribe(self._policy)

    # -- gangs and settings ----------------------------------------------------------------------------------------

    def refresh(self, *, turns: bool = False) -> set[GangId]:
        """Rebuilds the gangs that changed since the last call; returns their ids, of those that are gone too.

        `turns`: of namespaces of which very many changed, or much is to be compiled, some now and the others with the next calls.
        """
        changed = self.triggers.take_gangs(self._pods_in if turns else None, self._crowd)
        tokens: dict[str, int] = {}  # by namespace: what is compiled
        late: set[GangId] = set()
        for gang_id in changed:
            key, namespace = "/".join(gang_id), gang_id[0]
            left = TOKENS_A_RUN - tokens.get(namespace, 0) if turns else None
            try:
                with allowance(namespace, tokens=left) as allowed:
                    gang = build_gang(gang_id, self.pods.by_index("gang", key), self, known=key in self.gang_objects)
                tokens[namespace] = tokens.get(namespace, 0) + allowed.compiled
            except AllowanceError:  # what was compiled for it so far is remembered
                tokens[namespace] = TOKENS_A_RUN
                late.add(gang_id)
                continue
            except Exception:  # what one user wrote must not stop the service for the others
                log.exception("gang %s cannot be read: it stays as it was", key)
                continue
            if gang is None:
                self.gangs.pop(gang_id, None)
                continue
            if gang.foreign_queue and gang.queue is not None:
                queue = self.settings().foreign_queue(gang.queue, self.namespace_labels(gang.namespace))
                gang = dataclasses.replace(gang, queue=queue)
            most = self.bounds(gang).priority if gang.priority > 0 else None
            if most is not None and gang.priority > most.value:
                gang = dataclasses.replace(gang, stated_priority=most.value)
            decided = decisions.decisions(self.gang_object(gang_id))
            self.gangs[gang_id] = dataclasses.replace(gang, decisions=decided) if decided else gang
        self.triggers.gangs(late)
        return changed - late

    def _pods_in(self, gang_id: GangId) -> int:
        return max(1, self.pods.count("gang", "/".join(gang_id)))

    def _crowd(self, namespace: str, of: str) -> list[GangId]:
        """The gangs of a namespace, or those whose pods an index has (`Handlers`)."""
        index, _, key = of.partition(" ")
        if not index:
            return [gang for gang in self.gangs if gang[0] == namespace]
        return [gang_id_of(pod) for pod in self.pods.by_index(index, key)]

    def refresh_all(self) -> None:
        """Rebuild every gang next time, and decide."""
        self.triggers.gangs(self.gangs)
        self.triggers.decide(urgent=True)

    def begin_term(self) -> None:
        """A term of leadership begins: decide, on settings that hold what queues' statuses remember now."""
        self._settings = None
        self.triggers.decide(urgent=True)

    def settings(self) -> settings.Settings:
        """Queues and Flavors; the same object until one of them, or what queues select, changes."""
        if self._settings is None:
            self._settings = settings.read(
                self.queues.all(),
                self.flavors.all(),
                [
                    (found.metadata.name, found.metadata.labels)
                    for found in self.namespaces.all()
                    if not is_exempt(found.metadata.name, found.metadata.labels)
                ],
            )
        return self._settings

    def scale_ups(self, flavor: str) -> list[float]:
        """How many seconds its latest scale-ups took, by its status."""
        raw = self.flavors.get(flavor) or {}
        found = (raw.get("status") or {}).get("scaleUpSeconds") or []
        return [float(each) for each in found if isinstance(each, int | float)]

    def queue_of(self, gang_id: GangId) -> str:
        """The leaf queue that a gang names, or else the one that takes its namespace; "" where there is none."""
        gang = self.gangs.get(gang_id)
        return self.settings().leaf(None if gang is None else gang.queue, self.namespace_labels(gang_id[0])) or ""

    def _setting(self, change: Change[Raw]) -> None:
        if change.old is None or change.new is None or change.old.get("spec") != change.new.get("spec"):
            looks = self._settings is not None and self._settings.any_idle
            self._settings = None
            if looks or ((change.new or {}).get("spec") or {}).get("idle"):
                self.triggers.gangs(self.gangs)  # what their claims say of idle devices counts from now on, or no more
            specs = [(each or {}).get("spec") or {} for each in (change.old, change.new)]
            if any(spec.get(field) is not None for spec in specs for field in READ_BY_GANGS):
                self.triggers.gangs(self.gangs)
            if _taken(change.old) != _taken(change.new):
                self.triggers.gangs(self.gangs)  # their statuses name their queue
            # Whether a foreign queue name is one of our Queues may have changed.
            self.triggers.gangs([gang_id for gang_id, gang in self.gangs.items() if gang.foreign_queue])
            self.triggers.decide(urgent=True)

    def _namespace(self, change: Change[core.Namespace]) -> None:
        """Which queues' selectors are in conflict depends on the namespaces that exist."""
        if self._settings is None:
            return
        before, after = (
            None
            if seen is None or is_exempt(change.key, seen.metadata.labels)
            else self._settings.selecting(seen.metadata.labels)
            for seen in (change.old, change.new)
        )
        if change.old is not None and before != after:
            self.triggers.gangs([gang_id for gang_id in self.gangs if gang_id[0] == change.key])
        if before != after and max(len(before or ()), len(after or ())) > 1:
            self._settings = None
            self.triggers.decide()

    def _policy(self, change: Change[Raw]) -> None:
        if change.old is None or change.new is None or change.old.get("spec") != change.new.get("spec"):
            self._policy_bounds = None
            self.refresh_all()

    def namespace_bounds(self, namespace: str) -> Bounds:
        """What TenancyPolicies let the users of a namespace ask for."""
        policies = self._policies_read
        return bounds_of(policies, namespace, self.namespace_labels(namespace)) if policies else NO_BOUNDS

    @property
    def _policies_read(self) -> tuple[PolicyBounds, ...]:
        if self._policy_bounds is None:
            self._policy_bounds = read_policies(self.policies.all())
        return self._policy_bounds

    def namespace_models(self, namespace: str) -> Models | None:
        """What TenancyPolicies say of gangs of a namespace that do not say so themselves."""
        return models_of(self._policies_read, namespace, self.namespace_labels(namespace))

    def models_of(self, gang: Gang) -> Models:
        """What holds for the gang: as its pods say, else TenancyPolicies, else its queue or one above."""
        said = gang.models or self.namespace_models(gang.namespace)
        return said or self.settings().models_of(gang.queue, self.namespace_labels(gang.namespace))

    def bounds(self, gang: Gang) -> Bounds:
        """The tightest of the gang's queue, those above it, and its namespace."""
        of_queue = self.settings().bounds_of(gang.queue, self.namespace_labels(gang.namespace))
        return of_queue.within(self.namespace_bounds(gang.namespace))

    def idle(self, gang: Gang, now: float) -> tuple[IdleSpan, IdlePolicy] | None:
        """Since when its devices are idle, and what its queue says follows; None: it is not idle, or no queue says anything."""
        settings_now = self.settings()
        if not settings_now.any_idle:
            return None
        policy = settings_now.idle_of(gang.queue, self.namespace_labels(gang.namespace))
        if policy is None:
            return None
        span = idleness.idle_span(gang, policy, idleness.noticed_at(self.gang_object(gang.id)), now)
        return None if span is None else (span, policy)

    def movable(self, gang: Gang) -> bool:
        """Whether its queue lets gangs be moved that do not say so themselves."""
        known = self.settings()
        return known.any_movable and known.movable(gang.queue, self.namespace_labels(gang.namespace))

    def notice(self, gang: Gang) -> tuple[str, NodeNotice] | None:
        """Of the nodes on which it runs the one that goes first, if one does."""
        noticed = self.tables.nodes.noticed
        if not noticed:
            return None
        found = [(node, noticed[node]) for each in gang.running if (node := node_of(each)) in noticed and node]
        return min(found, key=lambda each: (each[1].by is None, each[1].by or 0.0, each[0]), default=None)

    def lost_nodes(self, gang: Gang) -> tuple[LostNode, ...]:
        """Those of its members that do not answer."""
        return lost_nodes.lost_nodes(gang, self.nodes.get) if self.tables.nodes.unready else ()

    # -- members.Lookup --------------------------------------------------------------------------------------------

    @property
    def classes(self) -> Mapping[str, resource.DeviceClass]:
        return self.tables.classes

    def claim(self, namespace: str, name: str) -> resource.ResourceClaim | None:
        return self.claims.get(f"{namespace}/{name}")

    def claims_of(self, pod: core.Pod) -> Iterable[resource.ResourceClaim]:
        return self.claims.by_index("owner", indexes.in_namespace(pod.metadata.namespace, pod.metadata.uid))

    def template(self, namespace: str, name: str) -> resource.ResourceClaimTemplate | None:
        return self.templates.get(f"{namespace}/{name}")

    def pod_group(self, api: str, namespace: str, name: str) -> GroupTerms | None:
        return self.pod_groups.terms(api, namespace, name)

    def workload_size(self, gang: GangId, source: str) -> int | None:
        return self.workload_sizes.size(*gang, source)

    def workload_priority(self, name: str) -> int | None:
        return self.workload_priorities.value(name)

    def jobs_of(self, gang: GangId) -> Iterable[batch.Job]:
        return self.jobs.by_index("gang", "/".join(gang))

    def job_of(self, pod: core.Pod) -> batch.Job | None:
        owner = pod.metadata.controller
        if owner is None or owner.kind != "Job":
            return None
        job = self.jobs.get(f"{pod.metadata.namespace}/{owner.name}")
        return job if job is not None and job.metadata.uid == owner.uid else None

    def makers(self, gang: GangId, past: PastEviction) -> tuple[JobPods, ...]:
        """The Jobs of an evicted gang without pods."""
        found = {job.metadata.uid: job for job in self.jobs_of(gang)}
        owners = self.jobs.by_index("uid", past.owner) if past.owner else ()
        found |= {job.metadata.uid: job for job in owners if job.metadata.namespace == gang[0]}
        return tuple(job_pods(job, ()) for _, job in sorted(found.items()) if not job.metadata.deletion_timestamp)

    # -- other lookups ---------------------------------------------------------------------------------------------

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        found = self.namespaces.get(namespace)
        return found.metadata.labels if found else {}

    def namespaces_of(self, selector: LabelSelector) -> list[str]:
        """Names of the namespaces that the selector selects now; none for one that cannot be read."""
        try:
            wanted = labels.from_label_selector(selector)
        except labels.SelectorError:
            return []
        return [each.metadata.name for each in self.namespaces.all() if wanted.matches(each.metadata.labels)]

    def volume_needs(self, pod: core.Pod) -> VolumeNeeds:
        return volume_needs(pod, self)

    # -- volumes.StorageLookup -------------------------------------------------------------------------------------

    @property
    def knows_volumes(self) -> bool:
        return self.volumes.known

    def volume_claim(self, namespace: str, name: str) -> storage.PersistentVolumeClaim | None:
        return self.volumes.claim(f"{namespace}/{name}")

    def volume(self, name: str) -> storage.PersistentVolume | None:
        return self.volumes.volume(name)

    def volumes_of_class(self, name: str) -> Iterable[storage.PersistentVolume]:
        return self.volumes.of_class(name)

    def storage_class(self, name: str) -> storage.StorageClass | None:
        return self.volumes.storage_class(name)

    def pods_of_volume_claim(self, namespace: str, name: str) -> Iterable[core.Pod]:
        """Those that have, or will have, a node: a gated one does not use it yet."""
        for pod in self.pods.by_index("volume-claim", f"{namespace}/{name}"):
            if pod.spec.node_name or not pod.spec.scheduling_gates:
                yield pod

    # -- gang objects ----------------------------------------------------------------------------------------------

    def reported_gangs(self) -> set[GangId]:
        """The gangs that have a Gang object."""
        return {(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in self.gang_objects.all()}

    def gang_object(self, gang: GangId) -> Raw | None:
        return self.gang_objects.get("/".join(gang))

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
        raw = self.gang_object(gang.id)
        objects = [*(() if raw is None else (raw,)), *self._predecessors(gang)]
        found = (past_evictions.past_eviction(each, now) for each in objects)
        return [past for past in found if past is not None]

    def _predecessors(self, gang: Gang) -> Iterator[Raw]:
        """For a gang of one, the Gang objects of evicted pods of its owner that are gone."""
        owner = gang.members[0].owner if gang.solo and gang.members else ""
        if owner:
            key = indexes.in_namespace(gang.namespace, owner)
            yield from (each for each in self.gang_objects.by_index("owner", key) if not self._exists(each))

    def hold_of(self, gang: Gang) -> Hold | None:
        """As its Gang object says; until that has a status, for a gang of one also that of an evicted pod of its owner.

        So a hold outlives the pod, and a user who makes the Gang object of the next pod does not end it.
        """
        return holds.of_object({"spec": {"hold": self.hold_object(gang)}})

    def hold_object(self, gang: Gang) -> Any:
        """The same, as it is written; None where there is none."""
        raw = self.gang_object(gang.id)
        objects: list[Raw] = [] if raw is None else [raw]
        if raw is None or not decisions.without_records(raw.get("status") or {}):
            objects += self._predecessors(gang)
        found = ((each.get("spec") or {}).get("hold") for each in objects)
        return next((hold for hold in found if hold is not None), None)

    def held_by(self, gang: Gang) -> holds.Found | None:
        """The hold that keeps it from being admitted: its own, or that of its queue or one above."""
        own = self.hold_of(gang)
        if own is not None:
            return holds.Found(own, "")
        return next(self._queue_holds(gang), None)

    def evicted_by_hold(self, gang: Gang) -> bool:
        """Whether a hold says that it goes though it runs."""
        own = self.hold_of(gang)
        return (own is not None and own.evict) or any(found.hold.evict for found in self._queue_holds(gang))

    def _queue_holds(self, gang: Gang) -> Iterator[holds.Found]:
        known = self.settings()
        if known.any_hold:
            yield from known.holds_of(gang.queue, self.namespace_labels(gang.namespace))

    def _exists(self, gang_object: Raw) -> bool:
        meta = gang_object["metadata"]
        return (meta["namespace"], meta["name"]) in self.gangs

    def budgets_of(self, pod: core.Pod) -> tuple[str, ...]:
        """Names of the PodDisruptionBudgets that select the pod."""
        budgets = self.tables.pod_budgets
        return disruption.budgets_of(pod, budgets.values()) if budgets else ()

    def job_deadline(self, pod: core.Pod) -> float | None:
        """When activeDeadlineSeconds of the pod's Job ends it, unix seconds."""
        job = self.job_of(pod)
        if job is None or job.spec.active_deadline_seconds is None or not job.status.start_time:
            return None
        return timestamps.parse(job.status.start_time) + job.spec.active_deadline_seconds

    def node_exists(self, name: str) -> bool:
        return self.nodes.get(name) is not None

    def users(self, claim: resource.ResourceClaim) -> list[core.Pod]:
        """Unfinished pods that name the claim or own it."""
        return [pod for pod in self.pods_of(claim).values() if not pod.finished]

    def latest(self, pod: core.Pod) -> core.Pod:
        """The pod as last seen; the given one where it is gone, or another has its name."""
        known = self.pods.get(pod.metadata.key)
        return known if known is not None and known.metadata.uid == pod.metadata.uid else pod


def _taken(setting: Raw | None) -> object:
    """Which namespaces' pods a Queue takes, as it says."""
    return None if setting is None else (setting.get("spec") or {}).get("namespaceSelector")
