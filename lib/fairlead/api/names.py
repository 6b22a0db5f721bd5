"""Every well-known name that Fairlead, its users and Kubernetes agree on, once.

Exists so that no annotation, label, class or finalizer is spelled twice. Holds constants only.
Source: resource.k8s.io/v1 `types.go` for the names under `resource.kubernetes.io`; the rest is ours.
"""

from typing import Final

# What we are called.
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

# DeviceClasses that we ship.
GPU_CLASS: Final = "gpu.fairlead.dev"
MIG_CLASS: Final = "mig.gpu.fairlead.dev"

# On pods; the annotations also on pod templates of Jobs and the like.
ANNOTATION_PREFIX: Final = f"{API_GROUP}/"
ADMISSION_GATE: Final = "fairlead.dev/admission"
GANG: Final = "fairlead.dev/gang"
GANG_SIZE: Final = "fairlead.dev/gang-size"
QUEUE: Final = "fairlead.dev/queue"
TOPOLOGY: Final = "fairlead.dev/topology"
MIN_RUNTIME: Final = "fairlead.dev/min-runtime"
CHECKPOINT_GRACE: Final = "fairlead.dev/checkpoint-grace"
ADMITTED_CONDITION: Final = "fairlead.dev/Admitted"  # a pod's condition: False while its admission was taken back

# On pods that are evicted for others, and on the gang that they are evicted for. Written by the controller alone.
EVICT_AT: Final = "fairlead.dev/evict-at"  # when the pod goes, RFC 3339: time to write a checkpoint
EVICTION: Final = "fairlead.dev/eviction"  # what for, as JSON: read by a controller that takes over
HOLDS_UNTIL: Final = (
    "fairlead.dev/holds-until"  # gangs were evicted for this pod's; until then their devices are kept for it
)
EVICTING_CONDITION: Final = "fairlead.dev/Evicting"
EVICTED: Final = (
    "fairlead.dev/evicted"  # on Gang objects: the last eviction, and since when the gang is in line, as JSON
)

# On namespaces: an operator's way to keep the webhook out.
IGNORE_LABEL: Final = "fairlead.dev/ignore"

# Of other systems, on pods: understood as gang and queue where ours are absent (fairlead.api.foreign).
KUEUE_QUEUE: Final = "kueue.x-k8s.io/queue-name"
KUEUE_GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
KUEUE_GATE: Final = "kueue.x-k8s.io/admission"
KUEUE_LEAST: Final = "kueue.x-k8s.io/job-min-parallelism"  # on Jobs
KUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
KUEUE_TOPOLOGY_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_TOPOLOGY_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
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
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"

# On what Fairlead itself makes.
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY_VALUE: Final = "fairlead"

# Extended resources of the device plugin that we turn into claims.
LEGACY_GPU: Final = "nvidia.com/gpu"
LEGACY_MIG_PREFIX: Final = "nvidia.com/mig-"
