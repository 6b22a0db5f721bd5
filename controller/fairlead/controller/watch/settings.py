"""Queue and Flavor objects, read into the engine's QueueSpec and FlavorSpec.

An object that cannot be read is left out and becomes a `Problem` for its status; the others stay in force. Pure.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from fairlead.api.base import LabelSelector as ApiSelector
from fairlead.api.base import ManifestError
from fairlead.api.budget import Budget, Idle
from fairlead.api.durations import duration_s
from fairlead.api.flavor import Flavor, FlavorAutoscaling
from fairlead.api.flavor import NodeTemplate as ApiNodeTemplate
from fairlead.api.queue import Queue, QueueFlavor
from fairlead.api.queue import QueueSpec as ApiQueueSpec
from fairlead.api.queues import budget_problem, listed, unknown_flavors
from fairlead.api.schedules import quotas as scheduled_quotas
from fairlead.controller.gangs.admission import holds
from fairlead.controller.spending import Said
from fairlead.engine.queues.limits import held_queues
from fairlead.engine.queues.usage_history import RememberedUsage
from fairlead.engine.types.pods import milli
from fairlead.engine.types.settings import (
    Autoscaling,
    FlavorQuota,
    FlavorSpec,
    IdlePolicy,
    NodeTemplate,
    Problem,
    QueueSpec,
)
from fairlead.engine.types.values import amount
from fairlead.kube import core, labels, timestamps
from fairlead.kube.labels import Selector
from fairlead.kube.objects import LabelSelector, LabelSelectorRequirement
from fairlead.kube.quantity import QuantityError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    queues: tuple[QueueSpec, ...] = ()
    flavors: tuple[FlavorSpec, ...] = ()
    remembered: Mapping[str, RememberedUsage] = field(default_factory=dict)  # past use from status, by queue UID
    problems: tuple[Problem, ...] = ()
    namespace_selectors: Mapping[str, labels.Selector] = field(default_factory=dict)
    """By leaf queue: which namespaces' pods they take where the pods name no queue."""
    scheduled: Mapping[str, ApiQueueSpec] = field(default_factory=dict)
    """By name of queues with a schedule: `queues` has their quotas without it. See `scheduled.at`."""
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    """By name of queues with a budget: what is spent of it is not known here. See `controller.spending`."""
    said: Mapping[str, Said] = field(default_factory=dict)
    """What their statuses say of it."""
    autoscaling: Mapping[str, FlavorAutoscaling] = field(default_factory=dict)
    """By name of flavors for which nodes may be asked for: what of it is not the decision's."""

    def foreign_queue(self, name: str, namespace_labels: Mapping[str, str]) -> str | None:
        """The queue of a gang whose queue name comes from another system.

        `name`, where there is such a Queue. Else None where a queue selects the gang's namespace, or there are no Queues
        at all: then the gang is treated as if it named none. Else `name`: it waits, and its status names the missing Queue.
        """
        if any(queue.name == name for queue in self.queues):
            return name
        selected = not self.queues or self.selecting(namespace_labels)
        return None if selected else name

    @property
    def counted_resources(self) -> Mapping[str, str]:
        """By name of flavors with measure Resource: the resource of pods."""
        return {flavor.name: flavor.resource_name for flavor in self.flavors if flavor.resource_name is not None}

    @property
    def any_idle(self) -> bool:
        """Whether a queue says what follows for idle gangs."""
        return any(queue.idle is not None for queue in self.queues)

    @property
    def any_movable(self) -> bool:
        """Whether a queue says that its gangs may be moved."""
        return any(queue.movable for queue in self.queues)

    @property
    def any_hold(self) -> bool:
        """Whether a queue is on hold."""
        return any(queue.hold is not None for queue in self.queues)

    def held_queues(self) -> Mapping[str, holds.Found]:
        """By name, of the queues that take no gangs now."""
        return held_queues(self.queues) if self.any_hold else {}

    def path(self, queue: str | None, namespace_labels: Mapping[str, str]) -> Iterator[QueueSpec]:
        """The queue that a gang names, or else the one that takes its namespace, and those above: of some fields the first counts that says so."""
        by_name = {each.name: each for each in self.queues}
        name = self.leaf(queue, namespace_labels)
        seen = set[str]()
        while name is not None and name in by_name and name not in seen:
            seen.add(name)
            yield by_name[name]
            name = by_name[name].parent

    def leaf(self, queue: str | None, namespace_labels: Mapping[str, str]) -> str | None:
        """That a gang names, or else the one that takes its namespace."""
        return queue or min(self.selecting(namespace_labels), default=None)

    def selecting(self, namespace_labels: Mapping[str, str]) -> list[str]:
        """The leaf queues that select a namespace of these labels."""
        return [name for name, each in self.namespace_selectors.items() if each.matches(namespace_labels)]


