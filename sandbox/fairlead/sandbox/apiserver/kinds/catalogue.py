"""Every built-in kind that the apiserver serves, in the order in which discovery shows their groups.

Groups that nothing here uses (certificates, autoscaling, …) are left out; of the core group all is served, some by
shape alone. Custom kinds are added and removed at run time (crds).
Source: /apis of a 1.36.2 apiserver; api/discovery/aggregated_v2.json of 1.34.9, 1.35.6 and 1.36.2.
"""

from __future__ import annotations

from dataclasses import replace

from fairlead.sandbox.apiserver.crds.strategy import CrdStrategy
from fairlead.sandbox.apiserver.kinds import apps, coregroup, jobs, registrations, small
from fairlead.sandbox.apiserver.kinds.base import READ_WRITE, SCALE, STATUS, Kind, Strategy, Subresource
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.pods import PodStrategy
from fairlead.sandbox.apiserver.kinds.quotas import ResourceQuotaStrategy
from fairlead.sandbox.apiserver.kinds.resource.claims import ResourceClaimStrategy, ResourceClaimTemplateStrategy
from fairlead.sandbox.apiserver.kinds.resource.slices import DeviceClassStrategy, ResourceSliceStrategy
from fairlead.sandbox.release import NEWEST, Release

_CONNECT = ("create", "get")
_PROXY = ("create", "delete", "get", "patch", "update")
_NO_COLLECTION_DELETE = tuple(verb for verb in READ_WRITE if verb != "deletecollection")
_ALL = ("all",)
_EXTENSIONS = ("api-extensions",)


def _core(
    plural: str,
    kind: str,
    strategy: Strategy,
    *subresources: Subresource,
    short: tuple[str, ...] = (),
    cluster: bool = False,
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = READ_WRITE,
) -> Kind:
    singular = "endpoints" if plural == "endpoints" else ""
    return Kind(
        "",
        "v1",
        plural,
        kind,
        not cluster,
        strategy,
        singular=singular,
        list_kind="EndpointsList" if plural == "endpoints" else "",
        short_names=short,
        categories=categories,
        verbs=verbs,
        subresources=subresources,
    )


def _core_group() -> list[Kind]:
    return [
        _core(
            "namespaces",
            "Namespace",
            coregroup.NamespaceStrategy(),
            Subresource("finalize", ("update",)),
            STATUS,
            short=("ns",),
            cluster=True,
            verbs=_NO_COLLECTION_DELETE,
        ),
        _core(
            "pods",
            "Pod",
            PodStrategy(),
            Subresource("attach", _CONNECT, "PodAttachOptions"),
            Subresource("binding", ("create",), "Binding", "", "v1"),
            Subresource("ephemeralcontainers"),
            Subresource("eviction", ("create",), "Eviction", "policy", "v1"),
            Subresource("exec", _CONNECT, "PodExecOptions"),
            Subresource("log", ("get",)),
            Subresource("portforward", _CONNECT, "PodPortForwardOptions"),
            Subresource("proxy", _PROXY, "PodProxyOptions"),
            Subresource("resize"),
            STATUS,
            short=("po",),
            categories=_ALL,
        ),
        _core(
            "nodes",
            "Node",
            coregroup.NodeStrategy(),
            Subresource("proxy", _PROXY, "NodeProxyOptions"),
            STATUS,
            short=("no",),
            cluster=True,
        ),
        _core("configmaps", "ConfigMap", coregroup.ConfigMapStrategy(), short=("cm",)),
        _core("secrets", "Secret", coregroup.SecretStrategy()),
        _core(
            "serviceaccounts",
            "ServiceAccount",
            coregroup.ServiceAccountStrategy(),
            Subresource("token", ("create",), "TokenRequest", "authentication.k8s.io", "v1"),
            short=("sa",),
        ),
        _core(
            "services",
            "Service",
            coregroup.ServiceStrategy(),
            Subresource("proxy", _PROXY, "ServiceProxyOptions"),
            STATUS,
            short=("svc",),
            categories=_ALL,
        ),
        _core("endpoints", "Endpoints", coregroup.EndpointsStrategy(), short=("ep",)),
        _core("events", "Event", coregroup.CoreEventStrategy(), short=("ev",)),
        _core("bindings", "Binding", BuiltIn("V1Binding"), verbs=("create",)),
        _core(
            "componentstatuses",
            "ComponentStatus",
            BuiltIn("V1ComponentStatus"),
            short=("cs",),
            cluster=True,
            verbs=("get", "list"),
        ),
        _core("limitranges", "LimitRange", BuiltIn("V1LimitRange"), short=("limits",)),
        _core(
            "persistentvolumeclaims",
            "PersistentVolumeClaim",
            BuiltIn("V1PersistentVolumeClaim"),
            STATUS,
            short=("pvc",),
        ),
        _core(
            "persistentvolumes", "PersistentVolume", BuiltIn("V1PersistentVolume"), STATUS, short=("pv",), cluster=True
        ),
        _core("podtemplates", "PodTemplate", BuiltIn("V1PodTemplate")),
        _core(
            "replicationcontrollers",
            "ReplicationController",
            BuiltIn("V1ReplicationController"),
            SCALE,
            STATUS,
            short=("rc",),
            categories=_ALL,
        ),
        _core("resourcequotas", "ResourceQuota", ResourceQuotaStrategy(), STATUS, short=("quota",)),
    ]


