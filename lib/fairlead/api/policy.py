"""TenancyPolicy: what the pods, jobs and claims of chosen namespaces may ask for.

Exists so that a platform engineer writes the cluster's rules as an object instead of a webhook of their own. Holds the
rules that the webhook enforces and no others: a field that nothing reads would be a promise that is not kept.
An absent field means that the policy has nothing to say about it. What several policies on one namespace mean together
is decided in `fairlead.webhook.policy`: each is judged by itself, so the strictest wins.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from fairlead.api.base import (
    CONDITIONS,
    CelExpression,
    Condition,
    LabelSelector,
    ObjectName,
    Part,
    Resource,
    SelectorRequirement,
)
from fairlead.api.config import Strategy
from fairlead.api.gang import GANG_SIZE_MAX

Mode = Literal["Enforce", "Warn", "Audit"]
LegacyRequests = Literal["Translate", "Reject", "Ignore"]
Missing = Literal["Default", "Require"]
RuleKind = Literal[
    "Pod",
    "Job",
    "CronJob",
    "JobSet",
    "LeaderWorkerSet",
    "PyTorchJob",
    "MPIJob",
    "TrainJob",
    "RayCluster",
    "RayJob",
    "ResourceClaim",
    "ResourceClaimTemplate",
]
RULES_MAX = 16
_SET = {"x-kubernetes-list-type": "set"}


class Exemptions(Part):
    """Whom the policy does not judge."""

    namespaces: list[ObjectName] = Field(default_factory=list, max_length=64, json_schema_extra=dict(_SET))
    """Namespaces that the policy leaves alone even where its selector takes them."""
    users: list[str] = Field(default_factory=list, max_length=64, json_schema_extra=dict(_SET))
    """Users whose own objects it does not judge; a Job's pods are made by the Job controller."""
    groups: list[str] = Field(default_factory=list, max_length=64, json_schema_extra=dict(_SET))
    """Groups whose members' own objects it does not judge."""


class Toleration(Part):
    """A toleration, as in a pod's spec."""

    key: str | None = Field(default=None, max_length=317)
    """The taint's key; absent means every key, with operator Exists."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Exists: any value. Equal: exactly this value."""
    value: str | None = Field(default=None, max_length=63)
    """The taint's value, with operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; absent means every effect."""
    toleration_seconds: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """How long a NoExecute taint is tolerated; absent means for ever."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise ValueError("value: means nothing with operator Exists: remove it")
        if self.key is None and self.operator != "Exists":
            raise ValueError("key: is required with operator Equal; to tolerate every taint, write operator: Exists")
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError("tolerationSeconds: only means something with effect NoExecute")
        return self


class Tolerations(Part):
    """Tolerations that pods with managed devices have."""

    missing: Missing = "Default"
    """What happens to a pod without them: Default adds them, Require refuses the pod."""
    tolerations: list[Toleration] = Field(min_length=1, max_length=16)
    """All of these."""


class NodeAffinity(Part):
    """Node labels that pods with managed devices ask for."""

    missing: Missing = "Default"
    """What happens to a pod that does not: Default adds them to its required node affinity, Require refuses the pod."""
    match_expressions: list[SelectorRequirement] = Field(min_length=1, max_length=16)
    """All of these, in every term of the pod's required node affinity."""


class CelRule(Part):
    """A rule of one's own: a CEL expression over the object that must be true."""

    name: ObjectName
    """The rule's name, for messages, metrics and audit."""
    kinds: list[RuleKind] = Field(default=["Pod"], min_length=1, max_length=16, json_schema_extra=dict(_SET))
    """Which kinds it judges; only objects that ask for managed devices are judged."""
    expression: CelExpression
    """Must be true. It sees object, oldObject, request and namespaceObject, as a ValidatingAdmissionPolicy does."""
    message: str | None = Field(default=None, max_length=1024)
    """What to tell the user whose object breaks it."""
    message_expression: CelExpression | None = None
    """The same, as a CEL expression that gives a text; goes before message."""


