"""What `fairlead check readiness` is to see: what each case changes in a cluster that has everything, the item, its answer and the reason."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlead.api import names
from fairlead.cli.health.seen import SliceTrial
from tests.support.health import ADD, DROP, NODES, NONE, Change
from tests.support.ready_cluster import (
    AUTOSCALERS,
    CSI,
    GROUPS,
    MONITORS,
    POOLS,
    RULES,
    SCALED,
    deployment,
    ready,
    usage,
)

PASS, FAIL, UNKNOWN = "pass", "fail", "not checkable here"
SLICES, CLAIMS, GANGS = "resourceslices.resource.k8s.io", "resourceclaims.resource.k8s.io", "gangs.fairlead.dev"
QUEUE, FLAVOR, TEAM = "queues.fairlead.dev 0 spec", "flavors.fairlead.dev 0 spec", "namespaces team metadata labels"
CLASSES, TENANCY, NETWORK = (
    "priorityclasses.scheduling.k8s.io",
    "tenancypolicies.fairlead.dev",
    "networkpolicies.networking.k8s.io",
)
KUBELET = {"topologyManagerPolicy": "single-numa-node"}


class Case(NamedTuple):
    item: str
    status: str
    said: str
    change: Change = NONE
    facts: Change = NONE


def none(*kinds: str) -> Change:
    return {f"{kind} *": DROP for kind in kinds}


def unlabelled(key: str) -> Change:
    return {f"nodes * metadata labels {key}": DROP}


def without(group: str, **more: Any) -> dict[str, Any]:
    return {"groups": {key: each for key, each in GROUPS.items() if key != group}, **more}


def with_also(group: str) -> dict[str, Any]:
    return {"groups": {**GROUPS, group: ("v1",)}}


def operator(version: str, toolkit: str) -> Change:
    return {
        f"{SLICES} *": DROP,
        f"deployments.apps {ADD}": deployment("gpu-operator", f"nvcr.io/nvidia/gpu-operator:{version}"),
        f"daemonsets.apps {ADD}": deployment("toolkit", f"nvcr.io/nvidia/k8s/container-toolkit:{toolkit}-ubuntu20.04"),
        "nodes * metadata labels nvidia.com/cuda.driver-version.full": "570.124.06",
    }


def used(percent: int, memory_gb: int) -> Change:
    claims = enumerate(ready()[CLAIMS])
    return {
        f"{CLAIMS} {at} status devices * data": usage(percent, memory_gb)
        for at, each in claims
        if "devices" in each["status"]
    }


def dark() -> Change:
    """Dashboards that show no NVLink."""
    return {
        f"configmaps {at} data": {
            key: text.replace("nvlink", "x").replace("NVLINK", "x") for key, text in each["data"].items()
        }
        for at, each in enumerate(ready()["configmaps"])
        if "data" in each
    }


def unmoved() -> Change:
    return {
        f"pods {at} metadata annotations {names.MOVABLE}": DROP
        for at, each in enumerate(ready()["pods"])
        if names.MOVABLE in each["metadata"]["annotations"]
    }


def unstalled() -> Change:
    groups = ready()[RULES][0]["spec"]["groups"]
    return {
        f"{RULES} 0 spec groups {at} rules": [
            each for each in group["rules"] if each.get("alert") != "FairleadGangStalled"
        ]
        for at, group in enumerate(groups)
    }


UNTOPOLOGICAL: Change = {
    f"{CLAIMS} {at} spec devices config": DROP
    for at, each in enumerate(ready()[CLAIMS])
    if "config" in each["spec"]["devices"]
}
HASTY = deployment("ca", "cluster-autoscaler:v1", "--scale-down-unneeded-time=10s")

CASES = [
    Case("gpu-driver", FAIL, "neither Fairlead's driver", none(SLICES)),
    Case("dcgm-exporter", FAIL, "no DCGM exporter runs", none("daemonsets.apps")),
    Case("dcgm-exporter", FAIL, "no ServiceMonitor selects it", none(MONITORS)),
    Case("nccl-topology", UNKNOWN, "no gang runs on several nodes", none(GANGS)),
    Case("queues", FAIL, "there is no Queue", none("queues.fairlead.dev")),
    Case("priority-classes", FAIL, "0 (none)", none(CLASSES)),
    Case("resource-quotas", FAIL, "team (GPUs, CPU, memory, storage)", none("resourcequotas")),
    Case("cluster-autoscaler", UNKNOWN, "a provider's runs outside", none("deployments.apps")),
    Case("karpenter", FAIL, "no NodePool has a GPU requirement", none(POOLS)),
    Case("hpa", FAIL, "no HorizontalPodAutoscaler is on a metric of GPUs", none(AUTOSCALERS)),
    Case("keda", FAIL, "no ScaledObject", none(SCALED)),
    Case("scrape-interval", FAIL, "no ServiceMonitor", none(MONITORS)),
    Case("dashboards", UNKNOWN, "no ConfigMap has the label", none("configmaps")),
    Case("alerts", FAIL, "no alert for temperature, underutilisation, memory, NCCL hangs", none(RULES)),
    Case("queue-metrics", FAIL, "no ServiceMonitor selects", none(MONITORS)),
    Case("network-policies", FAIL, "team (Egress, Ingress)", none(NETWORK)),
    Case("admission", FAIL, "no TenancyPolicy enforces requests = limits, tolerations, affinity", none(TENANCY)),
    Case("mig-isolation", UNKNOWN, "whether a tenant needs it", none(TENANCY)),
    Case("shared-volumes", FAIL, "no bound PersistentVolumeClaim", none("persistentvolumeclaims")),
    Case("object-storage", UNKNOWN, "no CSI driver", none(CSI)),
    Case("utilisation", UNKNOWN, "no claim says how busy", none(CLAIMS)),
    Case("idle-alerts", FAIL, "no alert of underutilisation", none(RULES)),
    Case("checkpoints", UNKNOWN, "no gang of several pods", none(GANGS)),
    Case("training", UNKNOWN, "neither on one node nor on several", none(GANGS)),
    Case("node-labels", UNKNOWN, "no node with GPUs is known", none("nodes")),
    Case("queueing-system", FAIL, "no Fairlead controller leads", facts=without("fairlead.dev")),
    Case("hpa", FAIL, "no adapter serves", facts=without("custom.metrics.k8s.io")),
    Case("pipelines", FAIL, "are not installed", facts=without("pipelines.kubeflow.org")),
    Case("serving", FAIL, "are not installed", facts=without("serving.kserve.io")),
    Case("karpenter", UNKNOWN, "Karpenter is not used", facts=without("karpenter.sh")),
    Case("keda", UNKNOWN, "KEDA is not used", facts=without("keda.sh")),
    Case("tekton", UNKNOWN, "needed with GitOps", facts=without("tekton.dev")),
    Case("queueing-system", PASS, "Kueue is installed", none("leases.coordination.k8s.io"), with_also("kueue.x-k8s.io")),
    Case("argo-cd", UNKNOWN, "needed with GitOps", facts={"kinds": frozenset({"workflows.argoproj.io"})}),
    Case("pipelines", PASS, "Argo Workflows is installed", facts=without("pipelines.kubeflow.org", kinds=frozenset({"workflows.argoproj.io"}))),
    Case("gpu-driver", FAIL, "is older than 535", {f"{SLICES} * spec devices 0 attributes driverVersion": {"version": "525.85.12"}}),
    Case("gpu-driver", PASS, "GPU operator v25.3.0, driver 570.124.06", operator("v25.3.0", "v1.17.5")),
    Case("gpu-driver", FAIL, "older than 24.9.2", operator("v24.9.1", "v1.17.5")),
    Case("gpu-driver", FAIL, "older than 1.17.3", operator("v25.3.0", "v1.17.2")),
    Case("gpu-driver", UNKNOWN, "cannot be told", operator("latest", "v1.17.5")),
    Case("node-labels", FAIL, "nvidia.com/gpu.product is not on nodes node-0, node-1, node-2", unlabelled("nvidia.com/gpu.product")),
    Case("topology-manager", FAIL, "topologyManagerPolicy is none on node-1", facts={"kubelets": {**dict.fromkeys(NODES, KUBELET), "node-1": {}}}),
    Case("topology-manager", UNKNOWN, "you may not get nodes/proxy", facts={"kubelets": {}, "kubelets_gap": "you may not get nodes/proxy"}),
    Case("topology-manager", UNKNOWN, "1 of 3 GPU nodes", facts={"kubelets": {"node-0": KUBELET}}),
    Case("nccl-topology", FAIL, "team/wide", UNTOPOLOGICAL),
    Case("nccl-topology", UNKNOWN, "no gang runs on several nodes", {**UNTOPOLOGICAL, f"{GANGS} -1 status phase": "Finished"}),
    Case("fabric", UNKNOWN, "RDMA is on node node-1", {"nodes 1 status allocatable rdma/hca": "1k"}),
    Case("queues", FAIL, "none bounds what it borrows", {f"{QUEUE} flavors 0 borrowingLimit": DROP}),
    Case("queues", FAIL, "none may preempt", {f"{QUEUE} preemption": "Never"}),
    Case("mig-profiles", FAIL, "neither a layout nor dynamic MIG is chosen", unlabelled(names.MIG_CONFIG)),
    Case("taints", FAIL, "1 of 3 GPU nodes have no taint nvidia.com/gpu: node node-1", {"nodes 1 spec taints": DROP}),
    Case("resource-quotas", FAIL, "team (storage)", {"resourcequotas 0 spec hard requests.storage": DROP}),
    Case("resource-quotas", UNKNOWN, "no namespace has GPU work", none(GANGS, "pods", CLAIMS)),
    Case("cluster-autoscaler", FAIL, "--scale-down-unneeded-time=10s", {"deployments.apps cluster-autoscaler": DROP, f"deployments.apps {ADD}": HASTY}),
    Case("spot", FAIL, "1 of 1 pods on spot nodes do not say", unmoved()),
    Case("spot", UNKNOWN, "no GPU node is labelled as spot", unlabelled("karpenter.sh/capacity-type")),
    Case("scrape-interval", FAIL, "fairlead (1m)", {f"{MONITORS} 0 spec endpoints 0 interval": "1m"}),
    Case("scrape-interval", UNKNOWN, "the Prometheus operator is not installed", facts={"missing": [MONITORS, RULES]}),
    Case("dashboards", FAIL, "no dashboard shows NVLink", dark()),
    Case("alerts", FAIL, "no alert for NCCL hangs", unstalled()),
    Case("cost-tracking", FAIL, "no Flavor has a price", {f"{FLAVOR} price": DROP}),
    Case(
        "cost-tracking", PASS, "kube-system/opencost runs",
        {f"{FLAVOR} price": DROP, f"deployments.apps {ADD}": deployment("opencost", "ghcr.io/opencost/opencost:1.115")},
    ),
    Case("utilisation", FAIL, "30 % of 24 devices", used(30, 75)),
    Case("utilisation", FAIL, "25 % of memory", used(90, 20)),
    Case("utilisation", PASS, "90 % of 24 devices, 94 % of memory, above 85 %: little is left"),
    Case(
        "idle-alerts", PASS, "queues that act on idle devices: team", {**none(RULES), f"{QUEUE} idle": {"after": "1h", "action": "Notify"}}
    ),
    Case("spot-interruptions", FAIL, "nothing announces interruptions", none("deployments.apps")),
    Case("reservations", UNKNOWN, "owned machines are not visible", unlabelled("karpenter.sh/capacity-type")),
    Case("chargeback", FAIL, "team", {**none("resourcequotas"), TEAM: {}}),
    Case("pod-security", FAIL, "team (baseline)", {f"{TEAM} pod-security.kubernetes.io/enforce": "baseline"}),
    Case("network-policies", FAIL, "team (Egress)", {f"{NETWORK} -1 spec policyTypes": ["Ingress"]}),
    Case("admission", UNKNOWN, "kyverno.io may, and is not read", none(TENANCY), with_also("kyverno.io")),
    Case("checkpoints", FAIL, "team/wide", unmoved()),
    Case("training", UNKNOWN, "on one node only", {f"{GANGS} -1": DROP}),
    Case("kubernetes", FAIL, "Kubernetes v1.33.4 is older than 1.34", facts={"release": "v1.33.4"}),
    Case("kubernetes", UNKNOWN, "newer than 1.36, the newest release that was tried", facts={"release": "v1.37.0"}),
    Case("kubernetes", UNKNOWN, "could not be read", facts={"release": ""}),
    Case(
        "kubernetes", PASS, "Kubernetes v1.34.9, without: MIG on demand (dynamicMig): counters of devices that overlap; shares",
        facts={"release": "v1.34.9", "gates": {}},
    ),
    Case(
        "kubernetes", FAIL, "--dynamic-mig: a slice created with dryRun came back without it",
        {f"daemonsets.apps 0 spec template spec containers 0 args {ADD}": "--dynamic-mig"}, {"gates": {}, "slice_trial": SliceTrial(kept={"partitionable-devices": False})},
    ),
]  # fmt: skip
