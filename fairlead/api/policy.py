"""TenancyPolicy: what the pods and claims of chosen namespaces may ask for.

Exists so that a platform engineer writes the cluster's rules as an object instead of a webhook of their
own. Holds the rules that the webhook enforces today and no others: a field that nothing reads would be a
promise that is not kept. Tolerations, node affinity, isolation and extra CEL rules come with their rules.
"""

from typing import Literal

from pydantic import Field

from fairlead.api.base import CONDITIONS, Condition, LabelSelector, ObjectName, Part, Resource
from fairlead.api.config import Strategy
from fairlead.api.gang import GANG_SIZE_MAX

Mode = Literal["Enforce", "Warn", "Audit"]
LegacyRequests = Literal["Translate", "Reject", "Ignore"]


class TenancyPolicySpec(Part):
    """Which namespaces, which rules, and what happens to an object that breaks one."""

    namespace_selector: LabelSelector = Field(default_factory=LabelSelector)
    """Namespaces that the policy governs; empty means all."""
    mode: Mode = "Enforce"
    """Enforce refuses, Warn lets pass with a warning, Audit lets pass with an audit annotation."""
    device_classes: list[ObjectName] | None = Field(
        default=None, max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """DeviceClasses that claims may name for managed devices; absent means any."""
    max_devices_per_claim: int | None = Field(default=None, ge=1, le=32)
    """Most devices that one claim may ask for, by exact counts."""
    max_gang_size: int | None = Field(default=None, ge=1, le=GANG_SIZE_MAX)
    """Most members that one gang may have."""
    admin_access: Literal["Allow", "Reject"] = "Allow"
    """Whether claims may ask for admin access to devices that others use."""
    sharing_strategies: list[Strategy] | None = Field(
        default=None, max_length=2, json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    """Sharing strategies that device configurations may ask for; absent means any, empty means none."""
    legacy_requests: LegacyRequests = "Translate"
    """What happens to limits such as nvidia.com/gpu: turned into claims, refused, or left to a device plugin."""


class TenancyPolicyStatus(Part):
    """What Fairlead found; nobody else writes it."""

    observed_generation: int | None = None
    """The metadata.generation that this was computed for."""
    conditions: list[Condition] = Field(default_factory=list, max_length=16, json_schema_extra=CONDITIONS)
    """Ready, and what else there is to say."""


class TenancyPolicy(Resource):
    """What the pods and claims of chosen namespaces may ask for."""

    kind: Literal["TenancyPolicy"] = "TenancyPolicy"
    spec: TenancyPolicySpec = Field(default_factory=TenancyPolicySpec)
    """Which namespaces, which rules, and what happens to an object that breaks one."""
    status: TenancyPolicyStatus | None = None
    """What Fairlead found; nobody else writes it."""