def _in(
    group: str,
    plural: str,
    kind: str,
    strategy: Strategy,
    *subresources: Subresource,
    cluster: bool = False,
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    verbs: tuple[str, ...] = READ_WRITE,
    storage: str = "",
    storage_version: str = "",
) -> Kind:
    return Kind(
        group,
        "v1",
        plural,
        kind,
        not cluster,
        strategy,
        short_names=short,
        categories=categories,
        verbs=verbs,
        subresources=subresources,
        storage=storage,
        storage_version=storage_version,
    )


def _networking() -> list[Kind]:
    """Policies are validated; the rest is served by shape alone, since discovery shows the group as a whole."""
    group = "networking.k8s.io"
    return [
        _in(group, "ingressclasses", "IngressClass", BuiltIn("V1IngressClass"), cluster=True),
        _in(group, "ingresses", "Ingress", BuiltIn("V1Ingress"), STATUS, short=("ing",)),
        _in(group, "ipaddresses", "IPAddress", BuiltIn("V1IPAddress"), cluster=True, short=("ip",)),
        _in(group, "networkpolicies", "NetworkPolicy", small.NetworkPolicyStrategy(), short=("netpol",)),
        _in(group, "servicecidrs", "ServiceCIDR", BuiltIn("V1ServiceCIDR"), STATUS, cluster=True),
    ]


def _storage() -> list[Kind]:
    """Served by shape; a StorageClass has its defaults."""
    group = "storage.k8s.io"
    return [
        _in(group, "csidrivers", "CSIDriver", BuiltIn("V1CSIDriver"), cluster=True),
        _in(group, "csinodes", "CSINode", BuiltIn("V1CSINode"), cluster=True),
        _in(group, "csistoragecapacities", "CSIStorageCapacity", BuiltIn("V1CSIStorageCapacity")),
        _in(group, "storageclasses", "StorageClass", small.StorageClassStrategy(), cluster=True, short=("sc",)),
        _in(group, "volumeattachments", "VolumeAttachment", BuiltIn("V1VolumeAttachment"), STATUS, cluster=True),
        _in(
            group,
            "volumeattributesclasses",
            "VolumeAttributesClass",
            BuiltIn("V1VolumeAttributesClass"),
            cluster=True,
            short=("vac",),
        ),
    ]


def _review(group: str, plural: str, kind: str, *, cluster: bool = True) -> Kind:
    return _in(group, plural, kind, BuiltIn(f"V1{kind}"), cluster=cluster, verbs=("create",))


def kinds(release: Release = NEWEST) -> list[Kind]:
    """Fresh kinds for one apiserver of that release: strategies hold no state but caches of schemas."""
    found = [_stored(kind, release) for kind in _kinds() if _served(kind, release)]
    for kind in found:
        if isinstance(kind.strategy, BuiltIn):
            kind.strategy.kind, kind.strategy.release = kind.kind, release
    return found


def _served(kind: Kind, release: Release) -> bool:
    return release.has("mutating-admission-policies") or not kind.plural.startswith("mutatingadmission")


