"""Facts from the cluster: informers for what is small and asked often, a live read for what they do not have.

Exists because `kubectl apply` makes a template and, a moment later, the pod that uses it: a cache that lags must
not turn a managed pod into an unmanaged one. What the cache lacks is asked of the apiserver, and only then absent.
Pods are kept as names and annotations only. Writes nothing.
"""

import asyncio
import collections
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from fairlead.api import legacy, names
from fairlead.api.base import ManifestError
from fairlead.api.flavor import Flavor
from fairlead.api.intent import IntentError, read_intent
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.cel.asks import asks
from fairlead.kube import errors, labels
from fairlead.kube.client import Client
from fairlead.kube.core import Namespace
from fairlead.kube.informer import Change, Informer
from fairlead.kube.objects import Object, Struct
from fairlead.kube.resource import Device, DeviceClass, ResourceClaimSpec, ResourceClaimTemplate
from fairlead.kube.resources import (
    DEVICE_CLASSES,
    FLAVORS,
    JOBS,
    NAMESPACES,
    PODS,
    QUEUES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    TENANCY_POLICIES,
    Resource,
    raw,
)
from fairlead.webhook import devices, policy
from fairlead.webhook.claims import claim_spec
from fairlead.webhook.facts import Facts, Key, Member, Needs, needs
from fairlead.webhook.fields import MalformedError
from fairlead.webhook.review import Review
from fairlead.webhook.templates import together

log = logging.getLogger(__name__)

T = TypeVar("T")
NAMESPACES_MAX = 10_000
"""Namespaces whose policies are remembered."""
SAR_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _Phase(Struct, frozen=True, kw_only=True):
    phase: str = ""


class MemberPod(Object, frozen=True, kw_only=True):
    """As little of a pod as its gang needs."""

    status: _Phase = _Phase()


class _Pool(Struct, frozen=True, kw_only=True):
    name: str = ""


class _Devices(Struct, frozen=True, kw_only=True):
    driver: str = ""
    node_name: str | None = None
    pool: _Pool = _Pool()
    devices: tuple[Device, ...] = ()


class ModelSlice(Object, frozen=True, kw_only=True):
    """As little of a ResourceSlice as its kinds of devices: what came is let go as soon as it is decoded."""

    spec: _Devices = _Devices()
    models: tuple[devices.Model, ...] = ()

    def __post_init__(self) -> None:
        found = devices.models(self.spec.driver, self.spec.node_name or self.spec.pool.name, self.spec.devices)
        msgspec.structs.force_setattr(self, "models", found)
        msgspec.structs.force_setattr(self, "spec", _Devices(driver=self.spec.driver))


_SLICES: Resource[ModelSlice] = dataclasses.replace(RESOURCE_SLICES, type=ModelSlice)  # type: ignore[arg-type, assignment]
_MEMBERS: Resource[MemberPod] = dataclasses.replace(PODS, type=MemberPod)  # type: ignore[arg-type, assignment]


