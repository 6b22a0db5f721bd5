"""The document of a snapshot file (`fairlead snapshot > FILE`), read without the code that wrote it.

Format, version 1: {"format": "fairlead-snapshot", "version": 1, "at": unix seconds, "facts": {table: {key: entry}}}; JSON,
possibly compressed with gzip. Parts of objects are the API's; amounts of flavors are texts ("3", "1/7"), resources thousandths.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from fairlead.bounded import json_text, unpack
from fairlead.bounded.limits import UnreadableError, fraction
from fairlead.evidence.document import Claim, Facts, Gang, Member, Quota
from fairlead.kube import core, resource
from fairlead.kube.objects import ObjectMeta

FORMAT = "fairlead-snapshot"
VERSION = 1


class SnapshotError(ValueError):
    """The file is no snapshot that can be read; the message names what it is, and the next step."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Of the file, which a program of ours wrote: no object of the API, so null is null."""


class _Needs(_Part, frozen=True, kw_only=True):
    requests: tuple[tuple[str, int], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: core.NodeSelector | None = None
    preferred: tuple[core.PreferredSchedulingTerm, ...] = ()
    tolerations: tuple[core.Toleration, ...] = ()
    ports: tuple[tuple[str, str, int], ...] = ()

    def pod(self, node: str = "") -> core.PodSpec:
        """A pod that needs this, and nothing else."""
        ports = tuple(core.ContainerPort(protocol=p, host_ip=ip, host_port=number) for p, ip, number in self.ports)
        requests = core.ResourceRequirements(requests={name: f"{n}m" for name, n in self.requests if name != "pods"})
        affinity = core.NodeAffinity(required=self.affinity, preferred=self.preferred)
        return core.PodSpec(
            node_name=node,
            containers=(core.Container(ports=ports, resources=requests),),
            node_selector=dict(self.node_selector),
            affinity=core.Affinity(node_affinity=affinity) if self.affinity or self.preferred else None,
            tolerations=self.tolerations,
        )


class _Node(_Part, frozen=True, kw_only=True):
    labels: dict[str, str] = {}
    taints: tuple[core.Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: dict[str, int] = {}

    def node(self, name: str) -> core.Node:
        return core.Node(
            metadata=ObjectMeta(name=name, labels=self.labels),
            spec=core.NodeSpec(unschedulable=self.unschedulable, taints=self.taints),
            status=core.NodeStatus(
                allocatable={resource: f"{value}m" for resource, value in self.allocatable.items()},
                conditions=(core.PodCondition(type="Ready", status=str(self.ready)),),
            ),
        )


class _Pod(_Part, frozen=True, kw_only=True):
    node: str
    needs: _Needs


class _Device(_Part, frozen=True, kw_only=True):
    driver: str
    pool: str
    device: str
    admin: bool = False
    whole: bool = True
    consumed: tuple[tuple[str, str], ...] = ()

    def result(self) -> resource.DeviceRequestAllocationResult:
        return resource.DeviceRequestAllocationResult(
            driver=self.driver,
            pool=self.pool,
            device=self.device,
            admin_access=self.admin,
            share_id=None if self.whole else "shared",
            consumed_capacity={name: _quantity(text) for name, text in self.consumed},
        )


class _Claim(_Part, frozen=True, kw_only=True):
    namespace: str
    name: str
    devices: tuple[_Device, ...] = ()

    def claim(self, uid: str) -> resource.ResourceClaim:
        devices = resource.DeviceAllocationResult(results=tuple(device.result() for device in self.devices))
        return resource.ResourceClaim(
            metadata=ObjectMeta(namespace=self.namespace, name=self.name, uid=uid),
            status=resource.ResourceClaimStatus(allocation=resource.AllocationResult(devices=devices)),
        )


class _Ref(_Part, frozen=True, kw_only=True):
    name: str
    uid: str


class _Member(_Part, frozen=True, kw_only=True):
    pod: _Ref
    needs: _Needs
    claims: tuple[str, ...] = ()


class _Gang(_Part, frozen=True, kw_only=True):
    """`claims`: of a pending gang what it asks for, of a running one UIDs."""

    namespace: str
    name: str
    uid: str
    size: int = 1
    members: tuple[_Member, ...] = ()
    claims: tuple[Claim, ...] = ()
    queue: str | None = None
    namespace_labels: dict[str, str] = {}
    priority: int = 0
    created: float = 0.0
    topology: str | None = None
    placed_nodes: tuple[str, ...] = ()
    quota_charge: tuple[tuple[str, int], ...] = ()

    def gang(self) -> Gang:
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        members = tuple(
            Member(name=each.pod.name, uid=each.pod.uid, spec=each.needs.pod(), claims=each.claims)
            for each in self.members
        )
        return Gang(**{**fields, "members": members, "quota_charge": dict(self.quota_charge)})


class _Running(_Part, frozen=True, kw_only=True):
    namespace: str
    name: str
    uid: str
    queue: str | None = None
    claims: tuple[str, ...] = ()
    namespace_labels: dict[str, str] = {}

    def gang(self) -> Gang:
        return Gang(
            namespace=self.namespace,
            name=self.name,
            uid=self.uid,
            queue=self.queue,
            namespace_labels=self.namespace_labels,
            holds=self.claims,
        )


class _Tables(_Part, frozen=True, kw_only=True):
    slices: dict[str, resource.ResourceSliceSpec] = {}
    taint_rules: dict[str, resource.DeviceTaintRuleSpec] = {}
    classes: dict[str, resource.DeviceClassSpec] = {}
    claims: dict[str, _Claim] = {}  # by UID
    nodes: dict[str, _Node] = {}
    pods: dict[str, _Pod] = {}  # by UID
    gangs: dict[str, _Gang] = {}
    running: dict[str, _Running] = {}
    queues: dict[str, dict[str, Any]] = {}
    flavors: dict[str, dict[str, Any]] = {}
    quotas: dict[str, Quota] = {}
    order: dict[str, tuple[str, ...] | None] = {}  # keys of a table whose order is not that of its keys, sorted


class _File(_Part, frozen=True, kw_only=True):
    facts: msgspec.Raw
    format: str = ""
    version: int = 0


_FILE = msgspec.json.Decoder(_File)
_TABLES = msgspec.json.Decoder(_Tables)
_PLAIN = msgspec.json.Decoder(dict[str, Any])


def read(data: bytes) -> tuple[Facts, str]:
    """The document, and the digest by which certificates name it. Raises SnapshotError."""
    try:
        head = json_text.decode(unpack.whole(data), _FILE)
    except UnreadableError as error:
        raise SnapshotError(f"no snapshot: {error}") from None
    except msgspec.DecodeError as error:
        raise SnapshotError(f"no snapshot: {error}; it may be cut, `fairlead snapshot > FILE` writes one") from None
    if head.format != FORMAT:
        raise SnapshotError(
            f"format: {head.format!r}: this is no snapshot; `fairlead snapshot > FILE` writes one ({FORMAT!r})"
        )
    if head.version != VERSION:
        raise SnapshotError(
            f"version: {head.version}: this fairlead reads version {VERSION} of snapshots; use the fairlead that wrote it"
        )
    try:
        tables, plain = json_text.decode(head.facts, _TABLES), json_text.decode(head.facts, _PLAIN)
        document = _document(tables)
    except (msgspec.DecodeError, ValueError, ZeroDivisionError) as error:
        raise SnapshotError(f"a snapshot that cannot be read: {error}") from None
    if not tables.slices:
        raise SnapshotError("the snapshot has no ResourceSlices: take it with a role that may list them")
    digest = hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()
    return document, f"sha256:{digest}"


def _document(tables: _Tables) -> Facts:
    return Facts(
        slices=tuple(
            resource.ResourceSlice(metadata=ObjectMeta(name=name), spec=spec) for name, spec in tables.slices.items()
        ),
        claims=tuple(claim.claim(uid) for uid, claim in tables.claims.items()),
        classes=tuple(
            resource.DeviceClass(metadata=ObjectMeta(name=name), spec=spec) for name, spec in tables.classes.items()
        ),
        taint_rules=tuple(
            resource.DeviceTaintRule(metadata=ObjectMeta(name=name), spec=spec)
            for name, spec in tables.taint_rules.items()
        ),
        nodes=tuple(node.node(name) for name, node in tables.nodes.items()),
        pods=tuple(
            core.Pod(metadata=ObjectMeta(uid=uid), spec=pod.needs.pod(pod.node)) for uid, pod in tables.pods.items()
        ),
        queues=tuple({"metadata": {"name": name}, "spec": _queue(spec)} for name, spec in tables.queues.items()),
        flavors=tuple({"metadata": {"name": name}, "spec": spec} for name, spec in tables.flavors.items()),
        quotas=tuple(tables.quotas.values()),
        gangs=tuple(gang.gang() for gang in tables.gangs.values()),
        running=tuple(tables.running[key].gang() for key in tables.order.get("running") or sorted(tables.running)),
    )


def _queue(spec: dict[str, Any]) -> dict[str, Any]:
    """As the Queue object has it."""
    amounts = ("deserved", "limit", "borrowingLimit")
    flavors = [
        {"flavor": quota["flavor"], **{name: _quantity(quota[name]) for name in amounts if quota.get(name) is not None}}
        for quota in spec.get("quotas", ())
    ]
    return {**{name: value for name, value in spec.items() if name != "quotas"}, "flavors": flavors}


def _quantity(text: str) -> str:
    """A fraction as a quantity; quantities are whole in billionths."""
    exact = fraction(text)
    return text if exact.denominator == 1 else f"{int(exact * 10**9)}n"
