"""Pods: gated if they ask for managed devices, with their gang resolved and their legacy requests translated into claims.

A gate can only be added when a pod is created: a pod that misses it can never be placed as its gang needs; nor could its claims be
named later (`claim_names`). Keeps: a pod that asks for no managed device gets no patch (but for policy defaults, and what only
Fairlead writes is taken off); other gates are never removed or moved; a second pass changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.derived import source_text
from fairlead.api.intent import Intent
from fairlead.webhook.claim_names import copies, provenance, way
from fairlead.webhook.claim_names.rewriting import name_claims
from fairlead.webhook.gangs import controller_keys, foreign_schedulers, ownership, pod_gang, traces, users
from fairlead.webhook.gangs.pod_gang import PodGang
from fairlead.webhook.legacy.requests import LegacyLimits, legacy_limits, translate
from fairlead.webhook.objects import sharing
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pods import gated, recorded_sources
from fairlead.webhook.policy import bounds, defaults, policies, rules
from fairlead.webhook.policy.rules import Kind, Subject
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.patch import PatchBuilder
from fairlead.webhook.review.pod_claims import Managed, PodClaim, pod_claims
from fairlead.webhook.review.verdict import UNTOUCHED, Verdict, allow, deny

ADMINISTRATORS = frozenset({"system:masters"})
"""Groups that may do anything: the webhook cannot restrain them."""
TRY_AGAIN = 429
"""Where the mutating webhook did not see the pod, perhaps since it was too slow: clients create the pod again by themselves."""


def mutate(review: Review, facts: Facts) -> Verdict:
    """The verdict on a new pod. Raises MalformedError."""
    assert review.object is not None
    if review.operation != "CREATE":
        return UNTOUCHED
    faults = provenance.faults(review, facts)
    if faults:
        return deny("annotations", *review.about(faults), code=422)
    patch = PatchBuilder(review.object)
    warnings = [*(copies.restore(patch) if provenance.is_copy(review.object) else ()), *controller_keys.strip(patch)]
    spec = map_at(patch.patched, "spec")
    legacy = legacy_limits(spec, facts.drivers)
    translated = legacy.any and policies.legacy_requests(facts.policies) == "Translate"
    if translated and legacy.faults:
        return deny("legacy", *review.about(legacy.faults), code=422)
    written = len(list_at(spec, "resourceClaims", "spec"))
    warnings += translate(patch, legacy.limits) if translated else ()
    spec, sources = map_at(patch.patched, "spec"), recorded_sources(map_at(patch.patched, "metadata"))
    claims = pod_claims(review.namespace, spec, facts, sources)
    if not _to_be_gated(claims, spec):
        return _unmanaged(review, patch, legacy, facts).with_warnings(warnings)
    if _surely_managed(claims):
        warnings += foreign_schedulers.use_default_scheduler(patch, facts)
        warnings += ownership.warnings(patch.patched, review.namespace, facts)
    gang = pod_gang.resolve(patch.patched, namespace=review.namespace, name=review.name, facts=facts)
    denial = _denial(review, gang, patch.patched, claims, facts)
    if denial is not None:
        return denial
    _write_gang(patch, gang.intent)
    if facts.records_users:
        users.stamp_pod(review, patch)
    name_claims(review, patch, claims, facts)
    if not gated(patch.patched):
        patch.append(("spec", "schedulingGates"), {"name": names.ADMISSION_GATE})
    if names.REVIEWED not in strings_at(map_at(patch.patched, "metadata"), "labels", "metadata"):
        patch.set(("metadata", "labels", names.REVIEWED), names.REVIEWED_POD)
    defaults.of_managed_pod(facts.policies, patch)
    judged = _managed(patch.patched, legacy, claims[:written], gang.intent, translated=translated)
    warnings += bounds.default_warnings(gang.intent, map_at(patch.patched, "spec"), facts)
    warnings += _sharing_warnings(map_at(patch.patched, "spec"), claims)
    missing = [claim.wait for claim in claims if claim.wait]
    trace, ignored = traces.stamp(patch, gang.intent.gang, review, facts.traces_ratio)
    verdict = allow("gated", patch=patch.operations, warnings=(*gang.warnings, *warnings, *ignored, *missing))
    verdict = policies.apply_findings(verdict, review.subject, rules.findings(facts.policies, [judged], facts))
    return verdict if trace is None else replace(verdict, gang=gang.intent.gang or "", trace=trace)


def _sharing_warnings(spec: Json, claims: Sequence[PodClaim]) -> Iterator[str]:
    if len(claims) < 2:
        return
    entries = zip(list_at(spec, "resourceClaims", "spec"), claims, strict=False)
    specs = {text_at(entry, "name"): claim.spec for entry, claim in entries if claim.spec is not None}
    users = [
        (f"spec.{field}[{index}]", [text_at(use, "name") for use in list_at(map_at(container, "resources"), "claims")])
        for field in ("initContainers", "containers")
        for index, container in enumerate(list_at(spec, field, "spec"))
    ]
    yield from sharing.pod_warnings(users, specs)


def validate(review: Review, facts: Facts) -> Verdict:
    """The verdict on a pod as it would be stored; mutate has given the warnings. Raises MalformedError."""
    assert review.object is not None
    if review.operation == "UPDATE":
        return _validate_update(review, facts)
    spec, metadata = map_at(review.object, "spec"), map_at(review.object, "metadata")
    reserved = controller_keys.RESERVED if provenance.is_copy(review.object) else controller_keys.CONTROLLER_ANNOTATIONS
    forged = [*provenance.faults(review, facts), *controller_keys.forged(metadata, reserved)]
    said = strings_at(metadata, "annotations", "metadata").get(names.USER)
    if facts.records_users and said is not None and said != users.user_of_pod(review):
        forged.append(f"metadata.annotations[{names.USER}]: only the webhook writes this; remove it")
    if forged:
        return deny("annotations", *review.about(forged), code=422)
    legacy = legacy_limits(spec, facts.drivers)
    claims = pod_claims(review.namespace, spec, facts, recorded_sources(metadata))
    if legacy.any and policies.legacy_requests(facts.policies) == "Translate":
        if legacy.faults:
            return deny("legacy", *review.about(legacy.faults), code=422)
        again = "was not turned into a claim; the mutating webhook did not see the pod: create it again"
        return deny("legacy", *review.about(f"{path}: {again}" for path in legacy.paths), code=TRY_AGAIN)
    if not _to_be_gated(claims, spec):
        verdict = _unmanaged(review, None, legacy, facts)
        return replace(verdict, warnings=()) if verdict.cause == "unmanaged" else verdict
    gang = pod_gang.resolve(review.object, namespace=review.namespace, name=review.name, facts=facts)
    denial = _denial(review, gang, review.object, claims, facts)
    if denial is not None:
        return replace(denial, warnings=())
    if not gated(review.object) and _surely_managed(claims):
        fault = (
            f"spec.schedulingGates: the gate {names.ADMISSION_GATE} is missing, so the controller cannot place the pod; "
            "create it again, and see that no other webhook removes the gate"
        )
        return deny("gate", *review.about([fault]), code=TRY_AGAIN)
    judged = _managed(review.object, legacy, claims, gang.intent, review=review)
    return policies.apply_findings(allow("managed"), review.subject, rules.findings(facts.policies, [judged], facts))


def mutate_ephemeral(review: Review, facts: Facts) -> Verdict:
    """The verdict on ephemeral containers (`kubectl debug`): only device bypasses are judged. Raises MalformedError."""
    patch = PatchBuilder(review.object or {})
    changed = defaults.of_other_pod(facts.policies, patch, before=review.old or {})
    return allow("bypass", patch=patch.operations) if changed else UNTOUCHED


def validate_ephemeral(review: Review, facts: Facts) -> Verdict:
    """Raises MalformedError."""
    added = Subject(kind=Kind.EPHEMERAL, pod=review.object or {})
    return policies.apply_findings(UNTOUCHED, review.subject, rules.findings(facts.policies, [added], facts))


def _validate_update(review: Review, facts: Facts) -> Verdict:
    """Of a stored pod only the gate, our annotations and, while it is gated, other systems' words for its gang and queue are
    judged; what only Fairlead writes, on every pod.
    """
    old, new = review.old or {}, review.object or {}
    metadata, by_controller = (map_at(old, "metadata"), map_at(new, "metadata")), review.username in facts.controllers
    was_gated, faults, cause = gated(old), list(controller_keys.changed(*metadata, by_controller=by_controller)), "gate"
    if faults:
        return deny("annotations", *review.about(faults))
    if metadata[1].get("deletionTimestamp") is not None:
        return UNTOUCHED
    if was_gated and not gated(new) and not _may_remove_gate(review, facts):
        faults.append(
            f"spec.schedulingGates: only the Fairlead controller removes {names.ADMISSION_GATE}, when the pod's devices "
            f"are allocated, not {review.username!r}; delete the pod to give up waiting"
        )
    changes = pod_gang.changed(*metadata)
    progress = pod_gang.running_faults(*metadata)
    sources = recorded_sources(metadata[1])
    claims = () if was_gated else pod_claims(review.namespace, map_at(new, "spec"), facts, sources)
    managed = was_gated or any(claim.managed is Managed.YES for claim in claims)
    if was_gated:
        changes = (*changes, *pod_gang.foreign_changed(old, new))
    if changes and managed and not by_controller:
        cause = "gate" if faults else "annotations"
        faults += changes
    if progress and managed:
        cause = cause if faults else "annotations"
        faults += progress
    if faults:
        return deny(cause, *review.about(faults))
    verdict = allow("managed" if managed else "unmanaged")
    kept = strings_at(metadata[0], "annotations", "metadata").get(names.KEEP_IDLE)
    if not managed or kept == "true":
        return verdict
    updated = Subject(kind=Kind.UPDATED_POD, pod=new)
    return policies.apply_findings(verdict, review.subject, rules.findings(facts.policies, [updated], facts))


def _may_remove_gate(review: Review, facts: Facts) -> bool:
    in_group = bool(ADMINISTRATORS & review.groups)
    return review.username in facts.controllers or in_group or facts.may_remove_gate


def _to_be_gated(claims: list[PodClaim], spec: Json) -> bool:
    """Whether the pod may use a managed device. One that has a node cannot be gated, so it must surely use one to be judged."""
    found = {claim.managed for claim in claims}
    return Managed.YES in found or (Managed.UNKNOWN in found and not text_at(spec, "nodeName", "spec"))


def _surely_managed(claims: list[PodClaim]) -> bool:
    """A claim that does not exist yet may be another driver's."""
    return any(claim.managed is Managed.YES for claim in claims)


