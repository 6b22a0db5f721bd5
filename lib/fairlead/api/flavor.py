"""Flavor: a kind of device, the measure in which queues count it, and how a node autoscaler makes more of it.

A platform engineer names kinds of devices with it, and writes quotas in their measures: "8 H100", "half an A100", "640Gi".
Prices are of one unit of the measure; `fairlead.history.prices` computes with them. The selector is text here, and `driver` a short form of a part of it; `fairlead.cel` compiles it and the webhook refuses one that does not compile.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from fairlead.api.base import CONDITIONS, CelExpression, Condition, CustomResource, LabelKey, ObjectName, Part, Quantity
from fairlead.api.capacity_types import CapacityType
from fairlead.api.durations import duration_s
from fairlead.api.gang import Duration
from fairlead.api.object_names import is_dns_subdomain

DRIVER = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
DRIVER_MAX = 63
"""resource.k8s.io/v1: DriverNameMaxLength."""
CAPACITY_NAME = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z_][A-Za-z0-9_]{0,31}"
_CAPACITY_NAME = re.compile(CAPACITY_NAME)

Measure = Literal["Devices", "Share", "Capacity", "Resource"]
POD_RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage")
"""Of Kubernetes' own, what a flavor may count; besides these, extended resources."""

PRICES_MAX = 64
PRICE = r"[0-9]{1,12}(\.[0-9]{1,18})?"
CURRENCY = r"[A-Z]{3}"
RFC3339 = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
_PRICE, _CURRENCY, _RFC3339 = re.compile(PRICE), re.compile(CURRENCY), re.compile(RFC3339)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _price(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text: write '2.50', in quotes, so that no digit is lost")  # noqa: TRY004 - pydantic reports ValueError as a finding
    if value.startswith("-"):
        raise ValueError(f"{value!r} is negative: write 0 or more")
    if not _PRICE.fullmatch(value):
        raise ValueError(f"{value!r} is no price: write digits, and up to 18 after a point, such as '2.50'")
    return value


def _currency(value: object) -> str:
    if not isinstance(value, str) or not _CURRENCY.fullmatch(value):
        raise ValueError(f"{value!r} is no currency: write its ISO 4217 code, three capital letters such as EUR")
    return value


def _time(value: object) -> str:
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.isoformat()  # YAML reads a time without quotes as one
    if isinstance(value, str) and _RFC3339.fullmatch(value):
        try:
            _microseconds(value)
        except ValueError as error:
            raise ValueError(f"{value!r} is no time: {error}") from None
        return value
    raise ValueError(f"{value!r} is no time: write RFC 3339 with a zone, such as '2026-01-01T00:00:00Z'")


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text.upper()) - _EPOCH) // timedelta(microseconds=1)


PriceText = Annotated[str, BeforeValidator(_price), Field(json_schema_extra={"pattern": f"^{PRICE}$", "maxLength": 31})]
Currency = Annotated[
    str, BeforeValidator(_currency), Field(json_schema_extra={"pattern": f"^{CURRENCY}$", "maxLength": 3})
]
Time = Annotated[str, BeforeValidator(_time), Field(json_schema_extra={"pattern": f"^{RFC3339}$", "maxLength": 40})]


def selector_of(driver: str | None, device_selector: str | None) -> str:
    """A flavor's driver and deviceSelector as one CEL expression; "" with neither."""
    texts = [] if driver is None else [f'device.driver == "{driver}"']
    if device_selector:
        texts.append(device_selector if driver is None else f"({device_selector})")
    return " && ".join(texts)


class FlavorPrice(Part):
    """What one unit of the measure costs from a time on."""

    per_hour: PriceText
    """Price of one unit of the measure for an hour, as decimal text such as "2.50": of a device, of a whole GPU, of one unit of capacityName (a byte of memory); with measure Resource of a core of cpu, a GiB of memory or ephemeral-storage, or one of any other resource."""
    currency: Currency
    """ISO 4217 code, such as EUR; one for all prices of a flavor."""
    from_: Time | None = Field(default=None, alias="from")
    """From when it counts, RFC 3339, until the next entry of the same capacityType; absent means since ever."""
    capacity_type: CapacityType | None = None
    """The kind of capacity that the node is bought as; absent means any that has no price of its own."""

    @property
    def from_us(self) -> int | None:
        """Unix microseconds; None: since ever."""
        return None if self.from_ is None else _microseconds(self.from_)

    @property
    def amount(self) -> Decimal:
        return Decimal(self.per_hour)


