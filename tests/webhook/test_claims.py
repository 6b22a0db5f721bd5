"""ResourceClaims, templates and classes: denied when invalid, warned about when pods would wait, left alone when foreign."""

from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.legacy import template_manifest
from fairlead.api.policy import TenancyPolicy
from fairlead.kube.resource import DeviceClass
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.review.verdict import Verdict
from tests.support.webhook import facts, review

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


def test_a_claim_for_our_class_is_allowed() -> None:
    body = claim(request(names.GPU_CLASS, "device.attributes['gpu.fairlead.dev'].productName.contains('H100')"))
    verdict = validate(body)
    assert (verdict.allowed, verdict.cause, verdict.warnings) == (True, "claim", ())


def test_a_foreign_claim_is_left_alone_whatever_it_holds() -> None:
    body = claim(request("nic.example.com", count=99), config=[config("Anything", driver="nic.example.com")])
    assert validate(body).cause == "unmanaged"


def test_devices_of_another_driver_in_a_claim_of_ours_are_a_warning() -> None:
    foreign = request("nic.example.com") | {"name": "nic"}
    (warning,) = validate(claim(request(names.GPU_CLASS), foreign)).warnings
    assert warning.startswith(
        "spec.devices.requests[1]: DeviceClass nic.example.com is of a driver that Fairlead does not"
    )
    assert warning.endswith("or ask for its devices in a claim of their own; until then pods wait")
    known = {"drivers": (names.DRIVER, "nic.example.com")}
    assert validate(claim(request(names.GPU_CLASS), foreign), **known).warnings == ()


def test_an_unknown_class_is_a_warning() -> None:
    verdict = validate(claim(request("later.example.com")))
    assert verdict.allowed
    (warning,) = verdict.warnings
    assert warning.startswith(
        "spec.devices.requests[0].exactly.deviceClassName: DeviceClass 'later.example.com' does not"
    )
    assert warning.endswith("pods wait until it does")


def test_a_selector_that_does_not_compile_is_denied_with_the_place() -> None:
    verdict = validate(claim(request(names.GPU_CLASS, "device.drivr == 'x'")))
    assert verdict.code == 422
    assert verdict.message.startswith(
        "ResourceClaim ml/c: spec.devices.requests[0].exactly.selectors[0].cel.expression: "
    )
    assert "drivr" in verdict.message
    assert "^" in verdict.message


def test_the_alternatives_of_a_request_are_judged_too() -> None:
    sub = {"name": "big", "deviceClassName": names.GPU_CLASS, "selectors": [{"cel": {"expression": "1 +"}}]}
    verdict = validate(claim({"name": "gpu", "firstAvailable": [sub]}))
    assert "spec.devices.requests[0].firstAvailable[0].selectors[0].cel.expression: " in verdict.message


def test_more_devices_than_a_claim_may_hold_are_denied() -> None:
    assert (
        "exactly.count: 33 devices are more than one claim may hold (32)" in validate(claim(request(count=33))).message
    )


def test_a_template_is_judged_at_its_own_path() -> None:
    body = claim(request(names.GPU_CLASS, "nonsense(")) | {"kind": "ResourceClaimTemplate"}
    body["spec"] = {"spec": body["spec"]}
    message = validate(body).message
    assert message.startswith("ResourceClaimTemplate ml/c: spec.spec.devices.requests[0]")


