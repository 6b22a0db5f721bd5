"""Tenant: the description of a team's baseline, from which its objects follow (`tenant_objects`). Not a kind of the API.

It is what the chart's value `tenants` lists and what the flags of `fairlead tenant create` add up to. Everything but the name has a
default, and the faults of a description read `Tenant ml: quota.gpus[…]: what is wrong; what to do`.

Invariants: each namespace is bound to one of the queues; no namespace of Kubernetes or of Fairlead itself is a tenant's.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from fairlead.api import names
from fairlead.api.base import LabelKey, ObjectName, Part, Quantity, checked
from fairlead.api.object_names import DNS_LABEL, is_dns_label
from fairlead.api.queue import FLAVORS_MAX, QueueFlavor

SUBJECT = r"(user|group):.+|serviceaccount:[a-z0-9.-]+/[a-z0-9.-]+"
SYSTEM_NAMESPACE = rf"kube-.*|default|{names.NAMESPACE}"
RESERVED_LABEL = r"([a-z0-9.-]+\.)?(fairlead\.dev|kubernetes\.io)/.*"
LABEL_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"

PodSecurity = Literal["restricted", "baseline", "privileged"]
PriorityClasses = Literal["Shared", "PerTenant", "None"]


def _label(text: str) -> str:
    if not is_dns_label(text):
        raise ValueError(f"{text!r} is no name: use lower case letters, digits and '-', at most 63")
    return text


def _namespace(text: str) -> str:
    if re.fullmatch(SYSTEM_NAMESPACE, text):
        raise ValueError(f"{text!r} belongs to the cluster or to Fairlead, not to a team: write another name")
    return _label(text)


def _subject(text: str) -> str:
    if not re.fullmatch(SUBJECT, text):
        raise ValueError(f"{text!r} is no subject: write user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME")
    return text


def _label_value(text: str) -> str:
    if not re.fullmatch(LABEL_VALUE, text):
        raise ValueError(f"{text!r} is no label value: use letters, digits, '-', '_' and '.', at most 63")
    return text


def _own_label(text: str) -> str:
    if re.fullmatch(RESERVED_LABEL, text):
        raise ValueError(f"{text!r} is set by Kubernetes or Fairlead: remove it")
    return text


def _cidr(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text)) and text
    except ValueError as error:
        raise ValueError(f"{text!r} is no CIDR ({error}): write an address block such as 10.0.0.0/8") from None


_LABEL_SCHEMA: dict[str, Any] = {"maxLength": 63, "pattern": f"^{DNS_LABEL}$"}
Name = Annotated[str, AfterValidator(_label), Field(json_schema_extra=_LABEL_SCHEMA)]
NamespaceName = Annotated[
    str,
    AfterValidator(_namespace),
    Field(json_schema_extra={**_LABEL_SCHEMA, "not": {"pattern": f"^({SYSTEM_NAMESPACE})$"}}),
]
Subject = Annotated[str, AfterValidator(_subject), Field(json_schema_extra={"pattern": f"^({SUBJECT})$"})]
LabelValue = Annotated[str, AfterValidator(_label_value), Field(json_schema_extra={"pattern": f"^{LABEL_VALUE}$"})]
OwnLabel = Annotated[LabelKey, AfterValidator(_own_label)]
Cidr = Annotated[str, AfterValidator(_cidr), Field(json_schema_extra={"pattern": "^[0-9a-fA-F.:]+/[0-9]+$"})]
Port = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]


class TenantQueue(Part):
    """A queue of the tenant, and which of its namespaces are bound to it."""

    name: Name
    """Name of the Queue."""
    create: bool = True
    """Whether the Queue is the tenant's; false: it exists, and the namespaces get the labels by which it selects them."""
    parent: ObjectName | None = None
    """Name of the queue above; absent means a root."""
    flavors: list[QueueFlavor] = Field(default_factory=list, max_length=FLAVORS_MAX)
    """Quota per flavor, as in a Queue."""
    namespaces: list[NamespaceName] = Field(default_factory=list)
    """The namespaces bound to it; empty: all, which only a single queue can have."""

    @model_validator(mode="after")
    def _existing_has_its_own_quota(self) -> Self:
        given = [field for field in ("parent", "flavors") if getattr(self, field)]
        if not self.create and given:
            raise ValueError(f"{given[0]}: Queue {self.name} is not created here (create: false): remove {given[0]}")
        return self


class TenantQuota(Part):
    """The most that each of the tenant's namespaces may hold, as ResourceQuota; absent means no bound."""

    gpus: dict[ObjectName, Count] = Field(default_factory=dict)
    """Devices that the namespace's claims may ask for, by DeviceClass. A class that is not listed is not bounded here."""
    claims: Count | None = None
    """ResourceClaims."""
    pods: Count | None = None
    """Pods that have not ended."""
    cpu: Quantity | None = None
    """Requested cpu."""
    memory: Quantity | None = None
    """Requested memory."""
    default_cpu: Quantity = "100m"
    """What a container requests that says nothing, where cpu is bounded: a pod without requests would be refused."""
    default_memory: Quantity = "256Mi"
    """What a container requests that says nothing, where memory is bounded."""


