"""Jobs, JobSets, LeaderWorkerSets and the like: their pods' gang is settled where it is written once, in the templates.

Exists so that a user writes `fairlead.dev/gang` and nothing else, or nothing at all, and hears of nonsense from
`kubectl apply` instead of from another controller's events. Turns no requests into claims: each pod's own review does.

- What the object says, in our words or another system's, is copied to its templates (`inherit`).
- Templates that name the same gang are one; its size is the number of their pods that run at once and ask for devices.
- A size without a gang's name makes the object a gang of that name. A Job that says neither is no gang; what is a gang
  by nature (`templates.SHAPES`) is one of its own name, if it has more than one pod with devices. Where the object's name
  is yet to be made up, so is its gang's: nobody knows the name that the apiserver will choose.
- What starts only when another part is ready cannot wait for it in one gang: such parts are gangs of their own.
- A CronJob's Jobs are gangs of their own: two runs never mix, so each takes the Job's name. A RayJob's clusters likewise.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from fairlead.api import names
from fairlead.api.intent import KEYS, Intent, IntentError
from fairlead.webhook.gangs import foreign_schedulers as instead
from fairlead.webhook.gangs import pod_gang as gangs
from fairlead.webhook.gangs import propagation as inherit
from fairlead.webhook.legacy import requests as legacy
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at, text_at
from fairlead.webhook.objects.pod_templates import SHAPES, Part, Shape, descend, parts_of
from fairlead.webhook.policy import cel_rules as policy_rules
from fairlead.webhook.policy import device_bypass as bypass
from fairlead.webhook.policy import jobs as policy_jobs
from fairlead.webhook.policy import pods as policy_pods
from fairlead.webhook.policy import policies as policy
from fairlead.webhook.policy.claims import devices_of, legacy_ask_findings, use_findings
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.patch import Draft
from fairlead.webhook.review.pod_claims import Managed, Use, pod_uses
from fairlead.webhook.review.verdict import UNTOUCHED, Finding, Verdict, allow, deny

IMMUTABLE = frozenset({"jobs.batch", "trainjobs.trainer.kubeflow.org"})
"""Kinds whose templates never change: their updates are not judged."""
GENERATED_CHARS_MAX = 58
"""Of a generateName; the apiserver cuts it there, too."""


@dataclass(frozen=True, kw_only=True)
class _Template:
    """A pod template whose pods ask for managed devices, or have legacy requests."""

    part: Part
    found: legacy.Found
    uses: list[Use]
    translated: bool
    whole: bool = False
    """Its pods run together for another system."""
    intent: Intent = field(default_factory=Intent)

    @property
    def where(self) -> str:
        return self.part.where

    @property
    def sure(self) -> bool:
        """Whether its pods surely ask for managed devices: a claim or class that is still missing may be another's."""
        return self.translated or any(use.managed is Managed.YES for use in self.uses)

    def devices(self, facts: Facts) -> int:
        """How many one pod holds."""
        claimed = sum(devices_of(use.spec, facts) for use in self.uses if use.spec is not None)
        return claimed + (sum(ask.count for ask in self.found.asks) if self.translated else 0)


def mutate(review: Review, facts: Facts) -> Verdict:
    """Raises MalformedError."""
    return _judge(review, facts)


def validate(review: Review, facts: Facts) -> Verdict:
    """Raises MalformedError."""
    verdict = _judge(review, facts, stored=True)
    if not verdict.allowed:
        return verdict
    return Verdict(cause=verdict.cause, audit=verdict.audit, findings=verdict.findings)


def _judge(review: Review, facts: Facts, *, stored: bool = False) -> Verdict:
    assert review.object is not None
    if review.operation == "UPDATE" and review.of in IMMUTABLE:
        return UNTOUCHED
    shape, draft = SHAPES[review.of], Draft(review.object)
    if review.of == "trainjobs.trainer.kubeflow.org":
        own = _train_job(review, draft)
        rules = policy_rules.rule_findings(facts.policies, review, facts) if stored else ()
        return policy.apply(own, review.subject, rules)
    templates = [found for part in parts_of(review.of, draft.object) if (found := _managed(review, draft, part, facts))]
    findings = list(_bypasses(review, draft, facts))
    if not templates:
        return policy.apply(UNTOUCHED, review.subject, findings)
    faults = [f"{t.where}.{fault}" for t in templates if t.translated for fault in t.found.faults]
    cause = "legacy" if faults else "gang"
    warnings: list[str] = []
    settled: list[_Template] = []
    for template in templates:
        faults += inherit.ours(draft, template.part)
        faults += inherit.theirs(draft, template.part, warnings)
        pod = descend(draft.object, template.part.path)
        try:
            intent = gangs.intent_of(pod)
        except IntentError as error:
            faults += [f"{template.where}.{fault}" for fault in error.faults]
            continue
        warnings += (*gangs.warnings_of(pod), *gangs.queue_warnings(intent, facts))
        if template.sure:
            warnings += instead.bind(draft, template.part.path)
        settled.append(replace(template, intent=intent, whole=inherit.whole(draft, template.part)))
    if faults:
        return deny(cause, *_about(review, faults), code=422)
    gangs_of = _Gangs(review, shape, settled, draft)
    faults = gangs_of.settle()
    if faults:
        return deny("gang", *_about(review, faults), code=422)
    warnings += gangs_of.warnings
    if review.operation == "CREATE" and any(template.sure for template in settled):
        warnings += instead.start(draft, review.of, facts)
    findings += _findings(review, facts, draft, settled, gangs_of)
    if stored:
        findings += policy_rules.rule_findings(facts.policies, review, facts)
    warnings += [
        f"{t.where}.{use.missing} does not exist; the pods wait until it does"
        for t in settled
        for use in t.uses
        if use.missing
    ]
    verdict = allow("job", patch=draft.operations, warnings=list(dict.fromkeys(warnings)))
    return policy.apply(verdict, review.subject, findings)


