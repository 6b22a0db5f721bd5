"""Scheduling and resources, and autoscaling: queues, priorities, MIG, taints, quotas; what adds nodes, and what scales workloads."""

from __future__ import annotations

from fairlead.api import capacity_types, names
from fairlead.cli.health import values
from fairlead.cli.health.doctor.programs import is_over
from fairlead.cli.health.readiness.infrastructure import gpu_nodes
from fairlead.cli.health.readiness.model import (
    AUTOSCALERS,
    NODE_POOLS,
    SCALED_OBJECTS,
    Answer,
    Group,
    failed,
    passed,
    unknown,
)
from fairlead.cli.health.seen import Seen, attribute, devices_of, in_all, node_of
from fairlead.kube.resources import DEPLOYMENTS, GANGS, LEASES, PODS, PRIORITY_CLASSES, QUEUES, RESOURCE_QUOTAS, Raw

TAINT = "nvidia.com/gpu"
BANDS = 3
DELAY_LEAST_S, DELAY_MOST_S = 300.0, 3600.0
AKS_SPOT = "kubernetes.azure.com/scalesetpriority"
_PER_CLASS = ".deviceclass.resource.k8s.io/devices"
_QUOTA = {
    "GPUs": (_PER_CLASS, "requests.nvidia.com/", "count/resourceclaims"),
    "CPU": ("requests.cpu", "limits.cpu"),
    "memory": ("requests.memory", "limits.memory"),
    "storage": ("requests.storage", "persistentvolumeclaims"),
}
"""What a ResourceQuota says something of, by the beginning or the end of its keys."""


def quota_keys(seen: Seen, namespace: str) -> set[str]:
    """What its ResourceQuotas say something of."""
    return {
        key
        for each in seen.items(RESOURCE_QUOTAS)
        if values.namespace(each) == namespace
        for key in values.mapping(each, "spec", "hard")
        if isinstance(key, str)
    }


def has_quota(keys: set[str], of: str) -> bool:
    return any(key.startswith(part) or key.endswith(part) for key in keys for part in _QUOTA[of])


def namespaces(seen: Seen) -> Answer | None:
    """Why nothing can be said of namespaces with GPU work; None where there are some."""
    if gap := seen.gap(PODS, GANGS):
        return unknown(gap)
    return None if seen.gpu_namespaces else unknown("no namespace has GPU work or a tenant's label")


def spot_nodes(seen: Seen) -> list[Raw]:
    """GPU nodes that a provider may take back."""
    return [
        node
        for node in seen.gpu_nodes
        if capacity_types.capacity_type(_texts(values.labels_of(node))) == "spot"
        or values.labels_of(node).get(AKS_SPOT) == "spot"
    ]


SAVES = (names.CHECKPOINT_GRACE, names.CHECKPOINTED_AT, names.MOVABLE)
"""Annotations by which a workload says that it saves its work."""


SCHEDULING = Group("scheduling")


@SCHEDULING.item(
    "a queueing and gang system: Fairlead, Kueue or Volcano",
    "fairlead doctor says why no controller leads; to install: docs/install.md",
)
def queueing_system(seen: Seen) -> Answer:
    lease = seen.one(LEASES, names.CONTROLLER_ACCOUNT, names.NAMESPACE)
    if seen.serves(names.API_GROUP) and lease is not None and not is_over(seen, lease):
        return passed("Fairlead's controller leads")
    others = [
        name for name, group in (("Kueue", names.KUEUE_API), ("Volcano", "scheduling.volcano.sh")) if seen.serves(group)
    ]
    if others:
        return passed(f"{' and '.join(others)} is installed")
    if seen.groups is None:
        return unknown(seen.groups_gap)
    if gap := seen.gap(LEASES):
        return unknown(f"whether Fairlead's controller leads: {gap}")
    return failed("no Fairlead controller leads, and neither Kueue nor Volcano is installed")


@SCHEDULING.item(
    "queues with quotas, borrowing and preemption",
    "kubectl apply -f examples/00-queues, or fairlead tenant create NAME --deserved FLAVOR=N --limit FLAVOR=N (docs/queues.md)",
    QUEUES,
)
def queues(seen: Seen) -> Answer:
    found = seen.items(QUEUES)
    if not found and seen.serves(names.KUEUE_API):
        return unknown("Kueue is installed, whose quotas are not read; `fairlead import --from kueue` shows them")
    if not found:
        return failed("there is no Queue")
    entries = [entry for each in found for entry in values.objects(each, "spec", "flavors")]
    lacks = []
    if not any(values.amount(entry, "deserved") for entry in entries):
        lacks.append("none deserves anything")
    if not any(entry.get("limit") is not None or entry.get("borrowingLimit") is not None for entry in entries):
        lacks.append("none bounds what it borrows (limit or borrowingLimit)")
    if all(values.text(each, "spec", "preemption") == "Never" for each in found):
        lacks.append("none may preempt")
    if lacks:
        return failed(f"{len(found)} queues: {', '.join(lacks)}")
    return passed(f"{len(found)} queues, with deserved shares, bounds of borrowing and preemption")


