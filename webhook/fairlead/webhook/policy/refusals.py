"""What is refused whatever policies say, in one table: of what, what is read, which function finds it, and what that says.

A handler describes what it reviews as a `Subject`; `refuse` runs the rows that are for it, in the order of the table. All faults that are
found make one denial, with the code of the first: 422 where the object must be written otherwise, 403 where the user may not do it,
429 where the mutating webhook did not see the pod, perhaps since it was too slow (clients create the pod again by themselves). What the
fields of one object say by themselves their own modules know; nothing here changes an object. docs/admission.md shows this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fairlead import cel
from fairlead.api import names
from fairlead.api.flavor import Flavor
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue, QueueFlavor, ScheduledFlavor
from fairlead.api.schedules import quotas
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.webhook import claim_names
from fairlead.webhook.gangs import marks, other_systems
from fairlead.webhook.objects import sharing
from fairlead.webhook.objects.fields import strings_at, text_at
from fairlead.webhook.objects.pods import gated
from fairlead.webhook.policy import claims, pods
from fairlead.webhook.policy.policies import Kind, Subject, rule_faults
from fairlead.webhook.review.facts import Facts
from fairlead.webhook.review.verdict import Verdict, deny

DEPTH_MAX = 16
"""Levels of queues; fair share is divided once per level."""


class RefusedError(Exception):
    """A denial."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """What one function finds, with its messages, where <…> and … stand for what varies.

    `stored`: only of objects as they would be stored, after every mutating webhook. `alone`: only where nothing was found before it,
    and nothing is looked for after it.
    """

    cause: str
    code: int = 422
    of: frozenset[Kind]
    reads: str
    says: tuple[str, ...]
    find: Callable[[Subject, Facts], Iterable[str]]
    stored: bool = False
    alone: bool = False


def refuse(subjects: Iterable[Subject], facts: Facts, *, warnings: Sequence[str] = ()) -> None:
    """Raises RefusedError where something is found, MalformedError."""
    first: Refusal | None = None
    faults: list[str] = []
    for it in subjects:
        for row in _ROWS_OF[it.kind]:
            if (row.stored and not it.stored) or (row.alone and faults):
                continue
            found = it.review.about(row.find(it, facts))
            if not found:
                continue
            first, faults = first or row, [*faults, *found]
            if row.alone:
                raise RefusedError(deny(row.cause, *found, code=row.code, warnings=warnings))
    if first is not None:
        raise RefusedError(deny(first.cause, *faults, code=first.code, warnings=warnings))


def _forged_on_pod(it: Subject, _: Facts) -> Iterator[str]:
    reserved = marks.RESERVED if claim_names.is_copy(it.pod) else marks.CONTROLLER_ANNOTATIONS
    return marks.forged(it.metadata, reserved)


def _other_user(it: Subject, facts: Facts) -> Iterator[str]:
    said = strings_at(it.metadata, "annotations", "metadata").get(names.USER)
    if facts.records_users and said is not None and said != marks.user_of_pod(it.review):
        yield f"metadata.annotations[{names.USER}]: only the webhook writes this; remove it"


def _legacy_limits(it: Subject, _: Facts) -> Iterator[str]:
    yield from (f"{it.where}{fault}" for fault in it.legacy.faults)


def _untranslated(it: Subject, _: Facts) -> Iterator[str]:
    again = "was not turned into a claim; the mutating webhook did not see the pod: create it again"
    yield from (f"{path}: {again}" for path in it.legacy.paths)


def _other_owner(it: Subject, facts: Facts) -> Iterator[str]:
    """Of a template the message says which one: what its pods would be refused for."""
    if it.managed and it.review.operation == "CREATE" and it.intent is not None:
        at = f"{it.where.removesuffix('.')}: " if it.where else ""
        yield from (f"{at}{fault}" for fault in other_systems.owner_faults(it.pod, it.review.namespace, facts))


def _own_node(it: Subject, _: Facts) -> Iterator[str]:
    if node := text_at(it.spec, "nodeName", "spec"):
        cure = "remove nodeName, and use nodeSelector or affinity to ask for a node"
        what = "pods that ask for its devices" if it.kind is Kind.MANAGED_POD else "all members of the gang"
        yield f"spec.nodeName: {node!r}: the controller places {what}; {cure}"


def _no_gate(it: Subject, _: Facts) -> Iterator[str]:
    if it.managed and not gated(it.pod):
        yield (
            f"spec.schedulingGates: the gate {names.ADMISSION_GATE} is missing, so the controller cannot place the pod; "
            "create it again, and see that no other webhook removes the gate"
        )


def _suspended(it: Subject, facts: Facts) -> Iterable[str]:
    if not it.managed or it.review.operation != "CREATE":
        return ()
    return other_systems.suspended_faults(it.review.group_resource, it.object, it.review.namespace, facts)


def _queue(it: Subject, facts: Facts) -> Iterator[str]:
    assert isinstance(it.own, Queue)
    yield from _cycle(it.own, facts.queues)
    yield from _limits(it.own)
    yield from _other_units(it.own, facts.flavors)


def _other_units(queue: Queue, flavors: Mapping[str, Flavor]) -> Iterator[str]:
    """A message per amount that is none of its flavor's resource: half a pod, a part of a byte, less than a thousandth of a core."""
    for path, entry in _quotas(queue):
        flavor = flavors.get(entry.flavor)
        resource = None if flavor is None else flavor.spec.resource_name
        if resource is None:
            continue
        least, unit = (-3, "thousandths of a core, such as 500m") if resource == "cpu" else (0, "a whole number")
        if resource in {"memory", "ephemeral-storage"}:
            unit = "whole bytes, such as 64Gi"
        for name in ("deserved", "limit", "borrowing_limit", "lending_limit"):
            value = getattr(entry, name)
            field = QueueFlavor.model_fields[name].alias or name
            if value is not None and not _multiple(value, least):
                yield f"{path}.{field}: {value!r} is no amount of {resource}: write {unit}"