class _Gangs:
    """Gives the templates their gangs. `in_gang` are those that have one, afterwards."""

    def __init__(self, review: Review, shape: Shape, templates: list[_Template], draft: Draft) -> None:
        self._review, self._shape, self._templates, self._draft = review, shape, templates, draft
        self._own = review.name or _made_up(review)
        self.warnings: list[str] = []
        self.sizes: dict[str, int] = {}
        """Where a template is, and its gang's size, or the most that it can be."""
        self.elsewhere: dict[str, str] = {}
        """Where a template is, and the PodGroup that says its gang's size."""

    def settle(self) -> list[str]:
        """Write names and sizes into the draft. Returns faults."""
        groups: dict[str, list[_Template]] = {}
        for template in self._templates:
            asked = template.intent.gang is not None or (template.intent.size or 1) > 1
            if asked or self._by_nature(template):
                groups.setdefault(f"{template.intent.gang or ''}/{template.part.apart}", []).append(template)
        faults: list[str] = []
        for group in groups.values():
            faults += self._one(group)
        return faults

    def _by_nature(self, template: _Template) -> bool:
        alike = [t for t in self._templates if t.part.apart == template.part.apart and t.intent.gang is None]
        named = bool(self._own) or self._shape.runs
        return (
            (self._shape.gang or template.whole)
            and named
            and not (self._shape.grouped and template.part.apart)
            and sum(t.part.most for t in alike) > 1
        )

    def _one(self, group: list[_Template]) -> list[str]:
        first = group[0]
        where = f"{first.where}.metadata.annotations"
        most = sum(template.part.most for template in group)
        sizes = {t.intent.size: t.where for t in group if t.intent.size is not None}
        if len(sizes) > 1:
            said = ", ".join(f"{size} ({at})" for size, at in sizes.items())
            return [f"{where}[{names.GANG_SIZE}]: the templates of one gang say {said}; give all of them one size"]
        given = next(iter(sizes), None)
        if first.intent.size_elsewhere and given is None:  # a PodGroup object says it to the controller
            self.sizes |= dict.fromkeys((template.where for template in group), most)
            self.elsewhere |= dict.fromkeys((template.where for template in group), first.intent.gang or "")
            return []
        if self._shape.grouped and first.part.apart:
            said = f"spec.startupPolicy: LeaderReady, but a gang's pods start together ({where}[{names.GANG}])"
            return [f"{said}; write LeaderCreated, or remove the gang"]
        size = self._again(given, most)
        if size is None and most < 1:
            return [f"{where}[{names.GANG_SIZE}]: is missing, and the {self._review.kind} runs no pods: write the size"]
        size = most if size is None else size
        name = self._name(first)
        if name is None:
            return [f"{where}[{names.GANG}]: is missing, and the name is yet to be made up: name the gang"]
        if size > most and not self._owned():
            self.warnings.append(
                f"{names.GANG_SIZE}: {size} members, but the {self._review.kind} runs at most {most} pods at once: "
                "the gang starts only when pods of other objects join it"
            )
        for template in group:
            note = (*template.part.path, "metadata", "annotations")
            if name and name != template.intent.gang:
                self._draft.set((*note, names.GANG), name)
            if template.intent.size != size:
                self._draft.set((*note, names.GANG_SIZE), str(size))
            self.sizes[template.where] = size
        return []

    def _again(self, given: int | None, most: int) -> int | None:
        """The size that is given, unless it is what we wrote for the object as it was before."""
        old = self._review.old
        if given is None or given == most or old is None:
            return given
        before = sum(part.most for part in parts_of(self._review.of, old))
        return None if given == before else given

    def _name(self, template: _Template) -> str | None:
        """The gang's name; "" where each run makes one, None where it cannot be known yet."""
        given, own = template.intent.gang, self._own
        if self._shape.runs:
            return given or ""
        if self._of_a_run():
            return self._review.name or None
        if given:
            return given
        return f"{own}-{template.part.apart}" if own and template.part.apart else own or None

    def _owners(self) -> list[Json]:
        metadata = map_at(self._review.object or {}, "metadata")
        return [owner for owner in list_at(metadata, "ownerReferences", "metadata") if owner.get("controller")]

    def _of_a_run(self) -> bool:
        return any(owner.get("kind") in {"CronJob", "RayJob"} for owner in self._owners())

    def _owned(self) -> bool:
        """Another object counts the members, such as a JobSet whose gang spans its Jobs."""
        return any(owner.get("kind") != "CronJob" for owner in self._owners())


