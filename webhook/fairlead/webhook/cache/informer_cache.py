"""Facts from the cluster: informers for what is small and asked often, and snapshots of them, one for each review.

Exists so that nearly every review is judged without a request. What the copies lack is asked of the apiserver (`asking`), and
only then absent. Of pods and slices little is kept (`lean`). Writes nothing.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from fairlead.api import legacy
from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.cel.asks import asks
from fairlead.kube import labels
from fairlead.kube.client import Client
from fairlead.kube.core import Namespace
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec, ResourceClaimTemplate
from fairlead.kube.resources import (
    DEVICE_CLASSES,
    FLAVORS,
    JOBS,
    NAMESPACES,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    TENANCY_POLICIES,
    Resource,
    raw,
)
from fairlead.webhook.cache.live_lookup import Answers, UnaskedError
from fairlead.webhook.cache.trimmed import MEMBERS, SLICES, MemberPod, Members, Models, ModelSlice
from fairlead.webhook.handlers.claims import claim_spec
from fairlead.webhook.objects.fields import MalformedError
from fairlead.webhook.objects.pod_templates import together
from fairlead.webhook.policy import policies as policy
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts, Key, Needs, needs

log = logging.getLogger(__name__)

T = TypeVar("T")
NAMESPACES_MAX = 10_000
"""Namespaces whose policies are remembered."""


@dataclasses.dataclass(frozen=True)
class _Policy:
    policy: TenancyPolicy
    selector: labels.Selector


class Knowledge:
    """`await run()` keeps it current; `await facts(review)` is a snapshot for one review."""

    def __init__(self, client: Client, *, drivers: tuple[str, ...], controllers: frozenset[str]) -> None:
        self._client = client
        self._drivers = drivers
        self._controllers = controllers
        self._classes: Informer[DeviceClass] = Informer(client, DEVICE_CLASSES)
        self._templates: Informer[ResourceClaimTemplate] = Informer(client, RESOURCE_CLAIM_TEMPLATES)
        self._namespaces: Informer[Namespace] = Informer(client, NAMESPACES)
        self._pods: Informer[MemberPod] = Informer(client, MEMBERS)
        self._members = Members()
        self._raw_queues: Informer[dict[str, Any]] = Informer(client, QUEUES)
        self._raw_flavors: Informer[dict[str, Any]] = Informer(client, FLAVORS)
        self._raw_policies: Informer[dict[str, Any]] = Informer(client, TENANCY_POLICIES)
        self._device_classes: dict[str, DeviceClass] = {}
        self._queues: dict[str, Queue] = {}
        self._flavors: dict[str, Flavor] = {}
        self._policies: dict[str, _Policy] = {}
        self._slices: Informer[ModelSlice] = Informer(client, SLICES)
        self._models = Models()
        self._governing: dict[str, tuple[Mapping[str, str], tuple[TenancyPolicy, ...]]] = {}
        self.changed = asyncio.Event()
        """Set when a policy came, changed or went."""
        self._classes.subscribe(_into(self._device_classes, lambda found: found))
        self._raw_queues.subscribe(_into(self._queues, Queue.stored))
        self._raw_flavors.subscribe(_into(self._flavors, Flavor.stored))
        self._raw_policies.subscribe(_into(self._policies, _policy))
        self._raw_policies.subscribe(self._policies_changed)
        self._slices.subscribe(self._models.changed)
        self._pods.subscribe(self._members.changed)

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        return (
            self._classes,
            self._templates,
            self._namespaces,
            self._pods,
            self._raw_queues,
            self._raw_flavors,
            self._raw_policies,
            self._slices,
        )

    @property
    def policies(self) -> tuple[TenancyPolicy, ...]:
        """All there are, by name."""
        return tuple(found.policy for _, found in sorted(self._policies.items()))

    @property
    def unsynced(self) -> list[str]:
        """The resources that were never listed yet."""
        return [str(informer.resource) for informer in self.informers if not informer.synced.is_set()]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in self.informers:
                tasks.create_task(informer.run())

    async def synced(self) -> None:
        for informer in self.informers:
            await informer.synced.wait()

    async def facts(self, review: Review) -> Facts:
        """Raises ApiError where something that is needed cannot be read."""
        answers = Answers(self._client)
        while True:  # ends: each turn asks one thing more of the few that a review names
            try:
                return self._snapshot(review, answers)
            except UnaskedError as unasked:
                await answers.find(unasked)

    def at_once(self, review: Review) -> Facts | None:
        """The facts, if nothing has to be asked of the apiserver; which is so for nearly every review."""
        try:
            return self._snapshot(review, Answers(self._client))
        except UnaskedError:
            return None

    def _snapshot(self, review: Review, answers: Answers) -> Facts:
        """Raises UnaskedError with what is to be asked first."""
        try:
            wanted = needs(review)
        except MalformedError:
            wanted = Needs()  # the handler says what is wrong
        namespace_labels = self._namespace_labels(review.namespace, answers)
        templates = {key: spec for key in wanted.templates if (spec := self._template(key, answers)) is not None}
        claims = {key: spec for key in wanted.claims if (spec := self._claim(key, answers)) is not None}
        named = {
            ask.device_class_name
            for specs in (templates.values(), claims.values(), _own_spec(review))
            for spec in specs
            for _, ask in asks(spec)
        }
        return Facts(
            drivers=self._drivers,
            controllers=self._controllers,
            may_release=wanted.release and (review.username in self._controllers or answers.may_release(review)),
            classes=self._named(named, self._device_classes, DEVICE_CLASSES, lambda found: found, answers),
            templates=templates,
            claims=claims,
            gangs={key: self._members.of(key) for key in wanted.gangs},
            jobs={key: most for key in wanted.jobs if (most := self._job(key, answers)) > 0},
            queues=self._named(wanted.queues, self._queues, QUEUES, Queue.stored, answers),
            flavors=self._named(wanted.flavors, self._flavors, FLAVORS, Flavor.stored, answers),
            policies=self._policies_for(review, namespace_labels),
            namespace_labels=namespace_labels,
            devices=self._models.known() if review.namespace or review.of == "flavors.fairlead.dev" else (),
            serves=frozenset(api for api in wanted.apis if answers.serves(api)),
        )

    # -- one kind each ---------------------------------------------------------------------------------------------

    def _namespace_labels(self, name: str, answers: Answers) -> Mapping[str, str]:
        if not name:
            return {}
        known = self._namespaces.get(name)
        if known is None:
            known = answers.live(NAMESPACES, name)
        return {} if known is None else known.metadata.labels

    def _policies_for(self, review: Review, namespace_labels: Mapping[str, str]) -> tuple[TenancyPolicy, ...]:
        """Those that judge the review; which select its namespace is kept until policy or labels change."""
        if not self._policies or not review.namespace:
            return ()
        known = self._governing.get(review.namespace)
        if known is None or known[0] is not namespace_labels:
            selected = tuple(
                found.policy
                for _, found in sorted(self._policies.items())
                if found.selector.matches(namespace_labels)
                and review.namespace not in found.policy.spec.exemptions.namespaces
            )
            if len(self._governing) >= NAMESPACES_MAX:
                self._governing.clear()
            known = self._governing[review.namespace] = (namespace_labels, selected)
        return policy.governing(known[1], review.username, review.groups)

    def _policies_changed(self, change: Change[dict[str, Any]]) -> None:
        self._governing.clear()
        self.changed.set()

    def _template(self, key: Key, answers: Answers) -> ResourceClaimSpec | None:
        known = self._templates.get(f"{key[0]}/{key[1]}")
        if known is None and legacy.parse_template_name(key[1]) is not None:
            return None  # the controller makes it, and its name says what it holds
        if known is None:
            known = answers.live(RESOURCE_CLAIM_TEMPLATES, key[1], key[0])
        return None if known is None else known.spec.spec

    def _claim(self, key: Key, answers: Answers) -> ResourceClaimSpec | None:
        """Named claims are few and templates many: these are read when asked for."""
        found = answers.live(RESOURCE_CLAIMS, key[1], key[0])
        return None if found is None else found.spec

    def _job(self, key: Key, answers: Answers) -> int:
        """How many pods the Job runs at once; 0 where there is none."""
        job = answers.live(raw(JOBS), key[1], key[0])
        return 0 if job is None else together(job["spec"], "spec")

    def _named(
        self,
        wanted: Iterable[str],
        known: Mapping[str, T],
        resource: Resource[Any],
        convert: Callable[[Any], T],
        answers: Answers,
    ) -> Mapping[str, T]:
        """Known objects, and those wanted ones that the cache does not have yet."""
        absent = [name for name in wanted if name and name not in known]
        if not absent:
            return known
        fresh = {name: answers.live(resource, name) for name in sorted(absent)}
        return {**known, **{name: convert(found) for name, found in fresh.items() if found is not None}}


def _own_spec(review: Review) -> list[ResourceClaimSpec]:
    """The spec of a claim or template that is itself under review."""
    path = {"resourceclaims": "spec", "resourceclaimtemplates": "spec.spec"}.get(review.resource)
    if path is None or review.object is None:
        return []
    try:
        return [claim_spec(review.object, path)]
    except MalformedError:
        return []


def _policy(raw: dict[str, Any]) -> _Policy:
    found = TenancyPolicy.stored(raw)
    return _Policy(found, policy.selector_of(found))


def _into(kept: dict[str, T], convert: Callable[[Any], T]) -> Callable[[Change[Any]], None]:
    """Keeps a dict of converted objects by name. One that cannot be read is left out, with a warning."""

    def handler(change: Change[Any]) -> None:
        kept.pop(change.key, None)
        if change.new is None:
            return
        try:
            kept[change.key] = convert(change.new)
        except (ManifestError, labels.SelectorError) as error:
            log.warning("left out: %s", error)

    return handler