@SCHEDULING.item(
    "priority classes for production, research and batch",
    "fairlead tenant create NAME makes fairlead-low, -normal and -high (docs/tenants.md)",
    PRIORITY_CLASSES,
)
def priority_classes(seen: Seen) -> Answer:
    own = {
        values.name(each): values.integer(each, "value")
        for each in seen.items(PRIORITY_CLASSES)
        if not values.name(each).startswith("system-")
    }
    if len(set(own.values())) < BANDS:
        return failed(
            f"PriorityClasses with different values: {len(set(own.values()))} ({values.some(own) or 'none'}), and three are needed"
        )
    return passed(f"{len(own)} PriorityClasses: {values.some(own)}")


@SCHEDULING.item(
    "MIG profiles chosen for each pool",
    "label nodes nvidia.com/mig.config=LAYOUT with driver.migLayouts, all-disabled where they stay whole, or install with dynamicMig (docs/mig-layouts.md)",
    given=gpu_nodes,
)
def mig_profiles(seen: Seen) -> Answer:
    capable = {
        node_of(each)
        for each in seen.slices
        if any(attribute(device, "migCapable") is True for device in devices_of(each))
    }
    cut = {
        node_of(each) for each in seen.slices if any(attribute(device, "type") == "mig" for device in devices_of(each))
    }
    nodes = [
        node
        for node in seen.gpu_nodes
        if values.name(node) in capable or values.labels_of(node).get("nvidia.com/mig.capable") == "true"
    ]
    if not nodes:
        return unknown("no GPU node says that its GPUs can be cut")
    open_ = [node for node in nodes if names.MIG_CONFIG not in values.labels_of(node) and values.name(node) not in cut]
    if open_:
        return failed(f"{in_all(open_)}: GPUs can be cut, and neither a layout nor dynamic MIG is chosen")
    return passed(f"all {len(nodes)} nodes whose GPUs can be cut have a layout ({names.MIG_CONFIG}) or MIG devices")


@SCHEDULING.item(
    "GPU pools tainted nvidia.com/gpu=present:NoSchedule",
    "kubectl taint node NODE nvidia.com/gpu=present:NoSchedule, and kubectl apply -f manifests/policies/gpu-tolerations.yaml, so that pods with devices tolerate it",
    given=gpu_nodes,
)
def taints(seen: Seen) -> Answer:
    bare = [
        node
        for node in seen.gpu_nodes
        if not any(
            taint.get("key") == TAINT and values.text(taint, "effect") in {"NoSchedule", "NoExecute"}
            for taint in values.objects(node, "spec", "taints")
        )
    ]
    if bare:
        return failed(f"{len(bare)} of {len(seen.gpu_nodes)} GPU nodes have no taint {TAINT}: {in_all(bare)}")
    return passed(f"all {len(seen.gpu_nodes)} GPU nodes have the taint {TAINT}")


@SCHEDULING.item(
    "ResourceQuotas of GPUs, CPU, memory and storage in each namespace",
    "fairlead tenant create NAME --gpus CLASS=N --cpu N --memory N, and requests.storage in a ResourceQuota of your own (docs/tenants.md)",
    RESOURCE_QUOTAS,
    given=namespaces,
)
def resource_quotas(seen: Seen) -> Answer:
    lacking = {}
    for namespace in seen.gpu_namespaces:
        keys = quota_keys(seen, namespace)
        if lacks := [of for of in _QUOTA if not has_quota(keys, of)]:
            lacking[namespace] = ", ".join(lacks)
    if lacking:
        return failed(
            "without a quota: " + values.some(f"{namespace} ({lacks})" for namespace, lacks in lacking.items())
        )
    return passed(
        f"all {len(seen.gpu_namespaces)} namespaces with GPU work have quotas of GPUs, CPU, memory and storage"
    )


AUTOSCALING = Group("autoscaling")


@AUTOSCALING.item(
    "Cluster Autoscaler on GPU pools, with sensible delays of its scale-down",
    "--scale-down-unneeded-time=10m --scale-down-delay-after-add=10m; of a managed one see the provider's settings",
    DEPLOYMENTS,
)
def cluster_autoscaler(seen: Seen) -> Answer:
    found = seen.workloads("cluster-autoscaler")
    if not found:
        return unknown("no Cluster Autoscaler runs as a Deployment here; a provider's runs outside of the cluster")
    flags = dict(
        word.lstrip("-").partition("=")[::2]
        for each in found
        for word in values.arguments(each)
        if word.startswith("--")
    )
    wrong = []
    for flag in ("scale-down-unneeded-time", "scale-down-delay-after-add"):
        seconds = _seconds(flags.get(flag, "10m"))
        if seconds is None or not DELAY_LEAST_S <= seconds <= DELAY_MOST_S:
            wrong.append(f"--{flag}={flags.get(flag)}")
    if flags.get("scale-down-enabled") == "false":
        wrong.append("--scale-down-enabled=false")
    if wrong:
        return failed(f"Cluster Autoscaler with {', '.join(wrong)}: between 5m and 1h is sensible for GPU nodes")
    return passed(f"Cluster Autoscaler {values.some(map(values.key, found))} with sensible delays of its scale-down")


