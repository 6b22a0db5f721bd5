"""What the client's models lack about Go's types: pointers, value structs, quantities. Tables only.

With them an object has the fields that the real one prints: `resources: {}`, `lastProbeTime: null`, `priority: 0`. Keys
are (model, JSON name). Source: k8s.io/api and k8s.io/apimachinery types.go (1.36).
"""

from __future__ import annotations

from typing import Final

Pair = tuple[str, str]

NOT_IN_136: Final[frozenset[Pair]] = frozenset(
    {
        ("V1JobSpec", "scheduling"),
        ("V1PodSpec", "evictionResponders"),
        ("V1PodStatus", "volumeHealth"),
        ("V1NodeSpec", "podPreemptionPolicy"),
        ("V1SecretVolumeSource", "defaultUser"),
        ("V1ProjectedVolumeSource", "defaultUser"),
        ("V1ResourceSliceSpec", "partitionTypeAttribute"),
        ("V1ResourceSliceSpec", "skipNodeOperations"),
        ("V1DeviceCounterConsumption", "compatibilityGroups"),
        ("V1Device", "nodeAllocatableResources"),
        ("V1ExactDeviceRequest", "derivedAttributes"),
        ("V1DeviceSubRequest", "derivedAttributes"),
        ("V1DeviceRequestAllocationResult", "skipNodeOperations"),
    }
)
"""The client speaks 1.37; these fields are unknown to the 1.36 that we are."""

FREE_FORM: Final[frozenset[Pair]] = frozenset(
    {
        ("V1ManagedFieldsEntry", "fieldsV1"),
    }
)

QUANTITIES: Final[frozenset[Pair]] = frozenset(
    {
        ("V1DeviceCapacity", "value"),
        ("V1Counter", "value"),
        ("V1CapacityRequestPolicy", "default"),
        ("V1CapacityRequestPolicy", "validValues"),
        ("V1CapacityRequestPolicyRange", "min"),
        ("V1CapacityRequestPolicyRange", "max"),
        ("V1CapacityRequestPolicyRange", "step"),
        ("V1EmptyDirVolumeSource", "sizeLimit"),
        ("V1ResourceFieldSelector", "divisor"),
        ("V1CSIStorageCapacity", "capacity"),
        ("V1CSIStorageCapacity", "maximumVolumeSize"),
    }
)
QUANTITY_MAPS: Final[frozenset[Pair]] = frozenset(
    (name, "map")
    for name in (
        "limits",
        "requests",
        "capacity",
        "allocatable",
        "hard",
        "used",
        "overhead",
        "allocatedResources",
        "consumedCapacity",
        "default",
        "defaultRequest",
        "max",
        "min",
        "maxLimitRequestRatio",
        "podFixed",
    )
)

MICRO_TIMES: Final[frozenset[Pair]] = frozenset(
    {
        ("V1LeaseSpec", "acquireTime"),
        ("V1LeaseSpec", "renewTime"),
        ("CoreV1Event", "eventTime"),
        ("EventsV1Event", "eventTime"),
        ("CoreV1EventSeries", "lastObservedTime"),
        ("EventsV1EventSeries", "lastObservedTime"),
    }
)

ALWAYS_WRITTEN: Final[frozenset[Pair]] = frozenset(
    {
        ("V1AllocatedDeviceStatus", "conditions"),
        ("V1DeviceClaim", "requests"),
        ("CoreV1Event", "reportingComponent"),
        ("CoreV1Event", "reportingInstance"),
        ("V1PodDisruptionBudgetStatus", "disruptionsAllowed"),
        ("V1PodDisruptionBudgetStatus", "currentHealthy"),
        ("V1PodDisruptionBudgetStatus", "desiredHealthy"),
        ("V1PodDisruptionBudgetStatus", "expectedPods"),
        ("V1ClusterRole", "rules"),
        ("V1Role", "rules"),
        ("V1CustomResourceDefinitionStatus", "conditions"),
        ("V1CustomResourceDefinitionStatus", "acceptedNames"),
        ("V1CustomResourceDefinitionStatus", "storedVersions"),
    }
)
"""Written though OpenAPI calls them optional (no omitempty)."""

OMITTED_EMPTY: Final[frozenset[Pair]] = frozenset(
    {
        ("V1ResourceSlice", "metadata"),
        ("V1ContainerPort", "hostPort"),
    }
)

