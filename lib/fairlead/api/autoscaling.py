"""How a Flavor asks an autoscaler for nodes: which gangs become demand is decided by `fairlead.engine.plan.node_demand`."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fairlead.api.base import LabelKey, ObjectName, Part, Quantity
from fairlead.api.durations import duration_s
from fairlead.api.gang import Duration
from fairlead.api.object_names import is_dns_subdomain

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
