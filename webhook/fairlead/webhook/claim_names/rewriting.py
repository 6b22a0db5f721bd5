"""Rewriting: template entries of a controller-owned pod become names of claims that do not exist yet.

Only entries that surely ask for managed devices, and whose template is known: its UID is recorded with its name, so that the
controller makes the claim from what was judged, or not at all. The others stay; both ways may meet in one pod.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api import claim_sources, names
from fairlead.api.claim_sources import ClaimSource
from fairlead.api.object_names import is_dns_label, is_dns_subdomain
from fairlead.webhook.claim_names.way import way_of
from fairlead.webhook.objects.fields import list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pods import controller_of
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.patch import PatchBuilder
from fairlead.webhook.review.pod_claims import Managed, PodClaim


def name_claims(review: Review, patch: PatchBuilder, claims: Sequence[PodClaim], facts: Facts) -> None:
    """Rewrite the entries and record their sources; `claims` are those of the pod's entries, in order. Raises MalformedError.

    Names are derived from the review's UID, which is random and new for each call: a pod that is made again under its old name
    gets other claims. Changes nothing in a second pass: the pod has the annotation then.
    """
    metadata, spec = map_at(patch.patched, "metadata"), map_at(patch.patched, "spec")
    owner = controller_of(metadata)
    recorded = names.CLAIM_SOURCES in strings_at(metadata, "annotations", "metadata")
    if owner is None or recorded or not way_of(metadata, spec, facts).named:
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
