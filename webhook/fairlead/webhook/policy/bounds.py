"""What users may ask at most: min-runtime, checkpoint-grace, terminationGracePeriodSeconds, priority, against `api.bounds`.

What is beyond the bound of a TenancyPolicy is a finding, by its mode; beyond that of a Queue it is refused; beyond the default,
where nothing is set, there is a warning that it counts as that. The controller counts all of them as the bound in any case.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from fairlead.api import names
from fairlead.api.bounds import DEFAULTS, NO_BOUNDS, Bound, Bounds, tightest
from fairlead.api.durations import duration_s
from fairlead.api.intent import Intent
from fairlead.kube import labels
from fairlead.kube.objects import LabelSelector
from fairlead.webhook.objects.fields import Json
from fairlead.webhook.policy.policies import Policies, finding
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import Finding

_CURE = "write at most that, or remove it"


def bound_findings(policies: Policies, intent: Intent, spec: Json, where: str = "") -> Iterator[Finding]:
    """Findings about one pod, or a template at `where`, which ends in a dot."""
    for policy in policies:
        if policy.bounds is not NO_BOUNDS:
            for rule, text in _beyond(policy.bounds, intent, spec, where):
                yield finding(policy, rule, text)


def queue_faults(intent: Intent, spec: Json, facts: Facts, where: str = "") -> list[str]:
    """What the pod's queue, or one above it, does not allow."""
    bounds, _ = _of_queue(intent, facts)
    return [text for _, text in _beyond(bounds, intent, spec, where)] if bounds != NO_BOUNDS else []


def default_warnings(intent: Intent, spec: Json, facts: Facts, where: str = "") -> list[str]:
    """What counts as the default, since no queue and no policy sets another bound."""
    set_here, queue_s = _of_queue(intent, facts)
    set_here = tightest((set_here, *(policy.bounds for policy in facts.policies)))
    given = {
        "maxMinRuntime": (set_here.min_runtime, max(DEFAULTS.min_runtime_s, queue_s)),
        "maxCheckpointGrace": (set_here.checkpoint_grace, DEFAULTS.checkpoint_grace_s),
        "maxTerminationGrace": (set_here.termination_grace, DEFAULTS.termination_grace_s),
    }
    asked = _asked(intent, spec, where)
    return [
        f"{field}: {_text(seconds)} counts as {_text(default)} where others deserve the devices: "
        f"no Queue or TenancyPolicy sets {rule}"
        for rule, (bound, default) in given.items()
        if rule in asked and bound is None
        for field, seconds in (asked[rule],)
        if seconds > default
    ]


def _beyond(bounds: Bounds, intent: Intent, spec: Json, where: str) -> Iterator[tuple[str, str]]:
    """(rule, message) of each value beyond its bound."""
    given: dict[str, Bound | None] = {
        "maxMinRuntime": bounds.min_runtime,
        "maxCheckpointGrace": bounds.checkpoint_grace,
        "maxTerminationGrace": bounds.termination_grace,
    }
    for rule, (field, seconds) in _asked(intent, spec, where).items():
        bound = given[rule]
        if bound is not None and seconds > bound.seconds:
            yield rule, f"{field}: {_text(seconds)} is more than {_text(bound.seconds)} ({bound.source}); {_CURE}"
    priority, most = spec.get("priority"), bounds.priority
    if most is not None and isinstance(priority, int) and priority > most.value:
        cure = "name another priorityClassName, or none"
        yield "maxPriority", f"{where}spec.priority: {priority} is more than {most.value} ({most.source}); {cure}"


def _asked(intent: Intent, spec: Json, where: str) -> dict[str, tuple[str, float]]:
    """What is asked for, by rule: the field, and its seconds."""
    found: dict[str, tuple[str, float]] = {}
    if intent.min_runtime_s is not None:
        found["maxMinRuntime"] = (f"{where}metadata.annotations[{names.MIN_RUNTIME}]", intent.min_runtime_s)
    if intent.checkpoint_grace_s is not None:
        found["maxCheckpointGrace"] = (
            f"{where}metadata.annotations[{names.CHECKPOINT_GRACE}]",
            intent.checkpoint_grace_s,
        )
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int):
        found["maxTerminationGrace"] = (f"{where}spec.terminationGracePeriodSeconds", grace)
    return found


def _of_queue(intent: Intent, facts: Facts) -> tuple[Bounds, float]:
    """The tightest bounds of the queue that takes the pod and of those above, and their minRuntime."""
    name = intent.queue or _selecting(facts)
    bounds, queue_s, seen = NO_BOUNDS, -1.0, set[str]()
    while name is not None and name in facts.queues and name not in seen:
        seen.add(name)
        spec = facts.queues[name].spec
        bounds = bounds.within(facts.queues[name].bounds)
        if queue_s < 0 and spec.min_runtime is not None:
            queue_s = duration_s(spec.min_runtime)
        name = spec.parent
    return bounds, max(0.0, queue_s)


def _selecting(facts: Facts) -> str | None:
    """The leaf that takes pods of the namespace that name no queue: the first by name, as in the controller."""
    parents = {queue.spec.parent for queue in facts.queues.values()}
    for name in sorted(facts.queues):
        selector = facts.queues[name].spec.namespace_selector
        if selector is None or name in parents:
            continue
        try:
            raw = selector.model_dump(by_alias=True, mode="json")
            if labels.from_label_selector(msgspec.convert(raw, LabelSelector)).matches(facts.namespace_labels):
                return name
        except labels.SelectorError:
            continue
    return None


def _text(seconds: float) -> str:
    """A duration as a user would write it: `30m`, `90s`."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"