def _unmanaged(review: Review, patch: PatchBuilder | None, legacy: LegacyLimits, facts: Facts) -> Verdict:
    """Allowed without a gate; policies that judge pods without claims apply, and annotations without effect are reported.

    patch: None while validating.
    """
    pod = (review.object or {}) if patch is None else patch.patched
    verdict = UNTOUCHED if patch is None or not patch.operations else allow("unmanaged", patch=patch.operations)
    if names.GANG in strings_at(map_at(pod, "metadata"), "annotations", "metadata") and not legacy.any:
        nothing = "the pod asks for no device that Fairlead manages: it is not gated, and does not count as a member"
        verdict = verdict.with_warnings([f"{names.GANG}: {nothing}"])
    if patch is not None and defaults.of_other_pod(facts.policies, patch):
        verdict = allow("bypass", patch=patch.operations, warnings=verdict.warnings)
    judged = Subject(kind=Kind.POD, pod=pod, legacy=legacy)
    return policies.apply_findings(verdict, review.subject, rules.findings(facts.policies, [judged], facts))


def _denial(review: Review, gang: PodGang, pod: Json, claims: list[PodClaim], facts: Facts) -> Verdict | None:
    """A denial where the gang is impossible, the pod names its node or is another system's, or what makes its claims is not said rightly."""
    metadata = map_at(pod, "metadata")
    beyond = bounds.queue_faults(gang.intent, map_at(pod, "spec"), facts)
    faults = [*gang.faults, *beyond, *way.faults(metadata), *way.namespace_faults(review.namespace, metadata, facts)]
    cause = "gang" if gang.faults or beyond else "claim" if faults else "placed"
    faults += ownership.faults(pod, review.namespace, facts) if _surely_managed(claims) else ()
    if node := text_at(map_at(pod, "spec"), "nodeName", "spec"):
        cure = "remove nodeName, and use nodeSelector or affinity to ask for a node"
        faults.append(f"spec.nodeName: {node!r}: the controller places pods that ask for its devices; {cure}")
    if not faults:
        return None
    return deny(cause, *review.about(faults), code=422, warnings=gang.warnings)


def _write_gang(patch: PatchBuilder, intent: Intent) -> None:
    if intent.gang is None or intent.size is None:
        return
    patch.set(("metadata", "annotations", names.GANG), intent.gang)
    written = strings_at(map_at(patch.patched, "metadata"), "annotations", "metadata").get(names.GANG_SIZE)
    if written is None or int(written) != intent.size:  # "08" stays
        patch.set(("metadata", "annotations", names.GANG_SIZE), str(intent.size))
        if intent.size_from is not None:
            patch.set(("metadata", "annotations", names.SIZE_FROM), source_text(*intent.size_from))


def _managed(
    pod: Json,
    legacy: LegacyLimits,
    claims: list[PodClaim],
    intent: Intent,
    *,
    translated: bool = False,
    review: Review | None = None,
) -> Subject:
    return Subject(
        kind=Kind.MANAGED_POD,
        pod=pod,
        legacy=legacy,
        translated=translated,
        claims=claims,
        intent=intent,
        size=intent.size,
        pod_group=intent.gang if intent.size_elsewhere else None,
        review=review,
    )
