"""What `fairlead doctor` is to find, in devices and in what waits for them: what `test_doctor` breaks, and the cause it expects."""

from __future__ import annotations

import copy
from typing import Any

from fairlead.api import names
from fairlead.cli.health import reading
from fairlead.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support import health
from tests.support.health import Lists

from .doctor_cases import EVERYTHING, NOTE, SOME, case, drop


@case("NoDeviceClass", EVERYTHING, "no DeviceClass selects devices of gpu.fairlead.dev")
def no_classes(lists: Lists) -> None:
    lists["deviceclasses.resource.k8s.io"].clear()


@case("NoSlices", EVERYTHING, "next: kubectl -n fairlead-system logs daemonset/fairlead-driver")
def no_slices(lists: Lists) -> None:
    lists[str(RESOURCE_SLICES)].clear()


@case("NoSlices", EVERYTHING, "there is no DaemonSet of the driver")
def no_driver(lists: Lists) -> None:
    lists[str(RESOURCE_SLICES)].clear()
    lists["daemonsets.apps"].clear()


@case("NoSlices", EVERYTHING, "next: kubectl label node NODE fairlead.dev/gpu=true")
def no_node_is_labelled(lists: Lists) -> None:
    lists[str(RESOURCE_SLICES)].clear()
    for each in lists["nodes"]:
        each["metadata"]["labels"].clear()


@case("NoSlices", EVERYTHING, "other drivers publish: gpu.nvidia.com (--managed-driver")
def slices_of_another_driver_only(lists: Lists) -> None:
    for each in lists[str(RESOURCE_SLICES)]:
        each["spec"]["driver"] = "gpu.nvidia.com"


@case("KubeletTooOld", EVERYTHING, "v1.33.0")
def old_kubelets(lists: Lists) -> None:
    for each in lists["nodes"]:
        each["status"]["nodeInfo"]["kubeletVersion"] = "v1.33.0"


@case("RuntimeWithoutCDI", SOME, "containerd://1.7.27: nodes node-1")
def one_old_runtime(lists: Lists) -> None:
    lists["nodes"][1]["status"]["nodeInfo"]["containerRuntimeVersion"] = "containerd://1.7.27"


@case("RuntimeWithoutCDI", EVERYTHING, "docker://27.1.0")
def docker_everywhere(lists: Lists) -> None:
    for each in lists["nodes"]:
        each["status"]["nodeInfo"]["containerRuntimeVersion"] = "docker://27.1.0"


@case("SlicesStale", SOME, "of nodes that do not exist: node-2")
def slices_of_a_node_that_is_gone(lists: Lists) -> None:
    drop(lists, "nodes", "node-2")


@case("SlicesStale", EVERYTHING, "of nodes that are not Ready: node-0, node-1, node-2")
def all_nodes_are_away(lists: Lists) -> None:
    for each in lists["nodes"]:
        each["status"]["conditions"][0]["status"] = "Unknown"


@case("SlicesStale", SOME, "pool node-1 has 1 of 2 slices of generation")
def a_pool_of_which_a_slice_is_missing(lists: Lists) -> None:
    lists[str(RESOURCE_SLICES)][1]["spec"]["pool"]["resourceSliceCount"] = 2


@case("DevicesUnusable", EVERYTHING, "cordoned: nodes node-0, node-1, node-2")
def all_nodes_are_cordoned(lists: Lists) -> None:
    for each in lists["nodes"]:
        each["spec"]["unschedulable"] = True


@case("DevicesUnusable", EVERYTHING, "24 devices are tainted")
def all_devices_are_tainted(lists: Lists) -> None:
    for each in lists[str(RESOURCE_SLICES)]:
        for device in each["spec"]["devices"]:
            device["taints"] = [{"key": "gpu.fairlead.dev/xid", "value": "79", "effect": "NoExecute"}]


@case("DevicesUnusable", NOTE, "cordoned: node node-0")
def one_node_is_cordoned(lists: Lists) -> None:
    lists["nodes"][0]["spec"]["unschedulable"] = True


@case("ForeignAllocator", SOME, "kube-scheduler allocated claim team/other-gpu")
def the_scheduler_took_a_device(lists: Lists) -> None:
    lists[str(RESOURCE_CLAIMS)].append(health.claim("other-gpu", allocated_by="kube-scheduler", device="gpu-1"))


@case("FenceOpen", SOME, "there is no ValidatingAdmissionPolicy")
def no_fence(lists: Lists) -> None:
    drop(lists, "validatingadmissionpolicies.admissionregistration.k8s.io", "fairlead-allocation-fence")


@case("FenceOpen", SOME, "has no binding that denies")
def a_fence_that_only_warns(lists: Lists) -> None:
    for each in lists["validatingadmissionpolicybindings.admissionregistration.k8s.io"]:
        each["spec"]["validationActions"] = ["Warn"]


