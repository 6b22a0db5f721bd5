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
FIELD_MANAGER: Final = "fairlead"

# DeviceClasses that we ship.
GPU_CLASS: Final = "gpu.fairlead.dev"
MIG_CLASS: Final = "mig.gpu.fairlead.dev"

# On pods.
ADMISSION_GATE: Final = "fairlead.dev/admission"
GANG: Final = "fairlead.dev/gang"
GANG_SIZE: Final = "fairlead.dev/gang-size"
QUEUE: Final = "fairlead.dev/queue"
TOPOLOGY: Final = "fairlead.dev/topology"
MIN_RUNTIME: Final = "fairlead.dev/min-runtime"
CHECKPOINT_GRACE: Final = "fairlead.dev/checkpoint-grace"

# On namespaces: an operator's way to keep the webhook out.
IGNORE_LABEL: Final = "fairlead.dev/ignore"

# Kubernetes' own, resource.k8s.io/v1.
CLAIM_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
ADMIN_ACCESS_LABEL: Final = "resource.kubernetes.io/admin-access"
PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"

# Extended resources of the device plugin that we turn into claims.
LEGACY_GPU: Final = "nvidia.com/gpu"
LEGACY_MIG_PREFIX: Final = "nvidia.com/mig-"
