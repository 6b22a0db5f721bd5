"""Policy rules about pods with managed devices: requests, tolerations, node affinity, idle devices, and the bounds of a gang's own terms.

A pod and the template of a workload are judged by the same functions. How long a gang may run undisturbed, write a checkpoint and end is
bounded by its queue (refused), by policies (a finding), or by a default (a warning: the controller counts no more).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlead.api import names
from fairlead.api.base import SelectorRequirement
from fairlead.api.bounds import DEFAULTS, NO_BOUNDS, Bound, Bounds, tightest
from fairlead.api.durations import duration_s
from fairlead.api.intent import Intent
from fairlead.api.policy import NodeAffinity, Toleration
from fairlead.api.queue import Queue
from fairlead.kube import labels
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.webhook.objects.fields import Json, list_at, map_at, strings_at
from fairlead.webhook.objects.pods import containers, required_node_terms
from fairlead.webhook.policy.policies import Kind, Policies, Subject, finding, first
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import Finding


def pod_findings(policies: Policies, it: Subject, _: Facts) -> Iterator[Finding]:
    """To the pods of a template defaults are added when they are created. Raises MalformedError."""
    spec, path, template = it.spec, f"{it.where}spec", it.kind is Kind.MANAGED_TEMPLATE
    for policy in policies:
        rules = policy.spec
        if rules.resource_requests == "EqualLimits":
            for text in first(_unequal_requests(spec, path)):
                yield finding(policy, "resourceRequests", text)
        if rules.tolerations is not None and _reported(rules.tolerations.missing, rules.mode, template=template):
            for toleration in missing_tolerations(spec, rules.tolerations.tolerations):
                yield finding(
                    policy, "tolerations", f"{path}.tolerations: {_toleration_text(toleration)} is missing; add it"
                )
        if rules.node_affinity is not None and _reported(rules.node_affinity.missing, rules.mode, template=template):
            for wanted in missing_requirements(spec, rules.node_affinity):
                where = f"{path}.affinity.nodeAffinity"
                yield finding(
                    policy,
                    "nodeAffinity",
                    f"{where}: {_requirement_text(wanted)} is missing; require it, or set nodeSelector",
                )


def keep_idle_findings(policies: Policies, it: Subject, _: Facts) -> Iterator[Finding]:
    """Raises MalformedError."""
    where = f"{it.where}metadata"
    if strings_at(it.metadata, "annotations", where).get(names.KEEP_IDLE) != "true":
        return
    for policy in policies:
        if policy.spec.keep_idle == "Reject":
            cure = "remove it; a Queue of such pods may say idle: {then: nothing}"
            yield finding(policy, "keepIdle", f"{where}.annotations[{names.KEEP_IDLE}]: is not allowed here; {cure}")


def _reported(missing: str, mode: str, *, template: bool) -> bool:
    """Whether something missing is a finding; otherwise it is added."""
    return missing == "Require" or (mode != "Enforce" and not template)


def _unequal_requests(spec: Json, path: str) -> Iterator[str]:
    for list_name, index, container in containers(spec, path):
        where = f"{path}.{list_name}[{index}].resources"
        resources = map_at(container, "resources", where)
        limits, requests = map_at(resources, "limits", where), map_at(resources, "requests", where)
        for resource in ("cpu", "memory"):
            limit, request = limits.get(resource), requests.get(resource, limits.get(resource))
            if limit is None:
                yield f"{where}.limits[{resource}]: is missing; write a limit, and the same as request or none"
            elif limit != request and not _equal(limit, request):
                yield f"{where}.requests[{resource}]: {request} must equal the limit {limit}; write the same, or none"


def _equal(limit: Any, request: Any) -> bool:
    try:
        return Quantity.of(limit) == Quantity.of(request)
    except (QuantityError, TypeError):
        return True  # the apiserver denies it, with a reason of its own


def missing_tolerations(spec: Json, wanted: list[Toleration]) -> list[Toleration]:
    given = list_at(spec, "tolerations", "spec")
    return [toleration for toleration in wanted if not any(_includes(one, toleration) for one in given)]


def _includes(given: Json, wanted: Toleration) -> bool:
    operator = given.get("operator") or "Equal"
    if given.get("effect") and given["effect"] != wanted.effect:
        return False
    if given.get("tolerationSeconds") is not None and given["tolerationSeconds"] != wanted.toleration_seconds:
        return False
    if not given.get("key"):
        return operator == "Exists"
    if given["key"] != wanted.key:
        return False
    return operator == "Exists" or (
        operator == wanted.operator == "Equal" and (given.get("value") or "") == (wanted.value or "")
    )


def _toleration_text(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.value else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    return f"the toleration {toleration.key or 'of everything'}{value}{effect} ({toleration.operator})"


def missing_requirements(spec: Json, affinity: NodeAffinity) -> list[SelectorRequirement]:
    """The requirements that are neither in every term nor in the node selector."""
    terms = required_node_terms(spec)
    selector = strings_at(spec, "nodeSelector", "spec")
    return [
        wanted
        for wanted in affinity.match_expressions
        if not _selected(selector, wanted) and not (terms and all(_in_term(term, wanted) for term in terms))
    ]


def _selected(selector: Json, wanted: SelectorRequirement) -> bool:
    value = selector.get(wanted.key)
    return value is not None and (wanted.operator == "Exists" or (wanted.operator == "In" and value in wanted.values))


def _in_term(term: Json, wanted: SelectorRequirement) -> bool:
    return any(_implies(given, wanted) for given in list_at(term, "matchExpressions", "nodeSelectorTerms"))


def _implies(given: Json, wanted: SelectorRequirement) -> bool:
    if given.get("key") != wanted.key:
        return False
    operator, values = given.get("operator"), given.get("values")
    held = {value for value in values if isinstance(value, str)} if isinstance(values, list) else set()
    if wanted.operator == "In":
        return operator == "In" and bool(held) and held <= set(wanted.values)
    if wanted.operator == "NotIn":
        return operator == "DoesNotExist" or (operator == "NotIn" and held >= set(wanted.values))
    if wanted.operator == "Exists":
        return operator in {"Exists", "In", "Gt", "Lt"}
    return operator == "DoesNotExist"


def _requirement_text(wanted: SelectorRequirement) -> str:
    return f"{wanted.key} {wanted.operator}{f' {sorted(wanted.values)}' if wanted.values else ''}"


_CURE = "write at most that, or remove it"


def bound_findings(policies: Policies, it: Subject, _: Facts) -> Iterator[Finding]:
    for policy in policies:
        if policy.bounds is not NO_BOUNDS and it.intent is not None:
            for rule, text in _beyond(policy.bounds, it.intent, it.spec, it.where):
                yield finding(policy, rule, text)


def queue_faults(it: Subject, facts: Facts) -> Iterator[str]:
    """What the pod's queue, or one above it, does not allow."""
    if it.intent is not None and it.review.operation == "CREATE":
        bounds, _ = _of_queue(it.intent, facts)
        for _, text in _beyond(bounds, it.intent, it.spec, it.where) if bounds != NO_BOUNDS else ():
            yield text


