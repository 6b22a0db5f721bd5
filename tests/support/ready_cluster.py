"""A cluster that has all that `fairlead check readiness` asks for, in values: what `test_readiness` takes parts away from."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

from fairlead.api import names
from fairlead.cli.health.seen import Seen
from fairlead.kube.device_usage import DeviceUsage
from fairlead.kube.resources import Raw
from tests.support import health, quick_yaml
from tests.support.health import NODES, NOW, Lists

ROOT = Path(__file__).parents[2]
MONITORS = "servicemonitors.monitoring.coreos.com"
RULES = "prometheusrules.monitoring.coreos.com"
POOLS = "nodepools.karpenter.sh"
SCALED = "scaledobjects.keda.sh"
AUTOSCALERS = "horizontalpodautoscalers.autoscaling"
CSI = "csidrivers.storage.k8s.io"
GROUPS = {
    **dict.fromkeys(
        (
            "resource.k8s.io", "fairlead.dev", "karpenter.sh", "keda.sh", "monitoring.coreos.com", "custom.metrics.k8s.io", "tekton.dev",
            "pipelines.kubeflow.org", "serving.kserve.io", "argoproj.io", "autoscaling", "storage.k8s.io",
        ),
        ("v1",),
    )
}  # fmt: skip


def ready() -> Lists:
    """All that the checklist asks for, made anew."""
    return copy.deepcopy(_ready())


@functools.cache
def _ready() -> Lists:
    lists = health.healthy()
    for node in lists["nodes"]:
        node["spec"]["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
        node["metadata"]["labels"] |= {
            "nvidia.com/gpu.product": "H100",
            "nvidia.com/mig.capable": "true",
            "nvidia.com/gpu.clique": "a.1",
            names.MIG_CONFIG: "all-disabled",
            "karpenter.sh/capacity-type": "reserved",
        }
    lists["nodes"][2]["metadata"]["labels"]["karpenter.sh/capacity-type"] = "spot"
    for each in lists["resourceslices.resource.k8s.io"]:
        for device in each["spec"]["devices"]:
            device["attributes"]["driverVersion"] = {"version": "580.105.8"}
    lists["daemonsets.apps"][0]["spec"]["template"]["spec"]["containers"][0]["args"].append("--dcgm-metrics")
    lists["deployments.apps"] += [
        deployment(
            "cluster-autoscaler",
            "registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.0",
            "--scale-down-unneeded-time=15m",
        ),
        deployment("karpenter", "public.ecr.aws/karpenter/controller:1.14.0"),
    ]
    lists["queues.fairlead.dev"][0]["spec"]["flavors"][0]["borrowingLimit"] = 8
    lists["flavors.fairlead.dev"][0]["spec"]["price"] = [{"perHour": "2.80", "currency": "EUR"}]
    lists["priorityclasses.scheduling.k8s.io"] += [
        {"metadata": {"name": name}, "value": value}
        for name, value in (("production", 3), ("research", 2), ("batch", 1))
    ]
    lists["resourcequotas"].append(
        {
            "metadata": {"name": "q", "namespace": "team"},
            "spec": {
                "hard": {
                    "gpu.fairlead.dev.deviceclass.resource.k8s.io/devices": "8",
                    "requests.cpu": "64",
                    "requests.memory": "1Ti",
                    "requests.storage": "10Ti",
                }
            },
        }
    )
    team = next(each for each in lists["namespaces"] if each["metadata"]["name"] == "team")
    team["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted", names.QUEUE: "team"}
    lists["networkpolicies.networking.k8s.io"].append(
        {
            "metadata": {"name": "all", "namespace": "team"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        }
    )
    for name in ("requests-equal-limits", "gpu-tolerations", "gpu-node-affinity", "production-isolation"):
        lists["tenancypolicies.fairlead.dev"] += [
            each
            for each in quick_yaml.load_all((ROOT / "manifests" / "policies" / f"{name}.yaml").read_text())
            if each["kind"] == "TenancyPolicy"
        ]
    lists["persistentvolumeclaims"].append(
        {
            "metadata": {"name": "data", "namespace": "team"},
            "spec": {"accessModes": ["ReadOnlyMany"]},
            "status": {"phase": "Bound"},
        }
    )
    lists["configmaps"] += [
        {"metadata": {"name": path.stem, "namespace": "monitoring"}, "data": {path.name: path.read_text()}}
        for path in sorted((ROOT / "manifests/chart/files/dashboards").glob("*.json"))
    ]
    monitor = {
        "metadata": {"name": "fairlead", "namespace": names.NAMESPACE},
        "spec": {"endpoints": [{"interval": "30s"}]},
    }
    rules = quick_yaml.load((ROOT / "manifests/chart/files/rules.yaml").read_text())
    lists[MONITORS] = [monitor]
    lists["podmonitors.monitoring.coreos.com"] = []
    lists[RULES] = [{"metadata": {"name": "fairlead", "namespace": names.NAMESPACE}, "spec": rules}]
    lists[POOLS] = [
        {
            "metadata": {"name": "gpus"},
            "spec": {"template": {"spec": {"requirements": [{"key": "karpenter.k8s.aws/instance-gpu-name"}]}}},
        }
    ]
    lists[SCALED] = [{"metadata": {"name": "llm", "namespace": "team"}, "spec": {"triggers": [{"type": "kafka"}]}}]
    lists[AUTOSCALERS] = [
        {
            "metadata": {"name": "llm", "namespace": "team"},
            "spec": {"metrics": [{"pods": {"metric": {"name": "fairlead_driver_gpu_utilization_percent"}}}]},
        }
    ]
    lists[CSI] = [{"metadata": {"name": "s3.csi.aws.com"}}]
    wide = health.gang("wide", "Running")
    wide["spec"]["size"] = 2
    wide["status"]["nodes"] = list(NODES[1:])
    lists["gangs.fairlead.dev"].append(wide)
    for number, on in enumerate(NODES[1:]):
        pod = health.pod(f"wide-{number}", node=on)
        pod["metadata"]["annotations"] = {names.GANG: "wide", names.MOVABLE: "true"}
        lists["pods"].append(pod)
        made = health.claim(f"wide-{number}-gpu", allocated_by="fairlead-controller", device=f"gpu-{number}")
        made["spec"]["devices"]["config"] = [{"opaque": {"driver": names.DRIVER, "parameters": {"ncclTopology": True}}}]
        made["status"]["devices"] = [
            {"data": usage(90, 75)}
            for _ in range(12)  # as many entries as make 24 devices busy
        ]
        lists["resourceclaims.resource.k8s.io"].append(made)
    return lists


def usage(percent: int, memory_gb: int) -> Raw:
    return DeviceUsage(
        state="Busy",
        since_s=NOW - 3600,
        sampled_at_s=NOW - 60,
        utilization_percent=percent,
        memory_used_peak_bytes=memory_gb * 2**30,
        memory_bytes=80 * 2**30,
    ).to_json()


def deployment(name: str, image: str, *words: str) -> Raw:
    return {
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "template": {"spec": {"containers": [{"name": name, "image": image, "command": [f"./{name}", *words]}]}}
        },
    }


def seen(lists: Lists, **more: Any) -> Seen:
    kubelets = {name: {"topologyManagerPolicy": "single-numa-node"} for name in NODES}
    facts: dict[str, Any] = {"groups": GROUPS, "kinds": frozenset({"applications.argoproj.io"}), "kubelets": kubelets}
    return health.seen(lists, **facts | more)
