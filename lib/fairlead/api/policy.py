"""TenancyPolicy: what the pods, jobs and claims of selected namespaces may request.

Every field is a rule that the webhook enforces. An absent field sets no rule. Where several policies select a namespace,
each is checked by itself (`fairlead.webhook.policy`), so the strictest applies.
"""

import posixpath
import re
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fairlead.api.base import (
    CONDITIONS,
    CelExpression,
    Condition,
    CustomResource,
    LabelSelector,
    ObjectName,
    Part,
    SelectorRequirement,
)
from fairlead.api.bounds import Bounds, read_bounds
from fairlead.api.config import Strategy
from fairlead.api.gang import GANG_SIZE_MAX, Duration
from fairlead.api.members import Members
from fairlead.api.models import Models

Mode = Literal["Enforce", "Warn", "Audit"]
LegacyRequests = Literal["Translate", "Reject", "Ignore"]
HostNamespace = Literal["PID", "IPC", "Network"]
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
Account = Annotated[str, Field(max_length=512)]
"""Of a user or a group."""
_SET = {"x-kubernetes-list-type": "set"}


class Exemptions(Part):
    """What the policy does not apply to."""

    namespaces: list[ObjectName] = Field(default_factory=list, max_length=64, json_schema_extra=dict(_SET))
    """Namespaces that it does not apply to, even if its selector matches them."""
    users: list[Account] = Field(default_factory=list, max_length=64, json_schema_extra=dict(_SET))
    """Users whose requests it does not apply to; note that a Job's pods are created by the Job controller."""
    groups: list[Account] = Field(default_factory=list, max_length=64, json_schema_extra=dict(_SET))
    """Groups of users whose requests it does not apply to."""


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
    """How long a NoExecute taint is tolerated; absent means forever."""

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
    """Tolerations that pods with managed devices must have."""

    missing: Missing = "Default"
    """What happens to a pod without them: Default adds them, Require refuses the pod."""
    tolerations: list[Toleration] = Field(min_length=1, max_length=16)
    """All of these."""


class NodeAffinity(Part):
    """Node labels that pods with managed devices must require."""

    missing: Missing = "Default"
    """What happens to a pod that does not: Default adds them to its required node affinity, Require refuses the pod."""
    match_expressions: list[SelectorRequirement] = Field(min_length=1, max_length=16)
    """All of these, in every term of the pod's required node affinity."""


class AllowedHostPath(Part):
    """A path of the node that pods may mount."""

    path: str = Field(min_length=2, max_length=1024, pattern=r"^/[^:]*$")
    """Absolute, without `..`; not / itself."""
    read_only: bool = True
    """true: the path and everything below it, in mounts with readOnly: true. false: the path itself, also to write."""

    @model_validator(mode="after")
    def _is_plain(self) -> Self:
        if posixpath.normpath(self.path) != self.path.rstrip("/") or self.path.startswith("//"):
            raise ValueError(
                f"path: {self.path!r} is not in its shortest form: write {posixpath.normpath('/' + self.path.lstrip('/'))}"
            )
        return self


class HostAccess(Part):
    """What pods may use of their node beyond the Pod Security baseline, while deviceBypass is Reject."""

    host_paths: list[AllowedHostPath] = Field(default_factory=list, max_length=64)
    """Paths of the node that hostPath volumes may name; empty means none."""
    capabilities: list[Annotated[str, Field(max_length=63)]] = Field(
        default_factory=list, max_length=64, json_schema_extra=dict(_SET)
    )
    """Capabilities that containers may add to those of the baseline, such as IPC_LOCK."""
    namespaces: list[HostNamespace] = Field(default_factory=list, max_length=3, json_schema_extra=dict(_SET))
    """Namespaces of the node that pods may be in: hostPID, hostIPC, hostNetwork."""
    csi_drivers: list[ObjectName] = Field(default_factory=list, max_length=64, json_schema_extra=dict(_SET))
    """CSI drivers that pods may name in their own volumes; PersistentVolumeClaims are not concerned."""

    @model_validator(mode="after")
    def _capabilities_are_names(self) -> Self:
        for name in self.capabilities:
            if not re.fullmatch(r"[A-Z][A-Z_]{0,62}", name) or name.startswith("CAP_"):
                raise ValueError(f"capabilities: {name!r}: write it as in a container, such as IPC_LOCK")
        return self

    @model_validator(mode="after")
    def _written_paths_stand_alone(self) -> Self:
        """A pod that writes can make a link to anywhere on the node, and what is allowed below or above would follow it."""
        paths = [(entry.path.rstrip("/") + "/", entry.read_only) for entry in self.host_paths]
        for index, (path, read_only) in enumerate(paths):
            for other, _ in paths[:index] + paths[index + 1 :]:
                if not read_only and (other.startswith(path) or path.startswith(other)):
                    raise ValueError(
                        f"hostPaths: {path.rstrip('/')} may be written to, so {other.rstrip('/')} cannot be allowed beside it: "
                        "remove one of them"
                    )
        return self


class CelRule(Part):
    """A custom rule: a CEL expression over the object that must be true."""

    name: ObjectName
    """The rule's name, for messages, metrics and audit."""
    kinds: list[RuleKind] = Field(default=["Pod"], min_length=1, max_length=16, json_schema_extra=dict(_SET))
    """Kinds that it applies to; only objects that request managed devices are checked."""
    expression: CelExpression
    """Must be true. It sees object, oldObject, request and namespaceObject, as a ValidatingAdmissionPolicy does."""
    message: str | None = Field(default=None, max_length=1024)
    """Message to the user whose object violates it."""
    message_expression: CelExpression | None = None
    """The same, as a CEL expression of type string; overrides message."""


