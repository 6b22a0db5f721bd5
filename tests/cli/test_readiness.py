"""`fairlead check readiness`: each item passes where what it asks for is there, fails where it is not, and says what cannot be seen."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.cli.health.commands import GroupKey
from fairlead.cli.health.readiness import report
from fairlead.cli.health.readiness.kinds import KINDS, OPTIONAL
from fairlead.cli.health.readiness.model import Answer
from fairlead.cli.health.seen import Listed, Seen
from fairlead.evidence.device_usage import DeviceUsage
from fairlead.kube.resources import Raw
from tests.support import health
from tests.support.health import NODES, NOW, Lists

ROOT = Path(__file__).parents[2]
MONITORS = "servicemonitors.monitoring.coreos.com"
RULES = "prometheusrules.monitoring.coreos.com"
POOLS = "nodepools.karpenter.sh"
SCALED = "scaledobjects.keda.sh"
AUTOSCALERS = "horizontalpodautoscalers.autoscaling"
CSI = "csidrivers.storage.k8s.io"
PASS, FAIL, UNKNOWN = "pass", "fail", "not checkable here"
BY_HAND = {
    "fabric", "udev", "driver-updates", "storage-bandwidth", "streaming", "smoke", "all-reduce", "load-test", "interruption",
    "scale-up",
}  # fmt: skip
"""Items that no cluster can answer."""
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
            for each in yaml.safe_load_all((ROOT / "manifests" / "policies" / f"{name}.yaml").read_text())
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
    rules = yaml.safe_load((ROOT / "manifests/chart/files/rules.yaml").read_text())
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


def answers(found: Seen) -> dict[str, Answer]:
    return {item.key: answer for _, item, answer in report.answers(found)}


def test_the_checklist_has_nine_groups_and_every_point_of_it_once() -> None:
    assert [group.key for group in report.GROUPS] == [key.value for key in GroupKey]
    assert [len(group.items) for group in report.GROUPS] == [6, 6, 5, 5, 6, 4, 5, 5, 6]
    keys = [item.key for group in report.GROUPS for item in group.items]
    assert len(set(keys)) == len(keys) == 48
    assert all(item.title and item.fix for group in report.GROUPS for item in group.items)


def test_where_all_is_there_each_item_passes_but_those_that_no_api_shows() -> None:
    found = answers(seen(ready()))
    assert {key: answer.why for key, answer in found.items() if answer.status == FAIL} == {}
    assert {key for key, answer in found.items() if answer.status == UNKNOWN} == BY_HAND


Break = Callable[[Lists], dict[str, Any] | None]
CASES: list[tuple[str, str, str, Break]] = []


def case(item: str, status: str, said: str) -> Callable[[Break], Break]:
    """What the function changes makes the item's answer this, with `said` in its reason."""

    def added(function: Break) -> Break:
        CASES.append((item, status, said, function))
        return function

    return added


def of_all(lists: Lists, kind: str) -> None:
    assert lists[kind]
    lists[kind].clear()


def relabel(lists: Lists, key: str) -> None:
    for each in lists["nodes"]:
        del each["metadata"]["labels"][key]


for _item, _status, _said, _kind in (
    ("gpu-driver", FAIL, "neither Fairlead's driver", "resourceslices.resource.k8s.io"),
    ("dcgm-exporter", FAIL, "no DCGM exporter runs", "daemonsets.apps"),
    ("dcgm-exporter", FAIL, "no ServiceMonitor selects it", MONITORS),
    ("nccl-topology", UNKNOWN, "no gang runs on several nodes", "gangs.fairlead.dev"),
    ("queues", FAIL, "there is no Queue", "queues.fairlead.dev"),
    ("priority-classes", FAIL, "0 (none)", "priorityclasses.scheduling.k8s.io"),
    ("resource-quotas", FAIL, "team (GPUs, CPU, memory, storage)", "resourcequotas"),
    ("cluster-autoscaler", UNKNOWN, "a provider's runs outside", "deployments.apps"),
    ("karpenter", FAIL, "no NodePool has a GPU requirement", POOLS),
    ("hpa", FAIL, "no HorizontalPodAutoscaler is on a metric of GPUs", AUTOSCALERS),
    ("keda", FAIL, "no ScaledObject", SCALED),
    ("scrape-interval", FAIL, "no ServiceMonitor", MONITORS),
    ("dashboards", UNKNOWN, "no ConfigMap has the label", "configmaps"),
    ("alerts", FAIL, "no alert for temperature, underutilisation, memory, NCCL hangs", RULES),
    ("queue-metrics", FAIL, "no ServiceMonitor selects", MONITORS),
    ("network-policies", FAIL, "team (Egress, Ingress)", "networkpolicies.networking.k8s.io"),
    ("admission", FAIL, "no TenancyPolicy enforces requests = limits, tolerations, affinity", "tenancypolicies.fairlead.dev"),
    ("mig-isolation", UNKNOWN, "whether a tenant needs it", "tenancypolicies.fairlead.dev"),
    ("shared-volumes", FAIL, "no bound PersistentVolumeClaim", "persistentvolumeclaims"),
    ("object-storage", UNKNOWN, "no CSI driver", CSI),
    ("utilisation", UNKNOWN, "no claim says how busy", "resourceclaims.resource.k8s.io"),
    ("idle-alerts", FAIL, "no alert of underutilisation", RULES),
    ("checkpoints", UNKNOWN, "no gang of several pods", "gangs.fairlead.dev"),
    ("training", UNKNOWN, "neither on one node nor on several", "gangs.fairlead.dev"),
    ("node-labels", UNKNOWN, "no node with GPUs is known", "nodes"),
):  # fmt: skip
    case(_item, _status, _said)(lambda lists, kind=_kind: of_all(lists, kind))  # type: ignore[misc]

