"""ResourceClaims, templates and classes: denied when invalid, warned about when pods would wait, left alone when foreign."""

from typing import Any

import msgspec
import pytest

from fairlead.api import legacy, names
from fairlead.api.drivers import NVIDIA
from fairlead.api.policy import TenancyPolicy
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.policy.claims import devices_of
from fairlead.webhook.review.verdict import Verdict
from tests.support.webhook import CLASSES, device_class, facts, review

Json = dict[str, Any]


def request(class_name: str = names.GPU_CLASS, *expressions: str, name: str = "gpu", **more: Any) -> Json:
    selectors = [{"cel": {"expression": text}} for text in expressions]
    return {"name": name, "exactly": {"deviceClassName": class_name, "selectors": selectors} | more}


def claim(*requests: Json, config: list[Json] | None = None) -> Json:
    spec = {"devices": {"requests": list(requests), "config": config or []}}
    return {"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "ml"}, "spec": spec}


def config(kind: str = "GpuConfig", *, requests: tuple[str, ...] = (), driver: str = names.DRIVER, **more: Any) -> Json:
    parameters = {"apiVersion": names.CONFIG_API_VERSION, "kind": kind} | more
    return {"requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def validate(body: Json, **known: Any) -> Verdict:
    return dispatch.validate(review(body), facts(**known))


def test_a_foreign_claim_is_left_alone_whatever_it_holds() -> None:
    body = claim(request("nic.example.com", count=99), config=[config("Anything", driver="nic.example.com")])
    assert validate(body).cause == "unmanaged"


def test_a_request_that_asks_for_nothing_is_no_other_drivers() -> None:
    """The apiserver refuses it, after the webhook: which of the others is refused is said by its own number."""
    nothing = {"name": "nothing"}
    assert validate(claim(nothing, request(names.GPU_CLASS))).allowed
    foreign = request("nic.example.com") | {"name": "nic"}
    refused = validate(claim(nothing, request(names.GPU_CLASS), foreign))
    assert not refused.allowed
    assert "spec.devices.requests[2]: DeviceClass nic.example.com is of a driver that" in refused.message


def test_devices_of_another_driver_in_a_claim_of_ours_are_refused() -> None:
    """Two allocators would give out one device twice. A claim that is made for a pod is as its template was allowed."""
    foreign = request("nic.example.com") | {"name": "nic"}
    mixed = claim(request(names.GPU_CLASS), foreign)
    refused = validate(mixed)
    assert not refused.allowed
    assert (
        "spec.devices.requests[1]: DeviceClass nic.example.com is of a driver that Fairlead does not allocate for, and other requests of the "
        "claim are not: add nic.example.com to managedDrivers of the chart (--managed-driver), or ask for its devices in a claim of their own"
    ) in refused.message
    known = {"drivers": (names.DRIVER, "nic.example.com")}
    assert validate(mixed, **known) == validate(claim(request(names.GPU_CLASS)))
    mixed["metadata"]["annotations"] = {names.POD_CLAIM_NAME: "devices"}
    assert validate(mixed).allowed


def test_a_driver_that_is_shared_in_claims_stands_beside_managed_devices_only() -> None:
    """One request at least is for managed devices, whatever is chosen: by these the fence and the controller know the claim."""
    nic, shared = request("nic.example.com") | {"name": "nic"}, ("nic.example.com",)
    mixed = claim(request(names.GPU_CLASS), nic)
    allowed = validate(claim(request(names.GPU_CLASS)))
    assert validate(mixed, shared_drivers=shared) == allowed
    assert validate(mixed, shared_drivers=("other.example.com",)) == validate(mixed)
    assert validate(mixed, drivers=(names.DRIVER, *shared), shared_drivers=shared) == allowed, "managed counts"
    assert validate(claim(nic), shared_drivers=shared).cause == "unmanaged"
    classes = (names.GPU_CLASS, "nic.example.com")
    options = [{"name": f"n{number}", "deviceClassName": name} for number, name in enumerate(classes)]
    either = {"name": "either", "firstAvailable": options}
    assert validate(claim(either), drivers=(names.DRIVER,)) == allowed
    refused = validate(claim(either), shared_drivers=shared)
    assert not refused.allowed
    assert "devices.requests: each may be given devices of nic.example.com (sharedClaimDrivers)" in refused.message
    assert not validate(claim(either, nic), shared_drivers=shared).allowed
    assert validate(claim(request(names.GPU_CLASS), either), shared_drivers=shared) == allowed


def test_a_flavor_may_count_devices_of_a_shared_driver() -> None:
    spec = {"driver": "nic.example.com", "measure": "Devices"}
    flavor = {"apiVersion": names.API_VERSION, "kind": "Flavor", "metadata": {"name": "nics"}, "spec": spec}
    assert any("is no driver that Fairlead manages" in each for each in validate(flavor).warnings)
    assert not any("is no driver" in each for each in validate(flavor, shared_drivers=("nic.example.com",)).warnings)


def test_a_function_behind_a_gate_is_left_to_the_apiserver() -> None:
    """`includes` looks into lists of values (DRAListTypeAttributes, alpha): an apiserver without that gate refuses it by itself."""
    assert validate(claim(request(names.GPU_CLASS, 'device.attributes["dra.cpu"].roots.includes("pci0")'))).allowed


def test_the_alternatives_of_a_request_are_judged_too() -> None:
    sub = {"name": "big", "deviceClassName": names.GPU_CLASS, "selectors": [{"cel": {"expression": "1 +"}}]}
    verdict = validate(claim({"name": "gpu", "firstAvailable": [sub]}))
    assert "spec.devices.requests[0].firstAvailable[0].selectors[0].cel.expression: " in verdict.message


def test_configurations_for_other_drivers_are_not_read() -> None:
    assert validate(claim(request(), config=[config("Whatever", driver="gpu.nvidia.com")])).allowed


MPS_ON_MIG = config("MigDeviceConfig", sharing={"strategy": "MPS"})
MIG_TWICE = [request(names.MIG_CLASS), request(names.MIG_CLASS) | {"name": "other"}]


@pytest.mark.parametrize(
    ("requests", "given"),
    [
        ([request(names.MIG_CLASS)], MPS_ON_MIG),
        (MIG_TWICE, config("MigDeviceConfig", requests=("gpu",), sharing={"strategy": "MPS"})),
        ([request(names.MIG_CLASS, count=2)], config("MigDeviceConfig", sharing={"strategy": "TimeSlicing"})),
        ([request(count=2)], MPS_ON_MIG),  # it does not apply to whole GPUs
    ],
)
def test_mps_on_one_mig_device_and_turns_on_several_are_allowed(requests: list[Json], given: Json) -> None:
    assert validate(claim(*requests, config=[given])).allowed


def test_of_alternatives_the_largest_counts() -> None:
    policy = TenancyPolicy.read({"metadata": {"name": "p"}, "spec": {"maxDevicesPerClaim": 4}})
    subs = [{"name": f"s{n}", "deviceClassName": names.GPU_CLASS, "count": n} for n in (1, 4)]
    assert validate(claim({"name": "gpu", "firstAvailable": subs}), policies=(policy,)).allowed
    assert not validate(claim({"name": "gpu", "firstAvailable": subs}, request(name="x")), policies=(policy,)).allowed


@pytest.mark.parametrize(
    ("asked", "count"),
    [({"count": 3}, 3), ({"allocationMode": "All"}, 2)],
)
def test_all_devices_of_a_node_count_as_several(asked: Json, count: int) -> None:
    spec = msgspec.convert(claim(request(**asked))["spec"], ResourceClaimSpec)
    assert devices_of(spec, facts()) == count


def test_a_class_is_judged_by_its_selectors_and_our_configurations() -> None:
    body: Json = {
        "kind": "DeviceClass",
        "metadata": {"name": "h100"},
        "spec": {
            "selectors": [{"cel": {"expression": "device.driver == 'gpu.fairlead.dev' && device.nothing"}}],
            "config": [{"opaque": config("Nothing")["opaque"]}],
        },
    }
    message = validate(body).message
    assert "DeviceClass h100: spec.selectors[0].cel.expression: " in message
    assert "DeviceClass h100: spec.config[0].opaque.parameters: kind: 'Nothing'" in message


def test_a_class_that_shares_is_no_way_around_isolation() -> None:
    parameters = {
        "apiVersion": names.CONFIG_API_VERSION,
        "kind": "GpuConfig",
        "sharing": {"strategy": "TimeSlicing"},
    }
    shared = msgspec.convert(
        {
            "metadata": {"name": "shared"},
            "spec": {
                "selectors": [{"cel": {"expression": f"device.driver == '{names.DRIVER}'"}}],
                "config": [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}],
            },
        },
        DeviceClass,
    )
    policy = TenancyPolicy.read({"metadata": {"name": "prod"}, "spec": {"isolation": "Hardware"}})
    request = {"name": "gpu", "exactly": {"deviceClassName": "shared"}}
    body = {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ml"},
        "spec": {"devices": {"requests": [request]}},
    }
    verdict = dispatch.validate(review(body), facts(classes={"shared": shared}, policies=(policy,)))
    assert "DeviceClass shared: spec.config[0]: 'TimeSlicing' shares a device" in verdict.message


def test_time_slices_for_a_share_of_a_gpu_are_refused_and_mps_is_not():
    part = request(capacity={"requests": {"memory": "20Gi"}})
    slices = config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}})
    message = validate(claim(part, config=[slices])).message
    assert "sharing.strategy: 'TimeSlicing' would change the GPU for the other claims that share it" in message
    assert "write MPS" in message
    assert validate(claim(request(), config=[slices])).allowed
    assert validate(claim(part, config=[config(sharing={"strategy": "MPS"})])).allowed


@pytest.mark.parametrize("driver", [names.DRIVER, NVIDIA])
def test_with_several_managed_drivers_a_template_of_a_legacy_name_may_be_for_either(driver: str) -> None:
    spec = legacy.template_manifest("fairlead-gpu-2", "ml", driver=driver)["spec"]
    body = {"kind": "ResourceClaimTemplate", "metadata": {"name": "fairlead-gpu-2", "namespace": "ml"}, "spec": spec}
    classes = {**CLASSES, NVIDIA: device_class(NVIDIA, f"device.driver == '{NVIDIA}'")}
    assert validate(body, drivers=(names.DRIVER, NVIDIA), classes=classes).allowed
