"""What a verdict may depend on besides the review: a frozen snapshot of the cluster, taken for one review.

A name that is missing here was looked up in the apiserver and is not there (`cache.informer_cache`): absence is a fact, not a stale
cache. `needs` says what a review looks up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from fairlead.api import foreign, names
from fairlead.api.derived import Source
from fairlead.api.flavor import Flavor
from fairlead.api.object_names import is_dns_subdomain, is_exempt
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec
from fairlead.webhook.objects.device_models import DeviceModel
from fairlead.webhook.objects.fields import Json, list_at, map_at, object_at, text_at
from fairlead.webhook.objects.pod_templates import ROLLED, ROLLED_TEMPLATE, WORKLOADS, pod_templates, suspended
from fairlead.webhook.objects.pods import (
    annotations_and_labels,
    leader_worker_group,
    native_pod_group,
    owner_job,
    recorded_sources,
)
from fairlead.webhook.review.envelope import Review

Key = tuple[str, str]
"""(namespace, name)."""

_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class GangMember:
    """A pod of a gang that exists already: what its annotations say."""

    name: str
    size: int | None = None
    queue: str | None = None
    topology: str | None = None
    subgroup_size: int | None = None
    subgroup_topology: str | None = None
    models: str | None = None
    align: str | None = None
    size_from: Source | None = None
    workload: str | None = None


class Template(msgspec.Struct, frozen=True):
    """A ResourceClaimTemplate. One that is deleted and recreated under its name has another UID, and perhaps another spec."""

    uid: str
    spec: ResourceClaimSpec


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Objects are by name; claims and templates are those of the review's namespace only."""

    drivers: tuple[str, ...] = (names.DRIVER,)
    shared_drivers: tuple[str, ...] = ()
    """Not managed, and allowed in claims beside managed ones."""
    controllers: frozenset[str] = frozenset({names.CONTROLLER_USER})
    records_users: bool = False
    """Whether it is written on a workload who created it; not where manifests are judged without a cluster."""
    traces_ratio: float | None = None
    """Which part of gangs is traced where their users do not say; None without traces."""
    classes: Mapping[str, DeviceClass] = _NOTHING
    templates: Mapping[Key, Template] = _NOTHING
    claims: Mapping[Key, ResourceClaimSpec] = _NOTHING
    gangs: Mapping[Key, tuple[GangMember, ...]] = _NOTHING
    jobs: Mapping[Key, int] = _NOTHING
    """How many pods a Job runs at once."""
    queues: Mapping[str, Queue] = _NOTHING
    flavors: Mapping[str, Flavor] = _NOTHING
    policies: tuple[TenancyPolicy, ...] = ()
    """Those that select the review's namespace and user, by name."""
    namespace_labels: Mapping[str, str] = _NOTHING
    device_models: tuple[DeviceModel, ...] = ()
    """The kinds of devices that the cluster has."""
    served_apis: frozenset[str] = frozenset()
    """Of the API groups in `Needs.apis`, those that the cluster serves: where its API is served, the other system runs."""

    signing_key: bytes = b""
    """Of the annotation that records claims' sources: the same in all replicas, and known to no user. b"" without a cluster."""
    former_signing_key: bytes | None = None
    """The one before the last rotation: a pod may be reviewed before it and once more after it."""

    def exempt(self, namespace: str) -> bool:
        """Whether the webhook leaves this namespace alone."""
        return is_exempt(namespace, self.namespace_labels)


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    templates: frozenset[Key] = frozenset()
    claims: frozenset[Key] = frozenset()
    gangs: frozenset[Key] = frozenset()
    jobs: frozenset[Key] = frozenset()
    queues: frozenset[str] = frozenset()
    flavors: frozenset[str] = frozenset()
    apis: frozenset[str] = frozenset()


def needs(review: Review) -> Needs:
    """Raises MalformedError."""
    object_ = review.object or {}
    match review.group_resource:
        case "pods":
            return _pod_needs(review.namespace, map_at(object_, "spec"), map_at(object_, "metadata"))
        case workload if workload in WORKLOADS:
            return _workload_needs(review)
        case rolled if rolled in ROLLED:
            pod = object_at(object_, ROLLED_TEMPLATE)
            found = _pod_needs(review.namespace, map_at(pod, "spec"), map_at(pod, "metadata"))
            return Needs(templates=found.templates, claims=found.claims)
        case "queues.fairlead.dev":
            return _queue_needs(map_at(object_, "spec"))
        case _:
            return Needs()


def _pod_needs(namespace: str, spec: Json, metadata: Json) -> Needs:
    """What must be looked up to judge a pod, or the pods of a template."""
    sources = recorded_sources(metadata)
    templates = {(namespace, source.template) for source in sources.values() if not source.is_legacy}
    claims: set[Key] = set()
    for index, entry in enumerate(list_at(spec, "resourceClaims", "spec")):
        path = f"spec.resourceClaims[{index}]"
        if template := text_at(entry, "resourceClaimTemplateName", path):
            templates.add((namespace, template))
        if claim := text_at(entry, "resourceClaimName", path):
            source = sources.get(text_at(entry, "name", path)) if sources else None
            if source is None or source.claim != claim:  # else its source is judged, and most do not exist yet
                claims.add((namespace, claim))
    annotations, labels = annotations_and_labels(metadata)
    gang, job = foreign.gang_name(annotations, labels, native_pod_group(spec)), owner_job(metadata)
    if names.GANG in annotations:
        gang = leader_worker_group(metadata) or gang
    unsized = gang is not None and names.GANG_SIZE not in annotations
    return Needs(
        jobs=frozenset({(namespace, job)} if job and unsized else ()),
        templates=frozenset(templates),
        claims=frozenset(claims),
        gangs=frozenset({(namespace, gang)} if gang else ()),
    )


def _workload_needs(review: Review) -> Needs:
    object_ = review.object or {}
    found = Needs()
    for template in pod_templates(review.group_resource, object_):
        pod = object_at(object_, template.path)
        more = _pod_needs(review.namespace, map_at(pod, "spec"), map_at(pod, "metadata"))
        found = Needs(
            templates=found.templates | more.templates,
            claims=found.claims | more.claims,
            gangs=found.gangs | (more.gangs if review.operation == "CREATE" else frozenset()),
        )
    own = annotations_and_labels(map_at(object_, "metadata"))[0].get(names.GANG)
    if own and review.operation == "CREATE":
        found = replace(found, gangs=found.gangs | {(review.namespace, own)})
    if review.operation == "CREATE" and suspended(review.group_resource, object_):
        return replace(found, apis=frozenset({names.KUEUE_API}))
    return found


def _queue_needs(spec: Json) -> Needs:
    parent, flavors = spec.get("parent"), spec.get("flavors")
    entries = flavors if isinstance(flavors, list) else []
    named = (entry.get("flavor") for entry in entries if isinstance(entry, dict))
    return Needs(
        queues=frozenset({parent} if isinstance(parent, str) and is_dns_subdomain(parent) else ()),
        flavors=frozenset(name for name in named if isinstance(name, str) and is_dns_subdomain(name)),
    )
