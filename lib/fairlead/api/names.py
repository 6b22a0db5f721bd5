"""Well-known names: annotations, labels, classes, finalizers, accounts. Constants only, each spelled here and nowhere else.

Source: resource.k8s.io/v1 `types.go` for the names under `resource.kubernetes.io`; kueue `pkg/controller/constants`, volcano
and scheduler-plugins for those of other systems (see `foreign`); the rest is ours.
"""

from typing import Final

# Fairlead itself.
DRIVER: Final = "gpu.fairlead.dev"
API_GROUP: Final = "fairlead.dev"
API_VERSION: Final = "fairlead.dev/v1alpha1"
CONFIG_API_VERSION: Final = "gpu.fairlead.dev/v1alpha1"
NAMESPACE: Final = "fairlead-system"
DRIVER_ACCOUNT: Final = "fairlead-driver"
WEBHOOK_ACCOUNT: Final = "fairlead-webhook"
CONTROLLER_ACCOUNT: Final = "fairlead-controller"
DRIVER_USER: Final = f"system:serviceaccount:{NAMESPACE}:{DRIVER_ACCOUNT}"
WEBHOOK_USER: Final = f"system:serviceaccount:{NAMESPACE}:{WEBHOOK_ACCOUNT}"
CONTROLLER_USER: Final = f"system:serviceaccount:{NAMESPACE}:{CONTROLLER_ACCOUNT}"
FIELD_MANAGER: Final = "fairlead"

# DeviceClasses that Fairlead installs.
GPU_CLASS: Final = "gpu.fairlead.dev"
MIG_CLASS: Final = "mig.gpu.fairlead.dev"

# On pods; the annotations also on pod templates of Jobs and the like.
ANNOTATION_PREFIX: Final = f"{API_GROUP}/"
ADMISSION_GATE: Final = "fairlead.dev/admission"
GANG: Final = "fairlead.dev/gang"
GANG_SIZE: Final = "fairlead.dev/gang-size"
SIZE_FROM: Final = "fairlead.dev/gang-size-from"  # written by the webhook beside a size that it counted (`api.derived`)
QUEUE: Final = "fairlead.dev/queue"
TOPOLOGY: Final = "fairlead.dev/topology"
MODELS: Final = "fairlead.dev/models"  # same or any: whether its gang's devices come from one GPU product
ALIGN: Final = "fairlead.dev/align"  # attributes that the devices of its gang's members have in common (`api.align`)
MEMBERS: Final = (
    "fairlead.dev/members"  # all or devices: whether pods that ask for no device are members, too (`api.members`)
)
SUBGROUP: Final = "fairlead.dev/subgroup"  # annotation or label: the name of the subgroup that the pod belongs to
SUBGROUP_SIZE: Final = "fairlead.dev/subgroup-size"  # so many members with neighbouring ranks are a subgroup
SUBGROUP_TOPOLOGY: Final = "fairlead.dev/subgroup-topology"  # as TOPOLOGY, of each subgroup
MIN_RUNTIME: Final = "fairlead.dev/min-runtime"
CHECKPOINT_GRACE: Final = "fairlead.dev/checkpoint-grace"
MOVABLE: Final = "fairlead.dev/movable"  # "true": its gang may be moved so that another fits (Queue.spec.movable)
CHECKPOINTED_AT: Final = (
    "fairlead.dev/checkpointed-at"  # written by the workload: until when its work is saved, RFC 3339
)
EXPECTED_END: Final = "fairlead.dev/expected-end"  # when a running job expects to end, RFC 3339: for forecasts
KEEP_IDLE: Final = "fairlead.dev/keep-idle"  # "true": its gang is never treated as idle (Queue.spec.idle)
# The W3C trace context of a pod's gang (`trace_context`): a user's, or with traces on the webhook's. On claims that the controller
# makes, too. Kubernetes has no name for it yet (KEP-5915 proposes one under k8s.io).
TRACEPARENT: Final = "fairlead.dev/traceparent"
ADMITTED_CONDITION: Final = "fairlead.dev/Admitted"  # a pod's condition: False after its admission was rolled back
# On a pod whose status named another claim than the allocated one when it came to its node: when that was seen corrected,
# RFC 3339. Makes kubelet sync the pod; read by no program.
CLAIMS_CORRECTED: Final = "fairlead.dev/claims-corrected"

# On a released pod: when it was released, RFC 3339. Written where the apiserver does not keep the time of an allocation (1.34), with the
# patch that releases it, and by the controller only.
RELEASED_AT: Final = "fairlead.dev/released-at"

# On a released pod that names no gang, where it has a queue: the queue that took it. Such a pod has no Gang to say so, unless it waited;
# written with the patch that releases it, by the controller only, for views.
ADMITTED_QUEUE: Final = "fairlead.dev/admitted-queue"

# On claims, and on one gated pod: when a new leader wrote to them (RFC 3339), so that what the leader before it may still have
# under way for them fails. Read by no program.
TAKEN_OVER: Final = "fairlead.dev/taken-over"

# Who created the pod, or the workload that it is a pod of: userInfo.username of that request. Written by the webhook only, when the
# object is created; on pod templates too.
USER: Final = "fairlead.dev/user"
# Where each named claim of the pod comes from, as JSON (`claim_sources`). Written by the webhook only, when a pod is created.
CLAIM_SOURCES: Final = "fairlead.dev/claim-sources"
# On claims that stand for a legacy limit: the request, as `legacy` encodes it. They count for quotas on that extended resource.
LEGACY_REQUEST: Final = "fairlead.dev/legacy-request"
# On a pod (template) or namespace. "generated": the claim controller makes the claims of its templates, as without Fairlead;
# "named", the default for pods that a controller owns: the webhook names them and the controller makes them.
CLAIM_NAMES: Final = "fairlead.dev/claim-names"
QUEUE_SYSTEM: Final = "fairlead.dev/queue-system"

