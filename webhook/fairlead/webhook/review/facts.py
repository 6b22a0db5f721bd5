"""What a verdict may depend on besides the review: a frozen snapshot of the cluster, taken for one review.

A name that is missing here was looked up in the apiserver and is not there (`cache.live_lookup`): absence is a fact, not a stale
cache. `needs` says what a review looks up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

from fairlead.api import names
from fairlead.api.derived import Source
from fairlead.api.flavor import Flavor
from fairlead.api.namespaces import is_exempt
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec
from fairlead.webhook.objects.device_models import DeviceModel

Key = tuple[str, str]
"""(namespace, name)."""

_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class GangMember:
    """A pod of a gang that exists already: what its annotations say."""

    name: str
    size: int | None = None
    queue: str | None = None
    topology: str | None = None
    subgroup_size: int | None = None
    subgroup_topology: str | None = None
    models: str | None = None
    align: str | None = None
    size_from: Source | None = None
    workload: str | None = None


class Template(msgspec.Struct, frozen=True):
    """A ResourceClaimTemplate. One that is deleted and recreated under its name has another UID, and perhaps another spec."""

    uid: str
    spec: ResourceClaimSpec


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Objects are by name; claims and templates are those of the review's namespace only."""

    drivers: tuple[str, ...] = (names.DRIVER,)
    controllers: frozenset[str] = frozenset({names.CONTROLLER_USER})
    records_users: bool = False
    """Whether it is written on a workload who created it; not where manifests are judged without a cluster."""
    traces_ratio: float | None = None
    """Which part of gangs is traced where their users do not say; None without traces."""
    may_remove_gate: bool = False
    """Whether RBAC lets the review's user write allocations; looked up only when a gate is removed."""
    classes: Mapping[str, DeviceClass] = _NOTHING
    templates: Mapping[Key, Template] = _NOTHING
    claims: Mapping[Key, ResourceClaimSpec] = _NOTHING
    gangs: Mapping[Key, tuple[GangMember, ...]] = _NOTHING
    jobs: Mapping[Key, int] = _NOTHING
    """How many pods a Job runs at once."""
    queues: Mapping[str, Queue] = _NOTHING
    flavors: Mapping[str, Flavor] = _NOTHING
    policies: tuple[TenancyPolicy, ...] = ()
    """Those that select the review's namespace and user, by name."""
    namespace_labels: Mapping[str, str] = _NOTHING
    device_models: tuple[DeviceModel, ...] = ()
    """The kinds of devices that the cluster has."""
    served_apis: frozenset[str] = frozenset()
    """Of the API groups in `Needs.apis`, those that the cluster serves: where its API is served, the other system runs."""

    signing_key: bytes = b""
    """Of the annotation that records claims' sources: the same in all replicas, and known to no user. b"" without a cluster."""
    former_signing_key: bytes | None = None
    """The one before the last rotation: a pod may be reviewed before it and once more after it."""

    def exempt(self, namespace: str) -> bool:
        """Whether the webhook leaves this namespace alone."""
        return is_exempt(namespace, self.namespace_labels)