class TenancyPolicySpec(Part):
    """Which namespaces, which rules, and what happens to an object that breaks one."""

    namespace_selector: LabelSelector = Field(default_factory=LabelSelector)
    """Namespaces that the policy governs; empty means all."""
    exemptions: Exemptions = Field(default_factory=Exemptions)
    """Whom the policy does not judge."""
    mode: Mode = "Enforce"
    """Enforce refuses and sets defaults, Warn lets pass with a warning, Audit lets pass with an audit annotation."""
    device_classes: list[ObjectName] | None = Field(default=None, max_length=64, json_schema_extra=dict(_SET))
    """DeviceClasses that claims may name for managed devices; absent means any."""
    flavors: list[ObjectName] | None = Field(default=None, max_length=64, json_schema_extra=dict(_SET))
    """Flavors that the devices a claim may get must belong to; absent means any."""
    max_devices_per_claim: int | None = Field(default=None, ge=1, le=32)
    """Most devices that one claim may ask for, by exact counts."""
    max_gang_size: int | None = Field(default=None, ge=1, le=GANG_SIZE_MAX)
    """Most members that one gang may have."""
    isolation: Literal["Any", "Hardware"] = "Any"
    """Hardware: whole GPUs or MIG devices only; no time-slicing, no MPS, no parts of shared devices."""
    whole_gpus: Literal["Allow", "Forbid"] = "Allow"
    """Forbid: MIG devices only."""
    admin_access: Literal["Allow", "Reject"] = "Allow"
    """Whether claims may ask for admin access to devices that others use."""
    sharing_strategies: list[Strategy] | None = Field(default=None, max_length=2, json_schema_extra=dict(_SET))
    """Sharing strategies that device configurations may ask for; absent means any, empty means none."""
    resource_requests: Literal["Any", "EqualLimits"] = "Any"
    """EqualLimits: each container's cpu and memory requests equal its limits."""
    tolerations: Tolerations | None = None
    """Tolerations that pods with managed devices have, such as for tainted GPU nodes."""
    node_affinity: NodeAffinity | None = None
    """Node labels that pods with managed devices ask for."""
    multi_gpu_jobs: Literal["Any", "RequireGang"] = "Any"
    """RequireGang: a job whose pods hold several managed devices at once must be a gang."""
    pod_failure_policy: Literal["Any", "Default", "Require"] = "Any"
    """Whether evictions count against a gang Job's backoffLimit: Default ignores them where the Job says nothing."""
    device_bypass: Literal["Allow", "Reject"] = "Allow"
    """Reject: no pod may reach GPUs past the claims: privileged, NVIDIA_VISIBLE_DEVICES, /dev/nvidia*, runtime classes."""
    legacy_requests: LegacyRequests = "Translate"
    """What happens to limits such as nvidia.com/gpu: turned into claims, refused, or left to a device plugin."""
    rules: list[CelRule] = Field(
        default_factory=list,
        max_length=RULES_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Rules of one's own."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.isolation == "Hardware" and self.sharing_strategies:
            raise ValueError("sharingStrategies: means nothing with isolation Hardware, which allows none: remove it")
        names = [rule.name for rule in self.rules]
        if len(set(names)) < len(names):
            raise ValueError("rules: two of them have the same name: rename one")
        return self


class TenancyPolicyStatus(Part):
    """What Fairlead found; nobody else writes it."""

    observed_generation: int | None = None
    """The metadata.generation that this was computed for."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16, json_schema_extra=CONDITIONS)
    """Ready, and what else there is to say."""


class TenancyPolicy(Resource):
    """What the pods, jobs and claims of chosen namespaces may ask for."""

    kind: Literal["TenancyPolicy"] = "TenancyPolicy"
    spec: TenancyPolicySpec = Field(default_factory=TenancyPolicySpec)
    """Which namespaces, which rules, and what happens to an object that breaks one."""
    status: TenancyPolicyStatus | None = None
    """What Fairlead found; nobody else writes it."""
