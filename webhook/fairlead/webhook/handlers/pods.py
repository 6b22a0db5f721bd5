"""Pods: gated if they ask for managed devices, or are members of a gang without, with their gang resolved and their legacy requests translated
into claims.

A gate can only be added when a pod is created: a pod that misses it can never be placed as its gang needs; nor could its claims be
named later (`claim_names`). Keeps: a pod that is not gated gets no patch (but for policy defaults, and what only
Fairlead writes is taken off); other gates are never removed or moved; a second pass changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.derived import source_text
from fairlead.api.intent import Intent
from fairlead.webhook import claim_names
from fairlead.webhook.gangs import marks, other_systems, pod_gang
from fairlead.webhook.gangs.pod_gang import PodGang
from fairlead.webhook.legacy import LegacyLimits, legacy_limits, translate
from fairlead.webhook.objects import sharing
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pods import gated, recorded_sources
from fairlead.webhook.policy import defaults, members, pods, policies, rules
from fairlead.webhook.policy.policies import Kind, Subject, surely_managed
from fairlead.webhook.policy.refusals import refuse
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, PodClaim, pod_claims
from fairlead.webhook.review.verdict import UNTOUCHED, PatchBuilder, Verdict, allow


def mutate(review: Review, facts: Facts) -> Verdict:
    """The verdict on a new pod. Raises MalformedError, RefusedError."""
    assert review.object is not None
    if review.operation != "CREATE":
        return UNTOUCHED
    refuse([Subject(kind=Kind.NEW_POD, review=review, pod=review.object)], facts)
    patch = PatchBuilder(review.object)
    copied = claim_names.restore(patch) if claim_names.is_copy(review.object) else ()
    warnings = [*copied, *marks.strip(patch)]
    spec = map_at(patch.patched, "spec")
    legacy = legacy_limits(spec, facts.drivers)
    translated = legacy.any and policies.legacy_requests(facts.policies) == "Translate"
    if translated:
        refuse([Subject(kind=Kind.LEGACY, review=review, legacy=legacy)], facts)
    written = len(list_at(spec, "resourceClaims", "spec"))
    warnings += translate(patch, legacy.limits) if translated else ()
    spec, sources = map_at(patch.patched, "spec"), recorded_sources(map_at(patch.patched, "metadata"))
    claims = pod_claims(review.namespace, spec, facts, sources)
    uses_devices = _to_be_gated(claims, spec)
    if not uses_devices and not members.is_member(patch.patched, facts):
        return _unmanaged(review, patch, legacy, facts).with_warnings(warnings)
    if not uses_devices or surely_managed(claims):
        warnings += other_systems.use_default_scheduler(patch, facts)
        warnings += other_systems.owner_warnings(patch.patched, review.namespace, facts)
    gang = pod_gang.resolve(
        patch.patched, namespace=review.namespace, name=review.name, facts=facts, without_devices=not uses_devices
    )
    it = _gated(review, patch.patched, claims, gang, uses_devices=uses_devices)
    refuse([it], facts, warnings=gang.warnings)
    _write_gang(patch, gang.intent)
    if not uses_devices:
        patch.set(("metadata", "annotations", names.MEMBERS), members.ALL)
    if facts.records_users:
        marks.stamp_pod(review, patch)
    if uses_devices:
        claim_names.name_claims(review, patch, claims, facts)
    if not gated(patch.patched):
        patch.append(("spec", "schedulingGates"), {"name": names.ADMISSION_GATE})
    if names.REVIEWED not in strings_at(map_at(patch.patched, "metadata"), "labels", "metadata"):
        patch.set(("metadata", "labels", names.REVIEWED), names.REVIEWED_POD)
    (defaults.of_managed_pod if uses_devices else defaults.of_other_pod)(facts.policies, patch)
    it = replace(it, pod=patch.patched, legacy=legacy, translated=translated, claims=claims[:written])
    warnings += pods.default_warnings(gang.intent, it.spec, facts)
    warnings += _sharing_warnings(it.spec, claims)
    missing = [claim.wait for claim in claims if claim.wait]
    trace, ignored = marks.stamp_trace(patch, gang.intent.gang, review, facts.traces_ratio)
    verdict = allow("gated", patch=patch.operations, warnings=(*gang.warnings, *warnings, *ignored, *missing))
    verdict = policies.apply_findings(verdict, review.subject, rules.findings(facts.policies, [it], facts))
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
    """The verdict on a pod as it would be stored; mutate has given the warnings. Raises MalformedError, RefusedError."""
    assert review.object is not None
    if review.operation == "UPDATE":
        return _validate_update(review, facts)
    spec, metadata = map_at(review.object, "spec"), map_at(review.object, "metadata")
    refuse([Subject(kind=Kind.NEW_POD, review=review, pod=review.object, stored=True)], facts)
    legacy = legacy_limits(spec, facts.drivers)
    claims = pod_claims(review.namespace, spec, facts, recorded_sources(metadata))
    if legacy.any and policies.legacy_requests(facts.policies) == "Translate":
        refuse([Subject(kind=Kind.LEGACY, review=review, stored=True, legacy=legacy)], facts)
    uses_devices = _to_be_gated(claims, spec)
    if not uses_devices and not members.is_member(review.object, facts):
        verdict = _unmanaged(review, None, legacy, facts)
        return replace(verdict, warnings=()) if verdict.cause == "unmanaged" else verdict
    gang = pod_gang.resolve(
        review.object, namespace=review.namespace, name=review.name, facts=facts, without_devices=not uses_devices
    )
    it = _gated(review, review.object, claims, gang, uses_devices=uses_devices)
    it = replace(it, stored=True, legacy=legacy)
    refuse([it], facts)
    return policies.apply_findings(allow("managed"), review.subject, rules.findings(facts.policies, [it], facts))


def mutate_ephemeral(review: Review, facts: Facts) -> Verdict:
    """The verdict on ephemeral containers (`kubectl debug`): only device bypasses are judged. Raises MalformedError."""
    patch = PatchBuilder(review.object or {})
    changed = defaults.of_other_pod(facts.policies, patch, before=review.old or {})
    return allow("bypass", patch=patch.operations) if changed else UNTOUCHED


def validate_ephemeral(review: Review, facts: Facts) -> Verdict:
    """Raises MalformedError."""
    added = Subject(kind=Kind.EPHEMERAL, review=review, pod=review.object or {})
    return policies.apply_findings(UNTOUCHED, review.subject, rules.findings(facts.policies, [added], facts))


def _validate_update(review: Review, facts: Facts) -> Verdict:
    """Of a stored pod only whether it may say from now on that it needs idle devices: of its other changes the policy on pods decides."""
    old, new = review.old or {}, review.object or {}
    before, after = map_at(old, "metadata"), map_at(new, "metadata")
    if after.get("deletionTimestamp") is not None:
        return UNTOUCHED
    managed = (
        gated(old)
        or strings_at(before, "annotations", "metadata").get(names.MEMBERS) == members.ALL
        or surely_managed(pod_claims(review.namespace, map_at(new, "spec"), facts, recorded_sources(after)))
    )
    verdict = allow("managed" if managed else "unmanaged")
    if not managed or strings_at(before, "annotations", "metadata").get(names.KEEP_IDLE) == "true":
        return verdict
    it = Subject(kind=Kind.UPDATED_POD, review=review, pod=new, managed=managed)
    return policies.apply_findings(verdict, review.subject, rules.findings(facts.policies, [it], facts))


def _to_be_gated(claims: list[PodClaim], spec: Json) -> bool:
    """Whether the pod may use a managed device. One that has a node cannot be gated, so it must surely use one to be judged."""
    found = {claim.managed for claim in claims}
    return Managed.YES in found or (Managed.UNKNOWN in found and not text_at(spec, "nodeName", "spec"))


def _unmanaged(review: Review, patch: PatchBuilder | None, legacy: LegacyLimits, facts: Facts) -> Verdict:
    """Allowed without a gate; policies that judge pods without claims apply, and annotations without effect are reported.

    patch: None while validating.
    """
    pod = (review.object or {}) if patch is None else patch.patched
    verdict = UNTOUCHED if patch is None or not patch.operations else allow("unmanaged", patch=patch.operations)
    annotations = strings_at(map_at(pod, "metadata"), "annotations", "metadata")
    if names.GANG in annotations and not legacy.any:
        nothing = "the pod asks for no device that Fairlead manages: it is not gated, and does not count as a member"
        nothing += f"; with {names.MEMBERS}: {members.ALL} it would"
        verdict = verdict.with_warnings([f"{names.GANG}: {nothing}"])
    elif names.MEMBERS in annotations:
        verdict = verdict.with_warnings([pod_gang.no_gang_for(names.MEMBERS)])
    if patch is not None and defaults.of_other_pod(facts.policies, patch):
        verdict = allow("bypass", patch=patch.operations, warnings=verdict.warnings)
    judged = Subject(kind=Kind.POD, review=review, pod=pod, legacy=legacy)
    return policies.apply_findings(verdict, review.subject, rules.findings(facts.policies, [judged], facts))


def _write_gang(patch: PatchBuilder, intent: Intent) -> None:
    if intent.gang is None or intent.size is None:
        return
    patch.set(("metadata", "annotations", names.GANG), intent.gang)
    written = strings_at(map_at(patch.patched, "metadata"), "annotations", "metadata").get(names.GANG_SIZE)
    if written is None or int(written) != intent.size:  # "08" stays
        patch.set(("metadata", "annotations", names.GANG_SIZE), str(intent.size))
        if intent.size_from is not None:
            patch.set(("metadata", "annotations", names.SIZE_FROM), source_text(*intent.size_from))


def _gated(review: Review, pod: Json, claims: list[PodClaim], gang: PodGang, *, uses_devices: bool) -> Subject:
    return Subject(
        kind=Kind.MANAGED_POD if uses_devices else Kind.MEMBER_POD,
        review=review,
        pod=pod,
        claims=claims,
        managed=not uses_devices or surely_managed(claims),
        intent=gang.intent,
        unread=gang.faults,
        size=gang.intent.size,
        pod_group=gang.intent.gang if gang.intent.size_elsewhere else None,
    )