class TenancyPolicySpec(Part):
    """Which namespaces, which rules, and what happens to an object that violates one."""

    namespace_selector: LabelSelector = Field(default_factory=LabelSelector)
    """Namespaces that the policy applies to; empty means all."""
    exemptions: Exemptions = Field(default_factory=Exemptions)
    """What the policy does not apply to."""
    mode: Mode = "Enforce"
    """Enforce refuses and sets defaults, Warn admits with a warning, Audit admits with an audit annotation."""
    device_classes: list[ObjectName] | None = Field(default=None, max_length=64, json_schema_extra=dict(_SET))
    """DeviceClasses that claims may name for managed devices; absent means any."""
    flavors: list[ObjectName] | None = Field(default=None, max_length=64, json_schema_extra=dict(_SET))
    """Flavors to which every device that a claim could get must belong; absent means any."""
    max_devices_per_claim: int | None = Field(default=None, ge=1, le=32)
    """Most devices that one claim may request, summed over exact counts."""
    max_gang_size: int | None = Field(default=None, ge=1, le=GANG_SIZE_MAX)
    """Most members that one gang may have."""
    max_min_runtime: Duration | None = None
    """Most that the annotation min-runtime may ask for; longer ones count as this, also where pods exist already."""
    max_checkpoint_grace: Duration | None = None
    """Most that the annotation checkpoint-grace may ask for; longer ones count as this, also where pods exist already."""
    max_termination_grace: Duration | None = None
    """Most terminationGracePeriodSeconds of pods with managed devices; an evicted pod gets no more, and others wait no longer for one that is leaving."""
    lost_node_timeout: Duration | None = None
    """How long a gang with members on a node that does not answer keeps the devices of its other members, where these are fewer than it needs; then it is evicted whole. Absent means without end."""
    max_priority: int | None = Field(default=None, ge=0, le=2_000_001_000)
    """Highest priority of pods with managed devices, by whatever priority class; gangs count with no more, also where pods exist already."""
    isolation: Literal["Any", "Hardware"] = "Any"
    """Hardware: whole GPUs or MIG devices only; no time-slicing, no MPS, no parts of shared devices."""
    whole_gpus: Literal["Allow", "Forbid"] = "Allow"
    """Forbid: MIG devices only."""
    admin_access: Literal["Allow", "Reject"] = "Allow"
    """Whether claims may request admin access to devices in use."""
    sharing_strategies: list[Strategy] | None = Field(default=None, max_length=2, json_schema_extra=dict(_SET))
    """Sharing strategies that device configurations may request; absent means any, empty means none."""
    resource_requests: Literal["Any", "EqualLimits"] = "Any"
    """EqualLimits: each container's cpu and memory requests equal its limits."""
    tolerations: Tolerations | None = None
    """Tolerations that pods with managed devices must have, such as for tainted GPU nodes."""
    node_affinity: NodeAffinity | None = None
    """Node labels that pods with managed devices must require."""
    multi_gpu_jobs: Literal["Any", "RequireGang"] = "Any"
    """RequireGang: a job whose pods together hold several managed devices must be a gang."""
    pod_failure_policy: Literal["Any", "Default", "Require"] = "Any"
    """Whether evictions count against a gang Job's backoffLimit: Default adds a rule that ignores them, and back-off by index, to a Job without."""
    models: Models | None = None
    """Whether the devices of a gang come from one GPU product (same) or from any, for gangs without fairlead.dev/models; of several policies same counts. Absent means as the Queue says."""
    members: Members | None = None
    """Whether pods of a gang's owner that ask for no device wait and start with the others (all) or start at once (devices), for gangs without fairlead.dev/members; of several policies all counts. Absent means as the Queue says."""
    keep_idle: Literal["Allow", "Reject"] = "Allow"
    """Whether pods may say by the annotation keep-idle that what their Queue does to idle gangs is not for them."""
    device_bypass: Literal["Allow", "Reject"] = "Allow"
    """Reject: no pod may reach GPUs without a claim: by its node beyond the Pod Security baseline, NVIDIA_VISIBLE_DEVICES, runtime classes."""
    host_access: HostAccess = Field(default_factory=HostAccess)
    """What pods may use of their node all the same, while deviceBypass is Reject."""
    legacy_requests: LegacyRequests = "Translate"
    """What happens to limits such as nvidia.com/gpu: translated into claims, refused, or left to a device plugin."""
    rules: list[CelRule] = Field(
        default_factory=list,
        max_length=RULES_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Custom rules."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.isolation == "Hardware" and self.sharing_strategies:
            raise ValueError("sharingStrategies: means nothing with isolation Hardware, which allows none: remove it")
        names = [rule.name for rule in self.rules]
        if len(set(names)) < len(names):
            raise ValueError("rules: two of them have the same name: rename one")
        return self


class TenancyPolicyStatus(Part):
    """Observed state. Written by Fairlead only."""

    observed_generation: int | None = None
    """The metadata.generation that this was computed for."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16, json_schema_extra=CONDITIONS)
    """Ready, and others with details."""


class TenancyPolicy(CustomResource):
    """What the pods, jobs and claims of selected namespaces may request."""

    kind: Literal["TenancyPolicy"] = "TenancyPolicy"
    spec: TenancyPolicySpec = Field(default_factory=TenancyPolicySpec)
    """Which namespaces, which rules, and what happens to an object that violates one."""
    status: TenancyPolicyStatus | None = None
    """Observed state. Written by Fairlead only."""

    @cached_property
    def bounds(self) -> Bounds:
        """What its spec sets at most."""
        return read_bounds(self.spec, f"{self.kind} {self.name}")