def _managed(review: Review, draft: Draft, part: Part, facts: Facts) -> _Template | None:
    spec = map_at(descend(draft.object, part.path), "spec", part.where)
    found = legacy.find(spec)
    translated = found.any and policy.legacy_requests(facts.policies) == "Translate"
    uses = pod_uses(review.namespace, spec, facts)
    judged = translated or (found.any and policy.rejects_legacy(facts.policies))
    if not judged and all(use.managed is Managed.NO for use in uses):
        return None
    return _Template(part=part, found=found, uses=uses, translated=translated)


def _bypasses(review: Review, draft: Draft, facts: Facts) -> list[Finding]:
    return [
        finding
        for part in (parts_of(review.of, draft.object) if facts.policies else ())
        for finding in bypass.bypass_findings(facts.policies, descend(draft.object, part.path), part.where)
    ]


def _findings(
    review: Review, facts: Facts, draft: Draft, templates: list[_Template], gangs_of: _Gangs
) -> list[Finding]:
    if not facts.policies:
        return []
    policies = facts.policies
    findings: list[Finding] = []
    for template in templates:
        size, where = gangs_of.sizes.get(template.where), template.where
        spec = map_at(descend(draft.object, template.part.path), "spec", where)
        findings += policy.gang_findings(
            policies,
            size or template.intent.size,
            f"{where}.metadata.annotations",
            elsewhere=gangs_of.elsewhere.get(where),
        )
        paths = [f"{where}.{ask.path}.limits[{ask.resource}]" for ask in template.found.asks]
        findings += policy.legacy_findings(policies, paths)
        if template.translated:
            for path, ask in zip(paths, template.found.asks, strict=True):
                findings += legacy_ask_findings(policies, ask, path, facts)
        for use in template.uses:
            findings += use_findings(policies, use, f"{where}.", facts)
        findings += policy_pods.pod_findings(policies, spec, f"{where}.spec", template=True)
        if size is not None and template.part.job is not None:
            policy_jobs.failure_defaults(policies, draft, template.part.job)
            findings += policy_jobs.failure_findings(policies, draft.object, template.part.job)
    loose = [template for template in templates if template.where not in gangs_of.sizes]
    if loose:
        findings += policy_jobs.ungrouped_findings(
            policies,
            pods=sum(template.part.most for template in loose),
            devices=sum(template.part.most * template.devices(facts) for template in loose),
            where=f"{loose[0].where}.metadata.annotations",
        )
    return findings


def _train_job(review: Review, draft: Draft) -> Verdict:
    """A TrainJob's templates are its runtime's: what it says goes to the JobSet, by spec.annotations."""
    metadata = map_at(draft.object, "metadata")
    own = inherit.own_of(metadata, "metadata")
    given = strings_at(map_at(draft.object, "spec"), "annotations", "spec")
    faults = [
        f"metadata.annotations[{key}]: {own[key]!r}, but spec.annotations says {given[key]!r}; keep one of them"
        for key in KEYS
        if key in own and given.get(key, own[key]) != own[key]
    ]
    if faults:
        return deny("gang", *_about(review, faults), code=422)
    try:
        gangs.intent_of({"metadata": {"annotations": {key: own[key] for key in KEYS if key in own}}})
    except IntentError as error:
        return deny("gang", *_about(review, list(error.faults)), code=422)
    for key in KEYS:
        if key in own:
            draft.set(("spec", "annotations", key), own[key])
    queue, there = (
        strings_at(found, "labels").get(names.KUEUE_QUEUE) for found in (metadata, map_at(draft.object, "spec"))
    )
    if queue and not there:
        draft.set(("spec", "labels", names.KUEUE_QUEUE), queue)
    return allow("job" if draft.operations else "unmanaged", patch=draft.operations)


def _made_up(review: Review) -> str:
    """A name for the gang of an object that has only a generateName; "" where it has none. The same for the same review."""
    generated = text_at(map_at(review.object or {}, "metadata"), "generateName", "metadata")
    ending = hashlib.blake2s(review.uid.encode(), digest_size=5).hexdigest()
    return f"{generated[:GENERATED_CHARS_MAX]}{ending}" if generated else ""


def _about(review: Review, faults: list[str]) -> list[str]:
    return [f"{review.subject}: {fault}" for fault in faults]
