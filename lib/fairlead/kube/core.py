"""core/v1 and scheduling.k8s.io/v1 kinds, as far as the programs read them: Pod, Node, Namespace, PriorityClass, Event.

These are the fields for placement (what a pod needs of a node besides devices) and for the gang protocol (gates, claims,
node pins). Other fields are dropped on decoding, see `objects`.
"""

# ruff: noqa: RUF012 - msgspec copies empty defaults itself; they are not shared

import msgspec

from fairlead.kube.objects import LabelSelector, Object, Struct

ResourceList = dict[str, str | int]


class NodeSelectorRequirement(Struct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Struct, frozen=True, kw_only=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Struct, frozen=True, kw_only=True):
    """Terms are OR-ed; an empty term matches nothing."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Struct, frozen=True, kw_only=True):
    weight: int = 1
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Struct, frozen=True, kw_only=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Struct, frozen=True, kw_only=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PodAffinity(Struct, frozen=True, kw_only=True):
    """The fields of podAffinity and podAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Struct, frozen=True, kw_only=True):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class Toleration(Struct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(Struct, frozen=True, kw_only=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class ResourceClaimUse(Struct, frozen=True, kw_only=True):
    """A container's reference to one of its pod's claims."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Struct, frozen=True, kw_only=True):
    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerPort(Struct, frozen=True, kw_only=True):
    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Struct, frozen=True, kw_only=True):
    name: str = ""
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None


class PodSchedulingGate(Struct, frozen=True, kw_only=True):
    name: str = ""


class PodResourceClaim(Struct, frozen=True, kw_only=True):
    """Exactly one of resource_claim_name (an existing claim, may be shared) and resource_claim_template_name."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGroup(Struct, frozen=True, kw_only=True):
    pod_group_name: str | None = None


class ClaimVolumeSource(Struct, frozen=True, kw_only=True):
    claim_name: str = ""


class EphemeralVolumeSource(Struct, frozen=True, kw_only=True):
    """A claim that is made for the pod; its template is not read."""


class Volume(Struct, frozen=True, kw_only=True):
    """A volume, with the kinds by which a pod names a PersistentVolumeClaim."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None


class PodSpec(Struct, frozen=True, kw_only=True):
    node_name: str = ""
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: ResourceList = {}
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    priority: int | None = None
    preemption_policy: str | None = None
    restart_policy: str = "Always"
    host_network: bool = False
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    scheduler_name: str = ""


class PodCondition(Struct, frozen=True, kw_only=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodResourceClaimStatus(Struct, frozen=True, kw_only=True):
    """The claim of an entry of spec.resourceClaims; no claim name means that none was needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerStateRunning(Struct, frozen=True, kw_only=True):
    started_at: str | None = None


class ContainerStateTerminated(Struct, frozen=True, kw_only=True):
    started_at: str | None = None
    finished_at: str | None = None


class ContainerStateWaiting(Struct, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class ContainerState(Struct, frozen=True, kw_only=True):
    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(Struct, frozen=True, kw_only=True):
    name: str = ""
    ready: bool = False
    state: ContainerState = ContainerState()


class PodStatus(Struct, frozen=True, kw_only=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    start_time: str | None = None
    nominated_node_name: str = ""


class Pod(Object, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def finished(self) -> bool:
        """Whether all its containers have stopped for good."""
        return self.status.phase in {"Succeeded", "Failed"}

    def has_gate(self, name: str) -> bool:
        return any(gate.name == name for gate in self.spec.scheduling_gates)

    def condition(self, kind: str) -> PodCondition | None:
        return next((condition for condition in self.status.conditions if condition.type == kind), None)


class NodeSpec(Struct, frozen=True, kw_only=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Struct, frozen=True, kw_only=True):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[PodCondition, ...] = ()


class Node(Object, frozen=True, kw_only=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.status.conditions)


class NamespaceStatus(Struct, frozen=True, kw_only=True):
    phase: str = ""


class Namespace(Object, frozen=True, kw_only=True):
    status: NamespaceStatus = NamespaceStatus()


class PriorityClass(Object, frozen=True, kw_only=True):
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class Event(Object, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None
