"""resource.k8s.io/v1, complete: ResourceSlice, ResourceClaim, ResourceClaimTemplate, DeviceClass, DeviceTaintRule.

Data only: validation is the apiserver's, selection is the allocator's. Fields that only 1.37 serves are included (an older
apiserver omits them).
Source: k8s.io/api/resource/v1 types.go, 1.36, and kubernetes client 37.
"""

# ruff: noqa: RUF012 - msgspec copies empty defaults itself; they are not shared

from typing import Any

import msgspec

from fairlead.kube.core import NodeSelector
from fairlead.kube.objects import Condition, Object, ObjectMeta, Struct

Amount = str | int


# -- ResourceSlice -------------------------------------------------------------------------------------------------


class DeviceAttribute(Struct, frozen=True, kw_only=True):
    """Exactly one of its fields is set; the lists are alpha."""

    int_: int | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None

    @property
    def value(self) -> int | bool | str | tuple[int, ...] | tuple[bool, ...] | tuple[str, ...] | None:
        """The one field that is set. A version is a Python str as a string is: test `.version` to tell them apart."""
        for value in (
            self.string,
            self.int_,
            self.bool_,
            self.version,
            self.strings,
            self.ints,
            self.bools,
            self.versions,
        ):
            if value is not None:
                return value
        return None


class CapacityRequestPolicyRange(Struct, frozen=True, kw_only=True):
    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class CapacityRequestPolicy(Struct, frozen=True, kw_only=True):
    default: Amount | None = None
    valid_values: tuple[Amount, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Struct, frozen=True, kw_only=True):
    value: Amount
    request_policy: CapacityRequestPolicy | None = None


class Counter(Struct, frozen=True, kw_only=True):
    value: Amount


class CounterSet(Struct, frozen=True, kw_only=True):
    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Struct, frozen=True, kw_only=True):
    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(Struct, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(Struct, frozen=True, kw_only=True):
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None


class ResourcePool(Struct, frozen=True, kw_only=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Struct, frozen=True, kw_only=True):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(Object, frozen=True, kw_only=True):
    spec: ResourceSliceSpec = ResourceSliceSpec()


# -- ResourceClaim: requests ---------------------------------------------------------------------------------------


class CELDeviceSelector(Struct, frozen=True, kw_only=True):
    expression: str = ""


class DeviceSelector(Struct, frozen=True, kw_only=True):
    cel: CELDeviceSelector | None = None


class DeviceToleration(Struct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class CapacityRequirements(Struct, frozen=True, kw_only=True):
    requests: dict[str, Amount] = {}


class ExactDeviceRequest(Struct, frozen=True, kw_only=True):
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Struct, frozen=True, kw_only=True):
    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(Struct, frozen=True, kw_only=True):
    """Exactly one of `exactly` and `first_available`."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Struct, frozen=True, kw_only=True):
    """Applies to the named requests ("req" or "req/sub"), or to all when none is named."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(Struct, frozen=True, kw_only=True):
    driver: str = ""
    parameters: Any = None


class DeviceClaimConfiguration(Struct, frozen=True, kw_only=True):
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Struct, frozen=True, kw_only=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Struct, frozen=True, kw_only=True):
    devices: DeviceClaim = DeviceClaim()


# -- ResourceClaim: allocation -------------------------------------------------------------------------------------


class DeviceRequestAllocationResult(Struct, frozen=True, kw_only=True):
    """`request` is "main" or "main/sub"."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Amount] = {}
    skip_node_operations: tuple[str, ...] = ()


class DeviceAllocationConfiguration(Struct, frozen=True, kw_only=True):
    """`source` is FromClass or FromClaim; always present in JSON, so it has no default."""

    source: str
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Struct, frozen=True, kw_only=True):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Struct, frozen=True, kw_only=True):
    """No node_selector means any node."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Struct, frozen=True, kw_only=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(Struct, frozen=True, kw_only=True):
    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Struct, frozen=True, kw_only=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()
    data: Any = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(Struct, frozen=True, kw_only=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Object, frozen=True, kw_only=True):
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Struct, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Object, frozen=True, kw_only=True):
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


# -- DeviceClass, DeviceTaintRule ----------------------------------------------------------------------------------


class DeviceClassConfiguration(Struct, frozen=True, kw_only=True):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Struct, frozen=True, kw_only=True):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(Object, frozen=True, kw_only=True):
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceTaintSelector(Struct, frozen=True, kw_only=True):
    """`device_class_name` and `selectors` are of v1alpha3 in 1.34 alone, and nothing here evaluates them."""

    device_class_name: str | None = None
    selectors: tuple[DeviceSelector, ...] = ()
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Struct, frozen=True, kw_only=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(Object, frozen=True, kw_only=True):
    """v1 from 1.37 on; v1beta2 and v1alpha3 have the same fields, but for those that the selector names."""

    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
