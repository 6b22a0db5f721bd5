"""What Queues, Flavors and TenancyPolicies say of gangs: read when one of them changes, asked for each gang that is looked at.

A change notes which gangs it concerns, and whether a decision may differ. Of TenancyPolicies only those in mode Enforce count here, and
what they bound or set in namespaces: `maxMinRuntime` and its kin, and `models`. The rest is the webhook's. A policy that cannot be read,
or whose selector is broken, binds nothing here; the webhook says so when it is written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.api.base import ManifestError
from fairlead.api.bounds import NO_BOUNDS, Bounds
from fairlead.api.models import Models
from fairlead.api.object_names import is_exempt
from fairlead.api.policy import TenancyPolicy
from fairlead.controller.gangs.admission import holds
from fairlead.controller.gangs.conditions import holds_since
from fairlead.controller.gangs.held import idleness
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.watch import settings
from fairlead.controller.watch.informers import Informers
from fairlead.controller.watch.lookup import GangRecords
from fairlead.engine.types.gangs import IdleSpan
from fairlead.engine.types.settings import IdlePolicy, QueueSpec
from fairlead.kube import core, labels
from fairlead.kube.informer import Change
from fairlead.kube.resources import Raw

log = logging.getLogger(__name__)

READ_BY_GANGS = ("hold", "maxPriority", "lostNodeTimeout")
"""Fields of a queue by which its gangs are looked at again: evictions that a hold asked for are cancelled, and statuses say what holds."""


class Rules:
    def __init__(self, informers: Informers, records: GangRecords) -> None:
        self._informers = informers
        self._records = records
        self._gangs, self._triggers = informers.gangs, informers.triggers
        self._settings: settings.Settings | None = None
        self._policy_bounds: tuple[PolicyBounds, ...] | None = None

    def subscribe(self) -> None:
        for informer in (self._informers.queues, self._informers.flavors):
            informer.subscribe(self._setting)
        self._informers.namespaces.subscribe(self._namespace)
        self._informers.policies.subscribe(self._policy)

    def begin_term(self) -> None:
        """A term of leadership begins: decide, on settings that hold what queues' statuses remember now."""
        self._settings = None
        self._triggers.decide(urgent=True)

    def settings(self) -> settings.Settings:
        """Queues and Flavors; the same object until one of them, or what queues select, changes."""
        if self._settings is None:
            self._settings = settings.read(
                self._informers.queues.all(),
                self._informers.flavors.all(),
                [
                    (found.metadata.name, found.metadata.labels)
                    for found in self._informers.namespaces.all()
                    if not is_exempt(found.metadata.name, found.metadata.labels)
                ],
            )
        return self._settings

    def scale_ups(self, flavor: str) -> list[float]:
        """How many seconds its latest scale-ups took, by its status."""
        raw = self._informers.flavors.get(flavor) or {}
        found = (raw.get("status") or {}).get("scaleUpSeconds") or []
        return [float(each) for each in found if isinstance(each, int | float)]

    def queue_of(self, gang_id: GangId) -> str:
        """The leaf queue that a gang names, or else the one that takes its namespace; "" where there is none."""
        gang = self._gangs.get(gang_id)
        named = None if gang is None else gang.queue
        return self.settings().leaf(named, self._informers.namespace_labels(gang_id[0])) or ""

    def _setting(self, change: Change[Raw]) -> None:
        if change.old is None or change.new is None or change.old.get("spec") != change.new.get("spec"):
            looks = self._settings is not None and self._settings.any_idle
            self._settings = None
            if looks or ((change.new or {}).get("spec") or {}).get("idle"):
                # What their claims say of idle devices counts from now on, or no more.
                self._triggers.gangs(self._gangs)
            specs = [(each or {}).get("spec") or {} for each in (change.old, change.new)]
            if any(spec.get(field) is not None for spec in specs for field in READ_BY_GANGS):
                self._triggers.gangs(self._gangs)
            if _taken(change.old) != _taken(change.new):
                self._triggers.gangs(self._gangs)  # their statuses name their queue
            # Whether a foreign queue name is one of our Queues may have changed.
            self._triggers.gangs([gang_id for gang_id, gang in self._gangs.items() if gang.foreign_queue])
            self._triggers.decide(urgent=True)

    def _namespace(self, change: Change[core.Namespace]) -> None:
        """Which queues' selectors are in conflict depends on the namespaces that exist."""
        if self._settings is None:
            return
        before, after = (
            None
            if seen is None or is_exempt(change.key, seen.metadata.labels)
            else self._settings.selecting(seen.metadata.labels)
            for seen in (change.old, change.new)
        )
        if change.old is not None and before != after:
            self._triggers.gangs([gang_id for gang_id in self._gangs if gang_id[0] == change.key])
        if before != after and max(len(before or ()), len(after or ())) > 1:
            self._settings = None
            self._triggers.decide()

    def _policy(self, change: Change[Raw]) -> None:
        if change.old is None or change.new is None or change.old.get("spec") != change.new.get("spec"):
            self._policy_bounds = None
            self._triggers.gangs(self._gangs)
            self._triggers.decide(urgent=True)

    def namespace_bounds(self, namespace: str) -> Bounds:
        """What TenancyPolicies let the users of a namespace ask for."""
        policies = self._policies_read
        return bounds_of(policies, namespace, self._informers.namespace_labels(namespace)) if policies else NO_BOUNDS

    @property
    def _policies_read(self) -> tuple[PolicyBounds, ...]:
        if self._policy_bounds is None:
            self._policy_bounds = read_policies(self._informers.policies.all())
        return self._policy_bounds

    def namespace_models(self, namespace: str) -> Models | None:
        """What TenancyPolicies say of gangs of a namespace that do not say so themselves."""
        return models_of(self._policies_read, namespace, self._informers.namespace_labels(namespace))

    def models_of(self, gang: Gang) -> Models:
        """What holds for the gang: as its pods say, else TenancyPolicies, else its queue or one above."""
        of_queues = next((queue.models for queue in self._queues_of(gang) if queue.models is not None), None)
        return gang.models or self.namespace_models(gang.namespace) or of_queues or "same"

    def bounds(self, gang: Gang) -> Bounds:
        """The tightest of the gang's queue, those above it, and its namespace."""
        found = NO_BOUNDS
        for queue in self._queues_of(gang):
            found = found.within(queue.bounds)
        return found.within(self.namespace_bounds(gang.namespace))

    def idle(self, gang: Gang, now: float) -> tuple[IdleSpan, IdlePolicy] | None:
        """Since when its devices are idle, and what its queue says follows; None: it is not idle, or no queue says anything."""
        if not self.settings().any_idle:
            return None
        policy = next((queue.idle for queue in self._queues_of(gang) if queue.idle is not None), None)
        if policy is None:
            return None
        span = idleness.idle_span(
            gang, policy, holds_since(self._informers.gang_object(gang.id), idleness.CONDITION), now
        )
        return None if span is None else (span, policy)

    def movable(self, gang: Gang) -> bool:
        """Whether its queue lets gangs be moved that do not say so themselves."""
        said = (queue.movable for queue in self._queues_of(gang) if queue.movable is not None)
        return self.settings().any_movable and next(said, False)

    def held_by(self, gang: Gang) -> holds.Found | None:
        """The hold that keeps it from being admitted: its own, or that of its queue or one above."""
        own = self._records.hold_of(gang)
        if own is not None:
            return holds.Found(own, "")
        return next(self._queue_holds(gang), None)

    def evicted_by_hold(self, gang: Gang) -> bool:
        """Whether a hold says that it goes though it runs."""
        own = self._records.hold_of(gang)
        return (own is not None and own.evict) or any(found.hold.evict for found in self._queue_holds(gang))

    def _queue_holds(self, gang: Gang) -> Iterator[holds.Found]:
        if self.settings().any_hold:
            for queue in self._queues_of(gang):
                if queue.hold is not None:
                    yield holds.Found(queue.hold, queue.name)

    def _queues_of(self, gang: Gang) -> Iterator[QueueSpec]:
        return self.settings().path(gang.queue, self._informers.namespace_labels(gang.namespace))


