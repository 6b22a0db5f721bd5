"""What `fairlead doctor` is to find: what `test_doctor` changes in a healthy cluster, and the cause that it expects first."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlead.api import names
from fairlead.cli.health import reading
from fairlead.cli.health.doctor.finding import Stops
from fairlead.cli.health.seen import SliceTrial, Trial
from tests.support import health
from tests.support.health import ADD, DROP, NODES, NONE, NOW, Change

ALL, SOME, NOTE = Stops.EVERYTHING, Stops.SOME, Stops.NOTHING
LEASES, SLICES, CLAIMS = (
    "leases.coordination.k8s.io",
    "resourceslices.resource.k8s.io",
    "resourceclaims.resource.k8s.io",
)
WEBHOOKS = (
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
)
CONTROLLER, GANGS, QUEUES, FLAVORS = (
    f"{LEASES} {names.CONTROLLER_ACCOUNT}",
    "gangs.fairlead.dev",
    "queues.fairlead.dev",
    "flavors.fairlead.dev",
)
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
DRIVER_FLAG = f"daemonsets.apps 0 spec template spec containers 0 args {ADD}"
RUNTIME = "status nodeInfo containerRuntimeVersion"
LONG_AGO = {"metadata managedFields 0 time": "2027-01-15T07:00:00Z", "spec renewTime": "2027-01-15T07:00:00.000000Z"}
NVIDIA = "gpu.nvidia.com"


class Case(NamedTuple):
    code: str
    stops: Stops
    said: str
    change: Change = NONE
    facts: Change = NONE


def at(place: str, change: Change) -> Change:
    return {f"{place} {path}": value for path, value in change.items()}


def bundle(text: str) -> Change:
    return {f"{kind} 0 webhooks * clientConfig caBundle": text for kind in WEBHOOKS}


def image_missing() -> dict[str, Any]:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    labels = {"app.kubernetes.io/component": "controller"}
    return {
        "metadata": {"name": "fairlead-controller-0", "namespace": names.NAMESPACE, "labels": labels},
        "spec": {"nodeName": NODES[0]},
        "status": {"phase": "Pending", "containerStatuses": [{"name": "controller", "state": waiting}]},
    }


def limited() -> dict[str, Any]:
    made = health.pod("legacy", resourceClaims=[])
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return made


AHEAD = health.lease("node-1", "kube-node-lease", holder="node-1", lasts_s=40, renewed_s=NOW + 118, written=NOW - 2)
UNPREPARED = {
    "metadata": {"name": "train-0.1", "namespace": "team"},
    "involvedObject": {"kind": "Pod", "namespace": "team", "name": "train-0"},
    "reason": reading.PREPARE_FAILS,
    "message": "Failed to prepare dynamic resources: DRA driver gpu.fairlead.dev is not registered",
    "lastTimestamp": "2027-01-15T07:55:00Z",
}
OTHER_SLICE = next(each for each in health.healthy()[SLICES] if each["spec"]["nodeName"] == NODES[1])
OTHER_SLICE["spec"]["driver"] = NVIDIA
CLASSES, TEMPLATES = "deviceclasses.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io"
DRANET = {
    "metadata": {"name": "dranet.net"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'dra.net'"}}]},
}
MIXED = health.claim("both-gpu")
MIXED["spec"]["devices"]["requests"].append({"name": "nic", "exactly": {"deviceClassName": "dranet.net", "count": 1}})
NICS = health.claim("nics", allocated_by="kube-scheduler", device="nic-0")
NICS["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "dranet.net"
NICS["status"]["allocation"]["devices"]["results"][0]["driver"] = "dra.net"
TAINTS = [{"key": "gpu.fairlead.dev/xid", "value": "79", "effect": "NoExecute"}]
RIGHTS = dict.fromkeys(reading.RIGHTS, True) | {"update resourceclaims/binding": False}
REFUSED = 'failed calling webhook "pods.fairlead.dev": connection refused'
MIG_OFF = "offer devices by --dynamic-mig, and the apiserver drops what they need: the driver publishes whole GPUs only"
MIG_DROPPED = "a slice created with dryRun came back without it (DRAConsumableCapacity is off)"
SHARED_UNKNOWN = "whether DRAConsumableCapacity was turned on is not visible (you may not get /metrics)"
UNGATED: Change = {f"pods {ADD}": health.pod("early"), f"{CLAIMS} {ADD}": health.claim("early-gpu")}
OF_NVIDIA: Change = {
    f"{SLICES} * spec driver": NVIDIA,
    "deviceclasses.resource.k8s.io * metadata name": NVIDIA,
    f"{CLAIMS} * status allocation devices results 0 driver": NVIDIA,
}
BETA_ONLY = {"resource.k8s.io": ("v1beta1",), "fairlead.dev": ("v1alpha1",)}
NOT_TRUSTED = Trial(answered=False, message="failed calling webhook: tls: x509: unknown authority")
NO_RIGHT = Trial(message="you may not create pods in namespace default")

CASES = {
    "only_the_beta_of_the_resource_api": Case("NoResourceAPI", ALL, "does not serve resource.k8s.io/v1", facts={"groups": BETA_ONLY}),
    "an_old_release": Case("NoResourceAPI", ALL, "Kubernetes v1.33.4 is older than 1.34", facts={"release": "v1.33.4"}),
    "the_gate_is_off": Case("FeatureGateOff", ALL, "DynamicResourceAllocation is off", facts={"gates": {"DynamicResourceAllocation": False}}),
    "dynamic_mig_without_its_gate": Case("FeatureGateOff", SOME, MIG_OFF, {DRIVER_FLAG: "--dynamic-mig"}, {"gates": {"DRAPartitionableDevices": False}}),
    "shared_mig_whose_fields_are_dropped": Case(
        "FeatureGateOff", SOME, MIG_DROPPED, {DRIVER_FLAG: "--shared-mig"}, {"gates": {}, "slice_trial": SliceTrial(kept={"consumable-capacity": False})}
    ),
    "shared_gpus_on_a_release_that_has_it_off": Case(
        "FeatureGateOff", SOME, SHARED_UNKNOWN, {DRIVER_FLAG: "--shared-gpus"}, {"gates": {}, "gates_gap": "you may not get /metrics", "release": "v1.35.1"}
    ),
    "taints_are_dropped": Case(
        "NotOnThisCluster", NOTE, "without it: the driver leaves such a GPU out of its slices", facts={"gates": {"DRADeviceTaints": False}}
    ),
    "the_oldest_release": Case("NotOnThisCluster", NOTE, "Kubernetes v1.34.9 drops it; without it: a claim that Fairlead made", facts={"release": "v1.34.9"}),
    "a_release_that_was_not_tried": Case("ReleaseNotTried", NOTE, "Kubernetes v1.37.0 is newer than 1.36", facts={"release": "v1.37.0"}),
    "no_kind_of_ours": Case(
        "NotInstalled", ALL, "its kinds are not served", facts={"missing": [each for each in health.healthy() if each.endswith(".fairlead.dev")]}
    ),
    "one_kind_is_missing": Case("KindsMissing", ALL, "the cluster does not know gangs.fairlead.dev", facts={"missing": [GANGS]}),
    "an_old_role": Case("RightsMissing", ALL, "fairlead-controller may not update resourceclaims/binding", facts={"allowed": RIGHTS}),
    "no_lease": Case("NoLeader", ALL, "there is no lease fairlead-system/fairlead-controller", {CONTROLLER: DROP}),
    "a_lease_that_ran_out": Case("NoLeader", ALL, "Deployment fairlead-controller: 0 of 2 ready", {**at(CONTROLLER, LONG_AGO), "deployments.apps * status": {}}),
    "a_lease_that_was_released": Case("NoLeader", ALL, "has no holder", {f"{CONTROLLER} spec holderIdentity": ""}),
    "an_image_that_is_missing": Case(
        "NoLeader", ALL, "pod fairlead-controller-0: ImagePullBackOff no such image", {CONTROLLER: DROP, f"pods {ADD}": image_missing()}
    ),
    "an_authority_that_ended": Case(
        "WebhookCertificate", ALL, "is not valid any more, since 2027-01-15T07:00:00Z", bundle(health.authority(NOW - 86_400, NOW - 3600))
    ),
    "an_authority_of_tomorrow": Case(
        "WebhookCertificate", ALL, "the clock of the webhook's node is ahead", bundle(health.authority(NOW + 86_400, NOW + 2 * 86_400))
    ),
    "a_bundle_that_is_none": Case("WebhookCertificate", ALL, "cannot be read", bundle("bm8=")),
    "an_authority_that_ends_soon": Case("WebhookCertificate", NOTE, "ends at 2027-01-16", bundle(health.authority(NOW - 86_400, NOW + 86_400))),
    "no_mutating_configuration": Case("WebhookNotRegistered", ALL, "MutatingWebhookConfiguration fairlead not there", {f"{WEBHOOKS[0]} fairlead": DROP}),
    "a_webhook_that_is_away": Case("WebhookUnreachable", ALL, "connection refused", facts={"trial": Trial(answered=False, message=REFUSED)}),
    "a_certificate_that_is_not_trusted": Case("WebhookCertificate", ALL, "x509", facts={"trial": NOT_TRUSTED}),
    "a_service_without_addresses": Case(
        "WebhookUnreachable", ALL, "has no address that is ready", {"endpointslices.discovery.k8s.io 0 endpoints 0 conditions ready": False}, {"trial": NO_RIGHT}
    ),
    "the_scheduler_is_away": Case("NoScheduler", ALL, "pods that Fairlead releases get no node", at(f"{LEASES} kube-scheduler", LONG_AGO)),
    "the_controller_manager_is_away": Case(
        "NoControllerManager", ALL, "claims of pods are not made", {f"{LEASES} kube-controller-manager spec holderIdentity": None}
    ),
    "a_clock_that_is_ahead": Case(
        "ClockSkew", SOME, "node-1 is 120 s ahead of the apiserver (lease kube-node-lease/node-1)", {f"{LEASES} node-1": DROP, f"{LEASES} {ADD}": AHEAD}
    ),
    "an_older_webhook": Case(
        "VersionsDiffer", NOTE, "webhook: fairlead:0.0.9", {"deployments.apps fairlead-webhook spec template spec containers 0 image": "fairlead:0.0.9"}
    ),
    "no_classes": Case("NoDeviceClass", ALL, "no DeviceClass selects devices of gpu.fairlead.dev", {"deviceclasses.resource.k8s.io *": DROP}),
    "no_slices": Case("NoSlices", ALL, "next: kubectl -n fairlead-system logs daemonset/fairlead-driver", {f"{SLICES} *": DROP}),
    "no_driver": Case("NoSlices", ALL, "there is no DaemonSet of the driver", {f"{SLICES} *": DROP, "daemonsets.apps *": DROP}),
    "no_node_is_labelled": Case(
        "NoSlices", ALL, "next: kubectl label node NODE fairlead.dev/gpu=true", {f"{SLICES} *": DROP, "nodes * metadata labels": {}}
    ),
    "slices_of_another_driver_only": Case("NoSlices", ALL, "other drivers publish: gpu.nvidia.com (--managed-driver", {f"{SLICES} * spec driver": NVIDIA}),
    "old_kubelets": Case("KubeletTooOld", ALL, "v1.33.0", {"nodes * status nodeInfo kubeletVersion": "v1.33.0"}),
    "one_old_runtime": Case("RuntimeWithoutCDI", SOME, "containerd://1.7.27: nodes node-1", {f"nodes 1 {RUNTIME}": "containerd://1.7.27"}),
    "docker_everywhere": Case("RuntimeWithoutCDI", ALL, "docker://27.1.0", {f"nodes * {RUNTIME}": "docker://27.1.0"}),
    "slices_of_a_node_that_is_gone": Case("SlicesStale", SOME, "of nodes that do not exist: node-2", {"nodes node-2": DROP}),
    "all_nodes_are_away": Case("SlicesStale", ALL, "of nodes that are not Ready: node-0, node-1, node-2", {"nodes * status conditions 0 status": "Unknown"}),
    "a_pool_of_which_a_slice_is_missing": Case(
        "SlicesStale", SOME, "pool node-1 has 1 of 2 slices of generation", {f"{SLICES} 1 spec pool resourceSliceCount": 2}
    ),
    "all_nodes_are_cordoned": Case("DevicesUnusable", ALL, "cordoned: nodes node-0, node-1, node-2", {"nodes * spec unschedulable": True}),
    "all_devices_are_tainted": Case("DevicesUnusable", ALL, "24 devices are tainted", {f"{SLICES} * spec devices * taints": TAINTS}),
    "one_node_is_cordoned": Case("DevicesUnusable", NOTE, "cordoned: node node-0", {"nodes 0 spec unschedulable": True}),
    "the_scheduler_took_a_device": Case(
        "ForeignAllocator", SOME, "kube-scheduler allocated claim team/other-gpu",
        {f"{CLAIMS} {ADD}": health.claim("other-gpu", allocated_by="kube-scheduler", device="gpu-1")},
    ),
    "no_fence": Case(
        "FenceOpen", SOME, "there is no ValidatingAdmissionPolicy", {"validatingadmissionpolicies.admissionregistration.k8s.io fairlead-allocation-fence": DROP}
    ),
    "a_fence_that_only_warns": Case("FenceOpen", SOME, "has no binding that denies", {f"{BINDINGS} * spec validationActions": ["Warn"]}),
    "a_fence_of_another_driver": Case("FenceOpen", SOME, "does not name the driver gpu.nvidia.com", OF_NVIDIA, {"drivers": (NVIDIA,)}),
    "a_claim_of_two_drivers_of_which_one_is_not_managed": Case(
        "MixedDrivers", SOME, "team/both-gpu: devices.requests[1]: DeviceClass dranet.net is of a driver that Fairlead does not allocate for",
        {f"{CLASSES} {ADD}": DRANET, f"{CLAIMS} {ADD}": MIXED, f"{TEMPLATES} {ADD}": health.template_of(MIXED, "both")},
    ),
    "a_template_of_two_drivers_of_which_one_is_not_managed": Case(
        "MixedDrivers", SOME, "add dra.net to managedDrivers of the chart", {f"{CLASSES} {ADD}": DRANET, f"{TEMPLATES} {ADD}": health.template_of(MIXED, "both")}
    ),
    "a_claim_of_a_shared_driver_alone": Case(
        "SharedDriverAlone", SOME, "allocated for dra.net alone: team/nics", {f"{CLAIMS} {ADD}": NICS},
        {"shared_drivers": ("dra.net",)},
    ),
    "a_device_plugin_beside_us": Case(
        "TwoDriversOnANode", SOME, "device plugin (nvidia.com/gpu): nodes node-0", {"nodes 0 status allocatable nvidia.com/gpu": "8"}
    ),
    "another_dra_driver_beside_us": Case("TwoDriversOnANode", SOME, "DRA driver gpu.nvidia.com: nodes node-1", {f"{SLICES} {ADD}": OTHER_SLICE}),
    "kubelet_does_not_know_the_driver": Case("PrepareFails", SOME, "next: see that the driver runs on the node", {f"events {ADD}": UNPREPARED}),
    "a_gang_of_a_queue_that_is_not_there": Case(
        "NoQueueForGangs", SOME, "queues that they name: vision; queues that exist: team",
        {f"{GANGS} {ADD}": health.gang("lost", "Waiting", reason="UnknownQueue", queue="vision")},
    ),
    "no_queue_for_gangs_that_name_one": Case(
        "NoQueueForGangs", SOME, "queues that exist: none", {f"{QUEUES} *": DROP, f"{GANGS} {ADD}": health.gang("lost", "Waiting", reason="UnknownQueue")}
    ),
    "a_flavor_that_selects_nothing": Case(
        "QueueNotReady", SOME, "h100: SelectsNothing: takes no device", {f"{FLAVORS} 0 status": health.ready("False", "SelectsNothing", "takes no device")}
    ),
    "no_flavor": Case("NoFlavor", SOME, "named: h100", {f"{FLAVORS} *": DROP}),
    "no_queue": Case("NoQueue", NOTE, "all gangs wait in one line", {f"{QUEUES} *": DROP}),
    "kueue_holds_a_pod_too": Case(
        "ClaimedByKueue", SOME, "Kueue claims 1 waiting pod, too", {f"pods {ADD}": health.pod("both", gates=(names.ADMISSION_GATE, names.KUEUE_GATE))}
    ),
    "a_pod_for_volcano": Case(
        "OtherScheduler", SOME, "to the scheduler volcano, which 1 waiting pod names",
        {f"pods {ADD}": health.pod("theirs", gates=(names.ADMISSION_GATE,), schedulerName="volcano")},
    ),
    "a_pod_that_the_webhook_did_not_see": Case("PodsNotGated", SOME, "delete these pods", UNGATED),
    "a_pod_in_a_namespace_that_is_left_out": Case(
        "PodsNotGated", SOME, "namespaces that it leaves out: team", {**UNGATED, "namespaces team metadata labels": {names.IGNORE_LABEL: "true"}}
    ),
    "a_limit_that_nobody_offers": Case("LimitNotTranslated", SOME, "no node offers it", {f"pods {ADD}": limited()}),
    "a_node_that_publishes_nothing": Case("NodesWithoutSlices", SOME, "1 of 4 GPU nodes publish no devices", {f"nodes {ADD}": health.node("node-3")}),
}  # fmt: skip
