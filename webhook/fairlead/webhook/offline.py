"""Verdicts without a cluster: manifests in, one result per object out.

CI, the documentation and the tests get exactly the verdicts of `kubectl apply`: the same handlers, in the apiserver's order
(mutate, patch, validate). The manifests are both the cluster and what is judged; the pods that a workload would create are judged,
too. What only a running cluster has (members of a gang, RBAC, other webhooks) is not considered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.api.base import ManifestError
from fairlead.api.drivers import attributes_of
from fairlead.api.flavor import Flavor
from fairlead.api.models import Models
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.kube import nulls
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec, ResourceSlice
from fairlead.webhook import claim_names
from fairlead.webhook.gangs.pod_gang import intent_of
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.objects.device_models import DeviceModel, device_models
from fairlead.webhook.objects.fields import Json, MalformedError, map_at, object_at
from fairlead.webhook.objects.pod_templates import (
    ROLLED,
    ROLLED_TEMPLATE,
    WORKLOADS,
    PodTemplate,
    indexed,
    pod_templates,
)
from fairlead.webhook.objects.pods import gated
from fairlead.webhook.policy import policies
from fairlead.webhook.policy.policies import SelectingPolicy
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts, Key, Template
from fairlead.webhook.review.pod_claims import claim_spec
from fairlead.webhook.review.verdict import Finding, Verdict, apply_patch

RESOURCES: dict[str, tuple[str, str]] = {
    "Pod": ("", "pods"),
    "Job": ("batch", "jobs"),
    "CronJob": ("batch", "cronjobs"),
    "Deployment": ("apps", "deployments"),
    "DaemonSet": ("apps", "daemonsets"),
    "JobSet": ("jobset.x-k8s.io", "jobsets"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "leaderworkersets"),
    "PyTorchJob": ("kubeflow.org", "pytorchjobs"),
    "MPIJob": ("kubeflow.org", "mpijobs"),
    "TrainJob": ("trainer.kubeflow.org", "trainjobs"),
    "RayCluster": ("ray.io", "rayclusters"),
    "RayJob": ("ray.io", "rayjobs"),
    "ResourceClaim": ("resource.k8s.io", "resourceclaims"),
    "ResourceClaimTemplate": ("resource.k8s.io", "resourceclaimtemplates"),
    "DeviceClass": ("resource.k8s.io", "deviceclasses"),
    "Queue": (names.API_GROUP, "queues"),
    "Flavor": (names.API_GROUP, "flavors"),
    "TenancyPolicy": (names.API_GROUP, "tenancypolicies"),
    "Namespace": ("", "namespaces"),
}
"""Kinds that are judged, with group and resource. Other groups have kinds of the same names, as Volcano's Job and Queue."""
CLUSTER_SCOPED = frozenset({"DeviceClass", "Queue", "Flavor", "TenancyPolicy", "Namespace", "ResourceSlice"})
USER = "fairlead-check"
GROUPS = frozenset({"system:authenticated"})


def shipped(drivers: Iterable[str]) -> dict[str, DeviceClass]:
    """The classes that the installs of these drivers bring, by name; none for drivers that are not known."""
    found: dict[str, DeviceClass] = {}
    for known in (attributes_of(driver) for driver in drivers):
        parted = {known.gpu_class: "gpu", known.part_class: "mig"} if known.part_class else {known.gpu_class: ""}
        for name, kind in parted.items():
            text = f"device.driver == '{known.driver}'"
            text += f" && device.attributes['{known.driver}'].{known.kind} == '{kind}'" if kind else ""
            spec = {"selectors": [{"cel": {"expression": text}}]}
            if name:
                found[name] = msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)
    return found


SHIPPED = shipped([names.DRIVER])
"""The classes that our own install brings."""


@dataclass(frozen=True, kw_only=True)
class PodIntent:
    """Which gang a pod is in. `name` "": a gang of this pod alone. `size` None: its PodGroup object says it, or it is not known here."""

    name: str
    size: int | None
    queue: str | None
    models: Models | None = None
    without_devices: bool = False

    def __str__(self) -> str:
        """`gang train of 8, queue research`."""
        gang = "a gang of this pod alone" if not self.name else f"gang {self.name}"
        size = "" if not self.name else f" of {self.size}" if self.size else ", whose size its PodGroup says"
        return f"{gang}{size}{f', queue {self.queue}' if self.queue else ''}"

    @property
    def on_models(self) -> str:
        """Whether its devices come from one GPU product, as far as its pods say."""
        if self.without_devices:
            return f"no device; it waits and starts with the others ({names.MEMBERS}: all)"
        if self.models == "any":
            return "devices of any GPU products (fairlead.dev/models: any)"
        if self.models == "same":
            return "devices of one GPU product (fairlead.dev/models: same)"
        return "devices of one GPU product, unless a TenancyPolicy or Queue says models: any"


