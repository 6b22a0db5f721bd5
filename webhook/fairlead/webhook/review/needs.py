"""What must be looked up before a review can be judged, read from the review alone."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from fairlead.api import foreign, names
from fairlead.api.object_names import is_dns_subdomain
from fairlead.webhook.objects.fields import Json, list_at, map_at, object_at, text_at
from fairlead.webhook.objects.pod_templates import ROLLED, ROLLED_TEMPLATE, WORKLOADS, pod_templates, suspended
from fairlead.webhook.objects.pods import (
    annotations_and_labels,
    gated,
    leader_worker_group,
    native_pod_group,
    owner_job,
    recorded_sources,
)
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Key


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    templates: frozenset[Key] = frozenset()
    claims: frozenset[Key] = frozenset()
    gangs: frozenset[Key] = frozenset()
    jobs: frozenset[Key] = frozenset()
    queues: frozenset[str] = frozenset()
    flavors: frozenset[str] = frozenset()
    gate_permission: bool = False
    """Whether the user may remove the scheduling gate."""
    apis: frozenset[str] = frozenset()


def needs(review: Review) -> Needs:
    """Raises MalformedError."""
    object_ = review.object or {}
    match review.group_resource:
        case "pods":
            found = _pod_needs(review.namespace, map_at(object_, "spec"), map_at(object_, "metadata"))
            ungated = review.operation == "UPDATE" and gated(review.old or {}) and not gated(object_)
            return Needs(templates=found.templates, claims=found.claims, gate_permission=True) if ungated else found
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