def _seconds(text: str) -> float | None:
    from fairlead.api.durations import duration_s

    try:
        return duration_s(text)
    except (ValueError, OverflowError):
        return None


@AUTOSCALING.item(
    "Karpenter NodePools with GPU requirements, if it is used",
    "a NodePool with a requirement such as karpenter.k8s.aws/instance-gpu-name; Karpenter 1.14 does not count claims (--ignore-dra-requests)",
)
def karpenter(seen: Seen) -> Answer:
    if seen.serves("karpenter.sh") is False:
        return unknown("Karpenter is not used here")
    if gap := seen.gap(NODE_POOLS):
        return unknown(gap)
    pools = [values.name(each) for each in seen.items(NODE_POOLS) if _for_gpus(each)]
    return (
        passed(f"NodePools for GPUs: {values.some(pools)}")
        if pools
        else failed("no NodePool has a GPU requirement or taint")
    )


def _for_gpus(pool: Raw) -> bool:
    spec = values.mapping(pool, "spec", "template", "spec")
    keys = [values.text(each, "key") for each in values.objects(spec, "requirements")]
    keys += [values.text(each, "key") for each in values.objects(spec, "taints")]
    return any("gpu" in key or key.startswith("nvidia.com/") for key in keys)


def _texts(labels: dict[str, object]) -> dict[str, str]:
    return {key: label for key, label in labels.items() if isinstance(label, str)}


@AUTOSCALING.item(
    "spot capacity for training, with checkpointing",
    'save work, and say so on the pods: fairlead.dev/movable: "true", fairlead.dev/checkpointed-at (docs/moves.md)',
    given=gpu_nodes,
)
def spot(seen: Seen) -> Answer:
    nodes = {values.name(node) for node in spot_nodes(seen)}
    if not nodes:
        return unknown("no GPU node is labelled as spot capacity")
    if gap := seen.gap(PODS):
        return unknown(gap)
    pods = [pod for pod in seen.items(PODS) if values.text(pod, "spec", "nodeName") in nodes and seen.wants(pod)]
    if not pods:
        return unknown(f"{len(nodes)} spot nodes, and no pod with devices runs there now")
    without = [values.key(pod) for pod in pods if not any(key in values.annotations_of(pod) for key in SAVES)]
    if without:
        return failed(
            f"{len(without)} of {len(pods)} pods on spot nodes do not say that they save their work: {values.some(without)}"
        )
    return passed(f"all {len(pods)} pods on {len(nodes)} spot nodes say that they save their work")


@AUTOSCALING.item(
    "HorizontalPodAutoscaler on GPU utilisation, through an adapter",
    "install prometheus-adapter or KEDA, and scale inference on fairlead_driver_gpu_utilization_percent (docs/metrics.md)",
)
def hpa(seen: Seen) -> Answer:
    if seen.groups is None:
        return unknown(seen.groups_gap)
    adapters = [group for group in ("custom.metrics.k8s.io", "external.metrics.k8s.io") if seen.serves(group)]
    if not adapters:
        return failed("no adapter serves custom.metrics.k8s.io or external.metrics.k8s.io")
    if gap := seen.gap(AUTOSCALERS):
        return unknown(gap)
    found = [values.key(each) for each in seen.items(AUTOSCALERS) if any(map(_of_gpus, _metric_names(each)))]
    if not found:
        return failed(f"{values.some(adapters)} is served, and no HorizontalPodAutoscaler is on a metric of GPUs")
    return passed(f"HorizontalPodAutoscalers on metrics of GPUs: {values.some(found)}")


def _metric_names(autoscaler: Raw) -> list[str]:
    return [
        values.text(each, kind, "metric", "name")
        for each in values.objects(autoscaler, "spec", "metrics")
        for kind in ("pods", "object", "external")
    ]


def _of_gpus(metric: str) -> bool:
    return any(word in metric.lower() for word in ("gpu", "dcgm", "fairlead"))


@AUTOSCALING.item(
    "KEDA on the depth of queues, if inference reads queues", "a ScaledObject with a trigger of your queue"
)
def keda(seen: Seen) -> Answer:
    if seen.serves("keda.sh") is False:
        return unknown("KEDA is not used here")
    if gap := seen.gap(SCALED_OBJECTS):
        return unknown(gap)
    found = {
        values.key(each): [values.text(trigger, "type") for trigger in values.objects(each, "spec", "triggers")]
        for each in seen.items(SCALED_OBJECTS)
    }
    on_queues = [key for key, kinds in found.items() if set(kinds) - {"", "cpu", "memory", "cron"}]
    if not on_queues:
        return failed("KEDA is installed, and no ScaledObject has a trigger of a queue or a metric")
    return passed(f"ScaledObjects: {values.some(on_queues)}")
