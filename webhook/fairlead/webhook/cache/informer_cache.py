"""The informer cache: watched copies of the objects that verdicts depend on, and one snapshot of them for each review.

Nearly every review is judged without a request to the apiserver. What the copies lack is looked up there, once per review and only what the
review names, and only then absent: `kubectl apply` creates a template and, a moment later, the pod that uses it. A snapshot that lacks
something raises LookupNeededError; the lookup is done, and the snapshot taken again; nothing of it is kept for the next review. Of pods and slices little is kept (`trimmed`). Claims and Jobs are not watched: few reviews name one. Writes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from fairlead.api import legacy
from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.cel.devices.requests import device_requests
from fairlead.kube import errors, labels, resources
from fairlead.kube.client import Client
from fairlead.kube.core import Namespace
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec, ResourceClaimTemplate
from fairlead.kube.resources import Resource, raw
from fairlead.webhook.cache import trimmed
from fairlead.webhook.cache.trimmed import DeviceModelIndex, GangMemberIndex, TrimmedPod, TrimmedSlice
from fairlead.webhook.objects.fields import MalformedError
from fairlead.webhook.objects.pod_templates import parallel_pods
from fairlead.webhook.policy import policies
from fairlead.webhook.policy.policies import SelectingPolicy
from fairlead.webhook.review.envelope import Review
from fairlead.webhook.review.facts import Facts, Key, Needs, Template, needs
from fairlead.webhook.review.pod_claims import claim_spec

log = logging.getLogger(__name__)

T = TypeVar("T")
NAMESPACES_MAX = 10_000
"""Namespaces whose policies are cached."""


class InformerCache:
    """`await run()` keeps it current; `await facts(review)` is a snapshot for one review."""

    def __init__(
        self,
        client: Client,
        *,
        drivers: tuple[str, ...],
        shared_drivers: tuple[str, ...] = (),
        controllers: frozenset[str],
        traces_ratio: float | None = None,
    ) -> None:
        self._client = client
        self._traces_ratio = traces_ratio
        self._drivers = drivers
        self._shared_drivers = shared_drivers
        self._controllers = controllers
        self._templates: Informer[ResourceClaimTemplate] = Informer(client, resources.RESOURCE_CLAIM_TEMPLATES)
        self._namespaces: Informer[Namespace] = Informer(client, resources.NAMESPACES)
        self._device_classes: dict[str, DeviceClass] = {}
        self._queues: dict[str, Queue] = {}
        self._flavors: dict[str, Flavor] = {}
        self._policies: dict[str, SelectingPolicy] = {}
        self._policies_by_namespace: dict[str, tuple[Mapping[str, str], tuple[TenancyPolicy, ...]]] = {}
        """The namespace's labels when its policies were selected, and those policies."""
        self._gang_members = GangMemberIndex()
        self._device_models = DeviceModelIndex()
        self._signing_key = b""
        self._former_signing_key: bytes | None = None
        self.policies_changed = asyncio.Event()
        """Set when a policy is added, changed or deleted."""
        classes: Informer[DeviceClass] = Informer(client, resources.DEVICE_CLASSES)
        pods: Informer[TrimmedPod] = Informer(client, trimmed.PODS)
        slices: Informer[TrimmedSlice] = Informer(client, trimmed.SLICES)
        raw_queues: Informer[dict[str, Any]] = Informer(client, resources.QUEUES)
        raw_flavors: Informer[dict[str, Any]] = Informer(client, resources.FLAVORS)
        raw_policies: Informer[dict[str, Any]] = Informer(client, resources.TENANCY_POLICIES)
        classes.subscribe(_into(self._device_classes, lambda found: found))
        raw_queues.subscribe(_into(self._queues, Queue.stored))
        raw_flavors.subscribe(_into(self._flavors, Flavor.stored))
        raw_policies.subscribe(_into(self._policies, lambda found: SelectingPolicy.of(TenancyPolicy.stored(found))))
        raw_policies.subscribe(self._on_policy_change)
        slices.subscribe(self._device_models.update)
        pods.subscribe(self._gang_members.update)
        self.informers: tuple[Informer[Any], ...] = (
            classes,
            self._templates,
            self._namespaces,
            pods,
            raw_queues,
            raw_flavors,
            raw_policies,
            slices,
        )

    @property
    def policies(self) -> tuple[TenancyPolicy, ...]:
        """Every TenancyPolicy, by name."""
        return tuple(found.policy for _, found in sorted(self._policies.items()))

    @property
    def unsynced(self) -> list[str]:
        """The resources that have not been listed yet."""
        return [str(informer.resource) for informer in self.informers if not informer.synced.is_set()]

    def sign_with(self, key: bytes) -> None:
        """Signs with this key from now on; what the key before it signed is still genuine."""
        if key != self._signing_key:
            self._former_signing_key = self._signing_key or None
            self._signing_key = key

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for informer in self.informers:
                tasks.create_task(informer.run())

    async def synced(self) -> None:
        for informer in self.informers:
            await informer.synced.wait()

    async def facts(self, review: Review) -> Facts:
        """Raises ApiError where a lookup fails."""
        lookup = LiveLookup(self._client)
        while True:  # ends: each turn looks up one more of the few objects that a review names
            try:
                return self._snapshot(review, lookup)
            except LookupNeededError as needed:
                await lookup.perform(needed)

    def cached_facts(self, review: Review) -> Facts | None:
        """The facts where no lookup is needed, which is so for nearly every review; else None."""
        try:
            return self._snapshot(review, LiveLookup(self._client))
        except LookupNeededError:
            return None

    def _snapshot(self, review: Review, lookup: LiveLookup) -> Facts:
        """Raises LookupNeededError."""
        try:
            wanted = needs(review)
        except MalformedError:
            wanted = Needs()  # the handler denies the object, with the field
        namespace_labels = self._namespace_labels(review.namespace, lookup)
        templates = {key: found for key in wanted.templates if (found := self._template(key, lookup)) is not None}
        claims = {key: spec for key in wanted.claims if (spec := _claim(key, lookup)) is not None}
        class_names = {
            request.device_class_name
            for specs in ([found.spec for found in templates.values()], claims.values(), _reviewed_spec(review))
            for spec in specs
            for _, request in device_requests(spec)
        }
        with_models = bool(review.namespace) or review.group_resource == "flavors.fairlead.dev"
        return Facts(
            drivers=self._drivers,
            shared_drivers=self._shared_drivers,
            controllers=self._controllers,
            records_users=True,
            traces_ratio=self._traces_ratio,
            classes=_with_lookups(
                class_names, self._device_classes, resources.DEVICE_CLASSES, lambda found: found, lookup
            ),
            templates=templates,
            claims=claims,
            gangs={key: self._gang_members.members(key) for key in wanted.gangs},
            jobs={key: pods for key in wanted.jobs if (pods := _parallel_pods(key, lookup)) > 0},
            queues=_with_lookups(wanted.queues, self._queues, resources.QUEUES, Queue.stored, lookup),
            flavors=_with_lookups(wanted.flavors, self._flavors, resources.FLAVORS, Flavor.stored, lookup),
            policies=self._policies_for(review, namespace_labels),
            namespace_labels=namespace_labels,
            device_models=self._device_models.models() if with_models else (),
            served_apis=frozenset(api for api in wanted.apis if lookup.serves(api)),
            signing_key=self._signing_key,
            former_signing_key=self._former_signing_key,
        )

    def _namespace_labels(self, name: str, lookup: LiveLookup) -> Mapping[str, str]:
        if not name:
            return {}
        known = self._namespaces.get(name)
        if known is None:
            known = lookup.get(resources.NAMESPACES, name)
        return {} if known is None else known.metadata.labels

    def _policies_for(self, review: Review, namespace_labels: Mapping[str, str]) -> tuple[TenancyPolicy, ...]:
        """The policies that judge the review; those of a namespace are cached until a policy or its labels change."""
        if not self._policies or not review.namespace:
            return ()
        known = self._policies_by_namespace.get(review.namespace)
        if known is None or known[0] is not namespace_labels:
            if len(self._policies_by_namespace) >= NAMESPACES_MAX:
                self._policies_by_namespace.clear()
            selected = policies.of_namespace(self._policies, review.namespace, namespace_labels)
            known = self._policies_by_namespace[review.namespace] = (namespace_labels, selected)
        return policies.of_user(known[1], review.username, review.groups)

    def _on_policy_change(self, change: Change[dict[str, Any]]) -> None:
        self._policies_by_namespace.clear()
        self.policies_changed.set()

    def _template(self, key: Key, lookup: LiveLookup) -> Template | None:
        known = self._templates.get(f"{key[0]}/{key[1]}")
        if known is None and legacy.parse_template_name(key[1]) is not None:
            return None  # the controller creates it, and its name says what it holds
        if known is None:
            known = lookup.get(resources.RESOURCE_CLAIM_TEMPLATES, key[1], key[0])
        return None if known is None else Template(known.metadata.uid, known.spec.spec)


