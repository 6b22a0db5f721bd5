"""Named claims: entries of a pod whose claims the controller makes, under names that the webhook writes into the pod. Pure.

A pod's template entries go one of two ways. Named: `resourceClaimName` replaces `resourceClaimTemplateName` when the pod is created, and
Fairlead's controller makes the claim. Generated: the entry stays as it is, and kube-controller-manager's claim controller makes the claim,
as without Fairlead. Named are only entries that surely ask for managed devices, and whose template is known: its UID is recorded with its
name, so that the controller makes the claim from what was judged, or not at all. Both ways may meet in one pod.

Whoever wrote the annotation that records the sources freely could have the controller make claims that no policy judged, or claims of other
pods. So a pod that a controller made must carry the webhook's signature over namespace, owner and sources, and name just the claims that
it records. A bare pod never has the annotation once it is admitted: one that comes with it is a copy.

A copy (`kubectl debug --copy-to`, or `kubectl get -o yaml` and `kubectl create` without the owner) never shares the original's devices: it
gets their templates again, and goes the way of any bare pod. What the original got as a member of its gang goes, too: its place in
the gang, and the node that the controller pinned it to when it was released (`controller.gangs.release`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairlead.api import claim_sources, names
from fairlead.api.claim_sources import ClaimSource, ClaimSourcesError
from fairlead.api.object_names import is_dns_label, is_dns_subdomain
from fairlead.webhook.objects.fields import Json, MalformedError, list_at, map_at, object_at, strings_at, text_at
from fairlead.webhook.objects.pods import (
    REQUIRED_NODE_AFFINITY,
    annotations_and_labels,
    controller_of,
    gated,
    recorded_sources,
    required_node_terms,
)
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, PodClaim
from fairlead.webhook.review.verdict import PatchBuilder

GENERATED, NAMED = "generated", "named"
_SOURCES = f"metadata.annotations[{names.CLAIM_SOURCES}]"
_CURE = "remove it from the pod template, and write resourceClaimTemplateName in spec.resourceClaims"
_TERMS = (*REQUIRED_NODE_AFFINITY, "nodeSelectorTerms")


@dataclass(frozen=True)
class _Way:
    """`why` is a clause for users."""

    named: bool
    why: str


def _way_of(metadata: Json, spec: Json, facts: Facts) -> _Way:
    """The way of a new pod. Raises MalformedError.

    A bare pod is never named: applying its manifest again would change an immutable field. A pod of a PodGroup neither: the group
    may own its claims (KEP-5729). Kueue hashes spec.resourceClaims, so its pods are named only where they say so themselves.
    """
    owner = controller_of(metadata)
    if owner is None:
        return _Way(False, "no controller owns the pod")
    if map_at(spec, "schedulingGroup", "spec"):
        return _Way(False, "spec.schedulingGroup: the pod's PodGroup may own claims")
    annotations, labels = annotations_and_labels(metadata)
    if asked := annotations.get(names.CLAIM_NAMES):
        return _Way(asked == NAMED, f"metadata.annotations[{names.CLAIM_NAMES}]: {asked}")
    if facts.namespace_labels.get(names.CLAIM_NAMES) == GENERATED:
        return _Way(False, f"the namespace's label {names.CLAIM_NAMES}: {GENERATED}")
    if kueue := _kueue_mark(labels, spec):
        return _Way(False, f"{kueue}: Kueue may manage the pod")
    return _Way(True, f"{owner.get('kind')} {owner.get('name')} owns the pod")


def described(pod: Json, facts: Facts) -> str:
    """`named: Job train owns the pod`: the way that an admitted pod's claims went, and why; "" where none comes of a template.

    Raises MalformedError.
    """
    metadata, spec = map_at(pod, "metadata"), map_at(pod, "spec")
    way, named = _way_of(metadata, spec, facts), sorted(recorded_sources(metadata))
    entries = list_at(spec, "resourceClaims", "spec")
    kept = [str(entry.get("name")) for entry in entries if entry.get("resourceClaimTemplateName")]
    if not gated(pod) or not (named or kept):
        return ""
    if not named:
        return f"{GENERATED}: {'their template or class does not exist yet' if way.named else way.why}"
    others = f"; {GENERATED}: {', '.join(kept)}, which another driver may serve" if kept else ""
    return f"{NAMED}: {way.why}{others}"


def word_faults(metadata: Json, where: str = "metadata") -> Iterator[str]:
    """What is wrong with the annotation of a pod or pod template. Raises MalformedError."""
    annotations, _ = annotations_and_labels(metadata, where)
    yield from _value_faults(annotations, f"{where}.annotations[{names.CLAIM_NAMES}]")


def namespace_faults(namespace: str, metadata: Json, facts: Facts) -> Iterator[str]:
    """What is wrong with the namespace's label, where the pod does not say itself what it wants. Raises MalformedError."""
    if names.CLAIM_NAMES not in annotations_and_labels(metadata)[0]:
        yield from _value_faults(facts.namespace_labels, f"Namespace {namespace}: metadata.labels[{names.CLAIM_NAMES}]")