def _gang_of(pod: MemberPod) -> Iterable[str]:
    gang = pod.metadata.annotations.get(names.GANG)
    over = pod.status.phase in {"Succeeded", "Failed"} or pod.metadata.deletion_timestamp is not None
    return () if gang is None or over else (f"{pod.metadata.namespace}/{gang}",)


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
        self._pods: Informer[MemberPod] = Informer(client, _MEMBERS, indexes={"gang": _gang_of})
        self._raw_queues: Informer[dict[str, Any]] = Informer(client, QUEUES)
        self._raw_flavors: Informer[dict[str, Any]] = Informer(client, FLAVORS)
        self._raw_policies: Informer[dict[str, Any]] = Informer(client, TENANCY_POLICIES)
        self._device_classes: dict[str, DeviceClass] = {}
        self._queues: dict[str, Queue] = {}
        self._flavors: dict[str, Flavor] = {}
        self._policies: dict[str, _Policy] = {}
        self._slices: Informer[ModelSlice] = Informer(client, _SLICES)
        self._counts: collections.Counter[devices.Model] = collections.Counter()
        self._models: tuple[devices.Model, ...] | None = None
        self._governing: dict[str, tuple[Mapping[str, str], tuple[TenancyPolicy, ...]]] = {}
        self.changed = asyncio.Event()
        """Set when a policy came, changed or went."""
        self._classes.subscribe(_into(self._device_classes, lambda found: found))
        self._raw_queues.subscribe(_into(self._queues, Queue.stored))
        self._raw_flavors.subscribe(_into(self._flavors, Flavor.stored))
        self._raw_policies.subscribe(_into(self._policies, _policy))
        self._raw_policies.subscribe(self._policies_changed)
        self._slices.subscribe(self._slice_changed)

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
        try:
            wanted = needs(review)
        except MalformedError:
            wanted = Needs()  # the handler says what is wrong
        namespace_labels = await self._namespace_labels(review.namespace)
        # One after the other: mostly nothing has to be asked, and a task each would cost more than the lookups.
        templates = await self._specs(wanted.templates, self._template)
        claims = await self._specs(wanted.claims, self._claim)
        queues = await self._named(wanted.queues, self._queues, QUEUES, Queue.stored)
        flavors = await self._named(wanted.flavors, self._flavors, FLAVORS, Flavor.stored)
        specs = [*templates.values(), *claims.values(), *_own_spec(review)]
        named = {ask.device_class_name for spec in specs for _, ask in asks(spec)}
        return Facts(
            drivers=self._drivers,
            controllers=self._controllers,
            may_release=wanted.release and await self._may_release(review),
            classes=await self._named(named, self._device_classes, DEVICE_CLASSES, lambda found: found),
            templates=templates,
            claims=claims,
            gangs={key: self._members(key) for key in wanted.gangs},
            jobs=await self._jobs(wanted.jobs),
            queues=queues,
            flavors=flavors,
            policies=self._policies_for(review, namespace_labels),
            namespace_labels=namespace_labels,
            devices=self._known_models() if review.namespace else (),
        )

    # -- one kind each ---------------------------------------------------------------------------------------------

    async def _namespace_labels(self, name: str) -> Mapping[str, str]:
        if not name:
            return {}
        known = self._namespaces.get(name)
        if known is None:
            known = await _or_none(self._client.get(NAMESPACES, name))
        return {} if known is None else known.metadata.labels

    def _policies_for(self, review: Review, namespace_labels: Mapping[str, str]) -> tuple[TenancyPolicy, ...]:
        """Those that judge the review; which select its namespace is kept until policy or labels change."""
        if not self._policies or not review.namespace:
            return ()
        known = self._governing.get(review.namespace)
        if known is None or known[0] is not namespace_labels:
            selected = tuple(
                found.policy for _, found in sorted(self._policies.items()) if found.selector.matches(namespace_labels)
            )
            if len(self._governing) >= NAMESPACES_MAX:
                self._governing.clear()
            known = self._governing[review.namespace] = (namespace_labels, selected)
        return policy.governing(known[1], review.namespace, review.username, review.groups)

    def _policies_changed(self, change: Change[dict[str, Any]]) -> None:
        self._governing.clear()
        self.changed.set()

    def _slice_changed(self, change: Change[ModelSlice]) -> None:
        before = () if change.old is None else change.old.models
        after = () if change.new is None else change.new.models
        if before != after:
            self._counts.update(after)
            self._counts.subtract(before)
            self._models = None

    def _known_models(self) -> tuple[devices.Model, ...]:
        if self._models is None:
            self._counts = +self._counts
            self._models = tuple(self._counts)
        return self._models

    def _members(self, key: Key) -> tuple[Member, ...]:
        return tuple(map(_member, self._pods.by_index("gang", f"{key[0]}/{key[1]}")))

    async def _template(self, key: Key) -> ResourceClaimSpec | None:
        known = self._templates.get(f"{key[0]}/{key[1]}")
        if known is None and legacy.parse_template_name(key[1]) is not None:
            return None  # the controller makes it, and its name says what it holds
        if known is None:
            known = await _or_none(self._client.get(RESOURCE_CLAIM_TEMPLATES, key[1], key[0]))
        return None if known is None else known.spec.spec

    async def _claim(self, key: Key) -> ResourceClaimSpec | None:
        """Named claims are few and templates many: these are read when asked for."""
        found = await _or_none(self._client.get(RESOURCE_CLAIMS, key[1], key[0]))
        return None if found is None else found.spec

    async def _jobs(self, keys: Iterable[Key]) -> dict[Key, int]:
        found: dict[Key, int] = {}
        for namespace, name in keys:
            job = await _or_none(self._client.get(raw(JOBS), name, namespace))
            if job is not None and (most := together(job["spec"], "spec")) > 0:
                found[namespace, name] = most
        return found

    async def _specs(
        self, keys: Iterable[Key], read: Callable[[Key], Awaitable[ResourceClaimSpec | None]]
    ) -> dict[Key, ResourceClaimSpec]:
        found = {key: await read(key) for key in sorted(keys)}
        return {key: spec for key, spec in found.items() if spec is not None}

    async def _named(
        self, wanted: Iterable[str], known: Mapping[str, T], resource: Resource[Any], convert: Callable[[Any], T]
    ) -> Mapping[str, T]:
        """Known objects, and those wanted ones that the cache does not have yet."""
        absent = sorted(name for name in set(wanted) - known.keys() if name)
        fresh = {name: await _or_none(self._client.get(resource, name)) for name in absent}
        if not fresh:
            return known
        return {**known, **{name: convert(found) for name, found in fresh.items() if found is not None}}

    async def _may_release(self, review: Review) -> bool:
        """Whether RBAC lets the user write allocations: who may give devices to a pod may let it go, too."""
        if review.username in self._controllers:
            return True
        attributes = {
            "group": "resource.k8s.io",
            "resource": "resourceclaims",
            "subresource": "binding",
            "verb": "update",
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": review.username,
                "groups": sorted(review.groups),
                "resourceAttributes": attributes,
            },
        }
        try:
            answer = msgspec.json.decode(await self._client.request("POST", SAR_PATH, body=body))
        except errors.ApiError as error:
            log.warning("whether %s may release pods cannot be found out: %s", review.username, error)
            return False
        return bool(answer.get("status", {}).get("allowed"))


def _own_spec(review: Review) -> list[ResourceClaimSpec]:
    """The spec of a claim or template that is itself under review."""
    path = {"resourceclaims": "spec", "resourceclaimtemplates": "spec.spec"}.get(review.resource)
    if path is None or review.object is None:
        return []
    try:
        return [claim_spec(review.object, path)]
    except MalformedError:
        return []


def _member(pod: MemberPod) -> Member:
    try:
        intent = read_intent(pod.metadata.annotations, pod.metadata.labels)
    except IntentError:
        return Member(name=pod.metadata.name)
    return Member(name=pod.metadata.name, size=intent.size, queue=intent.queue, topology=intent.topology)


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


async def _or_none(read: Awaitable[T]) -> T | None:
    try:
        return await read
    except errors.NotFound:
        return None
