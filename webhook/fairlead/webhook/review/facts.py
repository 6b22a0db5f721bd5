"""What a verdict may depend on besides the review: a frozen snapshot, made for one review.

Exists so that handlers are pure functions. A name that is missing here was asked of the apiserver and is not
there (see `watching`), so absence is a fact and no cache lag. `needs` says what a review depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from fairlead.api import foreign, names
from fairlead.api.base import is_dns_subdomain
from fairlead.api.flavor import Flavor
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec
from fairlead.webhook.objects.device_models import Model
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pod_templates import SHAPES, descend, group_of, parts_of, pod_group_of, suspended
from fairlead.webhook.review.envelope import Review

Key = tuple[str, str]
"""(namespace, name)."""

_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
EXEMPT_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", names.NAMESPACE)


@dataclass(frozen=True, kw_only=True)
class Member:
    """A pod of a gang that exists already: what its annotations say."""

    name: str
    size: int | None = None
    queue: str | None = None
    topology: str | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything is by name; claims and templates of the review's namespace only."""

    drivers: tuple[str, ...] = (names.DRIVER,)
    controllers: frozenset[str] = frozenset({names.CONTROLLER_USER})
    may_release: bool = False
    """Whether RBAC lets the review's user write allocations; asked only when a gate goes."""
    classes: Mapping[str, DeviceClass] = _NOTHING
    templates: Mapping[Key, ResourceClaimSpec] = _NOTHING
    claims: Mapping[Key, ResourceClaimSpec] = _NOTHING
    gangs: Mapping[Key, tuple[Member, ...]] = _NOTHING
    jobs: Mapping[Key, int] = _NOTHING
    """How many pods a Job runs at once."""
    queues: Mapping[str, Queue] = _NOTHING
    flavors: Mapping[str, Flavor] = _NOTHING
    policies: tuple[TenancyPolicy, ...] = ()
    """Those that select the review's namespace, by name."""
    namespace_labels: Mapping[str, str] = _NOTHING
    devices: tuple[Model, ...] = ()
    """The kinds of devices that the cluster has."""
    serves: frozenset[str] = frozenset()
    """API groups of other systems (`Needs.apis`) that the cluster serves: where they are, so is the system."""

    def exempt(self, namespace: str) -> bool:
        """Whether an operator keeps the webhook out of this namespace."""
        return namespace in EXEMPT_NAMESPACES or names.IGNORE_LABEL in self.namespace_labels


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What must be looked up before a review can be judged."""

    templates: frozenset[Key] = frozenset()
    claims: frozenset[Key] = frozenset()
    gangs: frozenset[Key] = frozenset()
    jobs: frozenset[Key] = frozenset()
    queues: frozenset[str] = frozenset()
    flavors: frozenset[str] = frozenset()
    release: bool = False
    apis: frozenset[str] = frozenset()


def pod_needs(namespace: str, spec: Json, metadata: Json) -> Needs:
    """What a pod, or a pod template, refers to. Raises MalformedError."""
    templates: set[Key] = set()
    claims: set[Key] = set()
    for index, use in enumerate(list_at(spec, "resourceClaims", "spec")):
        path = f"spec.resourceClaims[{index}]"
        if template := text_at(use, "resourceClaimTemplateName", path):
            templates.add((namespace, template))
        if claim := text_at(use, "resourceClaimName", path):
            claims.add((namespace, claim))
    annotations, labels = strings_at(metadata, "annotations", "metadata"), strings_at(metadata, "labels", "metadata")
    gang, job = foreign.gang_name(annotations, labels, pod_group_of(spec)), owner_job(metadata)
    if names.GANG in annotations:
        gang = group_of(metadata) or gang
    unsized = gang is not None and names.GANG_SIZE not in annotations
    return Needs(
        jobs=frozenset({(namespace, job)} if job and unsized else ()),
        templates=frozenset(templates),
        claims=frozenset(claims),
        gangs=frozenset({(namespace, gang)} if gang else ()),
    )


def owner_job(metadata: Json) -> str | None:
    """The name of the Job that controls a pod. Raises MalformedError."""
    for owner in list_at(metadata, "ownerReferences", "metadata"):
        if owner.get("kind") == "Job" and owner.get("controller") is True:
            return text_at(owner, "name", "metadata.ownerReferences") or None
    return None


def needs(review: Review) -> Needs:
    """What to look up for this review. Raises MalformedError."""
    object_ = review.object or {}
    match review.of:
        case "pods":
            found = pod_needs(review.namespace, map_at(object_, "spec"), map_at(object_, "metadata"))
            gone = review.operation == "UPDATE" and gated(review.old or {}) and not gated(object_)
            return found if not gone else Needs(templates=found.templates, claims=found.claims, release=True)
        case of if of in SHAPES:
            return _template_needs(review)
        case "queues.fairlead.dev":
            return _queue_needs(map_at(object_, "spec"))
        case _:
            return Needs()


def _queue_needs(spec: Json) -> Needs:
    parent, flavors = spec.get("parent"), spec.get("flavors")
    entries = flavors if isinstance(flavors, list) else []
    named = (entry.get("flavor") for entry in entries if isinstance(entry, dict))
    return Needs(
        queues=frozenset({parent} if isinstance(parent, str) and is_dns_subdomain(parent) else ()),
        flavors=frozenset(name for name in named if isinstance(name, str) and is_dns_subdomain(name)),
    )


def _template_needs(review: Review) -> Needs:
    """What the pod templates of an object refer to."""
    found = Needs()
    for part in parts_of(review.of, review.object or {}):
        template = descend(review.object or {}, part.path)
        more = pod_needs(review.namespace, map_at(template, "spec"), map_at(template, "metadata"))
        found = Needs(templates=found.templates | more.templates, claims=found.claims | more.claims)
    if review.operation == "CREATE" and suspended(review.of, review.object or {}):
        return replace(found, apis=frozenset({names.KUEUE_API}))
    return found


def gated(pod: Json) -> bool:
    """Whether the pod carries our scheduling gate. Raises MalformedError."""
    gates = list_at(map_at(pod, "spec"), "schedulingGates", "spec")
    return any(gate.get("name") == names.ADMISSION_GATE for gate in gates)