def _value_faults(values: Mapping[str, str], path: str) -> Iterator[str]:
    value = values.get(names.CLAIM_NAMES, NAMED)
    if value not in {GENERATED, NAMED}:
        yield f"{path}: {value!r} is no way to make claims; write {GENERATED!r} (the claim controller makes the pods' claims), or {NAMED!r}, or remove it"


def _kueue_mark(labels: Mapping[str, str], spec: Json) -> str | None:
    """Where the pod shows that Kueue manages it."""
    for key in (names.KUEUE_MANAGED, names.KUEUE_QUEUE, names.KUEUE_GROUP_LABEL):
        if key in labels:
            return f"metadata.labels[{key}]"
    gates = list_at(spec, "schedulingGates", "spec")
    return "spec.schedulingGates" if any(gate.get("name") == names.KUEUE_GATE for gate in gates) else None


def name_claims(review: Review, patch: PatchBuilder, claims: Sequence[PodClaim], facts: Facts) -> None:
    """Rewrite the entries and record their sources; `claims` are those of the pod's entries, in order. Raises MalformedError.

    Names are derived from the review's UID, which is random and new for each call: a pod that is made again under its old name
    gets other claims. Changes nothing in a second pass: the pod has the annotation then.
    """
    metadata, spec = map_at(patch.patched, "metadata"), map_at(patch.patched, "spec")
    owner = controller_of(metadata)
    recorded = names.CLAIM_SOURCES in strings_at(metadata, "annotations", "metadata")
    if owner is None or recorded or not _way_of(metadata, spec, facts).named:
        return
    base = text_at(metadata, "generateName", "metadata") or text_at(metadata, "name", "metadata")
    entries = list_at(spec, "resourceClaims", "spec")
    given = [text_at(entry, "name", f"spec.resourceClaims[{at}]") for at, entry in enumerate(entries)]
    once = {name for name in given if is_dns_label(name)} if len(set(given)) == len(given) else set()
    sources: dict[str, ClaimSource] = {}
    places: dict[str, int] = {}
    for at, (name, entry, claim) in enumerate(zip(given, entries, claims, strict=True)):
        if name in once and claim.managed is Managed.YES and claim.template and not entry.get("resourceClaimName"):
            made = claim_sources.claim_name(base, name, review.uid)
            if is_dns_subdomain(made):  # else the apiserver refuses the pod, as it does where two entries have one name
                sources[name], places[name] = ClaimSource(claim=made, template=claim.template, uid=claim.uid), at
    if not sources:
        return
    owner_uid = text_at(owner, "uid", "metadata.ownerReferences")
    text = claim_sources.annotation(sources, namespace=review.namespace, owner_uid=owner_uid, key=facts.signing_key)
    if len(text) > claim_sources.VALUE_CHARS_MAX:
        return
    for name, at in places.items():
        kept = {key: value for key, value in entries[at].items() if key != "resourceClaimTemplateName"}
        patch.set(("spec", "resourceClaims", at), kept | {"resourceClaimName": sources[name].claim})
    patch.set(("metadata", "annotations", names.CLAIM_SOURCES), text)


def is_copy(pod: Json) -> bool:
    """Whether the pod was copied from one with named claims: it has their sources, and no controller. Raises MalformedError."""
    metadata = map_at(pod, "metadata")
    return names.CLAIM_SOURCES in strings_at(metadata, "annotations", "metadata") and controller_of(metadata) is None


