"""Which of two ways a pod's template entries go: `named` by the webhook, or `generated` by the claim controller.

Named: `resourceClaimName` replaces `resourceClaimTemplateName` when the pod is created, and Fairlead's controller makes the claim.
Generated: the entry stays as it is, and kube-controller-manager's claim controller makes the claim, as without Fairlead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fairlead.api import names
from fairlead.webhook.objects.fields import Json, list_at, map_at
from fairlead.webhook.objects.pods import annotations_and_labels, controller_of, gated, recorded_sources
from fairlead.webhook.review.facts import Facts

GENERATED, NAMED = "generated", "named"
_CURE = f"write {GENERATED!r} (the claim controller makes the pods' claims), or {NAMED!r}, or remove it"


@dataclass(frozen=True)
class Way:
    """`why` is a clause for users."""

    named: bool
    why: str


def way_of(metadata: Json, spec: Json, facts: Facts) -> Way:
    """The way of a new pod. Raises MalformedError.

    A bare pod is never named: applying its manifest again would change an immutable field. A pod of a PodGroup neither: the group
    may own its claims (KEP-5729). Kueue hashes spec.resourceClaims, so its pods are named only where they say so themselves.
    """
    owner = controller_of(metadata)
    if owner is None:
        return Way(False, "no controller owns the pod")
    if map_at(spec, "schedulingGroup", "spec"):
        return Way(False, "spec.schedulingGroup: the pod's PodGroup may own claims")
    annotations, labels = annotations_and_labels(metadata)
    if asked := annotations.get(names.CLAIM_NAMES):
        return Way(asked == NAMED, f"metadata.annotations[{names.CLAIM_NAMES}]: {asked}")
    if facts.namespace_labels.get(names.CLAIM_NAMES) == GENERATED:
        return Way(False, f"the namespace's label {names.CLAIM_NAMES}: {GENERATED}")
    if kueue := _kueue_mark(labels, spec):
        return Way(False, f"{kueue}: Kueue may manage the pod")
    return Way(True, f"{owner.get('kind')} {owner.get('name')} owns the pod")


def described(pod: Json, facts: Facts) -> str:
    """`named: Job train owns the pod`: the way that an admitted pod's claims went, and why; "" where none comes of a template.

    Raises MalformedError.
    """
    metadata, spec = map_at(pod, "metadata"), map_at(pod, "spec")
    way, named = way_of(metadata, spec, facts), sorted(recorded_sources(metadata))
    entries = list_at(spec, "resourceClaims", "spec")
    kept = [str(entry.get("name")) for entry in entries if entry.get("resourceClaimTemplateName")]
    if not gated(pod) or not (named or kept):
        return ""
    if not named:
        return f"{GENERATED}: {'their template or class does not exist yet' if way.named else way.why}"
    others = f"; {GENERATED}: {', '.join(kept)}, which another driver may serve" if kept else ""
    return f"{NAMED}: {way.why}{others}"


def faults(metadata: Json, where: str = "metadata") -> Iterator[str]:
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
        yield f"{path}: {value!r} is no way to make claims; {_CURE}"


def _kueue_mark(labels: Mapping[str, str], spec: Json) -> str | None:
    """Where the pod shows that Kueue manages it."""
    for key in (names.KUEUE_MANAGED, names.KUEUE_QUEUE, names.KUEUE_GROUP_LABEL):
        if key in labels:
            return f"metadata.labels[{key}]"
    gates = list_at(spec, "schedulingGates", "spec")
    return "spec.schedulingGates" if any(gate.get("name") == names.KUEUE_GATE for gate in gates) else None
