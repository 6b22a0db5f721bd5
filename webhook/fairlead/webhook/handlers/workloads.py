"""Jobs, JobSets, LeaderWorkerSets and other workloads: the gang of their pods is written once, into their pod templates.

So a user writes `fairlead.dev/gang` and nothing else, or nothing at all, and errors are reported by `kubectl apply` instead of in
another controller's events. Translates no legacy requests: each pod's own review does. What the object says, in our words or
another system's, is propagated to its templates first; then each template gets its gang (`workload_gangs`), and policies apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fairlead.api import names
from fairlead.api.clocks import running_out
from fairlead.api.derived import source_text
from fairlead.api.intent import Intent, IntentError
from fairlead.webhook.claim_names import way
from fairlead.webhook.gangs import (
    controller_keys,
    foreign_schedulers,
    job_evictions,
    ownership,
    pod_gang,
    pod_indexes,
    propagation,
    users,
    workload_gangs,
)
from fairlead.webhook.gangs.workload_gangs import MemberTemplate, WorkloadGangs
from fairlead.webhook.legacy.requests import LegacyLimits, legacy_limits
from fairlead.webhook.objects.fields import Path, dotted, map_at, object_at, strings_at
from fairlead.webhook.objects.pod_templates import WORKLOADS, PodTemplate, parallel_pods, pod_templates
from fairlead.webhook.policy import bounds, defaults, policies, rules
from fairlead.webhook.policy.claims import devices_of
from fairlead.webhook.policy.rules import Kind, Subject
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.patch import PatchBuilder
from fairlead.webhook.review.pod_claims import Managed, PodClaim, pod_claims
from fairlead.webhook.review.verdict import UNTOUCHED, Verdict, allow, deny

IMMUTABLE = frozenset({"jobs.batch", "trainjobs.trainer.kubeflow.org"})
"""Kinds whose templates never change: their updates are not judged."""
TRAIN_JOB = "trainjobs.trainer.kubeflow.org"


@dataclass(frozen=True, kw_only=True)
class _ManagedTemplate:
    """A pod template whose pods ask for managed devices, or have legacy limits."""

    template: PodTemplate
    legacy: LegacyLimits
    claims: list[PodClaim]
    translated: bool

    @property
    def where(self) -> str:
        return self.template.where

    @property
    def surely_managed(self) -> bool:
        """Whether its pods certainly ask for managed devices: a claim or class that does not exist yet may be another driver's."""
        return self.translated or any(claim.managed is Managed.YES for claim in self.claims)

    def devices(self, facts: Facts) -> int:
        """How many one pod holds."""
        claimed = sum(devices_of(claim.spec, facts) for claim in self.claims if claim.spec is not None)
        return claimed + (sum(limit.count for limit in self.legacy.limits) if self.translated else 0)


def mutate(review: Review, facts: Facts) -> Verdict:
    """Raises MalformedError."""
    return _judge(review, facts)


def validate(review: Review, facts: Facts) -> Verdict:
    """The same verdict without patch and warnings, and with the policies' CEL rules. Raises MalformedError."""
    verdict = _judge(review, facts, stored=True)
    if not verdict.allowed:
        return verdict
    return Verdict(cause=verdict.cause, audit=verdict.audit, findings=verdict.findings)


