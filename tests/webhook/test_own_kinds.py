"""Queue, Flavor and TenancyPolicy: what the schemas cannot say."""

from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.flavor import Flavor
from fairlead.api.queue import Queue
from fairlead.kube.resource import Device
from fairlead.webhook.handlers import dispatch
from fairlead.webhook.objects.device_models import DeviceModel, device_models
from fairlead.webhook.review.verdict import Verdict
from tests.support import published
from tests.support.webhook import facts, review

Json = dict[str, Any]


def own(kind: str, name: str, **spec: Any) -> Json:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def queues(**parents: str | None) -> dict[str, Queue]:
    return {name: Queue.read(own("Queue", name, parent=parent)) for name, parent in parents.items()}


def validate(body: Json, **known: Any) -> Verdict:
    return dispatch.validate(review(body, operation="UPDATE", old=body), facts(**known))


def test_a_loop_is_denied_and_listed() -> None:
    verdict = validate(own("Queue", "a", parent="c"), queues=queues(a=None, b="a", c="b"))
    assert verdict.message == (
        "Queue a: spec.parent: 'c' closes a loop: a → c → b → a; name a parent outside of it, or none"
    )


def test_a_tree_that_is_too_deep_is_denied() -> None:
    chain: dict[str, str | None] = {f"q{n}": f"q{n + 1}" for n in range(20)}
    assert "more than 16 levels deep" in validate(own("Queue", "x", parent="q0"), queues=queues(**chain)).message


def test_what_may_still_come_is_a_warning() -> None:
    verdict = validate(own("Queue", "a", parent="later", flavors=[{"flavor": "h100"}]))
    assert verdict.allowed
    assert verdict.warnings == (
        "spec.parent: Queue 'later' does not exist; until it does this queue counts as a root",
        "spec.flavors[0].flavor: Flavor 'h100' does not exist; until it does nothing counts",
    )


def test_queues_that_take_the_same_namespaces_are_a_warning() -> None:
    selects: Json = {"matchLabels": {"team": "ml"}}
    known = {"a": Queue.read(own("Queue", "a", namespaceSelector=selects))}
    (warning,) = validate(own("Queue", "b", namespaceSelector={"matchLabels": {"site": "x"}}), queues=known).warnings
    assert "Queue a may take the same namespaces; where one matches both, pods that name no queue go to a" in warning
    assert not validate(own("Queue", "b", namespaceSelector={"matchLabels": {"team": "web"}}), queues=known).warnings


def test_children_that_deserve_more_than_their_parent_are_a_warning() -> None:
    def quota(name: str, deserved: int, **more: Any) -> Json:
        return own("Queue", name, flavors=[{"flavor": "gpu", "deserved": deserved}], **more)

    gpu = {"gpu": Flavor.read(own("Flavor", "gpu", deviceSelector="true"))}
    known = {"org": Queue.read(quota("org", 4)), "a": Queue.read(quota("a", 3, parent="org"))}
    (warning,) = validate(quota("b", 2, parent="org"), queues=known, flavors=gpu).warnings
    assert "the queues below org deserve 5 of gpu, it only 4" in warning
    (warning,) = validate(quota("org", 2), queues=known, flavors=gpu).warnings
    assert "the queues below org deserve 3 of gpu, it only 2" in warning
    assert not validate(quota("b", 1, parent="org"), queues=known, flavors=gpu).warnings


def test_a_schedule_is_judged_as_it_will_be_in_force() -> None:
    def entry(name: str, start: str, length: str, **fields: Any) -> Json:
        return {"name": name, "start": start, "for": length, "flavors": [{"flavor": "gpu", **fields}]}

    def quota(name: str, deserved: int, *schedule: Json, **more: Any) -> Json:
        return own("Queue", name, flavors=[{"flavor": "gpu", "deserved": deserved}], schedule=list(schedule), **more)

    gpu = {"gpu": Flavor.read(own("Flavor", "gpu", deviceSelector="true"))}
    known = {"org": Queue.read(quota("org", 4))}
    nights = entry("nights", "0 20 * * *", "11h", deserved=6)
    (warning,) = validate(quota("b", 2, nights, parent="org"), queues=known, flavors=gpu).warnings
    assert "while nights of spec.schedule is in force: spec.flavors: the queues below org deserve 6 of gpu" in warning
    weekend = entry("weekend", "0 0 * * 6", "2d", limit=5)
    (warning,) = validate(quota("c", 2, nights, weekend), queues=known, flavors=gpu).warnings
    assert "spec.schedule[1]: while nights and weekend are both in force limit 5 of gpu is below deserved 6" in warning
    (warning,) = validate(quota("c", 2, entry("on", "0 8 * * *", "24h", limit=5)), flavors=gpu).warnings
    assert (
        "spec.schedule[0]: on starts again before it ends ('0 8 * * *' for 24h): it is in force all the time" in warning
    )
    assert not validate(quota("c", 2, entry("days", "0 8 * * *", "10h", limit=5)), flavors=gpu).warnings