CONFIGS = [
    (config("GpuConfg"), "parameters: kind: 'GpuConfg' is none of GpuConfig, MigDeviceConfig"),
    (config(sharing={"strategy": "TimeSlice"}), "parameters: sharing.strategy: 'TimeSlice' is none of"),
    (config(shareing={}), "parameters: shareing: unknown field; did you mean sharing?"),
    (
        config("MigDeviceConfig", sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Short"}}),
        "interval: 'Short' cannot be set on a MIG device",
    ),
    (
        config("MigDeviceConfig", requests=("gpu",)),
        "parameters.kind: MigDeviceConfig does not apply to devices of class gpu.fairlead.dev; write GpuConfig",
    ),
]


@pytest.mark.parametrize(("given", "message"), CONFIGS, ids=[message for _, message in CONFIGS])
def test_configurations_for_our_driver_are_decoded_strictly(given: Json, message: str) -> None:
    verdict = validate(claim(request(), config=[given]))
    assert verdict.code == 422
    assert verdict.message.startswith("ResourceClaim ml/c: spec.devices.config[0].opaque.")
    assert message in verdict.message


def test_configurations_for_other_drivers_are_not_read() -> None:
    assert validate(claim(request(), config=[config("Whatever", driver="gpu.nvidia.com")])).allowed


def test_a_good_configuration_is_allowed() -> None:
    assert validate(claim(request(), config=[config(sharing={"strategy": "MPS"})])).allowed


MPS_ON_MIG = config("MigDeviceConfig", sharing={"strategy": "MPS"})
MIG_TWICE = [request(names.MIG_CLASS), request(names.MIG_CLASS) | {"name": "other"}]
EITHER = {
    "name": "gpu",
    "firstAvailable": [
        {"name": "some", "deviceClassName": names.MIG_CLASS, "count": 3},
        {"name": "more", "deviceClassName": names.MIG_CLASS, "count": 2},
    ],
}


@pytest.mark.parametrize(
    ("requests", "given", "count"),
    [
        ([request(names.MIG_CLASS, count=2)], MPS_ON_MIG, 2),
        (MIG_TWICE, MPS_ON_MIG, 2),
        (MIG_TWICE, config("MigDeviceConfig", requests=("gpu", "other"), sharing={"strategy": "MPS"}), 2),
        ([EITHER], MPS_ON_MIG, 2),
    ],
)
def test_mps_over_several_mig_devices_is_refused(requests: list[Json], given: Json, count: int) -> None:
    message = validate(claim(*requests, config=[given])).message
    assert f"sharing.strategy: 'MPS' over {count} MIG devices: CUDA shows a program one MIG device only" in message
    assert message.endswith("make a claim of each MIG device")


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


POLICIES: list[tuple[Json, Json, str]] = [
    ({"deviceClasses": ["mig.gpu.fairlead.dev"]}, request(), "deviceClassName: 'gpu.fairlead.dev' is not allowed here"),
    ({"maxDevicesPerClaim": 2}, request(count=4), "spec.devices.requests: 4 devices in one claim, but at most 2"),
    ({"adminAccess": "Reject"}, request(adminAccess=True), "exactly.adminAccess: is not allowed here; remove it"),
]


@pytest.mark.parametrize(("rule", "asked", "message"), POLICIES, ids=[message for _, _, message in POLICIES])
@pytest.mark.parametrize("mode", ["Enforce", "Warn", "Audit"])
def test_a_policy_denies_warns_or_audits(rule: Json, asked: Json, message: str, mode: str) -> None:
    policy = TenancyPolicy.read({"metadata": {"name": "team"}, "spec": rule | {"mode": mode}})
    verdict = validate(claim(asked), policies=(policy,))
    assert verdict.allowed is (mode != "Enforce")
    assert (message in verdict.message) is (mode == "Enforce")
    assert any(message in warning for warning in verdict.warnings) is (mode == "Warn")
    assert message in verdict.audit["policy-0"]
    assert verdict.audit["policy-0"].startswith(f"{mode} TenancyPolicy team (")


def test_the_strictest_of_several_policies_wins() -> None:
    policies = tuple(
        TenancyPolicy.read({"metadata": {"name": name}, "spec": {"maxDevicesPerClaim": most, "mode": mode}})
        for name, most, mode in (("a", 1, "Warn"), ("b", 2, "Enforce"), ("c", 8, "Enforce"))
    )
    verdict = validate(claim(request(count=4)), policies=policies)
    assert not verdict.allowed
    assert "TenancyPolicy b" in verdict.message
    assert "TenancyPolicy a" in verdict.warnings[0]
    assert "TenancyPolicy c" not in str(verdict)


def test_sharing_strategies_are_bounded() -> None:
    policy = TenancyPolicy.read({"metadata": {"name": "prod"}, "spec": {"sharingStrategies": ["MPS"]}})
    slicing = claim(request(), config=[config(sharing={"strategy": "TimeSlicing"})])
    assert "sharing.strategy: 'TimeSlicing' is not allowed here; allowed: MPS" in (
        validate(slicing, policies=(policy,)).message
    )
    assert validate(claim(request(), config=[config(sharing={"strategy": "MPS"})]), policies=(policy,)).allowed


def test_of_alternatives_the_largest_counts() -> None:
    policy = TenancyPolicy.read({"metadata": {"name": "p"}, "spec": {"maxDevicesPerClaim": 4}})
    subs = [{"name": f"s{n}", "deviceClassName": names.GPU_CLASS, "count": n} for n in (1, 4)]
    assert validate(claim({"name": "gpu", "firstAvailable": subs}), policies=(policy,)).allowed
    assert not validate(claim({"name": "gpu", "firstAvailable": subs}, request(name="x")), policies=(policy,)).allowed


def test_only_the_controller_may_use_the_name_of_a_legacy_template() -> None:
    real = template_manifest("fairlead-gpu-2", "ml")
    assert validate(real).allowed
    fake = template_manifest("fairlead-gpu-1", "ml")
    fake["metadata"]["name"] = "fairlead-gpu-2"
    assert "is the name of the template for nvidia.com/gpu-style requests" in validate(fake).message


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


@pytest.mark.parametrize("spec", [3, {"devices": {"requests": {}}}, {"devices": {"requests": [{"exactly": 1}]}}])
def test_an_object_of_the_wrong_shape_is_denied_with_its_path(spec: Any) -> None:
    verdict = validate(claim() | {"spec": spec})
    assert (verdict.allowed, verdict.code) == (False, 422)
    assert "spec" in verdict.message


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