AutoscalingMode = Literal["Off", "Visible", "ProvisioningRequest", "Placeholder"]

PROVISIONING_CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""Of cluster-autoscaler: all of a request's pods get nodes, or none (autoscaling.x-k8s.io/v1)."""
PATIENCE_MIN_S = 60.0
_LABEL_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"


def _extended_resource(text: str) -> str:
    domain, slash, name = text.rpartition("/")
    if not slash or not name or not is_dns_subdomain(domain) or len(name) > 63:
        raise ValueError(f"{text!r} is no extended resource: write domain/name, such as nvidia.com/gpu")
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        raise ValueError(f"{text!r} is a name of Kubernetes' own: write one such as nvidia.com/gpu")
    return text


ExtendedResource = Annotated[
    str,
    AfterValidator(_extended_resource),
    Field(json_schema_extra={"pattern": "^[a-z0-9.-]+/[A-Za-z0-9._-]+$", "maxLength": 317}),
]


def _counted_resource(text: str) -> str:
    if text in POD_RESOURCES:
        return text
    try:
        return _extended_resource(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no resource that pods request: write one of {', '.join(POD_RESOURCES)}, or an extended resource such as example.com/hca"
        ) from None


def counts(resource: str) -> bool:
    """Whether a flavor may count it."""
    try:
        _counted_resource(resource)
    except ValueError:
        return False
    return True