def _judge(review: Review, facts: Facts, *, stored: bool = False) -> Verdict:
    """stored: as it would be stored, after every mutating webhook."""
    assert review.object is not None
    if review.operation == "UPDATE" and review.group_resource in IMMUTABLE:
        return _changed_annotations(review, facts)
    patch, whole = PatchBuilder(review.object), Subject(kind=Kind.WORKLOAD, review=review if stored else None)
    if review.group_resource == TRAIN_JOB:
        verdict = _train_job(review, patch, facts)
        return policies.apply_findings(verdict, review.subject, rules.findings(facts.policies, [whole], facts))
    forged = list(_forged_keys(review))
    if forged:
        return deny("annotations", *review.about(forged), code=422)
    templates = list(_managed_templates(review, patch, facts))
    subjects = [
        Subject(kind=Kind.TEMPLATE, where=f"{template.where}.", pod=object_at(patch.patched, template.path))
        for template in pod_templates(review.group_resource, patch.patched)
    ]
    found = rules.findings(facts.policies, subjects, facts)
    if not templates:
        return policies.apply_findings(UNTOUCHED, review.subject, found)
    faults = [f"{t.where}.{fault}" for t in templates if t.translated for fault in t.legacy.faults]
    cause = "legacy" if faults else "gang"
    warnings: list[str] = []
    members: list[MemberTemplate] = []
    for template in templates:
        faults += propagation.propagate(patch, template.template, warnings, review.old)
        pod = object_at(patch.patched, template.template.path)
        faults += way.faults(map_at(pod, "metadata", template.where), f"{template.where}.metadata")
        try:
            intent = pod_gang.intent_of(pod)
        except IntentError as error:
            faults += [f"{template.where}.{fault}" for fault in error.faults]
            continue
        if template.surely_managed and review.operation == "CREATE":
            faults += [f"{template.where}: {fault}" for fault in ownership.faults(pod, review.namespace, facts)]
        warnings += _pod_warnings(review, patch, template, intent, facts)
        if review.operation == "CREATE":
            spec = map_at(pod, "spec", template.where)
            faults += bounds.queue_faults(intent, spec, facts, f"{template.where}.")
            warnings += bounds.default_warnings(intent, spec, facts, f"{template.where}.")
        queued = propagation.in_kueue_queue(patch, template.template)
        members.append(MemberTemplate(template=template.template, intent=intent, in_kueue_queue=queued))
    if review.operation == "CREATE" and any(template.surely_managed for template in templates):
        faults += ownership.suspended_faults(review.group_resource, patch.patched, review.namespace, facts)
    if faults:
        return deny(cause, *review.about(faults), code=422)
    _label(review, patch, templates)
    if facts.records_users:
        users.stamp_templates(review, patch, [template.template for template in templates])
    assigned = workload_gangs.assign(review, members, patch)
    faults = [*assigned.faults, *_faults_of_pods(review, patch, members, assigned)]
    faults += _taken_names(review, patch, members, assigned, facts)
    if faults:
        return deny("gang", *review.about(faults), code=422)
    warnings += assigned.warnings
    if review.operation == "CREATE" and any(template.surely_managed for template in templates):
        warnings += foreign_schedulers.unsuspend(patch, review.group_resource, facts)
    if any(template.surely_managed for template in templates):
        warnings += running_out(review.kind, patch.patched)
    gang_jobs = [
        each.template.job_spec for each in templates if each.template.job_spec and each.where in assigned.gangs
    ]
    defaults.of_gang_jobs(facts.policies, patch, gang_jobs)
    found += rules.findings(facts.policies, [*_subjects(patch, templates, members, assigned, facts), whole], facts)
    warnings += _eviction_warnings(patch, templates, assigned)
    warnings += [
        f"{template.where}.{claim.missing}; the pods wait until it does"
        for template in templates
        for claim in template.claims
        if claim.missing
    ]
    verdict = allow("job", patch=patch.operations, warnings=list(dict.fromkeys(warnings)))
    return policies.apply_findings(verdict, review.subject, found)


def _faults_of_pods(
    review: Review, patch: PatchBuilder, members: list[MemberTemplate], assigned: WorkloadGangs
) -> Iterator[str]:
    """What each pod of a gang would be refused for when its controller makes it."""
    for member in members:
        if member.where not in assigned.gangs or WORKLOADS[review.group_resource].creates_workloads:
            continue
        metadata = pod_indexes.indexed(member.template, patch.patched, kind=review.kind, owner=review.name)
        pod = {"metadata": metadata}
        try:
            faults = tuple(pod_gang.in_no_subgroup(pod, pod_gang.intent_of(pod)))
        except IntentError as error:  # of what the object gave its template, such as a name that no gang can have
            faults = error.faults
        for fault in faults:
            yield f"{member.where}.{fault}"


