"""What `fairlead check readiness` is to see: what each case changes in a cluster that has everything, the item, its answer and the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.api import names
from tests.support.health import NODES, Lists
from tests.support.ready_cluster import AUTOSCALERS, CSI, GROUPS, MONITORS, POOLS, RULES, SCALED, deployment, usage

PASS, FAIL, UNKNOWN = "pass", "fail", "not checkable here"
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


@case("nccl-topology", UNKNOWN, "no gang runs on several nodes")
def a_wide_gang_that_has_ended(lists: Lists) -> None:
    no_topology_file(lists)
    lists["gangs.fairlead.dev"][-1]["status"]["phase"] = "Finished"


@case("fabric", UNKNOWN, "RDMA is on node node-1")
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
        each["data"] = {
            key: text.replace("nvlink", "x").replace("NVLINK", "x") for key, text in (each.get("data") or {}).items()
        }


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


@case("utilisation", PASS, "90 % of 24 devices, 94 % of memory, above 85 %: little is left")
def a_fleet_beyond_its_target(_: Lists) -> None:
    """As it is."""


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
