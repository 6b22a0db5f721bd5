"""How lists and structs of built-in types are merged: keys for server-side apply, keys for strategic merge. Tables only.

The client's models leave out the extensions that OpenAPI has for it. Keys are (model, JSON name), or (model, "@") for the
whole type. Source: k8s.io/api types.go, `+listType`, `+patchMergeKey` and the like (1.36).
"""

from __future__ import annotations

from typing import Final

Pair = tuple[str, str]

LIST_KEYS: Final[dict[Pair, tuple[str, ...]]] = {
    ("V1PodSpec", "containers"): ("name",),
    ("V1PodSpec", "initContainers"): ("name",),
    ("V1PodSpec", "ephemeralContainers"): ("name",),
    ("V1PodSpec", "volumes"): ("name",),
    ("V1PodSpec", "imagePullSecrets"): ("name",),
    ("V1PodSpec", "hostAliases"): ("ip",),
    ("V1PodSpec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
    ("V1PodSpec", "schedulingGates"): ("name",),
    ("V1PodSpec", "resourceClaims"): ("name",),
    ("V1PodStatus", "conditions"): ("type",),
    ("V1PodStatus", "podIPs"): ("ip",),
    ("V1PodStatus", "resourceClaimStatuses"): ("name",),
    ("V1Container", "ports"): ("containerPort", "protocol"),
    ("V1Container", "env"): ("name",),
    ("V1Container", "volumeMounts"): ("mountPath",),
    ("V1Container", "volumeDevices"): ("devicePath",),
    ("V1EphemeralContainer", "ports"): ("containerPort", "protocol"),
    ("V1EphemeralContainer", "env"): ("name",),
    ("V1EphemeralContainer", "volumeMounts"): ("mountPath",),
    ("V1EphemeralContainer", "volumeDevices"): ("devicePath",),
    ("V1ResourceRequirements", "claims"): ("name",),
    ("V1ServiceSpec", "ports"): ("port", "protocol"),
    ("V1ServiceStatus", "conditions"): ("type",),
    ("V1NodeStatus", "conditions"): ("type",),
    ("V1NamespaceStatus", "conditions"): ("type",),
    ("V1DeploymentStatus", "conditions"): ("type",),
    ("V1ReplicaSetStatus", "conditions"): ("type",),
    ("V1DaemonSetStatus", "conditions"): ("type",),
    ("V1StatefulSetStatus", "conditions"): ("type",),
    ("V1ReplicationControllerStatus", "conditions"): ("type",),
    ("V1PodDisruptionBudgetStatus", "conditions"): ("type",),
    ("V1ServiceAccount", "secrets"): ("name",),
    ("V1MutatingWebhookConfiguration", "webhooks"): ("name",),
    ("V1ValidatingWebhookConfiguration", "webhooks"): ("name",),
    ("V1MutatingWebhook", "matchConditions"): ("name",),
    ("V1ValidatingWebhook", "matchConditions"): ("name",),
    ("V1ValidatingAdmissionPolicySpec", "matchConditions"): ("name",),
    ("V1ValidatingAdmissionPolicySpec", "variables"): ("name",),
    ("V1ValidatingAdmissionPolicyStatus", "conditions"): ("type",),
    ("V1ResourceClaimStatus", "reservedFor"): ("uid",),
    ("V1ResourceClaimStatus", "devices"): ("driver", "device", "pool", "shareID"),
    ("V1AllocatedDeviceStatus", "conditions"): ("type",),
    ("V1CustomResourceDefinitionStatus", "conditions"): ("type",),
    ("V1ObjectMeta", "ownerReferences"): ("uid",),
}
"""Lists that server-side apply merges by key (x-kubernetes-list-type: map)."""

PATCH_KEYS: Final[dict[Pair, str]] = {
    **{
        pair: keys[0]
        for pair, keys in LIST_KEYS.items()
        if pair
        not in {
            ("V1ResourceRequirements", "claims"),
            ("V1ResourceClaimStatus", "devices"),
            ("V1AllocatedDeviceStatus", "conditions"),
            ("V1CustomResourceDefinitionStatus", "conditions"),
        }
    },
    ("V1NodeStatus", "addresses"): "type",
    ("V1JobStatus", "conditions"): "type",
}
"""Lists that a strategic merge patch merges by this key."""

RETAIN_KEYS: Final[frozenset[Pair]] = frozenset(
    {
        ("V1PodSpec", "volumes"),
        ("V1PodSpec", "resourceClaims"),
        ("V1PodStatus", "resourceClaimStatuses"),
        ("V1DeploymentSpec", "strategy"),
    }
)

SETS: Final[frozenset[Pair]] = frozenset(
    {
        ("V1ObjectMeta", "finalizers"),
        ("V1NodeSpec", "podCIDRs"),
        ("V1ValidatingAdmissionPolicyBindingSpec", "validationActions"),
    }
)

ATOMIC_MAPS: Final[frozenset[Pair]] = frozenset(
    {
        ("V1LabelSelector", "@"),
        ("V1NodeSelector", "@"),
        ("V1ObjectReference", "@"),
        ("V1LocalObjectReference", "@"),
        ("V1SecretKeySelector", "@"),
        ("V1ConfigMapKeySelector", "@"),
        ("V1ObjectFieldSelector", "@"),
        ("V1ResourceFieldSelector", "@"),
        ("V1TypedLocalObjectReference", "@"),
        ("V1RoleRef", "@"),
        ("RbacV1Subject", "@"),
        ("V1PodSpec", "nodeSelector"),
    }
)
"""Structs ("@") and maps that server-side apply replaces whole."""
