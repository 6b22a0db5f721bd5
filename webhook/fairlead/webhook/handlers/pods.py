"""Pods: gated if they ask for managed devices, with their gang settled and their legacy requests turned into claims.

Exists because a gate can only be added when a pod is made: whoever misses that moment has a pod that nobody
can place. Keeps: a pod that asks for nothing of ours is answered without a patch; gates of others are never
removed or moved; a second pass changes nothing.
"""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.intent import Intent
from fairlead.webhook.gangs import foreign_schedulers as instead
from fairlead.webhook.gangs import pod_gang as gangs
from fairlead.webhook.legacy import requests as legacy
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at, text_at
from fairlead.webhook.policy import cel_rules as policy_rules
from fairlead.webhook.policy import device_bypass as bypass
from fairlead.webhook.policy import pods as policy_pods
from fairlead.webhook.policy import policies as policy
from fairlead.webhook.policy.claims import legacy_ask_findings, use_findings
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts, gated
from fairlead.webhook.review.patch import Draft
from fairlead.webhook.review.pod_claims import Managed, Use, pod_uses
from fairlead.webhook.review.verdict import UNTOUCHED, Finding, Verdict, allow, deny

ALLOCATORS = frozenset({"system:masters"})
"""Groups that may do anything; the webhook does not pretend to stop them."""
AGAIN = 429
"""Where the mutating half did not see the pod, it may only have been slow: the client is told to try again."""


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
    own = len(list_at(spec, "resourceClaims", "spec"))
    left = legacy.translate(draft, found.asks) if translated else ()
    uses = pod_uses(review.namespace, map_at(draft.object, "spec"), facts)
    if not _ours(uses, spec):
        return _unmanaged(review, draft, found, facts)
    left = (*left, *gangs.strip(draft))
    if any(use.managed is Managed.YES for use in uses):  # a claim that is still missing may be another driver's
        left = (*left, *instead.bind(draft))
    settled = gangs.settle(draft.object, namespace=review.namespace, name=review.name, facts=facts)
    faults = [*settled.faults, *_placed(spec)]
    if faults:
        return deny(
            "gang" if settled.faults else "placed", *_about(review, faults), code=422, warnings=settled.warnings
        )
    if settled.intent.gang is not None and settled.intent.size is not None:
        draft.set(("metadata", "annotations", names.GANG), settled.intent.gang)
        draft.set(("metadata", "annotations", names.GANG_SIZE), _text(draft.object, settled.intent.size))
    if not gated(draft.object):
        draft.append(("spec", "schedulingGates"), {"name": names.ADMISSION_GATE})
    findings: list[Finding] = []
    if facts.policies:
        policy_pods.defaults(facts.policies, draft)
        bypass.hide(facts.policies, draft)
        findings += _legacy_findings(found, translated, facts)
        findings += _findings(draft.object, uses[:own], settled.intent, facts)
    verdict = allow("gated", patch=draft.operations, warnings=(*settled.warnings, *left, *_missing(uses)))
    return policy.apply(verdict, review.subject, findings)


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
        if found.faults:
            return deny("legacy", *_about(review, found.faults), code=422)
        again = "was not turned into a claim; the mutating webhook did not see the pod: create it again"
        left = [f"{ask.path}.limits[{ask.resource}]: {again}" for ask in found.asks]
        return deny("legacy", *_about(review, left), code=AGAIN)
    if not _ours(uses, spec):
        verdict = _unmanaged(review, None, found, facts)
        return replace(verdict, warnings=()) if verdict.cause == "unmanaged" else verdict
    settled = gangs.settle(review.object, namespace=review.namespace, name=review.name, facts=facts)
    faults = [*settled.faults, *_placed(spec)]
    if faults:
        return deny("gang" if settled.faults else "placed", *_about(review, faults), code=422)
    if not gated(review.object) and any(use.managed is Managed.YES for use in uses):
        fault = (
            f"spec.schedulingGates: the gate {names.ADMISSION_GATE} is missing, so that nobody could place the pod; "
            "create it again, and see that no other webhook removes the gate"
        )
        return deny("gate", *_about(review, [fault]), code=AGAIN)
    if not facts.policies:
        return allow("managed")
    findings = [
        *_legacy_findings(found, False, facts),
        *_findings(review.object, uses, settled.intent, facts),
        *policy_rules.rule_findings(facts.policies, review, facts),
    ]
    return policy.apply(allow("managed"), review.subject, findings)