for _item, _said, _group in (
    ("queueing-system", "no Fairlead controller leads", "fairlead.dev"),
    ("hpa", "no adapter serves", "custom.metrics.k8s.io"),
    ("pipelines", "are not installed", "pipelines.kubeflow.org"),
    ("serving", "are not installed", "serving.kserve.io"),
):
    case(_item, FAIL, _said)(
        lambda _, group=_group: {"groups": {key: each for key, each in GROUPS.items() if key != group}}  # type: ignore[misc]
    )
for _item, _said, _group in (
    ("karpenter", "Karpenter is not used", "karpenter.sh"),
    ("keda", "KEDA is not used", "keda.sh"),
    ("tekton", "needed with GitOps", "tekton.dev"),
):
    case(_item, UNKNOWN, _said)(
        lambda _, group=_group: {"groups": {key: each for key, each in GROUPS.items() if key != group}}  # type: ignore[misc]
    )


@case("queueing-system", PASS, "Kueue is installed")
def kueue_instead(lists: Lists) -> dict[str, Any]:
    of_all(lists, "leases.coordination.k8s.io")
    return {"groups": {**GROUPS, "kueue.x-k8s.io": ("v1",)}}


@case("argo-cd", UNKNOWN, "needed with GitOps")
def argo_workflows_only(_: Lists) -> dict[str, Any]:
    return {"kinds": frozenset({"workflows.argoproj.io"})}


@case("pipelines", PASS, "Argo Workflows is installed")
def workflows_of_argo(_: Lists) -> dict[str, Any]:
    return {
        "kinds": frozenset({"workflows.argoproj.io"}),
        "groups": {key: each for key, each in GROUPS.items() if key != "pipelines.kubeflow.org"},
    }


@case("gpu-driver", FAIL, "is older than 535")
def an_old_driver(lists: Lists) -> None:
    for each in lists["resourceslices.resource.k8s.io"]:
        each["spec"]["devices"][0]["attributes"]["driverVersion"] = {"version": "525.85.12"}


def with_operator(lists: Lists, version: str, toolkit: str) -> None:
    of_all(lists, "resourceslices.resource.k8s.io")
    lists["deployments.apps"].append(deployment("gpu-operator", f"nvcr.io/nvidia/gpu-operator:{version}"))
    lists["daemonsets.apps"].append(
        deployment("toolkit", f"nvcr.io/nvidia/k8s/container-toolkit:{toolkit}-ubuntu20.04")
    )
    for node in lists["nodes"]:
        node["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"] = "570.124.06"


@case("gpu-driver", PASS, "GPU operator v25.3.0, driver 570.124.06")
def a_gpu_operator(lists: Lists) -> None:
    with_operator(lists, "v25.3.0", "v1.17.5")


@case("gpu-driver", FAIL, "older than 24.9.2")
def an_old_operator(lists: Lists) -> None:
    with_operator(lists, "v24.9.1", "v1.17.5")


@case("gpu-driver", FAIL, "older than 1.17.3")
def an_old_toolkit(lists: Lists) -> None:
    with_operator(lists, "v25.3.0", "v1.17.2")


@case("gpu-driver", UNKNOWN, "cannot be told")
def an_operator_by_digest(lists: Lists) -> None:
    with_operator(lists, "latest", "v1.17.5")


@case("node-labels", FAIL, "nvidia.com/gpu.product is not on nodes node-0, node-1, node-2")
def no_product_label(lists: Lists) -> None:
    relabel(lists, "nvidia.com/gpu.product")


@case("topology-manager", FAIL, "topologyManagerPolicy is none on node-1")
def one_kubelet_without_policy(_: Lists) -> dict[str, Any]:
    found = {name: {"topologyManagerPolicy": "single-numa-node"} for name in NODES}
    return {"kubelets": {**found, "node-1": {}}}


