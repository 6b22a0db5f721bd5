"""What the controller knows of the cluster: watched copies, the core's tables kept current, and the gangs.

Exists so that a decision starts from tables that each change has already paid for. Every handler only notes; `refresh`
then rebuilds the gangs that were touched. Writes nothing to the cluster.
What is being written right now is *assumed*: an admission's devices and nodes count as taken from the decision until the
watched copies show them, or until the admission is known to be undone.
Tells apart what asks for a decision now (`urgent`: settings, new requests), what may let a waiting gang in (`decide`:
something was freed or added), and what only changes a report, so that a waiting gang costs little while others come and go.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead.controller.gangs import disruption, evictions, gangs
from fairlead.controller.gangs.disruption import Guard
from fairlead.controller.gangs.gangs import Gang, GangId
from fairlead.controller.gangs.members import GroupTerms
from fairlead.controller.watch import keys, settings
from fairlead.controller.watch.podgroups import PodGroups
from fairlead.controller.watch.served import Served
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.nodes import NodeTable
from fairlead.kube import batch, core, resource, resources, timestamps
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer, Source
from fairlead.kube.resources import Raw


class State:
    """`drivers` are those that we manage. `begin`, then run its `copies()`; read nothing before all are synced."""

    def __init__(self, client: Source, drivers: tuple[str, ...]) -> None:
        self.drivers = drivers
        self.inventory = Inventory()
        self.nodes = NodeTable()
        self.classes: dict[str, resource.DeviceClass] = {}
        self.gangs: dict[GangId, Gang] = {}
        self.decide = True  # something changed that may let a gang in
        self.urgent = True  # and somebody just asked for it
        self.wake = asyncio.Event()
        self._settings: settings.Settings | None = None
        self._dirty: set[GangId] = set()
        self._assumed_claims: dict[str, resource.ResourceClaim] = {}  # by the key it was planned under
        self._assumed_pods: dict[str, str] = {}  # pod UID: node
        self.pods: Informer[core.Pod] = Informer(
            client,
            resources.PODS,
            indexes={
                "gang": keys.gang_index,
                "uid": keys.uid_index,
                "claim": keys.claim_index,
                "template": keys.template_index,
            },
        )
        self.claims: Informer[resource.ResourceClaim] = Informer(
            client, resources.RESOURCE_CLAIMS, indexes={"owner": keys.owner_index, "uid": keys.uid_index}
        )
        self.templates: Informer[resource.ResourceClaimTemplate] = Informer(client, resources.RESOURCE_CLAIM_TEMPLATES)
        # The inventory has what they say in few bytes; whole, they are 3 KB a device.
        self.slices: Informer[resource.ResourceSlice] = Informer(
            client, resources.RESOURCE_SLICES, transform=keys.heading
        )
        self.taint_rules = Served(resources.DEVICE_TAINT_RULES, ("v1", "v1beta2"), self._taint_rule)
        self.device_classes: Informer[resource.DeviceClass] = Informer(client, resources.DEVICE_CLASSES)
        self.cluster_nodes: Informer[core.Node] = Informer(client, resources.NODES)
        self.namespaces: Informer[core.Namespace] = Informer(client, resources.NAMESPACES)
        self.queues: Informer[Raw] = Informer(client, resources.QUEUES)
        self.flavors: Informer[Raw] = Informer(client, resources.FLAVORS)
        self.gang_objects: Informer[Raw] = Informer(
            client, resources.GANGS, indexes={"owner": keys.evicted_owner_index}
        )
        self.budgets: Informer[Raw] = Informer(client, resources.POD_DISRUPTION_BUDGETS)
        self.jobs: Informer[batch.JobDeadline] = Informer(client, resources.JOB_DEADLINES)
        self.pod_groups = PodGroups(self._pod_group)
        self.guards: dict[str, Guard] = {}  # PodDisruptionBudgets by key
        self.cluster_nodes.subscribe(self._node)
        self.slices.subscribe(self._slice)
        self.device_classes.subscribe(self._class)
        self.claims.subscribe(self._claim)
        self.pods.subscribe(self._pod)
        self.templates.subscribe(self._template)
        self.namespaces.subscribe(self._namespace)
        for watch in (self.queues, self.flavors):
            watch.subscribe(self._setting)
        self.gang_objects.subscribe(self._gang_object)
        self.budgets.subscribe(self._budget)
        self.jobs.subscribe(self._job)

    async def begin(self, client: Client) -> None:
        """Sees which optional APIs the cluster serves: before the copies are run."""
        for each in self.copies():
            if isinstance(each, Served):
                await each.begin(client)

    def copies(self) -> tuple[Informer[Any] | Served[Any], ...]:
        return (
            self.cluster_nodes, self.namespaces, self.device_classes, self.slices, self.queues, self.flavors,
            self.templates, self.claims, self.gang_objects, self.budgets, self.jobs,
            *self.pod_groups.served, self.taint_rules, self.pods,
        )  # fmt: skip

    def watches(self) -> tuple[Informer[Any], ...]:
        """What we cannot go without, as far as it is watched now."""
        vital = (each for each in self.copies() if not isinstance(each, Served) or each.vital)
        found = (each.informer if isinstance(each, Served) else each for each in vital)
        return tuple(each for each in found if each is not None)

    @property
    def synced(self) -> bool:
        return all(each.synced.is_set() for each in self.copies())

    # -- members.Objects ---------------------------------------------------------------------------------------------

    def claim(self, namespace: str, name: str) -> resource.ResourceClaim | None:
        return self.claims.get(f"{namespace}/{name}")

    def claims_of(self, pod_uid: str) -> Iterable[resource.ResourceClaim]:
        return self.claims.by_index("owner", pod_uid)

    def template(self, namespace: str, name: str) -> resource.ResourceClaimTemplate | None:
        return self.templates.get(f"{namespace}/{name}")

    def pod_group(self, api: str, namespace: str, name: str) -> GroupTerms | None:
        return self.pod_groups.terms(api, namespace, name)

    # -- reading ---------------------------------------------------------------------------------------------------

    def refresh(self) -> set[GangId]:
        """Rebuilds the gangs that were touched since the last call, and names them."""
        dirty, self._dirty = self._dirty, set()
        for gang in dirty:
            key = "/".join(gang)
            seen = gangs.view(gang, self.pods.by_index("gang", key), self, known=key in self.gang_objects)
            if seen is None:
                self.gangs.pop(gang, None)
            else:
                if seen.borrowed_queue and seen.queue is not None:
                    labels = self.namespace_labels(seen.namespace)
                    seen = dataclasses.replace(seen, queue=self.settings().borrowed(seen.queue, labels))
                self.gangs[gang] = seen
        return dirty

    def settings(self) -> settings.Settings:
        """Queues and Flavors, read again when one of them changed."""
        if self._settings is None:
            self._settings = settings.read(self.queues.all(), self.flavors.all())
        return self._settings

    def touch(self, gang: GangId) -> None:
        """Look at this gang again, although nothing changed."""
        self._dirty.add(gang)
        self.wake.set()

    def touch_all(self) -> None:
        self._dirty |= set(self.gangs)
        self._matters(urgent=True)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        found = self.namespaces.get(namespace)
        return found.metadata.labels if found else {}

    def past(self, gang: Gang) -> evictions.Past | None:
        """The gang's last eviction, and since when it is in line: its own Gang object says, or, for a gang of one, that of
        a pod that its owner made before.
        """
        raw = self.gang_objects.get("/".join(gang.id))
        pasts = [evictions.past_of(raw) if raw else None]
        if gang.solo and gang.members[0].owner:
            gone = (
                each for each in self.gang_objects.by_index("owner", gang.members[0].owner) if not self._lives(each)
            )
            pasts += map(evictions.past_of, gone)
        return min((past for past in pasts if past is not None), key=lambda past: past.since, default=None)

    def _lives(self, raw: Raw) -> bool:
        meta = raw["metadata"]
        return (meta["namespace"], meta["name"]) in self.gangs

    def guards_of(self, pod: core.Pod) -> tuple[str, ...]:
        """Names of the PodDisruptionBudgets that select the pod."""
        return disruption.guards_of(pod, self.guards.values()) if self.guards else ()

    def job_ends_by(self, pod: core.Pod) -> float | None:
        """When the pod's Job will be ended by its own deadline, unix seconds."""
        owner = pod.metadata.controller
        if owner is None or owner.kind != "Job":
            return None
        job = self.jobs.get(f"{pod.metadata.namespace}/{owner.name}")
        if job is None or job.spec.active_deadline_seconds is None or not job.status.start_time:
            return None
        return timestamps.parse(job.status.start_time) + job.spec.active_deadline_seconds

    def node_exists(self, name: str) -> bool:
        return self.cluster_nodes.get(name) is not None

    def users(self, claim: resource.ResourceClaim) -> list[core.Pod]:
        """Living pods that use the claim, or own it."""
        found = {pod.metadata.uid: pod for pod in self.pods.by_index("claim", claim.metadata.key)}
        owner = claim.metadata.controller
        if owner is not None and owner.kind == "Pod":
            found |= {pod.metadata.uid: pod for pod in self.pods.by_index("uid", owner.uid)}
        return [pod for pod in found.values() if not pod.finished]

    # -- assuming --------------------------------------------------------------------------------------------------

    def assume_claim(self, key: str, claim: resource.ResourceClaim) -> None:
        """The devices of `claim.status.allocation` are taken, under `key`, until `release_claim`."""
        self._assumed_claims[key] = claim
        self.inventory.set_claim(claim)

    def release_claim(self, key: str) -> None:
        """From here on the watched copy counts."""
        if self._assumed_claims.pop(key, None) is None:
            return
        self.inventory.drop_claim(key)
        for known in self.claims.by_index("uid", key):
            self.inventory.set_claim(known)

    def assume_pod(self, pod: core.Pod, node: str) -> None:
        self._assumed_pods[pod.metadata.uid] = node
        self.nodes.set_pod(pod, node)

    def release_pod(self, uid: str) -> None:
        if self._assumed_pods.pop(uid, None) is None:
            return
        self.nodes.drop_pod(uid)
        for known in self.pods.by_index("uid", uid):
            self.nodes.set_pod(known)

    # -- handlers --------------------------------------------------------------------------------------------------

    def _matters(self, *, urgent: bool = False) -> None:
        self.decide = True
        self.urgent = self.urgent or urgent
        self.wake.set()

    def ask(self) -> None:
        """Decide now: somebody waits for the answer."""
        self._matters(urgent=True)

    def _node(self, change: Change[core.Node]) -> None:
        if change.new is None:
            self.nodes.drop_node(change.key)
            self._matters()
            for pod in self.pods.all():  # rare; those that wait to bind there are looked at again
                if pod.spec.resource_claims and not pod.finished:
                    self._dirty.add(gangs.gang_id(pod))
        elif change.old is None or keys.node_facts(change.old) != keys.node_facts(change.new):
            self.nodes.set_node(change.new)
            self._matters()

    def _slice(self, change: Change[resource.ResourceSlice]) -> None:
        if change.new is None:
            self.inventory.drop_slice(change.key)
        elif change.old is not None and 0 < change.old.metadata.generation == change.new.metadata.generation:
            return  # its spec is the same
        else:
            self.inventory.set_slice(change.new)
        self._matters()

    def _taint_rule(self, change: Change[resource.DeviceTaintRule]) -> None:
        if change.new is None:
            self.inventory.drop_taint_rule(change.key)
        elif change.old is None or change.old.spec != change.new.spec:
            self.inventory.set_taint_rule(change.new)
        else:
            return
        self._matters()

    def _class(self, change: Change[resource.DeviceClass]) -> None:
        if change.new is None:
            self.classes.pop(change.key, None)
        else:
            self.classes[change.key] = change.new
        self._dirty |= set(self.gangs)
        self._matters(urgent=True)

    def _claim(self, change: Change[resource.ResourceClaim]) -> None:
        claim = change.object
        uid = claim.metadata.uid
        if uid not in self._assumed_claims:
            if change.new is None:
                self.inventory.drop_claim(uid)
            else:
                self.inventory.set_claim(claim)
        held, holds = (c is not None and c.status.allocation is not None for c in (change.old, change.new))
        if held and not holds:
            self.decide = True
        for pod in self.pods.by_index("claim", change.key):
            self._dirty.add(gangs.gang_id(pod))
        owner = claim.metadata.controller
        if owner is not None:
            for pod in self.pods.by_index("uid", owner.uid):
                self._dirty.add(gangs.gang_id(pod))
        self.wake.set()

    def _pod(self, change: Change[core.Pod]) -> None:
        pod = change.object
        uid = pod.metadata.uid
        if change.new is None or pod.finished:
            self._assumed_pods.pop(uid, None)
            self.nodes.drop_pod(uid)
        elif uid in self._assumed_pods and not pod.spec.node_name:
            self.nodes.set_pod(pod, self._assumed_pods[uid])
        else:
            self.nodes.set_pod(pod)
        for seen in (change.old, change.new):
            if seen is not None and keys.may_be_member(seen):
                self._dirty.add(gangs.gang_id(seen))
                self.wake.set()
        if change.new is None or (pod.finished and not (change.old and change.old.finished)):
            self._matters()  # its node has room again

    def _template(self, change: Change[resource.ResourceClaimTemplate]) -> None:
        for pod in self.pods.by_index("template", change.key):
            self._dirty.add(gangs.gang_id(pod))
            self.wake.set()

    def _namespace(self, change: Change[core.Namespace]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.labels != new.metadata.labels:
            self._dirty |= {gang for gang in self.gangs if gang[0] == change.key}
            self._matters(urgent=True)

    def _setting(self, change: Change[Raw]) -> None:
        if change.old is None or change.new is None or change.old.get("spec") != change.new.get("spec"):
            self._settings = None
            # a queue that others name may be ours now or no longer, or take their namespace instead
            self._dirty |= {gang_id for gang_id, gang in self.gangs.items() if gang.borrowed_queue}
            self._matters(urgent=True)

    def _pod_group(self, namespace: str, name: str) -> None:
        if (namespace, name) in self.gangs:
            self._dirty.add((namespace, name))
            self.wake.set()

    def _gang_object(self, change: Change[Raw]) -> None:
        if change.old is None or change.new is None:
            namespace, _, name = change.key.partition("/")
            self._dirty.add((namespace, name))
            self.wake.set()

    def _budget(self, change: Change[Raw]) -> None:
        before = self.guards.pop(change.key, None)
        if change.new is not None:
            self.guards[change.key] = disruption.guard(change.new)
        now = self.guards.get(change.key)
        if before is None or now is None or before.selector != now.selector:
            namespace = change.key.partition("/")[0]
            self._dirty |= {gang for gang in self.gangs if gang[0] == namespace}
        if before != now:
            self._matters()

    def _job(self, change: Change[batch.JobDeadline]) -> None:
        facts = [(job.spec, job.status) if job else None for job in (change.old, change.new)]
        if change.object.spec.active_deadline_seconds is not None and facts[0] != facts[1]:
            self._dirty |= {gang for gang in self.gangs if gang[0] == change.object.metadata.namespace}
            self.wake.set()
