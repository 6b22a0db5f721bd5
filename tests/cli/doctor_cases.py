"""What `fairlead doctor` is to find, in the platform, Fairlead's programs and the webhook: what `test_doctor` breaks, and the cause it expects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlead.api import names
from fairlead.cli.health import reading
from fairlead.cli.health.doctor.finding import Stops
from fairlead.cli.health.seen import SliceTrial, Trial
from fairlead.kube.resources import LEASES, Raw
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


def flag(lists: Lists, word: str) -> None:
    lists["daemonsets.apps"][0]["spec"]["template"]["spec"]["containers"][0]["args"].append(word)


@case(
    "FeatureGateOff",
    SOME,
    "offer devices by --dynamic-mig, and the apiserver drops what they need: the driver publishes whole GPUs only",
)
def dynamic_mig_without_its_gate(lists: Lists) -> dict[str, Any]:
    flag(lists, "--dynamic-mig")
    return {"gates": {"DRAPartitionableDevices": False}}


@case("FeatureGateOff", SOME, "a slice created with dryRun came back without it (DRAConsumableCapacity is off)")
def shared_mig_whose_fields_are_dropped(lists: Lists) -> dict[str, Any]:
    flag(lists, "--shared-mig")
    return {"gates": {}, "slice_trial": SliceTrial(kept={"consumable-capacity": False})}


@case("FeatureGateOff", SOME, "whether DRAConsumableCapacity was turned on is not visible (you may not get /metrics)")
def shared_gpus_on_a_release_that_has_it_off(lists: Lists) -> dict[str, Any]:
    flag(lists, "--shared-gpus")
    return {"gates": {}, "gates_gap": "you may not get /metrics", "release": "v1.35.1"}


@case("NotOnThisCluster", NOTE, "without it: the driver leaves such a GPU out of its slices")
def taints_are_dropped(_: Lists) -> dict[str, Any]:
    return {"gates": {"DRADeviceTaints": False}}


@case("NotOnThisCluster", NOTE, "Kubernetes v1.34.9 drops it; without it: a claim that Fairlead made")
def the_oldest_release(_: Lists) -> dict[str, Any]:
    return {"release": "v1.34.9"}


@case("ReleaseNotTried", NOTE, "Kubernetes v1.37.0 is newer than 1.36")
def a_release_that_was_not_tried(_: Lists) -> dict[str, Any]:
    return {"release": "v1.37.0"}


@case("NotInstalled", EVERYTHING, "its kinds are not served")
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


@case("NoScheduler", EVERYTHING, "pods that Fairlead releases get no node")
def the_scheduler_is_away(lists: Lists) -> None:
    leases(lists, "kube-scheduler")["metadata"]["managedFields"][0]["time"] = "2027-01-15T07:00:00Z"
    leases(lists, "kube-scheduler")["spec"]["renewTime"] = "2027-01-15T07:00:00.000000Z"


@case("NoControllerManager", EVERYTHING, "claims of pods are not made")
def the_controller_manager_is_away(lists: Lists) -> None:
    leases(lists, "kube-controller-manager")["spec"]["holderIdentity"] = None


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