CountedResource = Annotated[
    str,
    AfterValidator(_counted_resource),
    Field(
        json_schema_extra={
            "pattern": "^(" + "|".join(POD_RESOURCES) + "|[a-z0-9.-]+/[A-Za-z0-9._-]+)$",
            "maxLength": 317,
        }
    ),
]
ResourceName = Annotated[str, Field(max_length=317, pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9._-]+$")]
LabelValue = Annotated[str, Field(max_length=63, pattern=f"^{_LABEL_VALUE}$")]


class NodeTaint(Part):
    """A taint, as in a node's spec."""

    key: LabelKey
    """The taint's key."""
    value: LabelValue = ""
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What it does to pods that do not tolerate it."""


class NodeTemplate(Part):
    """How the autoscaler makes a node of one pool."""

    devices: int = Field(ge=1, le=1024)
    """Devices of the flavor that such a node has."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=64)
    """Labels that such a node has; node selectors and required node affinity of pods must match these."""
    taints: list[NodeTaint] = Field(default_factory=list, max_length=16)
    """Taints that such a node has; pods must tolerate these."""
    allocatable: dict[ResourceName, Quantity] = Field(default_factory=dict, max_length=32)
    """What such a node has of other resources, such as cpu and memory; of one that is not named there is enough."""


class FlavorAutoscaling(Part):
    """Whether and how nodes are asked for when gangs lack devices of the flavor and nothing else."""

    mode: AutoscalingMode = "Off"
    """Off: never. Visible: gated pods get the condition by which cluster-autoscaler and Karpenter see them. ProvisioningRequest: an object of autoscaling.x-k8s.io/v1 for each gang. Placeholder: pods of low priority that ask for extendedResource."""
    max: Quantity | None = None
    """Most, in the flavor's measure, that running gangs and gangs for which nodes are asked for may have together; absent means no bound here, only the autoscaler's own."""
    patience: Duration = "30m"
    """How long nodes are asked for, for one gang; then not for as long again, so that others get their turn under max. At least 1m."""
    wait_before_eviction: Duration = "10m"
    """How long nothing is evicted or moved for a gang, from when nodes are first asked for; 0s evicts at once."""
    provisioning_class: ObjectName | None = None
    """With mode ProvisioningRequest: spec.provisioningClassName; absent means best-effort-atomic-scale-up.autoscaling.x-k8s.io."""
    extended_resource: ExtendedResource | None = None
    """With modes ProvisioningRequest and Placeholder, which need it: the resource by which the autoscaler's node templates know the devices, such as nvidia.com/gpu."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=16)
    """With modes ProvisioningRequest and Placeholder: node labels asked for besides those of the gang's pods, such as node.kubernetes.io/instance-type."""
    device_classes: list[ObjectName] = Field(default_factory=list, max_length=16)
    """DeviceClasses whose requests count as one of this flavor for each device while the cluster has no device of it: so that a pool can grow from zero."""
    node_templates: list[NodeTemplate] = Field(default_factory=list, max_length=16)
    """Nodes with devices of this flavor as the autoscaler makes them, for pools of which no node may exist. Nodes are asked for only where such a node, or another of a kind that exists, would take the gang's pods."""

    @model_validator(mode="after")
    def _fields_fit_mode(self) -> Self:
        templates = self.mode in {"ProvisioningRequest", "Placeholder"}
        if templates and self.extended_resource is None:
            raise ValueError(
                f"extendedResource: is required with mode {self.mode}: autoscalers cannot read claims in its pods; "
                "write the resource that their node templates have, such as nvidia.com/gpu"
            )
        if self.mode in {"Visible", "Placeholder"} and self.provisioning_class is not None:
            raise ValueError(
                f"provisioningClass: means nothing with mode {self.mode}: remove it or use ProvisioningRequest"
            )
        if self.mode == "Visible" and (self.extended_resource is not None or self.node_selector):
            field = "extendedResource" if self.extended_resource is not None else "nodeSelector"
            raise ValueError(f"{field}: means nothing with mode Visible, which shows the gang's own pods: remove it")
        if duration_s(self.patience) < PATIENCE_MIN_S:
            raise ValueError(f"patience: {self.patience} is too short for any autoscaler: write at least 1m")
        return self


class FlavorSpec(Part):
    """Which devices, or which resource of pods, and how they are counted."""

    driver: str | None = Field(
        default=None, max_length=DRIVER_MAX, json_schema_extra={"pattern": f"^{DRIVER}$", "minLength": 1}
    )
    """The DRA driver whose devices are of this flavor, such as gpu.nvidia.com; absent means any that deviceSelector selects."""
    device_selector: CelExpression | None = None
    """CEL over `device`, as in a DeviceClass: the devices that are of this flavor. Without it, all of the driver."""
    measure: Measure = "Devices"
    """Devices: each counts 1. Share: a MIG device counts as its share of the whole GPU. Capacity: the sum of capacityName. Resource: no devices, but what the pods of gangs request of resourceName."""
    capacity_name: str | None = Field(
        default=None, max_length=96, json_schema_extra={"pattern": f"^{CAPACITY_NAME}$", "minLength": 1}
    )
    """The capacity that is counted, such as `memory`; with measure Capacity only."""
    resource_name: CountedResource | None = None
    """The resource of pods that is counted: cpu, memory, pods, ephemeral-storage or an extended resource; with measure Resource only."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=16)
    """With measure Resource: labels of the nodes on which pods count; absent means all nodes."""
    price: list[FlavorPrice] = Field(default_factory=list, max_length=PRICES_MAX)
    """Prices over time, per unit of the measure; empty means that its use is not priced. Past prices stay in the list."""
    autoscaling: FlavorAutoscaling | None = None
    """How nodes are asked for when gangs lack devices of this flavor; absent means never."""

    @property
    def selector(self) -> str:
        """Driver and deviceSelector as one CEL expression."""
        return selector_of(self.driver, self.device_selector)

    @field_validator("driver")
    @classmethod
    def _driver_is_a_name(cls, text: str | None) -> str | None:
        if text is not None and (len(text) > DRIVER_MAX or not is_dns_subdomain(text)):
            raise ValueError(
                f"{text!r} is no name of a DRA driver: write it as in spec.driver of its ResourceSlices, such as gpu.nvidia.com"
            )
        return text

    @model_validator(mode="after")
    def _counts_devices_or_a_resource(self) -> Self:
        if self.measure != "Resource":
            for field, given in (("resourceName", self.resource_name), ("nodeSelector", self.node_selector)):
                if given:
                    raise ValueError(f"{field}: means nothing with measure {self.measure}: remove it or use Resource")
            return self
        if self.resource_name is None:
            raise ValueError("resourceName: is required with measure Resource, such as resourceName: cpu")
        devices = {"driver": self.driver, "deviceSelector": self.device_selector, "autoscaling": self.autoscaling}
        for field, value in devices.items():
            if value is not None:
                raise ValueError(
                    f"{field}: is about devices, and measure Resource counts what pods request: remove it, or make a Flavor of its own"
                )
        return self

    @model_validator(mode="after")
    def _something_is_selected(self) -> Self:
        if self.measure == "Resource":
            return self
        if self.driver is None and self.device_selector is None:
            raise ValueError("deviceSelector: is required without driver, such as device.driver == 'gpu.fairlead.dev'")
        return self

    @field_validator("device_selector")
    @classmethod
    def _selector_says_something(cls, text: str | None) -> str | None:
        if text is not None and not text.strip():
            raise ValueError("is blank: write a CEL expression such as device.driver == 'gpu.fairlead.dev'")
        return text

    @field_validator("capacity_name")
    @classmethod
    def _qualified_name(cls, text: str | None) -> str | None:
        if text is None:
            return None
        domain, slash, _ = text.rpartition("/")
        if not _CAPACITY_NAME.fullmatch(text) or (slash and (len(domain) > 63 or not is_dns_subdomain(domain))):
            raise ValueError(f"{text!r} is no capacity name: use [domain/]identifier, such as memory")
        return text

    @model_validator(mode="after")
    def _capacity_is_named(self) -> Self:
        if self.measure == "Capacity" and self.capacity_name is None:
            raise ValueError("capacityName: is required with measure Capacity, such as capacityName: memory")
        if self.measure != "Capacity" and self.capacity_name is not None:
            raise ValueError(f"capacityName: means nothing with measure {self.measure}: remove it or use Capacity")
        return self

    @model_validator(mode="after")
    def _counts_from_zero(self) -> Self:
        if self.measure == "Capacity" and self.autoscaling is not None and self.autoscaling.device_classes:
            raise ValueError(
                "autoscaling.deviceClasses: means nothing with measure Capacity, for without a device its capacity is not known: "
                "remove it, and keep a node of the flavor"
            )
        return self

    @model_validator(mode="after")
    def _prices_do_not_overlap(self) -> Self:
        begun: dict[tuple[int | None, str | None], int] = {}
        for index, price in enumerate(self.price):
            if price.currency != self.price[0].currency:
                raise ValueError(
                    f"price[{index}].currency: {price.currency} is not the {self.price[0].currency} of price[0]: "
                    "write all prices of a flavor in one currency"
                )
            other = begun.setdefault((price.from_us, price.capacity_type), index)
            if other != index:
                since = "without from" if price.from_ is None else f"from {price.from_}"
                kind = price.capacity_type or "any capacity type"
                raise ValueError(
                    f"price[{index}]: is of {kind} {since}, as price[{other}] is: remove one, or give it another from"
                )
        return self


class FlavorStatus(Part):
    """Observed state. Written by the controller only."""

    observed_generation: int | None = None
    """The metadata.generation that this was computed for."""
    devices: int = Field(default=0, ge=0)
    """Published devices that the selector matches; partitions of a device count in addition to it."""
    total: Quantity = 0
    """Total in the cluster, in the flavor's measure; partitions of a device do not count in addition to it."""
    allocated: Quantity = 0
    """Allocated to gangs, in the flavor's measure."""
    scale_up_seconds: list[float] = Field(default_factory=list, max_length=16)
    """How long the latest scale-ups took, the latest last: from when nodes were asked for until the gang was admitted."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16, json_schema_extra=CONDITIONS)
    """Ready, and others with details."""


class Flavor(CustomResource):
    """A kind of device, chosen by CEL, or a resource of pods, and the measure in which queues count it."""

    kind: Literal["Flavor"] = "Flavor"
    spec: FlavorSpec
    """Which devices, or which resource of pods, and how they are counted."""
    status: FlavorStatus | None = None
    """Observed state. Written by the controller only."""