def _claim(key: Key, lookup: LiveLookup) -> ResourceClaimSpec | None:
    found = lookup.get(resources.RESOURCE_CLAIMS, key[1], key[0])
    return None if found is None else found.spec


def _parallel_pods(job: Key, lookup: LiveLookup) -> int:
    """How many pods the Job runs at once; 0 where there is none."""
    found = lookup.get(raw(resources.JOBS), job[1], job[0])
    return 0 if found is None else parallel_pods(found["spec"], "spec")


def _with_lookups(
    wanted: Iterable[str],
    cached: Mapping[str, T],
    resource: Resource[Any],
    convert: Callable[[Any], T],
    lookup: LiveLookup,
) -> Mapping[str, T]:
    """The cached objects, and those wanted ones that the cache does not have yet."""
    absent = [name for name in wanted if name and name not in cached]
    if not absent:
        return cached
    fresh = {name: lookup.get(resource, name) for name in sorted(absent)}
    return {**cached, **{name: convert(found) for name, found in fresh.items() if found is not None}}


def _reviewed_spec(review: Review) -> list[ResourceClaimSpec]:
    """The spec of the claim or template that is itself under review."""
    path = {"resourceclaims": "spec", "resourceclaimtemplates": "spec.spec"}.get(review.resource)
    if path is None or review.object is None:
        return []
    try:
        return [claim_spec(review.object, path)]
    except MalformedError:
        return []