# On victims of an eviction and on the pods of the gang that preempts them. Written by the controller only.
# When the pod is evicted, RFC 3339; until then it can write a checkpoint.
EVICT_AT: Final = "fairlead.dev/evict-at"
# Why it is evicted, as JSON; a new leader continues from it.
EVICTION: Final = "fairlead.dev/eviction"
# On a pod of the preemptor: until when the victims' devices are reserved for its gang.
# On pods of a gang that stays on a node which goes soon: by when they should have saved their work, RFC 3339. By the controller only.
CHECKPOINT_BY: Final = "fairlead.dev/checkpoint-by"
EVICTING_CONDITION: Final = "fairlead.dev/Evicting"
# How the message of a gated pod's PodScheduled condition begins while nodes are asked for, for its gang (Flavor.spec.autoscaling). On
# claims that were made for that, before any device was chosen; on placeholder pods and ProvisioningRequests: for which gang they are.
AWAITING_NODES: Final = "fairlead.dev/awaiting-nodes"
# On ProvisioningRequests: how often the gang's was refused before it.
ATTEMPT: Final = "fairlead.dev/attempt"
# On pods that only hold room for a gang's on nodes to come, a label; and their PriorityClass.
PLACEHOLDER: Final = "fairlead.dev/placeholder"
PLACEHOLDER_PRIORITY: Final = "fairlead-placeholder"

# On all objects of a tenant's baseline (`tenant_objects`): its name. A namespace with it and QUEUE, as labels, is bound to that queue.
TENANT: Final = "fairlead.dev/tenant"

# On pods, a label: the webhook has gated them, or the template that they are of. By it an apiserver sends them without evaluating CEL; it
# proves nothing, and whoever writes it gets more reviews.
REVIEWED: Final = "fairlead.dev/reviewed"
REVIEWED_TEMPLATE: Final = "template"
REVIEWED_POD: Final = "pod"

# On namespaces: the webhook does not review their objects.
IGNORE_LABEL: Final = "fairlead.dev/ignore"
EXEMPT_NAMESPACES: Final = ("kube-system", "kube-public", "kube-node-lease", NAMESPACE)
"""Of Kubernetes and of Fairlead itself; see `namespaces.is_exempt`."""

# Of other systems, on pods: gang and queue where our own annotations are absent (fairlead.api.foreign).
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_GATE: Final = "kueue.x-k8s.io/admission"
KUEUE_TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
KUEUE_MANAGED: Final = "kueue.x-k8s.io/managed"
KUEUE_LEAST: Final = "kueue.x-k8s.io/job-min-parallelism"  # on Jobs
KUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
KUEUE_TOPOLOGY_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_TOPOLOGY_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_SLICE_TOPOLOGY: Final = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
KUEUE_SLICE_LEVELS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
KUEUE_PODSET_GROUP: Final = "kueue.x-k8s.io/podset-group-name"
KUEUE_API: Final = "kueue.x-k8s.io"
VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
VOLCANO_SIZE: Final = "scheduling.volcano.sh/group-min-member"
VOLCANO_QUEUE: Final = "volcano.sh/queue-name"
VOLCANO_QUEUE_2: Final = "scheduling.volcano.sh/queue-name"
COSCHEDULING_GROUP_LABEL: Final = "scheduling.x-k8s.io/pod-group"
COSCHEDULING_SIZE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"

# Kubernetes' own, most of it of resource.k8s.io/v1.
DEFAULT_SCHEDULER: Final = "default-scheduler"
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"
PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
ORDINAL: Final = (
    "fairlead.dev/ordinal"  # derived, of every device: its position among its like on its node (`inventory.ordinals`)
)
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"

# Indexes of pods, from which ranks are made: as annotation or label, as each controller writes them.
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
STATEFULSET_INDEX: Final = "apps.kubernetes.io/pod-index"
JOBSET_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-global-index"
KUBEFLOW_TYPE: Final = "training.kubeflow.org/replica-type"
KUBEFLOW_INDEX: Final = "training.kubeflow.org/replica-index"
KUEUE_POD_INDEX: Final = "kueue.x-k8s.io/pod-group-pod-index"
KUEUE_POD_INDEX_LABEL: Final = "kueue.x-k8s.io/pod-group-pod-index-label"
"""An annotation: the label that has the index instead."""
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
INDEXES: Final = (
    COMPLETION_INDEX,
    STATEFULSET_INDEX,
    LWS_WORKER_INDEX,
    KUBEFLOW_INDEX,
    KUEUE_POD_INDEX,
    KUEUE_POD_INDEX_LABEL,
)
"""One of these makes a rank (`controller.gangs.ranks`)."""
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
LWS_SUBGROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/subgroup-index"
# The part of its workload that a pod is of, as labels.
JOBSET_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
RAY_GROUP: Final = "ray.io/group"

# On objects that Fairlead creates.
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY_VALUE: Final = "fairlead"

# Extended resources of the device plugin that are translated into claims.
LEGACY_GPU: Final = "nvidia.com/gpu"
LEGACY_MIG_PREFIX: Final = "nvidia.com/mig-"
LEGACY_SHARED: Final = ".shared"  # at the end of either: a share of such a device (its `renameByDefault`)

# On nodes: the MIG layout that is asked for, how far the node is (both as NVIDIA's MIG manager has them), and why.
MIG_CONFIG: Final = "nvidia.com/mig.config"
MIG_CONFIG_STATE: Final = "nvidia.com/mig.config.state"
MIG_CONFIG_MESSAGE: Final = "fairlead.dev/mig-config-message"