def _taken_names(
    review: Review, patch: PatchBuilder, members: list[MemberTemplate], assigned: WorkloadGangs, facts: Facts
) -> Iterator[str]:
    """A copy of a workload that keeps its gang's name: each has its size from its own pods, so that neither can join the other."""
    if review.operation != "CREATE":
        return
    for member in members:
        try:
            intent = pod_gang.intent_of(object_at(patch.patched, member.template.path))
        except IntentError:
            continue  # refused for that
        if intent.gang is None or intent.size_from is None or member.where not in assigned.gangs:
            continue
        of_gang = facts.gangs.get((review.namespace, intent.gang), ())
        other = next((each.size_from for each in of_gang if each.size_from not in {None, intent.size_from}), None)
        if other is not None:
            yield (
                f"{member.where}.metadata.annotations[{names.GANG}]: {intent.gang!r} is the gang of {source_text(*other)}, which has a size "
                f"of its own; name another gang, or write {names.GANG_SIZE}, of all their pods together, on both"
            )


def _changed_annotations(review: Review, facts: Facts) -> Verdict:
    """The verdict on an update of a Job: while it is suspended its template's annotations may change, but not what only Fairlead writes."""
    if review.username in facts.controllers or users.is_maker(review.username):
        return UNTOUCHED
    faults, warnings = list(_forged_keys(review)), list[str]()
    if review.group_resource == TRAIN_JOB:
        faults += users.train_job_changed(review)
    for template in pod_templates(review.group_resource, review.object or {}):
        before, after = (
            map_at(object_at(version or {}, template.path), "metadata", template.where)
            for version in (review.old, review.object)
        )
        faults += users.changed(before, after, f"{template.where}.metadata")
        warnings += propagation.cannot_follow(review.object or {}, review.old or {}, template, review.kind)
    if faults:
        return deny("annotations", *review.about(faults))
    return allow("job", warnings=warnings) if warnings else UNTOUCHED


def _forged_keys(review: Review) -> Iterator[str]:
    """Faults of templates with annotations that only Fairlead writes; what is stored already is not judged again."""
    object_, old = review.object or {}, review.old or {}
    for template in pod_templates(review.group_resource, object_):
        before, after = (
            map_at(object_at(version, template.path), "metadata", template.where) for version in (old, object_)
        )
        known = set(controller_keys.forged(before, controller_keys.RESERVED, f"{template.where}.metadata"))
        for fault in controller_keys.forged(after, controller_keys.RESERVED, f"{template.where}.metadata"):
            if fault not in known:
                yield fault


def _managed_templates(review: Review, patch: PatchBuilder, facts: Facts) -> Iterator[_ManagedTemplate]:
    for template in pod_templates(review.group_resource, patch.patched):
        spec = map_at(object_at(patch.patched, template.path), "spec", template.where)
        legacy = legacy_limits(spec, facts.drivers)
        translated = legacy.any and policies.legacy_requests(facts.policies) == "Translate"
        claims = pod_claims(review.namespace, spec, facts)
        judged = translated or (legacy.any and policies.rejects_legacy(facts.policies))
        if judged or any(claim.managed is not Managed.NO for claim in claims):
            yield _ManagedTemplate(template=template, legacy=legacy, claims=claims, translated=translated)


def _label(review: Review, patch: PatchBuilder, templates: list[_ManagedTemplate]) -> None:
    """Labels the templates of Jobs whose pods are surely managed; of kinds that roll their pods when a template changes, none."""
    for template in templates:
        if template.surely_managed and review.group_resource in {"jobs.batch", "cronjobs.batch"}:
            patch.set((*template.template.path, "metadata", "labels", names.REVIEWED), names.REVIEWED_TEMPLATE)


