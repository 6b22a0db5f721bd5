"""The resources that Fairlead reads and writes, each with its URL paths and the type that it is decoded to.

Each group, version and plural is spelled here and nowhere else. `raw(resource)` is the same resource decoded to dicts with
every field, for objects that are written whole.
"""

import dataclasses
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

from fairlead.api import names
from fairlead.kube import batch, coordination, core, resource, storage

T = TypeVar("T")
Raw = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resource(Generic[T]):
    """One resource of the API. `type` is a struct, or dict for kinds that have none."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, the object, or a subresource of it.

        A namespaced resource without a namespace is the collection of all namespaces. Raises ValueError for a namespace on
        a cluster-scoped resource, an empty name, and a name without its namespace.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.kind} is cluster-scoped; namespace {namespace!r} has no place in its path")
        if name is not None and not name:
            raise ValueError(f"{self.kind}: an empty name would address the whole collection")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} is namespaced; say in which namespace it is")
        parts = [self.prefix]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts += [quote(part, safe="") for part in subresource.split("/")]
        return "/".join(parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def raw(of: Resource[Any]) -> Resource[Raw]:
    """The same resource, decoded to plain dicts with every field kept."""
    return cast("Resource[Raw]", dataclasses.replace(of, type=dict))


def _raw(group: str, version: str, plural: str, kind: str, *, namespaced: bool) -> Resource[Raw]:
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=namespaced, type=dict)


def _typed(group: str, version: str, plural: str, kind: type[T], *, namespaced: bool) -> Resource[T]:
    return Resource(group=group, version=version, plural=plural, kind=kind.__name__, namespaced=namespaced, type=kind)


# core/v1
PODS = _typed("", "v1", "pods", core.Pod, namespaced=True)
NODES = _typed("", "v1", "nodes", core.Node, namespaced=False)
NAMESPACES = _typed("", "v1", "namespaces", core.Namespace, namespaced=False)
EVENTS = _raw("", "v1", "events", "Event", namespaced=True)
CONFIG_MAPS = _raw("", "v1", "configmaps", "ConfigMap", namespaced=True)
SECRETS = _raw("", "v1", "secrets", "Secret", namespaced=True)
SERVICES = _raw("", "v1", "services", "Service", namespaced=True)
SERVICE_ACCOUNTS = _raw("", "v1", "serviceaccounts", "ServiceAccount", namespaced=True)
PERSISTENT_VOLUME_CLAIMS = _raw("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", namespaced=True)
PERSISTENT_VOLUMES = _raw("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = _raw("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
TYPED_VOLUME_CLAIMS = _typed("", "v1", "persistentvolumeclaims", storage.PersistentVolumeClaim, namespaced=True)
TYPED_VOLUMES = _typed("", "v1", "persistentvolumes", storage.PersistentVolume, namespaced=False)
TYPED_STORAGE_CLASSES = _typed("storage.k8s.io", "v1", "storageclasses", storage.StorageClass, namespaced=False)
RESOURCE_QUOTAS = _raw("", "v1", "resourcequotas", "ResourceQuota", namespaced=True)
LIMIT_RANGES = _raw("", "v1", "limitranges", "LimitRange", namespaced=True)
ENDPOINT_SLICES = _raw("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", namespaced=True)
NETWORK_POLICIES = _raw("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", namespaced=True)

# batch, apps, policy, scheduling, coordination
JOBS = _raw("batch", "v1", "jobs", "Job", namespaced=True)
TYPED_JOBS = _typed("batch", "v1", "jobs", batch.Job, namespaced=True)  # the fields that the controller reads
DEPLOYMENTS = _raw("apps", "v1", "deployments", "Deployment", namespaced=True)
REPLICA_SETS = _raw("apps", "v1", "replicasets", "ReplicaSet", namespaced=True)
DAEMON_SETS = _raw("apps", "v1", "daemonsets", "DaemonSet", namespaced=True)
POD_DISRUPTION_BUDGETS = _raw("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
PRIORITY_CLASSES = _typed("scheduling.k8s.io", "v1", "priorityclasses", core.PriorityClass, namespaced=False)
LEASES = _typed("coordination.k8s.io", "v1", "leases", coordination.Lease, namespaced=True)

# resource.k8s.io
RESOURCE_SLICES = _typed("resource.k8s.io", "v1", "resourceslices", resource.ResourceSlice, namespaced=False)
RESOURCE_CLAIMS = _typed("resource.k8s.io", "v1", "resourceclaims", resource.ResourceClaim, namespaced=True)
RESOURCE_CLAIM_TEMPLATES = _typed(
    "resource.k8s.io", "v1", "resourceclaimtemplates", resource.ResourceClaimTemplate, namespaced=True
)
DEVICE_CLASSES = _typed("resource.k8s.io", "v1", "deviceclasses", resource.DeviceClass, namespaced=False)
DEVICE_TAINT_RULES = _typed("resource.k8s.io", "v1", "devicetaintrules", resource.DeviceTaintRule, namespaced=False)
DEVICE_TAINT_RULE_VERSIONS = ("v1", "v1beta2", "v1alpha3")
"""By preference: 1.37 serves v1, 1.36 the other two, 1.34 and 1.35 v1alpha3; all but v1 only where an operator asks for it."""

# core and autoscaling.x-k8s.io: what cluster-autoscaler's ProvisioningRequests consist of
POD_TEMPLATES = _raw("", "v1", "podtemplates", "PodTemplate", namespaced=True)
PROVISIONING_REQUESTS = _raw(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", namespaced=True
)

# fairlead.dev
_OURS, _OUR_VERSION = names.API_VERSION.split("/")
QUEUES = _raw(_OURS, _OUR_VERSION, "queues", "Queue", namespaced=False)
FLAVORS = _raw(_OURS, _OUR_VERSION, "flavors", "Flavor", namespaced=False)
TENANCY_POLICIES = _raw(_OURS, _OUR_VERSION, "tenancypolicies", "TenancyPolicy", namespaced=False)
GANGS = _raw(_OURS, _OUR_VERSION, "gangs", "Gang", namespaced=True)

# The apiserver's own machinery
_ADMISSION = "admissionregistration.k8s.io"
MUTATING_WEBHOOKS = _raw(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
)
VALIDATING_WEBHOOKS = _raw(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
)
VALIDATING_POLICIES = _raw(
    _ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
VALIDATING_POLICY_BINDINGS = _raw(
    _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", namespaced=False
)
CRDS = _raw("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
_RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = _raw(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)
ROLES = _raw(_RBAC, "v1", "roles", "Role", namespaced=True)
ROLE_BINDINGS = _raw(_RBAC, "v1", "rolebindings", "RoleBinding", namespaced=True)
SELF_SUBJECT_REVIEWS = _raw("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
SELF_SUBJECT_ACCESS_REVIEWS = _raw(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