@case("FenceOpen", SOME, "does not name the driver gpu.nvidia.com")
def a_fence_of_another_driver(lists: Lists) -> dict[str, Any]:
    for each in lists[str(RESOURCE_SLICES)]:
        each["spec"]["driver"] = "gpu.nvidia.com"
    for each in lists["deviceclasses.resource.k8s.io"]:
        each["metadata"]["name"] = "gpu.nvidia.com"
    for each in lists[str(RESOURCE_CLAIMS)]:
        each["status"]["allocation"]["devices"]["results"][0]["driver"] = "gpu.nvidia.com"
    return {"drivers": ("gpu.nvidia.com",)}


@case("TwoDriversOnANode", SOME, "device plugin (nvidia.com/gpu): nodes node-0")
def a_device_plugin_beside_us(lists: Lists) -> None:
    lists["nodes"][0]["status"]["allocatable"]["nvidia.com/gpu"] = "8"


@case("TwoDriversOnANode", SOME, "DRA driver gpu.nvidia.com: nodes node-1")
def another_dra_driver_beside_us(lists: Lists) -> None:
    other = copy.deepcopy(lists[str(RESOURCE_SLICES)][1])
    other["spec"]["driver"] = "gpu.nvidia.com"
    lists[str(RESOURCE_SLICES)].append(other)


@case("PrepareFails", SOME, "next: see that the driver runs on the node")
def kubelet_does_not_know_the_driver(lists: Lists) -> None:
    lists["events"].append(
        {
            "metadata": {"name": "train-0.1", "namespace": "team"},
            "involvedObject": {"kind": "Pod", "namespace": "team", "name": "train-0"},
            "reason": reading.PREPARE_FAILS,
            "message": "Failed to prepare dynamic resources: DRA driver gpu.fairlead.dev is not registered",
            "lastTimestamp": "2027-01-15T07:55:00Z",
        }
    )


@case("NoQueueForGangs", SOME, "queues that they name: vision; queues that exist: team")
def a_gang_of_a_queue_that_is_not_there(lists: Lists) -> None:
    lists["gangs.fairlead.dev"].append(health.gang("lost", "Waiting", reason="UnknownQueue", queue="vision"))


@case("NoQueueForGangs", SOME, "queues that exist: none")
def no_queue_for_gangs_that_name_one(lists: Lists) -> None:
    lists["queues.fairlead.dev"].clear()
    lists["gangs.fairlead.dev"].append(health.gang("lost", "Waiting", reason="UnknownQueue"))


@case("QueueNotReady", SOME, "h100: SelectsNothing: takes no device")
def a_flavor_that_selects_nothing(lists: Lists) -> None:
    lists["flavors.fairlead.dev"][0]["status"] = health.ready("False", "SelectsNothing", "takes no device")


@case("NoFlavor", SOME, "named: h100")
def no_flavor(lists: Lists) -> None:
    lists["flavors.fairlead.dev"].clear()


@case("NoQueue", NOTE, "all gangs wait in one line")
def no_queue(lists: Lists) -> None:
    lists["queues.fairlead.dev"].clear()


@case("ClaimedByKueue", SOME, "Kueue claims 1 waiting pod, too")
def kueue_holds_a_pod_too(lists: Lists) -> None:
    lists["pods"].append(health.pod("both", gates=(names.ADMISSION_GATE, names.KUEUE_GATE)))


@case("OtherScheduler", SOME, "to the scheduler volcano, which 1 waiting pod names")
def a_pod_for_volcano(lists: Lists) -> None:
    lists["pods"].append(health.pod("theirs", gates=(names.ADMISSION_GATE,), schedulerName="volcano"))


@case("PodsNotGated", SOME, "delete these pods")
def a_pod_that_the_webhook_did_not_see(lists: Lists) -> None:
    lists["pods"].append(health.pod("early"))
    lists[str(RESOURCE_CLAIMS)].append(health.claim("early-gpu"))


@case("PodsNotGated", SOME, "namespaces that it leaves out: team")
def a_pod_in_a_namespace_that_is_left_out(lists: Lists) -> None:
    next(each for each in lists["namespaces"] if each["metadata"]["name"] == "team")["metadata"]["labels"] = {
        names.IGNORE_LABEL: "true"
    }
    a_pod_that_the_webhook_did_not_see(lists)


@case("LimitNotTranslated", SOME, "no node offers it")
def a_limit_that_nobody_offers(lists: Lists) -> None:
    made = health.pod("legacy", resourceClaims=[])
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    lists["pods"].append(made)


@case("NodesWithoutSlices", SOME, "1 of 4 GPU nodes publish no devices")
def a_node_that_publishes_nothing(lists: Lists) -> None:
    lists["nodes"].append(health.node("node-3"))
