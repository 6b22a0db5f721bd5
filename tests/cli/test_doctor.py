"""`fairlead doctor`: of a healthy cluster nothing; of each cause that cause first; of odd objects no error."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.cli.health import reading
from fairlead.cli.health.doctor import admission, devices, platform, programs, report, waiting
from fairlead.cli.health.doctor.diagnose import diagnose, gaps
from fairlead.cli.health.doctor.finding import Stops
from fairlead.cli.health.doctor.waiting import reasons
from fairlead.cli.health.seen import Listed, Seen, Trial
from fairlead.kube.resources import LEASES, RESOURCE_CLAIMS, RESOURCE_SLICES, Raw
from tests.support import health
from tests.support.health import NODES, NOW, Lists

Break = Callable[[Lists], dict[str, Any] | None]
EVERYTHING, SOME, NOTE = Stops.EVERYTHING, Stops.SOME, Stops.NOTHING
CASES: dict[str, tuple[Break, str, Stops, str]] = {}


def case(code: str, stops: Stops, said: str) -> Callable[[Break], Break]:
    """What the function breaks is found as `code`; `said` is in what is printed of it. It may return other facts than lists."""

    def added(function: Break) -> Break:
        CASES[function.__name__] = (function, code, stops, said)
        return function

    return added


def leases(lists: Lists, name: str) -> Raw:
    return next(each for each in lists[str(LEASES)] if each["metadata"]["name"] == name)


def drop(lists: Lists, kind: str, name: str) -> None:
    before = len(lists[kind])
    lists[kind] = [each for each in lists[kind] if each["metadata"]["name"] != name]
    assert len(lists[kind]) < before


@case("NoResourceAPI", EVERYTHING, "does not serve resource.k8s.io/v1")
def only_the_beta_of_the_resource_api(_: Lists) -> dict[str, Any]:
    return {"groups": {"resource.k8s.io": ("v1beta1",), "fairlead.dev": ("v1alpha1",)}}


@case("NoResourceAPI", EVERYTHING, "Kubernetes v1.33.4 is older than 1.34")
def an_old_release(_: Lists) -> dict[str, Any]:
    return {"release": "v1.33.4"}


@case("FeatureGateOff", EVERYTHING, "DynamicResourceAllocation is off")
def the_gate_is_off(_: Lists) -> dict[str, Any]:
    return {"gates": {"DynamicResourceAllocation": False}}


@case("FeatureGateOff", SOME, "offers devices by --dynamic-mig, and DRAPartitionableDevices is off")
def dynamic_mig_without_its_gate(lists: Lists) -> dict[str, Any]:
    lists["daemonsets.apps"][0]["spec"]["template"]["spec"]["containers"][0]["args"].append("--dynamic-mig")
    return {"gates": {"DRAPartitionableDevices": False}}


@case("FeatureGateOff", SOME, "whether it was turned on is not visible (you may not get /metrics)")
def shared_gpus_on_a_release_that_has_it_off(lists: Lists) -> dict[str, Any]:
    lists["daemonsets.apps"][0]["spec"]["template"]["spec"]["containers"][0]["args"].append("--shared-gpus")
    return {"gates": {}, "gates_gap": "you may not get /metrics", "release": "v1.35.1"}


@case("NotInstalled", EVERYTHING, "knows none of its kinds")
def no_kind_of_ours(lists: Lists) -> dict[str, Any]:
    return {"missing": [kind for kind in lists if kind.endswith(".fairlead.dev")]}


@case("KindsMissing", EVERYTHING, "the cluster does not know gangs.fairlead.dev")
def one_kind_is_missing(_: Lists) -> dict[str, Any]:
    return {"missing": ["gangs.fairlead.dev"]}


@case("RightsMissing", EVERYTHING, "fairlead-controller may not update resourceclaims/binding")
def an_old_role(_: Lists) -> dict[str, Any]:
    return {"allowed": dict.fromkeys(reading.RIGHTS, True) | {"update resourceclaims/binding": False}}


@case("NoLeader", EVERYTHING, "there is no lease fairlead-system/fairlead-controller")
def no_lease(lists: Lists) -> None:
    drop(lists, str(LEASES), names.CONTROLLER_ACCOUNT)


@case("NoLeader", EVERYTHING, "Deployment fairlead-controller: 0 of 2 ready")
def a_lease_that_ran_out(lists: Lists) -> None:
    lease = leases(lists, names.CONTROLLER_ACCOUNT)
    lease["metadata"]["managedFields"][0]["time"] = "2027-01-15T07:00:00Z"
    lease["spec"]["renewTime"] = "2027-01-15T07:00:00.000000Z"
    for each in lists["deployments.apps"]:
        each["status"] = {}


@case("NoLeader", EVERYTHING, "has no holder")
def a_lease_that_was_released(lists: Lists) -> None:
    leases(lists, names.CONTROLLER_ACCOUNT)["spec"]["holderIdentity"] = ""


@case("NoLeader", EVERYTHING, "pod fairlead-controller-0: ImagePullBackOff no such image")
def an_image_that_is_missing(lists: Lists) -> None:
    drop(lists, str(LEASES), names.CONTROLLER_ACCOUNT)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    lists["pods"].append(
        {
            "metadata": {
                "name": "fairlead-controller-0",
                "namespace": names.NAMESPACE,
                "labels": {"app.kubernetes.io/component": "controller"},
            },
            "spec": {"nodeName": NODES[0]},
            "status": {"phase": "Pending", "containerStatuses": [{"name": "controller", "state": waiting}]},
        }
    )


@case("WebhookCertificate", EVERYTHING, "is not valid any more, since 2027-01-15T07:00:00Z")
def an_authority_that_ended(lists: Lists) -> None:
    bundle(lists, health.authority(NOW - 86_400, NOW - 3600))


@case("WebhookCertificate", EVERYTHING, "the clock of the webhook's node is ahead")
def an_authority_of_tomorrow(lists: Lists) -> None:
    bundle(lists, health.authority(NOW + 86_400, NOW + 2 * 86_400))


@case("WebhookCertificate", EVERYTHING, "cannot be read")
def a_bundle_that_is_none(lists: Lists) -> None:
    bundle(lists, "bm8=")


@case("WebhookCertificate", NOTE, "ends at 2027-01-16")
def an_authority_that_ends_soon(lists: Lists) -> None:
    bundle(lists, health.authority(NOW - 86_400, NOW + 86_400))


@case("WebhookNotRegistered", EVERYTHING, "MutatingWebhookConfiguration fairlead not there")
def no_mutating_configuration(lists: Lists) -> None:
    drop(lists, "mutatingwebhookconfigurations.admissionregistration.k8s.io", "fairlead")


@case("WebhookUnreachable", EVERYTHING, "connection refused")
def a_webhook_that_is_away(_: Lists) -> dict[str, Any]:
    return {"trial": Trial(answered=False, message='failed calling webhook "pods.fairlead.dev": connection refused')}


@case("WebhookCertificate", EVERYTHING, "x509")
def a_certificate_that_is_not_trusted(_: Lists) -> dict[str, Any]:
    return {"trial": Trial(answered=False, message="failed calling webhook: tls: x509: unknown authority")}


@case("WebhookUnreachable", EVERYTHING, "has no address that is ready")
def a_service_without_addresses(lists: Lists) -> dict[str, Any]:
    lists["endpointslices.discovery.k8s.io"][0]["endpoints"][0]["conditions"]["ready"] = False
    return {"trial": Trial(message="you may not create pods in namespace default")}


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


@case("DevicesUnusable", NOTE, "8 of 24 published devices")
def one_node_is_cordoned(lists: Lists) -> None:
    lists["nodes"][0]["spec"]["unschedulable"] = True


@case("NoScheduler", EVERYTHING, "pods that Fairlead releases get no node")
def the_scheduler_is_away(lists: Lists) -> None:
    leases(lists, "kube-scheduler")["metadata"]["managedFields"][0]["time"] = "2027-01-15T07:00:00Z"
    leases(lists, "kube-scheduler")["spec"]["renewTime"] = "2027-01-15T07:00:00.000000Z"


@case("NoControllerManager", EVERYTHING, "claims of pods are not made")
def the_controller_manager_is_away(lists: Lists) -> None:
    leases(lists, "kube-controller-manager")["spec"]["holderIdentity"] = None


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


@case("ClaimedByKueue", SOME, "pods team/both")
def kueue_holds_a_pod_too(lists: Lists) -> None:
    lists["pods"].append(health.pod("both", gates=(names.ADMISSION_GATE, names.KUEUE_GATE)))


@case("OtherScheduler", SOME, "for the scheduler volcano")
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


@case("ClockSkew", SOME, "node-1 is 120 s ahead of the apiserver (lease kube-node-lease/node-1)")
def a_clock_that_is_ahead(lists: Lists) -> None:
    drop(lists, str(LEASES), "node-1")
    lists[str(LEASES)].append(
        health.lease("node-1", "kube-node-lease", holder="node-1", lasts_s=40, renewed_s=NOW + 118, written=NOW - 2)
    )


@case("VersionsDiffer", NOTE, "webhook: fairlead:0.0.9")
def an_older_webhook(lists: Lists) -> None:
    webhook = next(each for each in lists["deployments.apps"] if each["metadata"]["name"] == "fairlead-webhook")
    webhook["spec"]["template"]["spec"]["containers"][0]["image"] = "fairlead:0.0.9"


def bundle(lists: Lists, text: str) -> None:
    for kind in ("mutating", "validating"):
        for each in lists[f"{kind}webhookconfigurations.admissionregistration.k8s.io"][0]["webhooks"]:
            each["clientConfig"]["caBundle"] = text


def broken(lists: Lists, more: dict[str, Any] | None) -> Seen:
    facts = dict(more or {})
    missing = facts.pop("missing", ())
    found = health.seen(lists, **facts)
    return dataclasses.replace(found, lists={**found.lists, **dict.fromkeys(missing, Listed(served=False))})


def test_of_a_healthy_cluster_nothing_is_found() -> None:
    found = health.seen(health.healthy())
    assert diagnose(found) == []
    assert gaps(found) == []


@pytest.mark.parametrize("what", CASES)
def test_each_cause_is_found_and_comes_first(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    break_it, code, stops, said = CASES[what]
    lists = health.healthy()
    found = broken(lists, break_it(lists))
    first, *others = diagnose(found)
    assert (first.code, first.stops) == (code, stops)
    assert first.next_step
    assert [each.code for each in others if each.stops is EVERYTHING and stops is not EVERYTHING] == []
    report._print(found, [first])
    printed = capsys.readouterr().out
    assert said in printed
    assert f"1. {code}" in printed


def test_every_cause_has_a_case() -> None:
    sources = "".join(map(inspect.getsource, (admission, devices, platform, programs, waiting)))
    named = {code for line in re.findall(r"code=(.*)", sources) for code in re.findall(r'"([A-Z]\w+)"', line)}
    assert len(named) >= 20
    assert named <= {code for _, code, _, _ in CASES.values()}


def test_every_cause_is_documented() -> None:
    table = (
        (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text().partition("## A job does not start")[0]
    )
    rows = re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE)
    documented = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert documented == {code for _, code, _, _ in CASES.values()}


def test_causes_that_stop_everything_come_before_others() -> None:
    lists = health.healthy()
    a_clock_that_is_ahead(lists)
    no_queue(lists)
    a_pod_for_volcano(lists)
    no_slices(lists)
    no_lease(lists)
    codes = [each.code for each in diagnose(health.seen(lists))]
    assert codes == ["NoLeader", "NoSlices", "OtherScheduler", "ClockSkew", "NoQueue"]


def test_what_waits_is_counted_by_reason() -> None:
    lists = health.healthy()
    lists["gangs.fairlead.dev"] += [health.gang(f"w{n}", "Waiting", reason="DevicesInUse") for n in range(2)]
    lists["gangs.fairlead.dev"].append(health.gang("g", "Gathering", reason="Gathering"))
    found = health.seen(lists)
    assert diagnose(found) == []
    assert reasons(found) == "3 gangs wait: 2 DevicesInUse, 1 Gathering"


def test_what_may_not_be_read_is_said_and_not_guessed() -> None:
    nothing = Seen(now=NOW, lists={kind: Listed(gap=f"you may not list {kind}") for kind in health.healthy()})
    assert diagnose(nothing) == []
    assert "you may not list pods" in gaps(nothing)


def test_each_kind_that_may_not_be_read_leads_to_no_cause() -> None:
    for kind in health.healthy():
        found = health.seen(health.healthy())
        refused = dataclasses.replace(found, lists={**found.lists, kind: Listed(gap=f"you may not list {kind}")})
        assert [each.code for each in diagnose(refused) if each.stops is not NOTE] == [], kind


# -- odd objects ---------------------------------------------------------------------------------------------------------

_HEALTHY = health.healthy()
_PLACES = [each for each in health.places(_HEALTHY) if each[0] != "customresourcedefinitions.apiextensions.k8s.io"]


@given(st.lists(st.tuples(st.sampled_from(_PLACES), health.ODD), min_size=1, max_size=4))
def test_odd_values_anywhere_do_not_stop_it(changes: list[tuple[tuple[str, int, tuple[Any, ...]], Any]]) -> None:
    for each in diagnose(health.seen(health.with_odd_values(_HEALTHY, changes))):
        text = "".join((each.what, each.next_step, *each.evidence))
        assert text.isprintable()


def test_whatever_is_no_object_at_all_is_passed_over() -> None:
    assert [
        each for each in diagnose(health.seen({key: list(health.NO_OBJECTS) for key in _HEALTHY})) if not each.what
    ] == []