def _into(cached: dict[str, T], convert: Callable[[Any], T]) -> Callable[[Change[Any]], None]:
    """Keeps a dict of converted objects by name. An object that cannot be converted is left out, with a warning."""

    def handler(change: Change[Any]) -> None:
        cached.pop(change.key, None)
        if change.new is None:
            return
        try:
            cached[change.key] = convert(change.new)
        except (ManifestError, labels.SelectorError) as error:
            log.warning("left out: %s", error)

    return handler


LookupKey = tuple[str, str, str]
"""Resource, namespace and name."""


class LookupNeededError(Exception):
    """The snapshot needs a lookup that was not done yet."""

    def __init__(self, key: LookupKey, read: Callable[[], Awaitable[Any]]) -> None:
        super().__init__(key)
        self.key, self.read = key, read


class LiveLookup:
    """The results of one review's lookups. Each method raises LookupNeededError until `perform` has done its lookup."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._results: dict[LookupKey, Any] = {}

    async def perform(self, needed: LookupNeededError) -> None:
        """Raises ApiError."""
        self._results[needed.key] = await needed.read()

    def get(self, resource: Resource[Any], name: str, namespace: str | None = None) -> Any:
        """The object of that name, None if there is none."""
        key = (resource.plural, namespace or "", name)
        return self._result(key, lambda: _or_none(self._client.get(resource, name, namespace)))

    def serves(self, api_group: str) -> bool:
        """Whether the cluster serves an API group. A group whose lookup fails counts as served: the object is left alone."""
        return bool(self._result(("apis", "", api_group), lambda: self._served(api_group)))

    def _result(self, key: LookupKey, read: Callable[[], Awaitable[Any]]) -> Any:
        if key not in self._results:
            raise LookupNeededError(key, read)
        return self._results[key]

    async def _served(self, api_group: str) -> bool:
        try:
            await self._client.request("GET", f"/apis/{api_group}")
        except errors.NotFound:
            return False
        except errors.ApiError as error:
            log.warning("whether API group %s is served cannot be looked up: %s", api_group, error)
        return True


async def _or_none(read: Awaitable[Any]) -> Any:
    try:
        return await read
    except errors.NotFound:
        return None
