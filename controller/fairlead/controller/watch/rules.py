"""What Queues, Flavors and TenancyPolicies say of gangs: read when one of them changes, asked for each gang that is looked at.

A change notes which gangs it concerns, and whether a decision may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fairlead.api.bounds import NO_BOUNDS, Bounds
from fairlead.api.models import Models
from fairlead.api.object_names import is_exempt
from fairlead.controller.gangs.admission import holds
from fairlead.controller.gangs.conditions import holds_since
from fairlead.controller.gangs.held import idleness
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.controller.watch import settings
from fairlead.controller.watch.gang_records import GangRecords
from fairlead.controller.watch.informers import Informers
from fairlead.controller.watch.policy_bounds import PolicyBounds, bounds_of, models_of, read_policies
from fairlead.controller.watch.triggers import Triggers
from fairlead.engine.types.gangs import IdleSpan
from fairlead.engine.types.settings import IdlePolicy
from fairlead.kube import core
from fairlead.kube.informer import Change
from fairlead.kube.resources import Raw

READ_BY_GANGS = ("hold", "maxPriority", "lostNodeTimeout")
"""Fields of a queue by which its gangs are looked at again: evictions that a hold asked for are cancelled, and statuses say what holds."""


class Rules:
    """`gangs` is read, never written."""

    def __init__(
        self, informers: Informers, records: GangRecords, gangs: Mapping[GangId, Gang], triggers: Triggers
    ) -> None:
        self._informers = informers
        self._records = records
        self._gangs = gangs
        self._triggers = triggers
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
        return (
            self.settings().leaf(None if gang is None else gang.queue, self._informers.namespace_labels(gang_id[0]))
            or ""
        )

    def _setting(self, change: Change[Raw]) -> None:
        if change.old is None or change.new is None or change.old.get("spec") != change.new.get("spec"):
            looks = self._settings is not None and self._settings.any_idle
            self._settings = None
            if looks or ((change.new or {}).get("spec") or {}).get("idle"):
                self._triggers.gangs(
                    self._gangs
                )  # what their claims say of idle devices counts from now on, or no more
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
        said = gang.models or self.namespace_models(gang.namespace)
        return said or self.settings().models_of(gang.queue, self._informers.namespace_labels(gang.namespace))

    def bounds(self, gang: Gang) -> Bounds:
        """The tightest of the gang's queue, those above it, and its namespace."""
        of_queue = self.settings().bounds_of(gang.queue, self._informers.namespace_labels(gang.namespace))
        return of_queue.within(self.namespace_bounds(gang.namespace))

    def idle(self, gang: Gang, now: float) -> tuple[IdleSpan, IdlePolicy] | None:
        """Since when its devices are idle, and what its queue says follows; None: it is not idle, or no queue says anything."""
        settings_now = self.settings()
        if not settings_now.any_idle:
            return None
        policy = settings_now.idle_of(gang.queue, self._informers.namespace_labels(gang.namespace))
        if policy is None:
            return None
        span = idleness.idle_span(
            gang, policy, holds_since(self._informers.gang_object(gang.id), idleness.CONDITION), now
        )
        return None if span is None else (span, policy)

    def movable(self, gang: Gang) -> bool:
        """Whether its queue lets gangs be moved that do not say so themselves."""
        known = self.settings()
        return known.any_movable and known.movable(gang.queue, self._informers.namespace_labels(gang.namespace))

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
        known = self.settings()
        if known.any_hold:
            yield from known.holds_of(gang.queue, self._informers.namespace_labels(gang.namespace))


def _taken(setting: Raw | None) -> object:
    """Which namespaces' pods a Queue takes, as it says."""
    return None if setting is None else (setting.get("spec") or {}).get("namespaceSelector")