def _quotas(queue: Queue) -> Iterator[tuple[str, QueueFlavor | ScheduledFlavor]]:
    """Path and quota of each flavor, always and in each entry of the schedule."""
    for index, quota in enumerate(queue.spec.flavors):
        yield f"spec.flavors[{index}]", quota
    for index, entry in enumerate(queue.spec.schedule):
        for number, change in enumerate(entry.flavors):
            yield f"spec.schedule[{index}].flavors[{number}]", change


def _multiple(value: str | int, least: int) -> bool:
    """Whether it is so many times 10**least, or no quantity at all, which `_limit` says."""
    try:
        found = Quantity.of(value)
    except QuantityError:
        return True
    return found.scale >= least or found.digits % 10 ** (least - found.scale) == 0


def _selector(it: Subject, _: Facts) -> Iterator[str]:
    assert isinstance(it.own, Flavor)
    if not it.own.spec.selector:
        return  # it counts no devices
    try:
        cel.admit_selector(it.own.spec.selector)
    except cel.CompileError as error:
        yield f"spec.deviceSelector: {error}"


def _rules(it: Subject, _: Facts) -> Iterator[str]:
    assert isinstance(it.own, TenancyPolicy)
    for index, rule in enumerate(it.own.spec.rules):
        yield from rule_faults(rule, f"spec.rules[{index}]")


def _cycle(queue: Queue, queues: Mapping[str, Queue]) -> Iterator[str]:
    seen, parent = [queue.name], queue.spec.parent
    while parent is not None:
        if parent in seen:
            loop = " → ".join((*seen[seen.index(parent) :], parent))
            yield f"spec.parent: {queue.spec.parent!r} closes a loop: {loop}; name a parent outside of it, or none"
            return
        seen.append(parent)
        if len(seen) > DEPTH_MAX:
            yield f"spec.parent: the queue would be more than {DEPTH_MAX} levels deep; make the tree flatter"
            return
        above = queues.get(parent)
        parent = None if above is None else above.spec.parent


