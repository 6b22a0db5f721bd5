"""Jobs, JobSets, LeaderWorkerSets and other workloads: the gang of their pods is written once, into their pod templates. Every handler
raises MalformedError and RefusedError.

So a user writes `fairlead.dev/gang` and nothing else, or nothing at all, and errors are reported by `kubectl apply` instead of in
another controller's events. Translates no legacy requests: each pod's own review does. What the object says, in our words or
another system's, is propagated to its templates first; then each template gets its gang (`workload_gangs`), and policies apply.
Deployments and DaemonSets, whose pods are judged one by one, get warnings alone: what goes wrong at the next rollout, weeks later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.clocks import running_out
from fairlead.api.intent import Intent, IntentError
from fairlead.api.rollouts import waits_for_itself
from fairlead.webhook.gangs import marks, other_systems, pod_gang, propagation, workload_gangs
from fairlead.webhook.gangs.workload_gangs import MemberTemplate, WorkloadGangs
from fairlead.webhook.legacy import legacy_limits
from fairlead.webhook.objects.fields import Path, dotted, map_at, object_at
from fairlead.webhook.objects.pod_templates import (
    ROLLED_TEMPLATE,
    PodTemplate,
    parallel_pods,
    pod_templates,
)
from fairlead.webhook.policy import defaults, jobs, pods, policies, rules
from fairlead.webhook.policy import members as policy_members
from fairlead.webhook.policy.claims import devices_of
from fairlead.webhook.policy.policies import Kind, Subject, surely_managed
from fairlead.webhook.policy.refusals import refuse
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.pod_claims import Managed, pod_claims
from fairlead.webhook.review.verdict import UNTOUCHED, PatchBuilder, Verdict, allow

IMMUTABLE = frozenset({"jobs.batch", "trainjobs.trainer.kubeflow.org"})
"""Kinds whose templates never change: their updates are not judged."""
TRAIN_JOB = "trainjobs.trainer.kubeflow.org"


@dataclass(frozen=True, kw_only=True)
class _ManagedTemplate:
    """A pod template whose pods ask for managed devices, or have legacy limits, or are members of a gang without."""

    template: PodTemplate
    subject: Subject

    @property
    def where(self) -> str:
        return self.template.where

    def devices(self, facts: Facts) -> int:
        """How many one pod holds."""
        it = self.subject
        claimed = sum(devices_of(claim.spec, facts) for claim in it.claims if claim.spec is not None)
        return claimed + (sum(limit.count for limit in it.legacy.limits) if it.translated else 0)


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
    patch, whole = PatchBuilder(review.object), Subject(kind=Kind.WORKLOAD, review=review, stored=stored)
    if review.group_resource == TRAIN_JOB:
        verdict = _train_job(review, patch, facts)
        return policies.apply_findings(verdict, review.subject, rules.findings(facts.policies, [whole], facts))
    refuse([Subject(kind=Kind.NEW_TEMPLATES, review=review)], facts)
    every = pod_templates(review.group_resource, patch.patched)
    templates = list(_managed_templates(review, patch, every, facts))
    subjects = [_subject(Kind.TEMPLATE, review, patch, template) for template in every]
    found = rules.findings(facts.policies, subjects, facts)
    warnings: list[str] = []
    judged = [replace(each.subject, kind=Kind.LEGACY) for each in templates if each.subject.translated]
    members, read = _read(review, patch, templates, facts, warnings)
    judged += read
    without = _without_devices(review, patch, every, templates, members, facts)
    if not templates and not without:
        return policies.apply_findings(UNTOUCHED, review.subject, found)
    more, read = _read(review, patch, without, facts, warnings)
    templates, members, judged = [*templates, *without], [*members, *more], [*judged, *read]
    managed = any(template.subject.managed for template in templates)
    refuse([*judged, replace(whole, object=patch.patched, managed=managed)], facts)
    _label(review, patch, templates)
    if facts.records_users:
        marks.stamp_templates(review, patch, [template.template for template in templates])
    assigned = workload_gangs.assign(review, members, patch, facts)
    assigned.faults += policy_members.waiting_for_others(patch.patched, every, assigned.gangs)
    refuse([Subject(kind=Kind.GANGS, review=review, contradictions=assigned.faults)], facts)
    warnings += assigned.warnings
    for each in without:
        if each.where in assigned.gangs:
            patch.set((*each.template.path, "metadata", "annotations", names.MEMBERS), policy_members.ALL)
    if managed and review.operation == "CREATE":
        warnings += other_systems.unsuspend(patch, review.group_resource, facts)
    if managed:
        warnings += running_out(review.kind, patch.patched)
    for each in templates:
        if each.template.job_spec and each.where in assigned.gangs:
            defaults.of_gang_job(facts.policies, patch, each.template.job_spec)
    found += rules.findings(facts.policies, [*_subjects(patch, templates, members, assigned, facts), whole], facts)
    warnings += _eviction_warnings(patch, templates, assigned)
    warnings += [
        f"{template.where}.{claim.missing}; the pods wait until it does"
        for template in templates
        for claim in template.subject.claims
        if claim.missing
    ]
    verdict = allow("job", patch=patch.operations, warnings=list(dict.fromkeys(warnings)))
    return policies.apply_findings(verdict, review.subject, found)


def _train_job(review: Review, patch: PatchBuilder, facts: Facts) -> Verdict:
    user = marks.user_of_train_job(review) if facts.records_users else None
    contradictions, unread = propagation.propagate_to_runtime(patch, user)
    refuse([Subject(kind=Kind.TRAIN_JOB, review=review, contradictions=contradictions, unread=unread)], facts)
    return allow("job" if patch.operations else "unmanaged", patch=patch.operations)


def _changed_annotations(review: Review, facts: Facts) -> Verdict:
    """The verdict on an update of a Job: while it is suspended its template's annotations may change, but not what only Fairlead writes."""
    if review.username in facts.controllers or marks.is_maker(review.username):
        return UNTOUCHED
    refuse([Subject(kind=Kind.CHANGED_JOB, review=review)], facts)
    object_, old = review.object or {}, review.old or {}
    warnings = [
        warning
        for template in pod_templates(review.group_resource, object_)
        for warning in propagation.cannot_follow(object_, old, template, review.kind)
    ]
    return allow("job", warnings=warnings) if warnings else UNTOUCHED