def _pod_warnings(
    review: Review, patch: PatchBuilder, template: _ManagedTemplate, intent: Intent, facts: Facts
) -> Iterator[str]:
    path = template.template.path
    yield from pod_gang.intent_warnings(object_at(patch.patched, path))
    yield from pod_gang.queue_warnings(intent, facts)
    if not template.surely_managed:
        return
    yield from foreign_schedulers.use_default_scheduler(patch, facts, path)
    yield from ownership.warnings(object_at(patch.patched, path), review.namespace, facts)


def _eviction_warnings(
    patch: PatchBuilder, templates: list[_ManagedTemplate], assigned: WorkloadGangs
) -> tuple[str, ...]:
    """Warnings about gangs of several pods whose Jobs would not be back soon after an eviction."""
    found: list[tuple[Path, int]] = []
    for template in templates:
        gang, job_spec = assigned.gangs.get(template.where), template.template.job_spec
        if gang is not None and gang.size > 1 and job_spec is not None:
            pods = parallel_pods(object_at(patch.patched, job_spec), dotted(job_spec))
            found.append((job_spec, max(1, pods)))
    return job_evictions.eviction_warning(patch.patched, found)


def _subjects(
    patch: PatchBuilder,
    templates: list[_ManagedTemplate],
    members: list[MemberTemplate],
    assigned: WorkloadGangs,
    facts: Facts,
) -> Iterator[Subject]:
    """The templates with managed devices, and the workload where some are in no gang."""
    for template, member in zip(templates, members, strict=True):
        gang = assigned.gangs.get(template.where)
        yield Subject(
            kind=Kind.MANAGED_TEMPLATE,
            where=f"{template.where}.",
            pod=object_at(patch.patched, template.template.path),
            legacy=template.legacy,
            translated=template.translated,
            claims=template.claims,
            intent=member.intent,
            size=gang.size if gang is not None and gang.size else member.intent.size,
            pod_group=None if gang is None else gang.pod_group,
            object=patch.patched,
            job=None if gang is None else template.template.job_spec,
        )
    gangless = [template for template in templates if template.where not in assigned.gangs]
    if gangless:
        yield Subject(
            kind=Kind.WORKLOAD,
            where=f"{gangless[0].where}.",
            pods=sum(each.template.pods for each in gangless),
            devices=sum(each.template.pods * each.devices(facts) for each in gangless),
        )


def _train_job(review: Review, patch: PatchBuilder, facts: Facts) -> Verdict:
    """A TrainJob's templates are its runtime's: its annotations reach the JobSet by spec.annotations."""
    metadata, spec = map_at(patch.patched, "metadata"), map_at(patch.patched, "spec")
    own = propagation.fairlead_annotations(metadata, "metadata")
    given = strings_at(spec, "annotations", "spec")
    faults = [
        f"metadata.annotations[{key}]: {own[key]!r}, but spec.annotations says {given[key]!r}; keep one of them"
        for key in propagation.COPIED
        if key in own and given.get(key, own[key]) != own[key] and key not in propagation.MAY_DIFFER
    ]
    if faults:
        return deny("gang", *review.about(faults), code=422)
    annotations = {
        key: own[key]
        for key in propagation.COPIED
        if key in own and not (key in given and key in propagation.MAY_DIFFER)
    }
    try:
        pod_gang.intent_of({"metadata": {"annotations": annotations}})
    except IntentError as error:
        return deny("gang", *review.about(error.faults), code=422)
    for key, value in annotations.items():
        patch.set(("spec", "annotations", key), value)
    user = users.user_of_train_job(review) if facts.records_users else None
    if user is not None:
        patch.set(("spec", "annotations", names.USER), user)
    for key in (names.KUEUE_QUEUE, names.KUEUE_PRIORITY):
        own_label, spec_label = (strings_at(found, "labels").get(key) for found in (metadata, spec))
        if own_label and not spec_label:
            patch.set(("spec", "labels", key), own_label)
    return allow("job" if patch.operations else "unmanaged", patch=patch.operations)