def _limits(queue: Queue) -> Iterator[str]:
    faulty = set[str]()
    for index, entry in enumerate(queue.spec.flavors):
        if (fault := _limit(f"spec.flavors[{index}]", entry)) is not None:
            faulty.add(entry.flavor)
            yield fault
    for index, scheduled in enumerate(queue.spec.schedule):
        after = {entry.flavor: entry for entry in quotas(queue.spec.flavors, [scheduled])}
        for number, change in enumerate(scheduled.flavors):
            fault = _limit(f"spec.schedule[{index}].flavors[{number}]", after[change.flavor])
            if fault is not None and change.flavor not in faulty:
                yield f"{fault} (while {scheduled.name} is in force)"


def _limit(path: str, entry: QueueFlavor) -> str | None:
    """What is wrong with the entry's quantities."""
    try:
        deserved = Quantity.of(entry.deserved)
        limit = None if entry.limit is None else Quantity.of(entry.limit)
    except QuantityError as error:
        return f"{path}: {error}"
    if limit is not None and limit < deserved:
        return f"{path}.limit: {entry.limit} is below deserved {entry.deserved}: raise limit or lower deserved"
    return None


_POD, _TEMPLATE = frozenset({Kind.MANAGED_POD}), frozenset({Kind.MANAGED_TEMPLATE})
_MEMBER_POD, _MEMBER_TEMPLATE = _POD | {Kind.MEMBER_POD}, _TEMPLATE | {Kind.MEMBER_TEMPLATE}
_WORD = ("<field>[fairlead.dev/claim-names]: <word> is no way to make claims; write …",)
_OWNER = ("…Namespace <name>: <label>…",)
REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        cause="annotations",
        of=frozenset({Kind.NEW_POD}),
        reads="fairlead.dev/claim-sources of pods with a controller, its signature, and the claims that the pod names",
        says=(
            "<annotation>: was not written by the webhook for a pod of this owner; remove it …",
            "<annotation>: <fault>; only the webhook writes this: remove it …",
            "spec.resourceClaims: <entry> must name claim <claim>, as <annotation> records; …",
        ),
        find=lambda it, facts: claim_names.source_faults(it.review, facts),
    ),
    Refusal(
        cause="annotations",
        of=frozenset({Kind.NEW_POD}),
        stored=True,
        reads="annotations that only the controller writes, which the mutating webhook takes off",
        says=("<annotation>: only the <program> writes this; remove it",),
        find=_forged_on_pod,
    ),
    Refusal(
        cause="annotations",
        of=frozenset({Kind.NEW_POD}),
        stored=True,
        reads="fairlead.dev/user, and who creates the pod",
        says=("<annotation>: only the webhook writes this; remove it",),
        find=_other_user,
    ),
    Refusal(
        cause="legacy",
        of=frozenset({Kind.LEGACY}),
        reads="limits and requests of the device plugin's resources, where they become claims",
        says=(
            "<limit>: <amount> is not whole; …",
            "<limit>: <amount> is negative; …",
            "<limit>: <amount> is no number of devices; …",
            "<limit>: <n> devices are more than one claim may hold (<max>)…",
            "<limit>: is missing, but requests has <amount>; …",
            "<request>: <n> must equal the limit <m>…",
            "<limit>: no MIG profile; …",
            "<limit>: <n>: a share of a GPU …",
        ),
        find=_legacy_limits,
    ),
    Refusal(
        cause="legacy",
        code=429,
        of=frozenset({Kind.LEGACY}),
        stored=True,
        alone=True,
        reads="limits that are still there",
        says=("<limit>: was not turned into a claim; the mutating webhook did not see the pod: create it again",),
        find=_untranslated,
    ),
    Refusal(
        cause="annotations",
        of=frozenset({Kind.NEW_TEMPLATES}),
        reads="annotations of pod templates that only Fairlead writes, where the object did not have them before",
        says=("<annotation>: only the <program> writes this; remove it",),
        find=lambda it, _: marks.forged_templates(it.review),
    ),
    Refusal(
        cause="gang",
        of=_MEMBER_TEMPLATE | {Kind.TRAIN_JOB},
        reads="annotations and labels of a workload, and of its pod templates",
        says=("<annotation>: <value>, but <other> says <value>; keep one of them", "<annotation>: <value> is no …"),
        find=lambda it, _: it.contradictions,
    ),
    Refusal(
        cause="gang",
        of=_TEMPLATE,
        reads="fairlead.dev/claim-names",
        says=_WORD,
        find=lambda it, _: claim_names.word_faults(it.metadata, f"{it.where}metadata"),
    ),
    Refusal(
        cause="gang",
        of=_MEMBER_POD | _MEMBER_TEMPLATE | {Kind.TRAIN_JOB},
        reads="what the annotations and labels say of gang, size, queue, topology, models, subgroup, alignment, members and times; members that exist",
        says=(
            "<annotation>: is missing: write how many members gang <name> needs to run …",
            "<annotation>: <value>, but <annotation> is missing: …",
            "<annotation>: <value>, but member <pod> of gang <name> says <value>; …",
            "<annotation>: no subgroup is named: …",
            "<annotation>: the pod has no index by which it would be in a subgroup: …",
            "<annotation>: <value> is …",
            "<annotation>: <annotation> asks for <value>: Kueue takes one of them; …",
            "<annotation>: has no effect without …",
        ),
        find=lambda it, _: it.unread,
    ),
    Refusal(
        cause="gang",
        of=_MEMBER_TEMPLATE,
        reads="whose the namespace is, and whose pods of the template would be",
        says=_OWNER,
        find=_other_owner,
    ),
    Refusal(
        cause="gang",
        of=_MEMBER_POD | _MEMBER_TEMPLATE,
        reads="what the queue, or one above it, allows: minRuntime, checkpoint and termination grace, priority",
        says=("<field>: <value> is more than <bound> (Queue <name>); …",),
        find=pods.queue_faults,
    ),
    Refusal(
        cause="claim",
        of=_POD,
        reads="fairlead.dev/claim-names",
        says=_WORD,
        find=lambda it, _: claim_names.word_faults(it.metadata),
    ),
    Refusal(
        cause="claim",
        of=_POD,
        reads="the namespace's label fairlead.dev/claim-names",
        says=("Namespace <name>: <label>: <word> is no way to make claims; write …",),
        find=lambda it, facts: claim_names.namespace_faults(it.review.namespace, it.metadata, facts),
    ),
    Refusal(
        cause="placed",
        of=_MEMBER_POD,
        reads="whose the namespace is, and whose the pod is",
        says=_OWNER,
        find=_other_owner,
    ),
    Refusal(
        cause="placed",
        of=_MEMBER_POD,
        reads="spec.nodeName",
        says=("spec.nodeName: <node>: the controller places …; remove nodeName, …",),
        find=_own_node,
    ),
    Refusal(
        cause="gate",
        code=429,
        of=_MEMBER_POD,
        stored=True,
        alone=True,
        reads="the gate",
        says=("spec.schedulingGates: the gate <gate> is missing, so the controller cannot place the pod; …",),
        find=_no_gate,
    ),
    Refusal(
        cause="annotations",
        code=403,
        of=frozenset({Kind.CHANGED_JOB}),
        reads="annotations of pod templates that only Fairlead writes, unless by the controller or a controller of templates",
        says=("<annotation>: only the <program> writes this; remove it", "<annotation>: is written once, when …"),
        find=lambda it, _: marks.templates_changed(it.review),
    ),
    Refusal(
        cause="gang",
        of=frozenset({Kind.WORKLOAD}),
        reads="spec.suspend of a new workload in a Kueue queue, in a namespace of Fairlead's, where Kueue runs",
        says=("<field>: true is for Kueue to set to false …",),
        find=_suspended,
    ),
    Refusal(
        cause="gang",
        of=frozenset({Kind.GANGS}),
        reads="which templates are one gang, its size and name, the subgroups of its pods, and other workloads' gangs of that name",
        says=(
            "<annotation>: the templates of one gang say <sizes>; give all of them one size",
            "spec.startupPolicy: LeaderReady, but a gang's pods start together …",
            "<annotation>: is missing, and …",
            "<annotation>: the <kind> runs <n> pods at once, and a gang has at most <max>: …",
            "<annotation>: no subgroup is named: …",
            "<annotation>: the pod has no index by which it would be in a subgroup: …",
            "<annotation>: <name> is the gang of <workload>, which has a size of its own; …",
            "<annotation>: 'all', but its pods start only once others are ready, …",
        ),
        find=lambda it, _: it.contradictions,
    ),
    Refusal(
        cause="claim",
        of=frozenset({Kind.NEW_CLAIM}),
        alone=True,
        reads="the length of selectors",
        says=("<spec>.devices.requests: …",),
        find=claims.size_faults,
    ),
    Refusal(
        cause="claim",
        of=frozenset({Kind.CLAIM}),
        reads="selectors and counts of requests that a managed driver may serve",
        says=("<request>.selectors[<n>].cel.expression: …", "<request>.count: <n> devices are more than one claim …"),
        find=claims.request_faults,
    ),
    Refusal(
        cause="claim",
        of=frozenset({Kind.CLAIM}),
        reads="configurations for our driver, and the classes of their requests",
        says=("<configuration>.parameters: …", "<configuration>.parameters.kind: <kind> does not apply to devices …"),
        find=claims.config_faults,
    ),
    Refusal(
        cause="claim",
        of=frozenset({Kind.CLAIM}),
        reads="sharing and capacities that cannot be together",
        says=("<configuration>: …",),
        find=lambda it, _: () if it.claim is None else sharing.faults(it.claim, it.configs),
    ),
    Refusal(
        cause="claim",
        of=frozenset({Kind.CLAIM}),
        reads="the classes of all requests: one allocator gives out the devices of a claim",
        says=("<request>: DeviceClass <name> is of a driver that Fairlead does not allocate for, …",),
        find=claims.driver_faults,
    ),
    Refusal(
        cause="claim",
        of=frozenset({Kind.CLAIM}),
        reads="the name of a template that stands for a legacy request, and what it asks for",
        says=("metadata.name: <name> is the name of the template for <resource>-style requests, …",),
        find=claims.reserved_name_faults,
    ),
    Refusal(
        cause="class",
        of=frozenset({Kind.CLASS}),
        reads="selectors that name a managed driver, configurations for our driver",
        says=("spec.config[<n>].opaque.parameters: …", "spec.selectors: …", "spec.selectors[<n>].cel.expression: …"),
        find=claims.class_faults,
    ),
    Refusal(
        cause="queue",
        of=frozenset({Kind.QUEUE}),
        reads="the tree of queues; deserved and limit of each flavor, always and in each entry of the schedule",
        says=(
            "spec.parent: <name> closes a loop: …",
            f"spec.parent: the queue would be more than {DEPTH_MAX} levels deep; make the tree flatter",
            "<flavor>.limit: <limit> is below deserved <deserved>: raise limit or lower deserved…",
            "<flavor>.<field>: <amount> is no amount of <resource>: write …",
        ),
        find=_queue,
    ),
    Refusal(
        cause="flavor",
        of=frozenset({Kind.FLAVOR}),
        reads="spec.deviceSelector",
        says=("spec.deviceSelector: …",),
        find=_selector,
    ),
    Refusal(
        cause="tenancypolicy",
        of=frozenset({Kind.POLICY}),
        reads="spec.rules, in CEL",
        says=("spec.rules[<n>].expression: …", "spec.rules[<n>].messageExpression: …"),
        find=_rules,
    ),
)
_ROWS_OF = {kind: tuple(row for row in REFUSALS if kind in row.of) for kind in Kind}