def source_faults(review: Review, facts: Facts) -> list[str]:
    """What is wrong with the annotation on a new pod that a controller made; [] without one. Raises MalformedError."""
    pod = review.object or {}
    metadata = map_at(pod, "metadata")
    annotations, owner = strings_at(metadata, "annotations", "metadata"), controller_of(metadata)
    if names.CLAIM_SOURCES not in annotations or owner is None:
        return []
    owner_uid = text_at(owner, "uid", "metadata.ownerReferences")
    keys = [facts.signing_key, *([] if facts.former_signing_key is None else [facts.former_signing_key])]
    try:
        genuine = any(
            claim_sources.is_genuine(annotations, namespace=review.namespace, owner_uid=owner_uid, key=key)
            for key in keys
        )
        sources = claim_sources.read(annotations)
    except ClaimSourcesError as error:
        return [f"{error}; only the webhook writes this: {_CURE}"]
    if not genuine:
        return [f"{_SOURCES}: was not written by the webhook for a pod of this owner; {_CURE}"]
    entries = list_at(map_at(pod, "spec"), "resourceClaims", "spec")
    claims = {entry.get("name"): entry.get("resourceClaimName") for entry in entries}
    return [
        f"spec.resourceClaims: {entry!r} must name claim {source.claim!r}, as {_SOURCES} records; leave it as the webhook wrote it"
        for entry, source in sources.items()
        if claims.get(entry) != source.claim
    ]


def restore(patch: PatchBuilder) -> tuple[str, ...]:
    """Undo in a copy what the original got. Returns warnings. Raises MalformedError where its annotation cannot be read."""
    annotations = strings_at(map_at(patch.patched, "metadata"), "annotations", "metadata")
    try:
        sources = claim_sources.read(annotations)
    except ClaimSourcesError as error:
        raise MalformedError(
            f"{error}; remove it, and write resourceClaimTemplateName in spec.resourceClaims"
        ) from None
    restored: list[str] = []
    for at, entry in enumerate(list_at(map_at(patch.patched, "spec"), "resourceClaims", "spec")):
        name = text_at(entry, "name", f"spec.resourceClaims[{at}]")
        source = sources.get(name)
        if source is None or entry.get("resourceClaimName") != source.claim:
            continue
        kept = {key: value for key, value in entry.items() if key != "resourceClaimName"}
        patch.set(("spec", "resourceClaims", at), kept | {"resourceClaimTemplateName": source.template})
        restored.append(f"{name} from {source.template}")
    for key in (names.CLAIM_SOURCES, names.GANG, names.GANG_SIZE):
        if key in annotations:
            patch.remove(("metadata", "annotations", key))
    if not gated(patch.patched):  # the original was not released yet: a pin would be the user's
        _unpin(patch)
    claims = f"claims of its own ({', '.join(restored)})" if restored else "none of its claims"
    return (f"metadata.annotations[{names.CLAIM_SOURCES}]: the pod is a copy: it gets {claims}, and is in no gang",)


def _unpin(patch: PatchBuilder) -> None:
    """Remove the pin that the controller appended to every term that is not empty; leave terms that have none."""
    terms = required_node_terms(map_at(patch.patched, "spec"))
    pinned = [at for at, term in enumerate(terms) if term.get("matchFields") or term.get("matchExpressions")]
    fields = {at: list_at(terms[at], "matchFields", "nodeSelectorTerms") for at in pinned}
    if not pinned or not all(found and _is_pin(found[-1]) for found in fields.values()):
        return
    if len({found[-1]["values"][0] for found in fields.values()}) > 1:
        return
    if len(terms) == 1 and len(fields[0]) == 1 and not terms[0].get("matchExpressions"):
        _remove_made_for_pin(patch)
        return
    for at, found in fields.items():
        if len(found) > 1:
            patch.remove((*_TERMS, at, "matchFields", len(found) - 1))
        else:
            patch.remove((*_TERMS, at, "matchFields"))


def _remove_made_for_pin(patch: PatchBuilder) -> None:
    """A term without rules would match no node, so all that was made for the pin goes: the smallest part that holds nothing else."""
    path = REQUIRED_NODE_AFFINITY
    while len(path) > 2 and len(object_at(patch.patched, path[:-1])) == 1:
        path = path[:-1]
    patch.remove(path)


def _is_pin(field: Json) -> bool:
    values = field.get("values")
    named = isinstance(values, list) and len(values) == 1 and isinstance(values[0], str)
    return field.get("key") == "metadata.name" and field.get("operator") == "In" and named
