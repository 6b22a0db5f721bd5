"""Pods: gated if they ask for managed devices, with their gang settled and their legacy requests turned into claims.

Exists because a gate can only be added when a pod is made: whoever misses that moment has a pod that nobody
can place. Keeps: a pod that asks for nothing of ours is answered without a patch; gates of others are never
removed or moved; a second pass changes nothing.
"""

from __future__ import annotations

from fairlead.api import names
from fairlead.webhook import gangs, legacy, policy
from fairlead.webhook.draft import Draft
from fairlead.webhook.facts import Facts, gated
from fairlead.webhook.fields import Json, map_at, strings_at, text_at
from fairlead.webhook.review import Review
from fairlead.webhook.uses import Managed, Use, pod_uses
from fairlead.webhook.verdict import UNTOUCHED, Verdict, allow, deny

ALLOCATORS = frozenset({"system:masters"})
"""Groups that may do anything; the webhook does not pretend to stop them."""


def mutate(review: Review, facts: Facts) -> Verdict:
    """The verdict on a new pod. Raises MalformedError."""
    assert review.object is not None
    if review.operation != "CREATE":
        return UNTOUCHED
    draft = Draft(review.object)
    spec = map_at(draft.object, "spec")
    found = legacy.find(spec)
    translated = found.any and policy.legacy_requests(facts.policies) == "Translate"
    if translated and found.faults:
        return deny("legacy", *_about(review, found.faults), code=422)
    if translated:
        legacy.translate(draft, found.asks)
    uses = pod_uses(review.namespace, map_at(draft.object, "spec"), facts)
    if not _ours(uses, spec):
        return _unmanaged(review, found)
    settled = gangs.settle(map_at(draft.object, "metadata"), namespace=review.namespace, name=review.name, facts=facts)
    faults = [*settled.faults, *_placed(spec)]
    if faults:
        return deny(
            "gang" if settled.faults else "placed", *_about(review, faults), code=422, warnings=settled.warnings
        )
    if settled.intent.gang is not None and settled.intent.size is not None:
        draft.set(("metadata", "annotations", names.GANG_SIZE), _text(draft.object, settled.intent.size))
    if not gated(draft.object):
        draft.append(("spec", "schedulingGates"), {"name": names.ADMISSION_GATE})
    verdict = allow("gated", patch=draft.operations, warnings=(*settled.warnings, *_missing(uses)))
    return policy.apply(verdict, review.subject, _findings(found, translated, settled.intent.size, facts))


def validate(review: Review, facts: Facts) -> Verdict:
    """The verdict on a pod as it would be stored. Raises MalformedError."""
    assert review.object is not None
    if review.operation == "UPDATE":
        return _update(review, facts)
    if review.operation != "CREATE":
        return UNTOUCHED
    spec = map_at(review.object, "spec")
    found = legacy.find(spec)
    uses = pod_uses(review.namespace, spec, facts)
    if found.any and policy.legacy_requests(facts.policies) == "Translate":
        left = found.faults or tuple(
            f"{ask.path}.limits[{ask.resource}]: was not turned into a claim" for ask in found.asks
        )
        again = "; the mutating webhook did not see the pod: create it again"
        return deny("legacy", *_about(review, [f"{fault}{'' if found.faults else again}" for fault in left]), code=422)
    if not _ours(uses, spec):
        return UNTOUCHED
    settled = gangs.settle(map_at(review.object, "metadata"), namespace=review.namespace, name=review.name, facts=facts)
    faults = [*settled.faults, *_placed(spec)]
    if not gated(review.object) and any(use.managed is Managed.YES for use in uses):
        faults.append(
            f"spec.schedulingGates: the gate {names.ADMISSION_GATE} is missing, so that nobody could place the pod; "
            "create it again, and see that no other webhook removes the gate"
        )
    if faults:
        return deny("gang" if settled.faults else "gate", *_about(review, faults), code=422)
    return policy.apply(allow("managed"), review.subject, _findings(found, False, settled.intent.size, facts))


def releases(review: Review, facts: Facts) -> bool:
    """Whether the review's user may remove the gate."""
    return review.username in facts.controllers or bool(ALLOCATORS & review.groups) or facts.may_release


def _update(review: Review, facts: Facts) -> Verdict:
    """Of a stored pod only the gate and our annotations are looked at; everything else is not ours."""
    assert review.object is not None
    old, new = review.old or {}, review.object
    was_gated, faults, cause = gated(old), [], "gate"
    if map_at(new, "metadata").get("deletionTimestamp") is not None:
        return UNTOUCHED  # it goes; nobody waits for it
    if was_gated and not gated(new) and not releases(review, facts):
        faults.append(
            f"spec.schedulingGates: only the Fairlead controller removes {names.ADMISSION_GATE}, when the pod's devices "
            f"are allocated, not {review.username!r}; delete the pod to give up waiting"
        )
    changes = gangs.changed(map_at(old, "metadata"), map_at(new, "metadata"))
    ours = was_gated or any(u.managed is Managed.YES for u in pod_uses(review.namespace, map_at(new, "spec"), facts))
    if changes and ours and review.username not in facts.controllers:
        faults += changes
        cause = "annotations" if len(faults) == len(changes) else cause
    if faults:
        return deny(cause, *_about(review, faults))
    return allow("managed" if ours else "unmanaged")


def _ours(uses: list[Use], spec: Json) -> bool:
    """Whether the pod is to be gated. One that has its node already cannot be, so it must surely be ours to be judged."""
    found = {use.managed for use in uses}
    return Managed.YES in found or (Managed.UNKNOWN in found and not text_at(spec, "nodeName", "spec"))


def _unmanaged(review: Review, found: legacy.Found) -> Verdict:
    """Allowed untouched; annotations that have no effect are pointed out."""
    annotations = strings_at(map_at(review.object or {}, "metadata"), "annotations", "metadata")
    if names.GANG in annotations and not found.any:
        nothing = "the pod asks for no device that Fairlead manages: it is not gated, and does not count as a member"
        return allow("unmanaged", warnings=(f"{names.GANG}: {nothing}",))
    return UNTOUCHED


def _placed(spec: Json) -> list[str]:
    node = text_at(spec, "nodeName", "spec")
    if not node:
        return []
    cure = "remove nodeName, and use nodeSelector or affinity to ask for a node"
    return [f"spec.nodeName: {node!r}: the controller places pods that ask for its devices; {cure}"]


def _missing(uses: list[Use]) -> list[str]:
    return [f"{use.missing} does not exist; the pod waits until it does" for use in uses if use.missing]


def _findings(found: legacy.Found, translated: bool, size: int | None, facts: Facts) -> list[policy.Finding]:
    findings = list(policy.gang_findings(facts.policies, size, "metadata.annotations"))
    if translated:
        paths = (f"{ask.path}.limits[{ask.resource}]" for ask in found.asks)
        findings += policy.legacy_findings(facts.policies, paths)
        for ask in found.asks:
            findings += policy.count_findings(facts.policies, ask.count, f"{ask.path}.limits[{ask.resource}]")
    return findings


def _text(pod: Json, size: int) -> str:
    """The size as it is written already, if it says the same ("08")."""
    written = strings_at(map_at(pod, "metadata"), "annotations", "metadata").get(names.GANG_SIZE)
    return written if written is not None and int(written) == size else str(size)


def _about(review: Review, faults: list[str] | tuple[str, ...]) -> list[str]:
    return [f"{review.subject}: {fault}" for fault in faults]