def test_a_queue_that_any_namespace_may_name_is_a_warning() -> None:
    def written(body: Json, old: Json | None = None, **known: Any) -> tuple[str, ...]:
        operation = "CREATE" if old is None else "UPDATE"
        return dispatch.validate(review(body, operation=operation, old=old), facts(**known)).warnings

    limited = own("Queue", "a", namespaceSelector={"matchLabels": {"team": "ml"}})
    (warning,) = written(own("Queue", "a"))
    assert warning == (
        "spec.namespaceSelector: is absent: pods of every namespace that name this queue may use it; "
        "write a namespaceSelector to say which may"
    )
    assert written(own("Queue", "a"), old=limited) == (warning,), "a selector that is removed opens it"
    assert written(own("Queue", "a"), old=own("Queue", "a")) == (), "said when it is written, not when a label changes"
    assert written(limited) == ()
    assert written(own("Queue", "a"), queues=queues(b="a")) == (), "a queue with queues below takes no gangs"


def test_quantities_are_compared_by_value() -> None:
    body = own("Queue", "a", flavors=[{"flavor": "m", "deserved": "1Ti", "limit": "1000Gi"}])
    assert "Queue a: spec.flavors[0].limit: 1000Gi is below deserved 1Ti" in validate(body).message
    assert validate(own("Queue", "a", flavors=[{"flavor": "m", "deserved": "1000m", "limit": 1}])).allowed


def test_a_mistake_is_denied_by_its_path() -> None:
    assert "Queue a: spec.parnt: unknown field; did you mean parent?" in validate(own("Queue", "a", parnt="b")).message
    assert "TenancyPolicy p: spec.mode" in validate(own("TenancyPolicy", "p", mode="x")).message


def test_a_selector_that_does_not_compile_is_denied_with_the_place() -> None:
    verdict = validate(own("Flavor", "f", deviceSelector="device.driver = 'x'"))
    assert verdict.message.startswith("Flavor f: spec.deviceSelector: ")
    assert "^" in verdict.message


def test_prices_are_judged() -> None:
    def priced(name: str, selector: str, currency: str, per_hour: object = "2.50") -> Json:
        return own("Flavor", name, deviceSelector=selector, price=[{"perHour": per_hour, "currency": currency}])

    known = {name: Flavor.read(priced(name, f"device.driver == '{name}'", "USD")) for name in ("a", "b")}
    (warning,) = validate(priced("c", "device.driver == 'c'", "EUR"), flavors=known).warnings
    assert warning == (
        "spec.price: is in EUR, that of Flavor a in USD: costs of the two are not added; write all prices in one currency"
    )
    assert not validate(priced("c", "device.driver == 'c'", "USD"), flavors=known).warnings
    (warning,) = validate(priced("c", "device.driver == 'a'", "USD", "9"), flavors=known).warnings
    assert "Flavor 'a' has the same selector and measure" in warning, "at another price, too"
    verdict = validate(priced("c", "true", "USD", 2.5))
    assert "Flavor c: spec.price[0].perHour: 2.5 is no text: write '2.50', in quotes" in verdict.message


def models(driver: str, *devices: Json) -> tuple[DeviceModel, ...]:
    return device_models(driver, "n0", [msgspec.convert(each, Device) for each in devices])


def test_a_flavor_of_a_driver_that_is_not_managed_says_that_it_counts_nothing() -> None:
    (warning,) = validate(own("Flavor", "mi300", driver="gpu.amd.com")).warnings
    assert warning.startswith(
        "spec.driver: 'gpu.amd.com' is no driver that Fairlead manages (gpu.fairlead.dev): its devices are"
    )
    assert not validate(
        own("Flavor", "mi300", driver="gpu.amd.com"), drivers=("gpu.fairlead.dev", "gpu.amd.com")
    ).warnings


def test_shares_of_a_driver_whose_attributes_are_not_known_are_a_warning() -> None:
    known = ("gpu.unknown.dev",)
    (warning,) = validate(own("Flavor", "x", driver="gpu.unknown.dev", measure="Share"), drivers=known).warnings
    assert "spec.driver: driver gpu.unknown.dev is not one whose attributes are known to Fairlead" in warning
    assert not validate(own("Flavor", "x", driver="gpu.unknown.dev"), drivers=known).warnings


