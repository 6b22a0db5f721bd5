"""The facts that a decision can be checked against, as one document: the cluster's objects, and what pending gangs ask for.

Objects are as the API has them. A gang's request is what the controller reads from its pods: members with their pod specs, and
claims with their specs, whether they exist already or not.
"""

# ruff: noqa: RUF012 - msgspec copies empty defaults itself

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from fairlead.kube import core, resource
from fairlead.kube.objects import Struct


class Member(Struct, frozen=True, kw_only=True):
    """A pod to place: `claims` are keys of its gang's claims."""

    name: str
    uid: str
    spec: core.PodSpec = core.PodSpec()
    claims: tuple[str, ...] = ()


class Claim(Struct, frozen=True, kw_only=True):
    key: str
    spec: resource.ResourceClaimSpec
    allocation: resource.AllocationResult | None = None


class Gang(Struct, frozen=True, kw_only=True):
    """A pending gang's request, or (with `holds`, UIDs of claims) a running one's."""

    namespace: str
    name: str
    uid: str
    size: int = 1
    members: tuple[Member, ...] = ()
    claims: tuple[Claim, ...] = ()
    queue: str | None = None
    namespace_labels: dict[str, str] = {}
    priority: int = 0
    created: float = 0.0
    topology: str | None = None
    placed_nodes: tuple[str, ...] = ()
    quota_charge: dict[str, int] = {}
    holds: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"


class Quota(Struct, frozen=True, kw_only=True):
    namespace: str
    name: str
    resource: str
    limit: int
    used: int


class Facts(Struct, frozen=True, kw_only=True):
    """Objects as the API has them; Queues and Flavors as JSON."""

    slices: tuple[resource.ResourceSlice, ...] = ()
    claims: tuple[resource.ResourceClaim, ...] = ()
    classes: tuple[resource.DeviceClass, ...] = ()
    taint_rules: tuple[resource.DeviceTaintRule, ...] = ()
    nodes: tuple[core.Node, ...] = ()
    pods: tuple[core.Pod, ...] = ()
    queues: tuple[dict[str, Any], ...] = ()
    flavors: tuple[dict[str, Any], ...] = ()
    quotas: tuple[Quota, ...] = ()
    gangs: tuple[Gang, ...] = ()
    running: tuple[Gang, ...] = ()

    def digest(self) -> str:
        """The same for the same objects, in whatever order."""
        content = {name: sorted(map(canonical, getattr(self, name))) for name in self.__struct_fields__}
        return "sha256:" + hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()


def canonical(value: Any) -> str:
    """Equal for equal values."""
    return msgspec.json.encode(value, order="deterministic").decode()
