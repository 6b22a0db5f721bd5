"""Kinds that only the checklist reads, of Kubernetes and of other systems; those of others in whatever version the cluster serves."""

from __future__ import annotations

from typing import Any

from fairlead.cli.health.support import SERVED_GROUPS
from fairlead.kube import resources
from fairlead.kube.resources import Raw, Resource


def _of(group: str, plural: str, kind: str) -> Resource[Raw]:
    return Resource(group=group, version="", plural=plural, kind=kind, namespaced=True, type=dict)


SERVICE_MONITORS = _of("monitoring.coreos.com", "servicemonitors", "ServiceMonitor")
POD_MONITORS = _of("monitoring.coreos.com", "podmonitors", "PodMonitor")
RULES = _of("monitoring.coreos.com", "prometheusrules", "PrometheusRule")
NODE_POOLS = _of("karpenter.sh", "nodepools", "NodePool")
SCALED_OBJECTS = _of("keda.sh", "scaledobjects", "ScaledObject")
AUTOSCALERS = _of("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
CSI_DRIVERS = _of("storage.k8s.io", "csidrivers", "CSIDriver")

OPTIONAL = (SERVICE_MONITORS, POD_MONITORS, RULES, NODE_POOLS, SCALED_OBJECTS, AUTOSCALERS, CSI_DRIVERS)
LOOK_INTO = ("argoproj.io", *SERVED_GROUPS, *dict.fromkeys(each.group for each in OPTIONAL))
"""Groups whose kinds are looked up: argoproj.io is of Argo Workflows and of Argo CD."""
KINDS: tuple[Resource[Any], ...] = (
    resources.NODES,
    resources.NAMESPACES,
    resources.LEASES,
    resources.PODS,
    resources.DEPLOYMENTS,
    resources.DAEMON_SETS,
    resources.CONFIG_MAPS,
    resources.RESOURCE_SLICES,
    resources.RESOURCE_CLAIMS,
    resources.DEVICE_CLASSES,
    resources.QUEUES,
    resources.FLAVORS,
    resources.GANGS,
    resources.TENANCY_POLICIES,
    resources.PRIORITY_CLASSES,
    resources.RESOURCE_QUOTAS,
    resources.NETWORK_POLICIES,
    resources.PERSISTENT_VOLUME_CLAIMS,
)