def test_flavors_that_overlap_are_a_warning_that_names_a_device_of_both() -> None:
    known = models("gpu.amd.com", published.amd_gpu(0), published.amd_partition(9, 1, "cpx_nps1"))
    every = {"all": Flavor.read(own("Flavor", "all", driver="gpu.amd.com"))}
    part = "device.attributes['gpu.amd.com'].type == 'amdgpu-partition'"
    body = own("Flavor", "parts", driver="gpu.amd.com", deviceSelector=part)
    (warning,) = validate(body, drivers=("gpu.amd.com",), flavors=every, device_models=known).warnings
    assert warning == (
        "spec.deviceSelector: selects cpx_nps1 of AMD_Instinct_MI300X_OAM (n0/gpu-9-137), and so does Flavor 'all' with the same measure: "
        "a queue with quotas in both is charged for it twice, and needs room in both; narrow one of the two selectors"
    )
    whole = own("Flavor", "all", driver="gpu.amd.com", deviceSelector=f"!({part})")
    assert not validate(
        body, drivers=("gpu.amd.com",), flavors={"all": Flavor.read(whole)}, device_models=known
    ).warnings
    body["spec"] |= {"measure": "Capacity", "capacityName": "memory"}  # two measures of one device are meant so
    assert not validate(body, drivers=("gpu.amd.com",), flavors=every, device_models=known).warnings


def resources(**counted: Json) -> dict[str, Flavor]:
    return {
        name: Flavor.read(own("Flavor", name, measure="Resource", **{"resourceName": name, **spec}))
        for name, spec in counted.items()
    }


@pytest.mark.parametrize(
    ("flavor", "quota", "says"),
    [
        ("pods", {"limit": "2500m"}, "spec.flavors[0].limit: '2500m' is no amount of pods: write a whole number"),
        ("memory", {"deserved": "1500m"}, "deserved: '1500m' is no amount of memory: write whole bytes, such as 64Gi"),
        ("cpu", {"borrowingLimit": "1u"}, "borrowingLimit: '1u' is no amount of cpu: write thousandths of a core"),
        ("cpu", {"deserved": "100m", "limit": "1500m"}, ""),
        ("memory", {"deserved": "64Gi", "limit": "1Ti"}, ""),
        ("memory", {"limit": "2.5Gi"}, ""),
    ],
)
def test_an_amount_that_a_resource_cannot_have_is_refused(flavor: str, quota: Json, says: str) -> None:
    known = resources(pods={}, memory={}, cpu={})
    verdict = validate(own("Queue", "a", flavors=[{"flavor": flavor, **quota}]), flavors=known)
    assert verdict.allowed == (not says)
    assert says in (verdict.message or "")
    entry = {"name": "nights", "start": "0 20 * * *", "for": "11h", "flavors": [{"flavor": flavor, **quota}]}
    verdict = validate(own("Queue", "a", schedule=[entry]), flavors=known)
    assert says.replace("spec.flavors[0]", "spec.schedule[0].flavors[0]") in (verdict.message or "")


def test_a_queue_without_quota_of_a_resource_that_others_have_is_a_warning() -> None:
    """It deserves none of it, so none of its gangs is within what it deserves."""
    known = resources(cpu={})
    listing = own("Queue", "a", flavors=[{"flavor": "cpu", "deserved": 8}], namespaceSelector={})
    there = {name: Queue.read(own("Queue", name)) for name in ("b", "top")}
    there["c"] = Queue.read(own("Queue", "c", parent="top"))
    (warning,) = validate(listing, queues=there, flavors=known).warnings
    assert warning.startswith(
        "spec.flavors: nothing deserved of Flavor 'cpu' in Queue b, c: what pods there request of it is borrowed"
    )
    below = own("Queue", "b", namespaceSelector={"matchLabels": {"x": "y"}})
    warnings = validate(below, queues={"a": Queue.read(listing)}, flavors=known).warnings
    assert any("nothing deserved of Flavor 'cpu' in Queue b: " in warning for warning in warnings)
    assert not validate(listing, flavors=known).warnings
    limited = own("Queue", "a", flavors=[{"flavor": "cpu", "limit": 8}], namespaceSelector={})
    assert not validate(limited, queues=there, flavors=known).warnings, "a limit alone takes nothing from others"


def test_flavors_of_one_resource_whose_nodes_may_be_the_same_are_a_warning() -> None:
    known = resources(cpu={}, fast={"resourceName": "cpu", "nodeSelector": {"pool": "fast"}})
    slow = own("Flavor", "slow", measure="Resource", resourceName="cpu", nodeSelector={"pool": "slow"})
    (warning,) = validate(slow, flavors=known).warnings
    assert "those of Flavor 'cpu', which counts cpu, too" in warning
    del known["cpu"]
    assert not validate(slow, flavors=known).warnings
    assert not validate(own("Flavor", "m", measure="Resource", resourceName="memory"), flavors=known).warnings
    (warning,) = validate(own("Flavor", "gpus", measure="Resource", resourceName="nvidia.com/gpu")).warnings
    assert "limits of nvidia.com/gpu become claims" in warning