def _subject(kind: Kind, review: Review, patch: PatchBuilder, template: PodTemplate) -> Subject:
    return Subject(kind=kind, review=review, where=f"{template.where}.", pod=object_at(patch.patched, template.path))


def _read(
    review: Review, patch: PatchBuilder, templates: list[_ManagedTemplate], facts: Facts, warnings: list[str]
) -> tuple[list[MemberTemplate], list[Subject]]:
    """What the templates, and the object around them, say of their gangs, and what is to be judged of that; adds to warnings."""
    members: list[MemberTemplate] = []
    judged: list[Subject] = []
    for template in templates:
        contradictions = propagation.propagate(patch, template.template, warnings, review.old)
        it = replace(
            template.subject, contradictions=contradictions, pod=object_at(patch.patched, template.template.path)
        )
        try:
            intent = pod_gang.intent_of(it.pod)
        except IntentError as error:
            judged.append(replace(it, unread=[f"{it.where}{fault}" for fault in error.faults]))
            continue
        judged.append(replace(it, intent=intent))
        warnings += _pod_warnings(review, patch, template, intent, facts)
        if review.operation == "CREATE":
            warnings += pods.default_warnings(intent, it.spec, facts, it.where)
        queued = propagation.in_kueue_queue(patch, template.template)
        without = it.kind is Kind.MEMBER_TEMPLATE
        members.append(
            MemberTemplate(template=template.template, intent=intent, in_kueue_queue=queued, without_devices=without)
        )
    return members, judged