def _stored(kind: Kind, release: Release) -> Kind:
    """The kind with the version in which the release stores it."""
    if kind.group == "resource.k8s.io" and not release.has("claims-stored-as-v1"):
        return replace(kind, storage_version="v1beta2")
    if kind.plural == "volumeattributesclasses" and not release.has("volume-attributes-stored-as-v1"):
        return replace(kind, storage_version="v1beta1")
    return kind


def _kinds() -> list[Kind]:
    admission, resource = "admissionregistration.k8s.io", "resource.k8s.io"
    rbac, batch, apps_group = small.RBAC_GROUP, "batch", "apps"
    authorization = "authorization.k8s.io"
    return [
        *_core_group(),
        _in(apps_group, "controllerrevisions", "ControllerRevision", BuiltIn("V1ControllerRevision")),
        _in(apps_group, "daemonsets", "DaemonSet", apps.DaemonSetStrategy(), STATUS, short=("ds",), categories=_ALL),
        _in(
            apps_group,
            "deployments",
            "Deployment",
            apps.DeploymentStrategy(),
            SCALE,
            STATUS,
            short=("deploy",),
            categories=_ALL,
        ),
        _in(
            apps_group,
            "replicasets",
            "ReplicaSet",
            apps.ReplicaSetStrategy(),
            SCALE,
            STATUS,
            short=("rs",),
            categories=_ALL,
        ),
        _in(
            apps_group,
            "statefulsets",
            "StatefulSet",
            apps.StatefulSetStrategy(),
            SCALE,
            STATUS,
            short=("sts",),
            categories=_ALL,
        ),
        _in("events.k8s.io", "events", "Event", coregroup.NewEventStrategy(), short=("ev",), storage="/events"),
        _review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
        _review("authentication.k8s.io", "tokenreviews", "TokenReview"),
        _review(authorization, "localsubjectaccessreviews", "LocalSubjectAccessReview", cluster=False),
        _review(authorization, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        _review(authorization, "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
        _review(authorization, "subjectaccessreviews", "SubjectAccessReview"),
        _in(batch, "cronjobs", "CronJob", jobs.CronJobStrategy(), STATUS, short=("cj",), categories=_ALL),
        _in(batch, "jobs", "Job", jobs.JobStrategy(), STATUS, categories=_ALL),
        *_networking(),
        _in(
            "policy",
            "poddisruptionbudgets",
            "PodDisruptionBudget",
            small.PodDisruptionBudgetStrategy(),
            STATUS,
            short=("pdb",),
        ),
        _in(rbac, "clusterrolebindings", "ClusterRoleBinding", small.ClusterRoleBindingStrategy(), cluster=True),
        _in(rbac, "clusterroles", "ClusterRole", small.ClusterRoleStrategy(), cluster=True),
        _in(rbac, "rolebindings", "RoleBinding", small.RoleBindingStrategy()),
        _in(rbac, "roles", "Role", small.RoleStrategy()),
        *_storage(),
        *(
            _in(
                admission,
                plural,
                kind,
                strategy,
                *subresources,
                cluster=True,
                categories=_EXTENSIONS,
                storage_version="v1beta1" if plural.startswith("mutatingadmission") else "",
            )
            for plural, kind, strategy, subresources in registrations.served()
        ),
        _in(
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            "CustomResourceDefinition",
            CrdStrategy(),
            STATUS,
            cluster=True,
            short=("crd", "crds"),
            categories=_EXTENSIONS,
            storage_version="v1beta1",
        ),
        _in(
            "scheduling.k8s.io",
            "priorityclasses",
            "PriorityClass",
            small.PriorityClassStrategy(),
            cluster=True,
            short=("pc",),
        ),
        _in("coordination.k8s.io", "leases", "Lease", small.LeaseStrategy()),
        _in(resource, "deviceclasses", "DeviceClass", DeviceClassStrategy(), cluster=True),
        _in(resource, "resourceclaims", "ResourceClaim", ResourceClaimStrategy(), STATUS),
        _in(resource, "resourceclaimtemplates", "ResourceClaimTemplate", ResourceClaimTemplateStrategy()),
        _in(resource, "resourceslices", "ResourceSlice", ResourceSliceStrategy(), cluster=True),
    ]