@case("topology-manager", UNKNOWN, "you may not get nodes/proxy")
def kubelets_that_may_not_be_read(_: Lists) -> dict[str, Any]:
    return {"kubelets": {}, "kubelets_gap": "you may not get nodes/proxy"}


@case("topology-manager", UNKNOWN, "1 of 3 GPU nodes")
def one_kubelet_that_was_read(_: Lists) -> dict[str, Any]:
    return {"kubelets": {"node-0": {"topologyManagerPolicy": "single-numa-node"}}}


@case("nccl-topology", FAIL, "team/wide")
def no_topology_file(lists: Lists) -> None:
    for each in lists["resourceclaims.resource.k8s.io"]:
        each["spec"]["devices"].pop("config", None)


@case("fabric", UNKNOWN, "node node-1 have RDMA")
def a_node_with_rdma(lists: Lists) -> None:
    lists["nodes"][1]["status"]["allocatable"]["rdma/hca"] = "1k"


@case("queues", FAIL, "none bounds what it borrows")
def a_queue_without_bound(lists: Lists) -> None:
    del lists["queues.fairlead.dev"][0]["spec"]["flavors"][0]["borrowingLimit"]


@case("queues", FAIL, "none may preempt")
def queues_that_never_preempt(lists: Lists) -> None:
    lists["queues.fairlead.dev"][0]["spec"]["preemption"] = "Never"


@case("mig-profiles", FAIL, "neither a layout nor dynamic MIG is chosen")
def no_layout(lists: Lists) -> None:
    relabel(lists, names.MIG_CONFIG)


@case("taints", FAIL, "1 of 3 GPU nodes have no taint nvidia.com/gpu: node node-1")
def one_node_without_taint(lists: Lists) -> None:
    del lists["nodes"][1]["spec"]["taints"]


@case("resource-quotas", FAIL, "team (storage)")
def no_quota_of_storage(lists: Lists) -> None:
    del lists["resourcequotas"][0]["spec"]["hard"]["requests.storage"]


@case("resource-quotas", UNKNOWN, "no namespace has GPU work")
def no_work(lists: Lists) -> None:
    for kind in ("gangs.fairlead.dev", "pods", "resourceclaims.resource.k8s.io"):
        of_all(lists, kind)


@case("cluster-autoscaler", FAIL, "--scale-down-unneeded-time=10s")
def a_hasty_autoscaler(lists: Lists) -> None:
    lists["deployments.apps"][-2] = deployment("ca", "cluster-autoscaler:v1", "--scale-down-unneeded-time=10s")


@case("spot", FAIL, "1 of 1 pods on spot nodes do not say")
def work_on_spot_that_is_not_saved(lists: Lists) -> None:
    for each in lists["pods"]:
        each["metadata"]["annotations"].pop(names.MOVABLE, None)


@case("spot", UNKNOWN, "no GPU node is labelled as spot")
def no_spot(lists: Lists) -> None:
    relabel(lists, "karpenter.sh/capacity-type")


@case("scrape-interval", FAIL, "fairlead (1m)")
def a_slow_scrape(lists: Lists) -> None:
    lists[MONITORS][0]["spec"]["endpoints"][0]["interval"] = "1m"


@case("scrape-interval", UNKNOWN, "the Prometheus operator is not installed")
def no_operator_of_prometheus(_: Lists) -> dict[str, Any]:
    return {"missing": [MONITORS, RULES]}


@case("dashboards", FAIL, "no dashboard shows NVLink")
def dashboards_without_nvlink(lists: Lists) -> None:
    for each in lists["configmaps"]:
        each["data"] = {key: text.replace("nvlink", "x").replace("NVLINK", "x") for key, text in each["data"].items()}


@case("alerts", FAIL, "no alert for NCCL hangs")
def alerts_without_hangs(lists: Lists) -> None:
    for group in lists[RULES][0]["spec"]["groups"]:
        group["rules"] = [rule for rule in group["rules"] if rule.get("alert") != "FairleadGangStalled"]


@case("cost-tracking", FAIL, "no Flavor has a price")
def no_price(lists: Lists) -> None:
    del lists["flavors.fairlead.dev"][0]["spec"]["price"]


@case("cost-tracking", PASS, "kube-system/opencost runs")
def opencost(lists: Lists) -> None:
    no_price(lists)
    lists["deployments.apps"].append(deployment("opencost", "ghcr.io/opencost/opencost:1.115"))


@case("utilisation", FAIL, "30 % of 24 devices")
def an_idle_fleet(lists: Lists) -> None:
    for each in lists["resourceclaims.resource.k8s.io"]:
        for entry in each["status"].get("devices", ()):
            entry["data"] = usage(30, 75)


