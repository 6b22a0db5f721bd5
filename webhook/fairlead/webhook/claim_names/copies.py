"""Copies of a pod with named claims: what they came from is put back, so that a copy never shares the original's devices.

`kubectl debug --copy-to`, or `kubectl get -o yaml` and `kubectl create` without the owner: the copy names the original's claims. It
gets their templates again, and goes the way of any bare pod. What the original got as a member of its gang goes, too: its place
in the gang, and the node that the controller pinned it to when it was released (`controller.gangs.release`).
"""

from __future__ import annotations

from fairlead.api import claim_sources, names
from fairlead.api.claim_sources import ClaimSourcesError
from fairlead.webhook.objects.fields import Json, MalformedError, list_at, map_at, object_at, strings_at, text_at
from fairlead.webhook.objects.pods import REQUIRED_NODE_AFFINITY, gated, required_node_terms
from fairlead.webhook.review.patch import PatchBuilder

_TERMS = (*REQUIRED_NODE_AFFINITY, "nodeSelectorTerms")


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