def read(
    queues: Iterable[Mapping[str, Any]],
    flavors: Iterable[Mapping[str, Any]],
    namespaces: Iterable[tuple[str, Mapping[str, str]]] = (),
) -> Settings:
    """In name order. `namespaces` are (name, labels) of those whose pods queues take."""
    problems: list[Problem] = []
    objects: dict[str, Queue] = {}
    read_queues: list[QueueSpec] = []
    read_flavors: list[FlavorSpec] = []
    autoscaling: dict[str, FlavorAutoscaling] = {}
    remembered: dict[str, RememberedUsage] = {}
    for raw in queues:
        try:
            queue = Queue.stored(raw)
            read_queues.append(_queue(queue))
        except (ManifestError, QuantityError) as error:
            problems.append(_unreadable("Queue", raw, error))
            continue
        objects[queue.name] = queue
        remembered[read_queues[-1].uid] = _remembered(queue)
    for raw in flavors:
        try:
            flavor = Flavor.stored(raw)
            read_flavors.append(_flavor(flavor))
            if flavor.spec.autoscaling is not None and read_flavors[-1].autoscaling is not None:
                autoscaling[flavor.name] = flavor.spec.autoscaling
        except (ManifestError, QuantityError) as error:
            problems.append(_unreadable("Flavor", raw, error))
    names = {flavor.name for flavor in read_flavors}
    selectors = dict(_leaf_selectors(read_queues))
    problems += [
        Problem(kind="Queue", name=queue.name, reason="UnknownFlavor", message=message)
        for queue in objects.values()
        for message in unknown_flavors(queue, names)
    ]
    measures = {flavor.name: flavor.measure for flavor in read_flavors}
    problems += [
        Problem(kind="Queue", name=queue.name, reason="UnknownFlavor", message=message)
        for queue in objects.values()
        if (message := budget_problem(queue, measures)) is not None
    ]
    problems += selected_twice(selectors, namespaces)
    return Settings(
        queues=tuple(sorted(read_queues, key=lambda queue: queue.name)),
        flavors=tuple(sorted(read_flavors, key=lambda flavor: flavor.name)),
        remembered=remembered,
        problems=tuple(sorted(problems)),
        namespace_selectors=selectors,
        budgets={name: queue.spec.budget for name, queue in sorted(objects.items()) if queue.spec.budget is not None},
        said={name: said for name, queue in sorted(objects.items()) if (said := _said(queue)) is not None},
        autoscaling=autoscaling,
        scheduled={name: queue.spec for name, queue in sorted(objects.items()) if queue.spec.schedule},
    )


def _leaf_selectors(queues: list[QueueSpec]) -> Iterator[tuple[str, labels.Selector]]:
    parents = {queue.parent for queue in queues}
    for queue in queues:
        if queue.namespace_selector is not None and queue.name not in parents:
            with contextlib.suppress(labels.SelectorError):  # reported where the tree is built
                yield queue.name, labels.from_label_selector(queue.namespace_selector)


def _unreadable(kind: Literal["Queue", "Flavor"], raw: Mapping[str, Any], error: Exception) -> Problem:
    name = str(raw.get("metadata", {}).get("name", ""))
    return Problem(kind=kind, name=name, reason="Unreadable", message=f"{error}; it is left out")


def _remembered(queue: Queue) -> RememberedUsage:
    status = queue.status
    if status is None or status.usage_time is None:
        return RememberedUsage(parts={}, at=0.0)
    parts = {usage.flavor: usage.past_usage for usage in status.usage if usage.past_usage}
    try:
        return RememberedUsage(parts=parts, at=timestamps.parse(status.usage_time))
    except ValueError:
        return RememberedUsage(parts={}, at=0.0)


def _said(queue: Queue) -> Said | None:
    budget = None if queue.status is None else queue.status.budget
    if budget is None or budget.spent is None:
        return None
    try:
        return Said(Fraction(budget.spent), timestamps.parse(budget.renews_at), budget.flavor)
    except (ValueError, ZeroDivisionError):
        return None


def quotas(flavors: Iterable[QueueFlavor]) -> tuple[FlavorQuota, ...]:
    """By flavor. Raises QuantityError."""
    return tuple(
        FlavorQuota(
            flavor=quota.flavor,
            deserved=amount(quota.deserved),
            limit=None if quota.limit is None else amount(quota.limit),
            weight=quota.weight,
            borrowing_limit=None if quota.borrowing_limit is None else amount(quota.borrowing_limit),
            lending_limit=None if quota.lending_limit is None else amount(quota.lending_limit),
        )
        for quota in sorted(flavors, key=lambda quota: quota.flavor)
    )


