"""Queue and Flavor objects as the core wants them.

Exists so that one object that cannot be read does not stop the others: it is left out, and said so. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.api.base import LabelSelector as ApiSelector
from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor
from fairlead.api.queue import Queue
from fairlead.controller.capacity import amount
from fairlead.controller.model import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube.objects import LabelSelector, LabelSelectorRequirement
from fairlead.kube.quantity import QuantityError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    queues: tuple[QueueSpec, ...] = ()
    flavors: tuple[FlavorSpec, ...] = ()
    problems: tuple[str, ...] = ()


def read(queues: Iterable[Mapping[str, Any]], flavors: Iterable[Mapping[str, Any]]) -> Settings:
    """In name order."""
    problems: list[str] = []
    read_queues: list[QueueSpec] = []
    read_flavors: list[FlavorSpec] = []
    for raw in queues:
        try:
            read_queues.append(_queue(Queue.stored(raw)))
        except (ManifestError, QuantityError) as error:
            problems.append(str(error))
    for raw in flavors:
        try:
            read_flavors.append(_flavor(Flavor.stored(raw)))
        except ManifestError as error:
            problems.append(str(error))
    return Settings(
        queues=tuple(sorted(read_queues, key=lambda queue: queue.name)),
        flavors=tuple(sorted(read_flavors, key=lambda flavor: flavor.name)),
        problems=tuple(sorted(problems)),
    )


def _queue(queue: Queue) -> QueueSpec:
    spec = queue.spec
    return QueueSpec(
        name=queue.name,
        uid=str(queue.metadata.get("uid", "")),
        parent=spec.parent,
        quotas=tuple(
            FlavorQuota(
                flavor=quota.flavor,
                deserved=amount(quota.deserved),
                limit=None if quota.limit is None else amount(quota.limit),
                weight=quota.weight,
            )
            for quota in sorted(spec.flavors, key=lambda quota: quota.flavor)
        ),
        priority=spec.priority,
        strategy=spec.strategy,
        ordering=spec.ordering,
        namespace_selector=None if spec.namespace_selector is None else _selector(spec.namespace_selector),
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
        device_selector=flavor.spec.device_selector,
        measure=flavor.spec.measure,
        capacity_name=flavor.spec.capacity_name,
    )