def _taken(setting: Raw | None) -> object:
    """Which namespaces' pods a Queue takes, as it says."""
    return None if setting is None else (setting.get("spec") or {}).get("namespaceSelector")


@dataclass(frozen=True, slots=True)
class PolicyBounds:
    """What one policy bounds or sets, and where."""

    selector: labels.Selector
    exempt: frozenset[str]
    bounds: Bounds
    models: Models | None = None


def read_policies(policies: Iterable[Mapping[str, Any]]) -> tuple[PolicyBounds, ...]:
    """Those that bound or set something, in name order."""
    found: list[tuple[str, PolicyBounds]] = []
    for raw in policies:
        try:
            policy = TenancyPolicy.stored(raw)
            bounds = policy.bounds
            if policy.spec.mode != "Enforce" or (bounds == NO_BOUNDS and policy.spec.models is None):
                continue
            compiled = labels.from_label_selector(policy.spec.namespace_selector)
        except (ManifestError, labels.SelectorError) as error:
            log.warning("%s", error)
            continue
        exempt = frozenset(policy.spec.exemptions.namespaces)
        found.append((policy.name, PolicyBounds(compiled, exempt, bounds, policy.spec.models)))
    return tuple(each for _, each in sorted(found, key=lambda pair: pair[0]))


def bounds_of(policies: Iterable[PolicyBounds], namespace: str, namespace_labels: Mapping[str, str]) -> Bounds:
    """The tightest of those that select the namespace."""
    found = NO_BOUNDS
    for policy in policies:
        if namespace not in policy.exempt and policy.selector.matches(namespace_labels):
            found = found.within(policy.bounds)
    return found


def models_of(policies: Iterable[PolicyBounds], namespace: str, namespace_labels: Mapping[str, str]) -> Models | None:
    """What those say that select the namespace: `same` where they differ. None: nothing."""
    said = {
        policy.models
        for policy in policies
        if policy.models is not None and namespace not in policy.exempt and policy.selector.matches(namespace_labels)
    }
    return min(said, key=("same", "any").index, default=None)