@dataclass(frozen=True, kw_only=True)
class Result:
    """The verdicts on one object. `source` is the workload that would create it; "" for a manifest."""

    review: Review
    mutated: Verdict
    validated: Verdict | None
    object: Json
    source: str = ""
    claims: str = ""
    """Which way a pod's claims go, named or generated, and why; "" where none comes of a template."""
    gang: PodIntent | None = None
    """Of a pod that waits at the gate: its gang; None for other objects."""

    @property
    def last(self) -> Verdict:
        return self.mutated if self.validated is None else self.validated

    @property
    def allowed(self) -> bool:
        return self.last.allowed

    @property
    def warnings(self) -> tuple[str, ...]:
        """Each once, of both halves."""
        return self.mutated.with_warnings(() if self.validated is None else self.validated.warnings).warnings

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Each once, of both halves."""
        later = () if self.validated is None else self.validated.findings
        return tuple(dict.fromkeys((*self.mutated.findings, *later)))

    @property
    def audit(self) -> tuple[str, ...]:
        """The findings that only the audit log shows."""
        return tuple(found.message for found in self.findings if found.mode == "Audit")

    @property
    def outcome(self) -> str:
        """refused, patched, allowed, or untouched: not managed."""
        if not self.allowed:
            return "refused"
        if self.mutated.patch:
            return "patched"
        return "untouched" if self.last.cause == "unmanaged" else "allowed"


@dataclass(kw_only=True)
class World:
    """The cluster that the manifests describe. `faults` are manifests that cannot be read."""

    drivers: tuple[str, ...] = (names.DRIVER,)
    shared_drivers: tuple[str, ...] = ()
    classes: dict[str, DeviceClass] = field(default_factory=lambda: dict(SHIPPED))
    templates: dict[Key, Template] = field(default_factory=dict)
    claims: dict[Key, ResourceClaimSpec] = field(default_factory=dict)
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    flavors: dict[str, Flavor] = field(default_factory=dict)
    policies: dict[str, SelectingPolicy] = field(default_factory=dict)
    device_models: dict[DeviceModel, None] = field(default_factory=dict)
    served_apis: frozenset[str] = frozenset()
    """API groups of other systems that the cluster serves, where a cluster was read."""
    faults: list[str] = field(default_factory=list)

    def add(self, document: Json) -> None:
        """Add one manifest, as the cluster would store it."""
        if not _ours(document):
            return
        metadata = document.get("metadata") or {}
        name, key = str(metadata.get("name", "")), (namespace_of(document), str(metadata.get("name", "")))
        try:
            match document.get("kind"):
                case "DeviceClass":
                    self.classes[name] = nulls.convert(document, DeviceClass)
                case "ResourceClaimTemplate":
                    uid = str(metadata.get("uid") or f"{USER}-{name}")  # a manifest has none yet
                    self.templates[key] = Template(uid, claim_spec(document, "spec.spec"))
                case "ResourceClaim":
                    self.claims[key] = claim_spec(document, "spec")
                case "Namespace":
                    self.namespaces[name] = dict(metadata.get("labels") or {})
                case "Queue":
                    self.queues[name] = Queue.stored(document)
                case "Flavor":
                    self.flavors[name] = Flavor.stored(document)
                case "TenancyPolicy":
                    self.policies[name] = SelectingPolicy.of(TenancyPolicy.stored(document))
                case "ResourceSlice":
                    found = nulls.convert(document, ResourceSlice).spec
                    pool = found.node_name or found.pool.name
                    self.device_models |= dict.fromkeys(device_models(found.driver, pool, found.devices))
        except (ManifestError, MalformedError, msgspec.ValidationError, TypeError, ValueError) as error:
            self.faults.append(f"{document.get('kind')} {name}: cannot be read: {error}")

    def facts(self, review: Review) -> Facts:
        """The facts that the webhook would have for this review."""
        labels = {"kubernetes.io/metadata.name": review.namespace, **self.namespaces.get(review.namespace, {})}
        selected = policies.of_namespace(self.policies, review.namespace, labels) if review.namespace else ()
        return Facts(
            drivers=self.drivers,
            shared_drivers=self.shared_drivers,
            classes=self.classes,
            templates=self.templates,
            claims=self.claims,
            queues=self.queues,
            flavors=self.flavors,
            policies=policies.of_user(selected, review.username, review.groups),
            namespace_labels=labels,
            device_models=tuple(self.device_models),
            served_apis=self.served_apis,
        )


def world_of(
    documents: Iterable[Json],
    *,
    served_apis: frozenset[str] = frozenset(),
    drivers: tuple[str, ...] = (names.DRIVER,),
    shared_drivers: tuple[str, ...] = (),
) -> World:
    """`drivers`: those that the cluster manages, with their classes."""
    world = World(served_apis=served_apis, drivers=drivers, shared_drivers=shared_drivers, classes=shipped(drivers))
    for document in documents:
        world.add(document)
    return world


def judge(
    document: Json, world: World, *, username: str = USER, groups: frozenset[str] = GROUPS, source: str = ""
) -> Iterator[Result]:
    """The result for one object, and for the objects that it would create; none for kinds that are not judged."""
    if document.get("kind") not in tuple(RESOURCES) or document.get("kind") == "Namespace" or not _ours(document):
        return
    result = _judge(document, world, username, groups, source)
    yield result
    if not result.allowed or result.review.group_resource not in {*WORKLOADS, *ROLLED}:
        return
    for created in _created(result):
        yield from judge(created, world, username=username, groups=groups, source=result.review.subject)


def review_of(document: Json, username: str, groups: frozenset[str]) -> Review:
    """The review of an object that is created."""
    group, resource = RESOURCES[document["kind"]]
    metadata = document.get("metadata") or {}
    return Review(
        uid="fairlead-check",
        group=group,
        resource=resource,
        subresource="",
        kind=document["kind"],
        operation="CREATE",
        namespace=namespace_of(document),
        name=str(metadata.get("name", "")),
        username=username,
        groups=groups,
        dry_run=True,
        object=document,
        old=None,
    )


def _ours(document: Json) -> bool:
    """Whether the kind is of the group that RESOURCES says. An object from a list has no apiVersion: it was listed by group."""
    group, _ = RESOURCES.get(str(document.get("kind")), ("resource.k8s.io", ""))
    version = document.get("apiVersion")
    return not isinstance(version, str) or version.rpartition("/")[0] == group


def namespace_of(document: Json) -> str:
    if document.get("kind") in tuple(CLUSTER_SCOPED):
        return ""
    metadata: Any = document.get("metadata")
    return str((metadata or {}).get("namespace") or "default")


def _judge(document: Json, world: World, username: str, groups: frozenset[str], source: str) -> Result:
    review = review_of(document, username, groups)
    facts = world.facts(review)
    mutated = dispatch.mutate(review, facts)
    if not mutated.allowed:
        return Result(review=review, mutated=mutated, validated=None, object=document, source=source)
    stored = apply_patch(document, mutated.patch)
    validated = dispatch.validate(review_of(stored, username, groups), facts)
    waits = review.kind == "Pod" and validated.allowed and gated(stored)
    return Result(
        review=review,
        mutated=mutated,
        validated=validated,
        object=stored,
        source=source,
        claims=claim_names.described(stored, facts) if waits else "",
        gang=_gang(stored) if waits else None,
    )


def _gang(pod: Json) -> PodIntent:
    """The gang of a pod that was admitted, so that its annotations can be read."""
    intent = intent_of(pod)
    return PodIntent(
        name=intent.gang or "",
        size=intent.size if intent.gang else 1,
        queue=intent.queue,
        models=intent.models,
        without_devices=not map_at(pod, "spec").get("resourceClaims"),
    )


def _created(result: Result) -> Iterator[Json]:
    """What its controller would create: a CronJob's Job, a RayJob's cluster, one pod of each template."""
    review, object_ = result.review, result.object
    owner = {"apiVersion": "v1", "kind": review.kind, "name": review.name, "controller": True}
    added = {"namespace": review.namespace, "ownerReferences": [owner]}
    spec = map_at(object_, "spec")
    if review.kind == "CronJob":
        job = map_at(spec, "jobTemplate", "spec")
        metadata = {**map_at(job, "metadata"), **added, "name": f"{review.name}-run"}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job.get("spec")}
    elif review.kind == "RayJob":
        metadata = {**added, "name": f"{review.name}-run"}
        cluster = spec.get("rayClusterSpec")
        yield {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": cluster}
    elif review.group_resource in ROLLED:
        template = object_at(object_, ROLLED_TEMPLATE)
        kind = "ReplicaSet" if review.kind == "Deployment" else review.kind
        metadata = {**map_at(template, "metadata"), **added, "generateName": f"{review.name or 'made'}-"}
        metadata["ownerReferences"] = [{**owner, "kind": kind}]
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec")}
    else:
        for index, found in enumerate(_readable_templates(review.group_resource, object_)):
            template = object_at(object_, found.path)
            name = f"{review.name or 'made'}-{index}-"
            own = indexed(found, object_, kind=review.kind, owner=review.name)
            metadata = {**own, **added, "generateName": name}
            yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec")}


def _readable_templates(group_resource: str, object_: Json) -> list[PodTemplate]:
    try:
        return pod_templates(group_resource, object_)
    except MalformedError:
        return []
