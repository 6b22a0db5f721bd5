"""The informers of everything that a decision depends on, the indexes over them, and what is kept current by their changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.watch import indexes
from fairlead.controller.watch.optional import OptionalInformer
from fairlead.controller.watch.other_systems import OtherSystems
from fairlead.controller.watch.tables import Tables
from fairlead.controller.watch.triggers import Triggers
from fairlead.controller.watch.volumes import Volumes, by_volume_claim, without_plain_volumes
from fairlead.kube import batch, core, labels, resource, resources
from fairlead.kube.client import Client
from fairlead.kube.informer import Informer, Source
from fairlead.kube.objects import LabelSelector
from fairlead.kube.resources import Raw


class Informers:
    """`discover` once, then run each of `all()`; read nothing before all are `synced`.

    `drivers`: the managed ones; `shared_drivers`: those allowed in claims beside them. `forecasts` False: what only they read is not watched. `gangs`, `tables` and `triggers` follow what they show.
    """

    def __init__(
        self,
        client: Source,
        drivers: tuple[str, ...],
        shared_drivers: tuple[str, ...] = (),
        *,
        forecasts: bool = True,
    ) -> None:
        self.drivers, self.shared_drivers = drivers, shared_drivers
        self.pods: Informer[core.Pod] = Informer(
            client,
            resources.PODS,
            indexes={
                "gang": indexes.by_gang,
                "uid": indexes.by_uid,
                "claim": indexes.by_claim,
                "template": indexes.by_template,
                "job": indexes.by_job,
                "volume-claim": by_volume_claim,
                "namespaces": indexes.by_namespace_selector,
            },
            transform=without_plain_volumes,
        )
        self.claims: Informer[resource.ResourceClaim] = Informer(
            client, resources.RESOURCE_CLAIMS, indexes={"owner": indexes.by_owner, "uid": indexes.by_uid}
        )
        self.templates: Informer[resource.ResourceClaimTemplate] = Informer(client, resources.RESOURCE_CLAIM_TEMPLATES)
        # The inventory keeps what slices list in few bytes; whole, they are 3 KB a device.
        self.slices: Informer[resource.ResourceSlice] = Informer(
            client, resources.RESOURCE_SLICES, transform=indexes.without_devices
        )
        self.taint_rules: OptionalInformer[resource.DeviceTaintRule] = OptionalInformer(
            resources.DEVICE_TAINT_RULES, resources.DEVICE_TAINT_RULE_VERSIONS
        )
        self.device_classes: Informer[resource.DeviceClass] = Informer(client, resources.DEVICE_CLASSES)
        self.nodes: Informer[core.Node] = Informer(client, resources.NODES)
        self.namespaces: Informer[core.Namespace] = Informer(client, resources.NAMESPACES)
        self.queues: Informer[Raw] = Informer(client, resources.QUEUES)
        self.policies: Informer[Raw] = Informer(client, resources.TENANCY_POLICIES)
        self.flavors: Informer[Raw] = Informer(client, resources.FLAVORS)
        self.gang_objects: Informer[Raw] = Informer(
            client, resources.GANGS, indexes={"owner": indexes.by_evicted_owner}
        )
        self.disruption_budgets: Informer[Raw] = Informer(client, resources.POD_DISRUPTION_BUDGETS)
        self.resource_quotas: Informer[Raw] = Informer(client, resources.RESOURCE_QUOTAS)
        self.jobs: Informer[batch.Job] = Informer(
            client, resources.TYPED_JOBS, indexes={"gang": indexes.by_gang_of_job, "uid": indexes.by_uid}
        )
        self.others = OtherSystems(forecasts=forecasts)
        self.volumes = Volumes(self.pods)
        self.gangs: dict[GangId, Gang] = {}
        self.triggers = Triggers()
        self.tables = Tables(self.pods, self.claims, self.namespaces_of)

    def pods_of(self, claim: resource.ResourceClaim) -> dict[str, core.Pod]:
        """By UID the pods that name the claim or own it, finished ones too."""
        found = {pod.metadata.uid: pod for pod in self.pods.by_index("claim", claim.metadata.key)}
        owner = claim.metadata.controller
        if owner is not None:
            owners = self.pods.by_index("uid", owner.uid)
            found |= {pod.metadata.uid: pod for pod in owners if pod.metadata.namespace == claim.metadata.namespace}
        return found

    def reported_gangs(self) -> set[GangId]:
        """The gangs that have a Gang object."""
        return {(raw["metadata"]["namespace"], raw["metadata"]["name"]) for raw in self.gang_objects.all()}

    def gang_object(self, gang: GangId) -> Raw | None:
        return self.gang_objects.get("/".join(gang))

    def node_exists(self, name: str) -> bool:
        return self.nodes.get(name) is not None

    def users(self, claim: resource.ResourceClaim) -> list[core.Pod]:
        """Unfinished pods that name the claim or own it."""
        return [pod for pod in self.pods_of(claim).values() if not pod.finished]

    def latest(self, pod: core.Pod) -> core.Pod:
        """The pod as last seen; the given one where it is gone, or another has its name."""
        known = self.pods.get(pod.metadata.key)
        return known if known is not None and known.metadata.uid == pod.metadata.uid else pod

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

    async def discover(self, client: Client) -> None:
        """Finds out which optional APIs the cluster serves: before the informers run."""
        for each in self.all():
            if isinstance(each, OptionalInformer):
                await each.discover(client)

    def all(self) -> tuple[Informer[Any] | OptionalInformer[Any], ...]:
        return (
            self.nodes, self.namespaces, self.device_classes, self.slices, self.queues, self.flavors,
            self.policies, self.templates, self.claims, self.gang_objects, self.disruption_budgets, self.resource_quotas,
            self.jobs,
            *self.others.informers, *self.volumes.informers, self.taint_rules, self.pods,
        )  # fmt: skip

    def required(self) -> tuple[Informer[Any], ...]:
        """Those without which nothing can be decided, as far as they are watched now."""
        required = (each for each in self.all() if not isinstance(each, OptionalInformer) or each.required)
        found = (each.informer if isinstance(each, OptionalInformer) else each for each in required)
        return tuple(each for each in found if each is not None)

    async def filled(self) -> None:
        """Returns when all have been read once."""
        await asyncio.gather(*(each.synced.wait() for each in self.all()))

    @property
    def synced(self) -> bool:
        return all(each.synced.is_set() for each in self.all())
