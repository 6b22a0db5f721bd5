"""Jobs and CronJobs: their pods' gang is settled where it is written once, in the template.

Exists so that a user writes `fairlead.dev/gang` and nothing else, and hears of nonsense from `kubectl apply`
instead of from the Job controller's events. Turns no requests into claims: each pod's own review does that.

- Annotations of ours on the Job itself, and its queue label, are copied to the template; what both have must agree.
- The gang's size is the number of pods that run at once: min(parallelism, completions).
- A size without a gang's name makes the Job a gang of that name.
- A CronJob's Jobs are gangs of their own: two runs never mix, so each takes the Job's name.
"""

from __future__ import annotations

from fairlead.api import names
from fairlead.api.intent import KEYS, IntentError, misspelt
from fairlead.webhook import gangs, legacy, policy
from fairlead.webhook.draft import Draft
from fairlead.webhook.facts import Facts
from fairlead.webhook.fields import Json, int_at, list_at, map_at, strings_at
from fairlead.webhook.review import Review
from fairlead.webhook.uses import Managed, pod_uses
from fairlead.webhook.verdict import UNTOUCHED, Verdict, allow, deny

Path = tuple[str, ...]


def mutate(review: Review, facts: Facts) -> Verdict:
    """Raises MalformedError."""
    assert review.object is not None
    cron = review.resource == "cronjobs"
    if review.operation != "CREATE" and not (cron and review.operation == "UPDATE"):
        return UNTOUCHED
    return _judge(review, facts, cron=cron, draft=Draft(review.object))


def validate(review: Review, facts: Facts) -> Verdict:
    """Raises MalformedError."""
    assert review.object is not None
    cron = review.resource == "cronjobs"
    if review.operation != "CREATE" and not (cron and review.operation == "UPDATE"):
        return UNTOUCHED
    verdict = _judge(review, facts, cron=cron, draft=Draft(review.object))
    return verdict if not verdict.allowed else Verdict(cause=verdict.cause, audit=verdict.audit)


def _judge(review: Review, facts: Facts, *, cron: bool, draft: Draft) -> Verdict:
    at: Path = ("spec", "jobTemplate", "spec") if cron else ("spec",)
    where = ".".join((*at, "template"))
    job = _descend(draft.object, at)
    template = map_at(job, "template", ".".join(at))
    spec = map_at(template, "spec", where)
    found = legacy.find(spec)
    translated = found.any and policy.legacy_requests(facts.policies) == "Translate"
    uses = pod_uses(review.namespace, spec, facts)
    if not translated and all(use.managed is Managed.NO for use in uses):
        return UNTOUCHED
    faults = [*(f"{where}.{fault}" for fault in found.faults if translated), *_inherit(draft, at)]
    metadata = map_at(_descend(draft.object, (*at, "template")), "metadata", where)
    try:
        intent = gangs.intent_of(metadata)
    except IntentError as error:
        faults += [f"{where}.{fault}" for fault in error.faults]
        return deny("gang", *_about(review, faults), code=422)
    if faults:
        return deny("legacy" if found.faults else "gang", *_about(review, faults), code=422)
    warnings = list(misspelt(strings_at(metadata, "annotations", where)))
    size = intent.size
    if intent.gang is not None or (intent.size or 1) > 1:
        most = together(job, ".".join(at))
        if size is None and most < 1:
            fault = (
                f"{where}.metadata.annotations[{names.GANG_SIZE}]: is missing, and the Job runs no pods: write the size"
            )
            return deny("gang", *_about(review, [fault]), code=422)
        size = most if size is None else size
        name = _gang_name(review, intent.gang, cron=cron)
        if name is None:
            fault = f"{where}.metadata.annotations[{names.GANG}]: is missing, and the name is yet to be made up: name the gang"
            return deny("gang", *_about(review, [fault]), code=422)
        if size > most:
            warnings.append(
                f"{names.GANG_SIZE}: {size} members, but the Job runs at most {most} pods at once: "
                "the gang starts only when pods of other objects join it"
            )
        note = (*at, "template", "metadata", "annotations")
        if name != intent.gang and not (cron and intent.gang is None):
            draft.set((*note, names.GANG), name)
        if intent.size is None:
            draft.set((*note, names.GANG_SIZE), str(size))
    findings = list(policy.gang_findings(facts.policies, size, f"{where}.metadata.annotations"))
    if translated:
        paths = [f"{where}.{ask.path}.limits[{ask.resource}]" for ask in found.asks]
        findings += policy.legacy_findings(facts.policies, paths)
        for path, ask in zip(paths, found.asks, strict=True):
            findings += policy.count_findings(facts.policies, ask.count, path)
    warnings += [f"{where}.{use.missing} does not exist; the pods wait until it does" for use in uses if use.missing]
    verdict = allow("job", patch=draft.operations, warnings=warnings)
    return policy.apply(verdict, review.subject, findings)


def _inherit(draft: Draft, at: Path) -> list[str]:
    """Copy our annotations from the object to its pod template; what both have must agree."""
    metadata = map_at(draft.object, "metadata")
    own = {**strings_at(metadata, "annotations", "metadata")}
    label = strings_at(metadata, "labels", "metadata").get(names.QUEUE)
    if label is not None:
        own.setdefault(names.QUEUE, label)
    where = ".".join((*at, "template"))
    template = _descend(draft.object, (*at, "template"))
    theirs = strings_at(map_at(template, "metadata", where), "annotations", f"{where}.metadata")
    faults: list[str] = []
    for key in KEYS:
        if key not in own:
            continue
        if key in theirs and theirs[key] != own[key]:
            faults.append(
                f"metadata.annotations[{key}]: {own[key]!r}, but the pod template says {theirs[key]!r}; keep one of them"
            )
        elif key not in theirs:
            draft.set((*at, "template", "metadata", "annotations", key), own[key])
    return faults


def together(job: Json, path: str) -> int:
    """Pods that run at once. parallelism is 1 where absent; completions bound it where given."""
    parallelism = int_at(job, "parallelism", path)
    completions = int_at(job, "completions", path)
    most = 1 if parallelism is None else parallelism
    return most if completions is None else min(most, completions)


def _gang_name(review: Review, given: str | None, *, cron: bool) -> str | None:
    """The gang's name; None where it cannot be known yet."""
    if cron:
        return given or ""
    metadata = map_at(review.object or {}, "metadata")
    owners = list_at(metadata, "ownerReferences", "metadata")
    if any(owner.get("kind") == "CronJob" and owner.get("controller") for owner in owners):
        return review.name or None
    return given or review.name or None


def _descend(object_: Json, path: Path) -> Json:
    where = ""
    for step in path:
        object_ = map_at(object_, step, where)
        where = f"{where}.{step}" if where else step
    return object_


def _about(review: Review, faults: list[str]) -> list[str]:
    return [f"{review.subject}: {fault}" for fault in faults]