def _without_devices(
    review: Review,
    patch: PatchBuilder,
    every: list[PodTemplate],
    managed: list[_ManagedTemplate],
    members: list[MemberTemplate],
    facts: Facts,
) -> list[_ManagedTemplate]:
    """The templates of `every` whose pods ask for no device and are members of a gang all the same."""
    paths = {each.where for each in managed}
    others = [each for each in every if each.where not in paths]
    beside = [(each.template, each.intent) for each in members]
    if managed and not beside:
        return []  # their annotations cannot be read
    return [
        _ManagedTemplate(
            template=each, subject=replace(_subject(Kind.MEMBER_TEMPLATE, review, patch, each), managed=True)
        )
        for each in policy_members.without_devices(review, others, beside, facts)
    ]


def _managed_templates(
    review: Review, patch: PatchBuilder, every: list[PodTemplate], facts: Facts
) -> Iterator[_ManagedTemplate]:
    for template in every:
        spec = map_at(object_at(patch.patched, template.path), "spec", template.where)
        legacy = legacy_limits(spec, facts.drivers)
        translated = legacy.any and policies.legacy_requests(facts.policies) == "Translate"
        claims = pod_claims(review.namespace, spec, facts)
        judged = translated or (legacy.any and policies.rejects_legacy(facts.policies))
        if judged or any(claim.managed is not Managed.NO for claim in claims):
            subject = Subject(
                kind=Kind.MANAGED_TEMPLATE,
                review=review,
                where=f"{template.where}.",
                pod=object_at(patch.patched, template.path),
                legacy=legacy,
                translated=translated,
                claims=claims,
                managed=translated or surely_managed(claims),
            )
            yield _ManagedTemplate(template=template, subject=subject)


def _label(review: Review, patch: PatchBuilder, templates: list[_ManagedTemplate]) -> None:
    """Labels the templates of Jobs whose pods are surely managed; of kinds that roll their pods when a template changes, none."""
    for template in templates:
        if template.subject.managed and review.group_resource in {"jobs.batch", "cronjobs.batch"}:
            patch.set((*template.template.path, "metadata", "labels", names.REVIEWED), names.REVIEWED_TEMPLATE)


def _pod_warnings(
    review: Review, patch: PatchBuilder, template: _ManagedTemplate, intent: Intent, facts: Facts
) -> Iterator[str]:
    path = template.template.path
    yield from pod_gang.intent_warnings(object_at(patch.patched, path))
    yield from pod_gang.queue_warnings(intent, facts)
    if not template.subject.managed:
        return
    yield from other_systems.use_default_scheduler(patch, facts, path)
    yield from other_systems.owner_warnings(object_at(patch.patched, path), review.namespace, facts)


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
    return jobs.eviction_warning(patch.patched, found)


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
        yield replace(
            template.subject,
            pod=object_at(patch.patched, template.template.path),
            intent=member.intent,
            size=gang.size if gang is not None and gang.size else member.intent.size,
            pod_group=None if gang is None else gang.pod_group,
            object=patch.patched,
            job=None if gang is None else template.template.job_spec,
        )
    gangless = [
        template
        for template in templates
        if template.where not in assigned.gangs and template.subject.kind is Kind.MANAGED_TEMPLATE
    ]
    if gangless:
        yield Subject(
            kind=Kind.WORKLOAD,
            review=gangless[0].subject.review,
            where=f"{gangless[0].where}.",
            pods=sum(each.template.pods for each in gangless),
            devices=sum(each.template.pods * each.devices(facts) for each in gangless),
        )


def validate_rollout(review: Review, facts: Facts) -> Verdict:
    """Raises MalformedError."""
    object_ = review.object or {}
    spec = map_at(object_at(object_, ROLLED_TEMPLATE), "spec", dotted(ROLLED_TEMPLATE))
    translated = legacy_limits(spec, facts.drivers).any and policies.legacy_requests(facts.policies) == "Translate"
    if not translated and all(claim.managed is not Managed.YES for claim in pod_claims(review.namespace, spec, facts)):
        return UNTOUCHED
    waits = waits_for_itself(review.kind, map_at(object_, "spec"))
    warnings = [*([waits] if waits else ()), *running_out(review.kind, object_)]
    return allow("rollout", warnings=warnings)