VALUE_TIMES: Final[frozenset[Pair]] = frozenset(
    {
        ("V1PodCondition", "lastProbeTime"),
        ("V1PodCondition", "lastTransitionTime"),
        ("V1NodeCondition", "lastHeartbeatTime"),
        ("V1NodeCondition", "lastTransitionTime"),
        ("V1JobCondition", "lastProbeTime"),
        ("V1JobCondition", "lastTransitionTime"),
        ("V1DeploymentCondition", "lastUpdateTime"),
        ("V1DeploymentCondition", "lastTransitionTime"),
        ("V1ReplicaSetCondition", "lastTransitionTime"),
        ("V1NamespaceCondition", "lastTransitionTime"),
        ("V1CustomResourceDefinitionCondition", "lastTransitionTime"),
        ("V1ContainerStateRunning", "startedAt"),
        ("V1ContainerStateTerminated", "startedAt"),
        ("V1ContainerStateTerminated", "finishedAt"),
        ("CoreV1Event", "eventTime"),
        ("CoreV1Event", "firstTimestamp"),
        ("CoreV1Event", "lastTimestamp"),
        ("EventsV1Event", "eventTime"),
        ("EventsV1Event", "deprecatedFirstTimestamp"),
        ("EventsV1Event", "deprecatedLastTimestamp"),
    }
)

VALUE_STRUCTS: Final[frozenset[Pair]] = frozenset(
    {
        ("V1Container", "resources"),
        ("V1EphemeralContainer", "resources"),
        ("V1PersistentVolumeClaimSpec", "resources"),
        ("V1DeploymentSpec", "strategy"),
        ("V1DaemonSetSpec", "updateStrategy"),
        ("V1StatefulSetSpec", "updateStrategy"),
        ("V1ServiceStatus", "loadBalancer"),
        ("V1IngressStatus", "loadBalancer"),
        ("V1NodeStatus", "daemonEndpoints"),
        ("V1NodeStatus", "nodeInfo"),
        ("V1NodeDaemonEndpoints", "kubeletEndpoint"),
        ("V1ContainerStatus", "state"),
        ("V1ContainerStatus", "lastState"),
        ("CoreV1Event", "source"),
        ("CoreV1Event", "involvedObject"),
        ("EventsV1Event", "deprecatedSource"),
        ("EventsV1Event", "regarding"),
        ("V1ResourceClaimSpec", "devices"),
        ("V1AllocationResult", "devices"),
        ("V1ResourceClaimTemplateSpec", "metadata"),
        ("V1ResourceClaimTemplateSpec", "spec"),
        ("V1PodTemplateSpec", "metadata"),
        ("V1PodTemplateSpec", "spec"),
        ("V1JobTemplateSpec", "metadata"),
        ("V1JobTemplateSpec", "spec"),
        ("V1CustomResourceDefinitionStatus", "acceptedNames"),
    }
)
"""Structs by value: written as {} when absent."""

_SPEC_AND_STATUS = ("spec", "status")
VALUE_STRUCT_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "V1Pod": _SPEC_AND_STATUS,
    "V1Node": _SPEC_AND_STATUS,
    "V1Namespace": _SPEC_AND_STATUS,
    "V1Service": _SPEC_AND_STATUS,
    "V1ReplicationController": _SPEC_AND_STATUS,
    "V1ResourceQuota": _SPEC_AND_STATUS,
    "V1PersistentVolume": _SPEC_AND_STATUS,
    "V1PersistentVolumeClaim": _SPEC_AND_STATUS,
    "V1LimitRange": ("spec",),
    "V1PodTemplate": ("template",),
    "V1Job": _SPEC_AND_STATUS,
    "V1CronJob": _SPEC_AND_STATUS,
    "V1Deployment": _SPEC_AND_STATUS,
    "V1ReplicaSet": _SPEC_AND_STATUS,
    "V1DaemonSet": _SPEC_AND_STATUS,
    "V1StatefulSet": _SPEC_AND_STATUS,
    "V1Lease": ("spec",),
    "V1PodDisruptionBudget": _SPEC_AND_STATUS,
    "V1ValidatingAdmissionPolicy": _SPEC_AND_STATUS,
    "V1ValidatingAdmissionPolicyBinding": ("spec",),
    "V1MutatingAdmissionPolicy": ("spec",),
    "V1MutatingAdmissionPolicyBinding": ("spec",),
    "V1CustomResourceDefinition": _SPEC_AND_STATUS,
    "V1APIService": _SPEC_AND_STATUS,
    "ResourceV1ResourceClaim": _SPEC_AND_STATUS,
    "V1ResourceClaimTemplate": ("spec",),
    "V1DeviceClass": ("spec",),
    "V1ResourceSlice": ("spec",),
    "V1Ingress": _SPEC_AND_STATUS,
    "V1IngressClass": ("spec",),
    "V1NetworkPolicy": ("spec",),
    "V1HorizontalPodAutoscaler": _SPEC_AND_STATUS,
    "V2HorizontalPodAutoscaler": _SPEC_AND_STATUS,
    "V1FlowSchema": _SPEC_AND_STATUS,
    "V1PriorityLevelConfiguration": _SPEC_AND_STATUS,
    "V1CertificateSigningRequest": _SPEC_AND_STATUS,
}