@case("utilisation", FAIL, "25 % of memory")
def little_memory_in_use(lists: Lists) -> None:
    for each in lists["resourceclaims.resource.k8s.io"]:
        for entry in each["status"].get("devices", ()):
            entry["data"] = usage(90, 20)


@case("idle-alerts", PASS, "queues that act on idle devices: team")
def a_queue_that_acts(lists: Lists) -> None:
    of_all(lists, RULES)
    lists["queues.fairlead.dev"][0]["spec"]["idle"] = {"after": "1h", "action": "Notify"}


@case("spot-interruptions", FAIL, "nothing announces interruptions")
def no_handler(lists: Lists) -> None:
    of_all(lists, "deployments.apps")


@case("reservations", UNKNOWN, "owned machines are not visible")
def nothing_reserved(lists: Lists) -> None:
    relabel(lists, "karpenter.sh/capacity-type")


@case("chargeback", FAIL, "team")
def an_unbound_namespace(lists: Lists) -> None:
    of_all(lists, "resourcequotas")
    next(each for each in lists["namespaces"] if each["metadata"]["name"] == "team")["metadata"]["labels"] = {}


@case("pod-security", FAIL, "team (baseline)")
def a_looser_level(lists: Lists) -> None:
    team = next(each for each in lists["namespaces"] if each["metadata"]["name"] == "team")
    team["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "baseline"


@case("network-policies", FAIL, "team (Egress)")
def ingress_only(lists: Lists) -> None:
    lists["networkpolicies.networking.k8s.io"][-1]["spec"]["policyTypes"] = ["Ingress"]


@case("admission", UNKNOWN, "kyverno.io may, and is not read")
def kyverno(lists: Lists) -> dict[str, Any]:
    of_all(lists, "tenancypolicies.fairlead.dev")
    return {"groups": {**GROUPS, "kyverno.io": ("v1",)}}


@case("checkpoints", FAIL, "team/wide")
def a_gang_that_does_not_save(lists: Lists) -> None:
    work_on_spot_that_is_not_saved(lists)


@case("training", UNKNOWN, "on one node only")
def no_wide_gang(lists: Lists) -> None:
    lists["gangs.fairlead.dev"].pop()


@pytest.mark.parametrize(
    ("item", "status", "said", "change"),
    CASES,
    ids=[f"{item}-{status}-{at}" for at, (item, status, _, _) in enumerate(CASES)],
)
def test_what_is_missing_is_seen(item: str, status: str, said: str, change: Break) -> None:
    lists = ready()
    facts = change(lists) or {}
    missing = facts.pop("missing", ())
    found = seen(lists, **facts)
    found = dataclasses.replace(found, lists={**found.lists, **dict.fromkeys(missing, Listed(served=False))})
    answer = answers(found)[item]
    assert (answer.status, said in answer.why) == (status, True), answer


def test_each_item_that_can_fail_is_seen_to_fail() -> None:
    always_open = BY_HAND | {"tekton", "argo-cd", "mig-isolation", "object-storage", "reservations", "training"}
    keys = {item.key for group in report.GROUPS for item in group.items}
    assert keys - always_open == {item for item, status, _, _ in CASES if status == FAIL}


def test_a_missing_right_is_named_and_fails_nothing() -> None:
    for kind in ready():
        found = seen(ready())
        gap = f"you may not list {kind}"
        refused = answers(dataclasses.replace(found, lists={**found.lists, kind: Listed(gap=gap)}))
        failing = {key: answer.why for key, answer in refused.items() if answer.status == FAIL}
        assert failing == {}, kind
    nothing = answers(Seen(now=NOW, groups_gap="you may not get /apis"))
    assert {answer.status for answer in nothing.values()} == {UNKNOWN}
    assert nothing["pipelines"].why == "you may not get /apis"
    assert nothing["taints"].why == "nodes were not read"


# -- odd objects ---------------------------------------------------------------------------------------------------------

_READY = ready()
_READ = {str(each) for each in (*KINDS, *OPTIONAL)} - {"customresourcedefinitions.apiextensions.k8s.io"}
_PLACES = [each for each in health.places(_READY) if each[0] in _READ]


@given(st.lists(st.tuples(st.sampled_from(_PLACES), health.ODD), min_size=1, max_size=4))
def test_odd_values_anywhere_do_not_stop_it(changes: list[tuple[tuple[str, int, tuple[Any, ...]], Any]]) -> None:
    for key, answer in answers(seen(health.with_odd_values(_READY, changes))).items():
        assert answer.why.isprintable(), key


def test_whatever_is_no_object_at_all_is_passed_over() -> None:
    assert len(answers(seen({key: list(health.NO_OBJECTS) for key in _READY}))) == 48