def _queue(queue: Queue) -> QueueSpec:
    spec = queue.spec
    for entry in spec.schedule:  # an amount that cannot be read is found now, not when the entry comes into force
        quotas(scheduled_quotas(spec.flavors, [entry]))
    return QueueSpec(
        name=queue.name,
        uid=str(queue.metadata.get("uid", "")),
        parent=spec.parent,
        quotas=quotas(spec.flavors),
        priority=spec.priority,
        strategy=spec.strategy,
        ordering=spec.ordering,
        preemption=spec.preemption,
        bounds=queue.bounds,
        respects_budgets=None if spec.pod_disruption_budgets is None else spec.pod_disruption_budgets == "Respected",
        idle=None if spec.idle is None else _idle(spec.idle),
        min_runtime_s=None if spec.min_runtime is None else duration_s(spec.min_runtime),
        models=spec.models,
        movable=spec.movable,
        hold=holds.of_spec(spec.hold),
        namespace_selector=None if spec.namespace_selector is None else _selector(spec.namespace_selector),
    )


def _idle(idle: Idle) -> IdlePolicy:
    return IdlePolicy(
        for_s=duration_s(idle.for_),
        grace_s=duration_s(idle.grace),
        then=idle.then,
        below_percent=None if idle.below is None else int(idle.below.removesuffix("%")),
        devices=idle.devices,
    )


def _selector(selector: ApiSelector) -> LabelSelector:
    return LabelSelector(
        match_labels=dict(selector.match_labels),
        match_expressions=tuple(
            LabelSelectorRequirement(key=rule.key, operator=rule.operator, values=tuple(rule.values))
            for rule in selector.match_expressions
        ),
    )


def _flavor(flavor: Flavor) -> FlavorSpec:
    return FlavorSpec(
        name=flavor.name,
        device_selector=flavor.spec.selector,
        measure=flavor.spec.measure,
        capacity_name=flavor.spec.capacity_name,
        resource_name=flavor.spec.resource_name,
        node_selector=tuple(sorted(flavor.spec.node_selector.items())),
        autoscaling=_autoscaling(flavor.spec.autoscaling),
    )


def _node_template(template: ApiNodeTemplate) -> NodeTemplate:
    return NodeTemplate(
        devices=template.devices,
        labels=tuple(sorted(template.labels.items())),
        taints=tuple(core.Taint(key=each.key, value=each.value, effect=each.effect) for each in template.taints),
        allocatable=tuple(sorted((name, milli(value)) for name, value in template.allocatable.items())),
    )


def _autoscaling(scaling: FlavorAutoscaling | None) -> Autoscaling | None:
    if scaling is None or scaling.mode == "Off":
        return None
    return Autoscaling(
        mode=scaling.mode,
        max=None if scaling.max is None else amount(scaling.max),
        patience_s=duration_s(scaling.patience),
        wait_s=duration_s(scaling.wait_before_eviction),
        device_classes=tuple(scaling.device_classes),
        node_selector=tuple(sorted(scaling.node_selector.items())),
        templates=tuple(_node_template(each) for each in scaling.node_templates),
    )


def selected_twice(
    selectors: Mapping[str, Selector], namespaces: Iterable[tuple[str, Mapping[str, str]]]
) -> Iterator[Problem]:
    """Per queue that selects a namespace which another selects too, one conflict that names the first such namespace.

    `selectors` are those of leaf queues, by queue; `namespaces` are (name, labels). Sorted by queue.
    Cost: a selector with an equality is tried only on namespaces that have one of its values.
    """
    by_label: dict[tuple[str, str], list[str]] = defaultdict(list)
    others: list[str] = []
    for name, selector in selectors.items():
        equality = next((each for each in selector.requirements if each.operator == "In"), None)
        if equality is None:
            others.append(name)
        else:
            for value in equality.values:
                by_label[equality.key, value].append(name)
    rivals: dict[str, set[str]] = defaultdict(set)
    first: dict[str, tuple[str, str]] = {}  # a namespace, and the queue that takes it
    for namespace, noted in sorted(namespaces):
        candidates = {*others, *(name for label in noted.items() for name in by_label.get(label, ()))}
        matching = sorted(name for name in candidates if selectors[name].matches(noted))
        if len(matching) > 1:
            for name in matching:
                rivals[name].update(matching)
                first.setdefault(name, (namespace, matching[0]))
    for name in sorted(rivals):
        same = sorted(rivals[name] - {name})
        namespace, taker = first[name]
        verb = "selects" if len(same) == 1 else "select"
        yield Problem(
            kind="Queue",
            name=name,
            reason="SelectorsOverlap",
            message=f"spec.namespaceSelector: {listed(same)} {verb} namespace {namespace} too; pods there "
            f"that name no queue go to {taker}; make the selectors exclude one another",
        )