POINTER_STRINGS: Final[frozenset[Pair]] = frozenset(
    {
        ("V1DeviceAttribute", "string"),
        ("V1DeviceAttribute", "version"),
        ("V1ResourceSliceSpec", "nodeName"),
        ("V1Device", "nodeName"),
        ("V1DeviceConstraint", "matchAttribute"),
        ("V1DeviceConstraint", "distinctAttribute"),
        ("V1DeviceRequestAllocationResult", "shareID"),
        ("V1AllocatedDeviceStatus", "shareID"),
        ("V1DeviceClassSpec", "extendedResourceName"),
        ("V1PodResourceClaim", "resourceClaimName"),
        ("V1PodResourceClaim", "resourceClaimTemplateName"),
        ("V1PodResourceClaimStatus", "resourceClaimName"),
        ("V1PodSpec", "runtimeClassName"),
        ("V1PodSpec", "hostnameOverride"),
        ("V1PodSpec", "preemptionPolicy"),
        ("V1LeaseSpec", "holderIdentity"),
        ("V1LeaseSpec", "preferredHolder"),
        ("V1LeaseSpec", "strategy"),
        ("V1PersistentVolumeClaimSpec", "storageClassName"),
        ("V1JobSpec", "managedBy"),
        ("V1HostPathVolumeSource", "type"),
    }
)

PLAIN_INT_NAMES: Final[frozenset[str]] = frozenset(
    {
        "generation",
        "observedGeneration",
        "minReadySeconds",
        "hostPort",
        "nodePort",
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
        "sizeBytes",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "updatedReplicas",
        "fullyLabeledReplicas",
        "currentReplicas",
        "numberAvailable",
        "numberUnavailable",
        "updatedNumberScheduled",
    }
)
PLAIN_INTS: Final[frozenset[Pair]] = frozenset(
    {
        ("V1JobStatus", "active"),
        ("V1JobStatus", "succeeded"),
        ("V1JobStatus", "failed"),
        ("CoreV1Event", "count"),
        ("EventsV1Event", "deprecatedCount"),
        ("CoreV1EventSeries", "count"),
        ("V1DeploymentStatus", "replicas"),
        ("V1ExactDeviceRequest", "count"),
        ("V1DeviceSubRequest", "count"),
        ("V1ContainerStateTerminated", "signal"),
    }
)
"""Integers by value: an explicit 0 is not written (webhooks' timeoutSeconds is a pointer, but is never 0)."""

PLAIN_BOOL_NAMES: Final[frozenset[str]] = frozenset(
    {
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "stdin",
        "stdinOnce",
        "tty",
        "readOnly",
        "unschedulable",
        "paused",
        "publishNotReadyAddresses",
        "globalDefault",
    }
)
PLAIN_BOOLS: Final[frozenset[Pair]] = frozenset(
    {
        ("V1CustomResourceDefinitionSpec", "preserveUnknownFields"),
        ("V1JSONSchemaProps", "exclusiveMaximum"),
        ("V1JSONSchemaProps", "exclusiveMinimum"),
        ("V1JSONSchemaProps", "nullable"),
        ("V1JSONSchemaProps", "uniqueItems"),
        ("V1JSONSchemaProps", "x-kubernetes-embedded-resource"),
        ("V1JSONSchemaProps", "x-kubernetes-int-or-string"),
    }
)

INT64_NAMES: Final[frozenset[str]] = frozenset(
    {
        "terminationGracePeriodSeconds",
        "activeDeadlineSeconds",
        "tolerationSeconds",
        "generation",
        "observedGeneration",
        "deletionGracePeriodSeconds",
        "runAsUser",
        "runAsGroup",
        "fsGroup",
        "supplementalGroups",
        "expirationSeconds",
        "resourceSliceCount",
        "int",
        "ints",
        "sizeBytes",
        "startingDeadlineSeconds",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "uid",
        "gid",
    }
)
INT64: Final[frozenset[Pair]] = frozenset({("V1ExactDeviceRequest", "count"), ("V1DeviceSubRequest", "count")})

DESCRIPTIONS: Final[dict[Pair, str]] = {
    ("V1ResourcePool", "name"): (
        "Name is used to identify the pool. For node-local devices, this is often the node name, but this is not "
        "required.\n\nIt must not be longer than 253 characters and must consist of one or more DNS sub-domains separated "
        "by slashes. This field is immutable."
    ),
}
"""Where 1.37's text differs from 1.36's and a table shows it."""