def default_warnings(intent: Intent, spec: Json, facts: Facts, where: str = "") -> list[str]:
    """What counts as the default, since no queue and no policy sets another bound."""
    asked = _asked(intent, spec, where)
    if not asked:
        return []
    set_here, queue_s = _of_queue(intent, facts)
    set_here = tightest((set_here, *(policy.bounds for policy in facts.policies)))
    given = {
        "maxMinRuntime": (set_here.min_runtime, max(DEFAULTS.min_runtime_s, queue_s)),
        "maxCheckpointGrace": (set_here.checkpoint_grace, DEFAULTS.checkpoint_grace_s),
        "maxTerminationGrace": (set_here.termination_grace, DEFAULTS.termination_grace_s),
    }
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
    bounds, queue_s = NO_BOUNDS, -1.0
    for queue in queues_of(intent, facts):
        bounds = bounds.within(queue.bounds)
        if queue_s < 0 and queue.spec.min_runtime is not None:
            queue_s = duration_s(queue.spec.min_runtime)
    return bounds, max(0.0, queue_s)


def queues_of(intent: Intent, facts: Facts) -> Iterator[Queue]:
    """The queue that takes the pod, and those above."""
    name, seen = intent.queue or _selecting(facts), set[str]()
    while name is not None and name in facts.queues and name not in seen:
        seen.add(name)
        yield facts.queues[name]
        name = facts.queues[name].spec.parent


def _selecting(facts: Facts) -> str | None:
    """The leaf that takes pods of the namespace that name no queue: the first by name, as in the controller."""
    parents = {queue.spec.parent for queue in facts.queues.values()}
    for name in sorted(facts.queues):
        selector = facts.queues[name].spec.namespace_selector
        if selector is None or name in parents:
            continue
        try:
            if labels.matches(selector, facts.namespace_labels):
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