class TenantPeer(Part):
    """Traffic that is let through: an address block or a namespace, all of it or some ports."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["cidr"]}, {"required": ["namespace"]}]})

    cidr: Cidr | None = None
    """Address block."""
    namespace: Name | None = None
    """Name of a namespace."""
    ports: list[Port] = Field(default_factory=list)
    """Ports; empty means all, of every protocol."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"
    """Protocol of the ports."""

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.cidr is None) == (self.namespace is None):
            raise ValueError("names no peer, or two: write one of cidr and namespace")
        return self


class TenantNetwork(Part):
    """NetworkPolicies of the tenant's namespaces."""

    isolate: bool = True
    """Whether traffic is refused but within the tenant, to DNS, and what is listed here; false: no NetworkPolicy is made."""
    egress: list[TenantPeer] = Field(default_factory=list)
    """Where its pods may connect to besides, such as storage."""
    ingress: list[TenantPeer] = Field(default_factory=list)
    """From where its pods may be reached besides, such as a gateway's namespace."""

    @model_validator(mode="after")
    def _rules_need_isolation(self) -> Self:
        given = [field for field in ("egress", "ingress") if getattr(self, field)]
        if not self.isolate and given:
            raise ValueError(
                f"{given[0]}: without isolation all traffic is let through: remove {given[0]} or isolate: false"
            )
        return self


class Tenant(Part):
    """The baseline of one team."""

    name: NamespaceName
    """Name of the tenant, which the label fairlead.dev/tenant of all its objects bears."""
    namespaces: list[NamespaceName] = Field(default_factory=list)
    """Its namespaces; empty: one of its name."""
    namespace_labels: dict[OwnLabel, LabelValue] = Field(default_factory=dict)
    """More labels of its namespaces, such as those by which an existing Queue selects them."""
    queues: list[TenantQueue] = Field(default_factory=list)
    """Its queues; empty: one of its name, without quota of its own."""
    admins: list[Subject] = Field(default_factory=list)
    """Who manages its workloads, claims and templates."""
    members: list[Subject] = Field(default_factory=list)
    """Who submits jobs, and reads."""
    quota: TenantQuota = TenantQuota()
    """The most that each namespace may hold."""
    network: TenantNetwork = TenantNetwork()
    """Which traffic is let through."""
    pod_security: PodSecurity = "restricted"
    """Pod Security level that is enforced in its namespaces."""
    priority_classes: PriorityClasses = "Shared"
    """Shared: fairlead-low, fairlead-normal and fairlead-high, which all tenants use. PerTenant: NAME-low and so on. None: none is made."""

    @model_validator(mode="after")
    def _namespaces_are_bound_once(self) -> Self:
        for field, given in (
            ("namespaces", self.namespaces),
            ("queues", [queue.name for queue in self.queues]),
            ("admins", self.admins),
            ("members", self.members),
        ):
            if twice := [each for each in given if given.count(each) > 1]:
                raise ValueError(f"{field}: {twice[0]!r} is listed twice: remove one")
        bound: dict[str, str] = {}
        for index, queue in enumerate(self.queues):
            here = f"queues[{index}].namespaces"
            if not queue.namespaces and len(self.queues) > 1:
                raise ValueError(f"{here}: with several queues each says which namespaces are bound to it: list them")
            for namespace in queue.namespaces:
                if namespace not in self.own_namespaces:
                    raise ValueError(f"{here}: {namespace!r} is none of the tenant's namespaces: add it to namespaces")
                if namespace in bound:
                    raise ValueError(f"{here}: {namespace!r} is bound to {bound[namespace]}, too: remove it from one")
                bound[namespace] = queue.name
        unbound = [each for each in self.own_namespaces if bound and each not in bound]
        if unbound:
            raise ValueError(f"queues: namespace {unbound[0]!r} is bound to none of them: list it in one's namespaces")
        return self

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "Tenant":
        """A description as written. Raises ManifestError with field, value and next step."""
        name = raw.get("name") if isinstance(raw, Mapping) else None
        return checked(cls, raw, subject=f"Tenant {name}" if name else "Tenant")

    @property
    def own_namespaces(self) -> tuple[str, ...]:
        return tuple(self.namespaces) or (self.name,)

    @property
    def own_queues(self) -> tuple[TenantQueue, ...]:
        return tuple(self.queues) or (TenantQueue(name=self.name),)

    def queue_of(self, namespace: str) -> str:
        """The name of the queue that the namespace is bound to."""
        return next(queue.name for queue in self.own_queues if not queue.namespaces or namespace in queue.namespaces)
