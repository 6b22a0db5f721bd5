"""Provenance: whether the annotation that records claims' sources is the webhook's own.

Whoever wrote it freely could have the controller make claims that no policy judged, or claims of other pods. So a pod that a
controller made must carry the webhook's signature over namespace, owner and sources, and name just the claims that it records.
A bare pod never has the annotation once it is admitted: one that comes with it is a copy (`copies`).
"""

from __future__ import annotations

from fairlead.api import claim_sources, names
from fairlead.api.claim_sources import ClaimSourcesError
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pods import controller_of
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts

_WHERE = f"metadata.annotations[{names.CLAIM_SOURCES}]"
_CURE = "remove it from the pod template, and write resourceClaimTemplateName in spec.resourceClaims"


def is_copy(pod: Json) -> bool:
    """Whether the pod was copied from one with named claims: it has their sources, and no controller. Raises MalformedError."""
    metadata = map_at(pod, "metadata")
    return names.CLAIM_SOURCES in strings_at(metadata, "annotations", "metadata") and controller_of(metadata) is None


def faults(review: Review, facts: Facts) -> list[str]:
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
        return [f"{_WHERE}: was not written by the webhook for a pod of this owner; {_CURE}"]
    entries = list_at(map_at(pod, "spec"), "resourceClaims", "spec")
    claims = {entry.get("name"): entry.get("resourceClaimName") for entry in entries}
    return [
        f"spec.resourceClaims: {entry!r} must name claim {source.claim!r}, as {_WHERE} records; leave it as the webhook wrote it"
        for entry, source in sources.items()
        if claims.get(entry) != source.claim
    ]