def mutate_debug(review: Review, facts: Facts) -> Verdict:
    """The verdict on ephemeral containers (`kubectl debug`): only ways past the claims are looked at. Raises MalformedError."""
    draft = Draft(review.object or {})
    bypass.hide(facts.policies, draft, since=review.old or {})
    return allow("bypass", patch=draft.operations) if draft.operations else UNTOUCHED


def validate_debug(review: Review, facts: Facts) -> Verdict:
    """Raises MalformedError."""
    containers = map_at(review.object or {}, "spec").get("ephemeralContainers")
    findings = bypass.bypass_findings(facts.policies, {"spec": {"ephemeralContainers": containers}})
    return policy.apply(UNTOUCHED, review.subject, findings)


def releases(review: Review, facts: Facts) -> bool:
    """Whether the review's user may remove the gate."""
    return review.username in facts.controllers or bool(ALLOCATORS & review.groups) or facts.may_release


def _update(review: Review, facts: Facts) -> Verdict:
    """Of a stored pod only the gate, our annotations and, while it waits, the words of other systems that name its gang and
    queue are looked at; everything else is not ours.
    """
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
    if was_gated:
        changes = (*changes, *gangs.foreign_changed(old, new))
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


def _unmanaged(review: Review, draft: Draft | None, found: legacy.Found, facts: Facts) -> Verdict:
    """Allowed untouched, unless a policy says something of pods without claims; annotations without effect are pointed out."""
    pod = review.object or {}
    verdict = UNTOUCHED
    if names.GANG in strings_at(map_at(pod, "metadata"), "annotations", "metadata") and not found.any:
        nothing = "the pod asks for no device that Fairlead manages: it is not gated, and does not count as a member"
        verdict = allow("unmanaged", warnings=(f"{names.GANG}: {nothing}",))
    if not facts.policies:
        return verdict
    if draft is not None and bypass.hide(facts.policies, draft):
        verdict = allow("bypass", patch=draft.operations, warnings=verdict.warnings)
    findings = [*_legacy_findings(found, False, facts), *bypass.bypass_findings(facts.policies, pod)]
    return policy.apply(verdict, review.subject, findings)


def _placed(spec: Json) -> list[str]:
    node = text_at(spec, "nodeName", "spec")
    if not node:
        return []
    cure = "remove nodeName, and use nodeSelector or affinity to ask for a node"
    return [f"spec.nodeName: {node!r}: the controller places pods that ask for its devices; {cure}"]


def _missing(uses: list[Use]) -> list[str]:
    return [f"{use.missing} does not exist; the pod waits until it does" for use in uses if use.missing]


def _findings(pod: Json, uses: list[Use], intent: Intent, facts: Facts) -> list[Finding]:
    """What the policies say of a managed pod as it is now."""
    policies = facts.policies
    elsewhere = intent.gang if intent.size_elsewhere else None
    findings = list(policy.gang_findings(policies, intent.size, "metadata.annotations", elsewhere=elsewhere))
    for use in uses:
        findings += use_findings(policies, use, "", facts)
    findings += policy_pods.pod_findings(policies, map_at(pod, "spec"), "spec")
    findings += bypass.bypass_findings(policies, pod)
    return findings


def _legacy_findings(found: legacy.Found, translated: bool, facts: Facts) -> list[Finding]:
    """What the policies say of legacy limits; where they become claims, also of those."""
    findings = list(
        policy.legacy_findings(facts.policies, [f"{ask.path}.limits[{ask.resource}]" for ask in found.asks])
    )
    for ask in found.asks if translated else ():
        findings += legacy_ask_findings(facts.policies, ask, f"{ask.path}.limits[{ask.resource}]", facts)
    return findings


def _text(pod: Json, size: int) -> str:
    """The size as it is written already, if it says the same ("08")."""
    written = strings_at(map_at(pod, "metadata"), "annotations", "metadata").get(names.GANG_SIZE)
    return written if written is not None and int(written) == size else str(size)


def _about(review: Review, faults: list[str] | tuple[str, ...]) -> list[str]:
    return [f"{review.subject}: {fault}" for fault in faults]
