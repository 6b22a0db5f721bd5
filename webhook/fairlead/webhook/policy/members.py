"""Whether pods that ask for no managed device are members of their gang all the same: `fairlead.dev/members: all`.

What the pod, its template or workload says counts; else what another template of the gang says; else TenancyPolicies in force, of which one
that says `all` is enough; else its queue, or the first above it that says something. A gang is named in any case: by the pod, or by the
templates with devices beside it. Pods that start only once others are ready stay out: they would wait for gangs that wait for them.
When a workload is changed its pods exist already, so templates stay what they are: members were written into theirs when it was created.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fairlead.api import names
from fairlead.api.intent import Intent, IntentError
from fairlead.webhook.gangs import pod_gang
from fairlead.webhook.objects.fields import Json, MalformedError, Path, map_at, object_at, strings_at
from fairlead.webhook.objects.pod_templates import PodTemplate
from fairlead.webhook.policy.pods import queues_of
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts

ALL = "all"


def is_member(pod: Json, facts: Facts) -> bool:
    """Whether a pod without managed devices is. Where its annotations cannot be read: whether it says anything of it. Raises MalformedError."""
    try:
        intent = pod_gang.intent_of(pod)
    except IntentError:
        return names.MEMBERS in strings_at(map_at(pod, "metadata"), "annotations", "metadata")
    if intent.gang is None or intent.members is not None:
        return intent.gang is not None and intent.members == ALL
    return _by_default(intent, facts)


def _by_default(intent: Intent, facts: Facts) -> bool:
    """What policies and the queue say of gangs that do not say it."""
    said = {policy.spec.members for policy in facts.policies if policy.spec.mode == "Enforce"} - {None}
    if said:
        return ALL in said
    if all(queue.spec.members is None for queue in facts.queues.values()):
        return False
    return next((each.spec.members for each in queues_of(intent, facts) if each.spec.members is not None), None) == ALL


def without_devices(
    review: Review,
    templates: Iterable[PodTemplate],
    beside: Sequence[tuple[PodTemplate, Intent]],
    facts: Facts,
) -> Iterator[PodTemplate]:
    """Of `templates`, which ask for no managed device, those whose pods are members; `beside`: the object's others, and what they say.

    Of an object none of whose pods asks for devices: those that name the gang, which is other objects' too, and say it themselves.
    Raises MalformedError.
    """
    for template in templates:
        together = [intent for other, intent in beside if other.separate_gang == template.separate_gang]
        if not template.pods or (beside and not together):
            continue
        said = _said(review.object or {}, template, names.MEMBERS)
        if review.operation == "UPDATE":
            old = _own(review.old or {}, template).get(names.MEMBERS) if review.old else None
            said = said if old == ALL else "devices"
        elif not beside and _said(review.object or {}, template, names.GANG) is None:
            continue
        if said is None and together:
            said = next((intent.members for intent in together if intent.members is not None), None)
            said = said or (ALL if _by_default(together[0], facts) else None)
        if said not in {None, "devices"}:  # one that cannot be read is refused later
            yield template


def waiting_for_others(object_: Json, templates: Iterable[PodTemplate], gangs: Iterable[str]) -> Iterator[str]:
    """Faults of templates that are in none of the object's `gangs`, by their paths, and would wait for pods that wait for them."""
    for template in templates:
        if template.separate_gang and template.where not in gangs and _own(object_, template).get(names.MEMBERS) == ALL:
            yield (
                f"{template.where}.metadata.annotations[{names.MEMBERS}]: {ALL!r}, but its pods start only once others are ready, which would "
                "wait for them: remove it here"
            )


def _said(object_: Json, template: PodTemplate, key: str) -> str | None:
    """By the template, else by the metadata around it."""
    around = (_annotations(object_, path) for path in template.metadata_sources)
    return next((found[key] for found in (_own(object_, template), *around) if key in found), None)


def _own(object_: Json, template: PodTemplate) -> dict[str, str]:
    return _annotations(object_, (*template.path, "metadata"))


def _annotations(object_: Json, path: Path) -> dict[str, str]:
    try:
        return strings_at(object_at(object_, path), "annotations")
    except MalformedError:
        return {}  # of an object that is not managed; of another one it is refused elsewhere
