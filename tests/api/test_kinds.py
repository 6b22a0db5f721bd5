"""Our kinds refuse a user's mistakes by object, field, value and next step, and read what newer versions stored."""

from fractions import Fraction
from typing import Any

import pytest

from fairlead.api.base import CustomResource, ManifestError
from fairlead.api.durations import duration_s, hours_text
from fairlead.api.flavor import Flavor
from fairlead.api.gang import Gang
from fairlead.api.object_names import is_dns_subdomain
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import Queue
from fairlead.api.topology import Level, levels


def queue(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "ml"}, "spec": spec}


def flavor(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Flavor", "metadata": {"name": "h100"}, "spec": spec}


def resource(name: str, **spec: Any) -> dict[str, Any]:
    return flavor(measure="Resource", resourceName=name, **spec)


def policy(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "TenancyPolicy", "metadata": {"name": "p"}, "spec": spec}


def gang(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "llm", "namespace": "ml"}
    return {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Gang", "metadata": metadata, "spec": spec}


REFUSED = [
    (Queue, queue(parent="ml"), "Queue ml: spec.parent: 'ml' is the queue itself: name another queue, or none"),
    (Queue, queue(parent="A_b"), "Queue ml: spec.parent: 'A_b' is no object name"),
    (Queue, queue(parrent="a"), "Queue ml: spec.parrent: unknown field; did you mean parent?"),
    (Queue, queue(strategy="packk"), "Queue ml: spec.strategy: 'packk' is none of 'pack' or 'spread'"),
    (Queue, queue(flavors=[{"flavor": "x", "deserved": "4Gib"}]), "spec.flavors[0].deserved: '4Gib' is no quantity"),
    (Queue, queue(flavors=[{"flavor": "x", "deserved": 1.5}]), "spec.flavors[0].deserved: 1.5 is no quantity"),
    (Queue, queue(flavors=[{"flavor": "x", "deserved": True}]), "spec.flavors[0].deserved: True is no quantity"),
    (Queue, queue(flavors=[{"flavor": "x", "limit": -1}]), "spec.flavors[0].limit: -1 is negative"),
    (Queue, queue(flavors=[{"flavor": "x", "limit": "-1"}]), "spec.flavors[0].limit: '-1' is negative"),
    (
        Queue,
        queue(flavors=[{"flavor": "x", "limit": 1, "deserved": 2}]),
        "spec.flavors[0]: limit 1 is below deserved 2",
    ),
    (Queue, queue(flavors=[{"flavor": "x", "weight": -1}]), "spec.flavors[0].weight: input should be greater than"),
    (Queue, queue(flavors=[{"flavor": "x"}, {"flavor": "x"}]), "spec: flavors[1].flavor: 'x' is listed twice"),
    (Queue, queue(flavors=[{}]), "spec.flavors[0].flavor: is required"),
    (
        Queue,
        queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
        "matchExpressions[0]: In needs at least one value",
    ),
    (
        Queue,
        queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}),
        "Exists takes no values",
    ),
    (Queue, queue(namespaceSelector={"matchExpressions": [{"key": "a b", "operator": "Exists"}]}), "'a b' is no label"),
    (Queue, {"kind": "Gang"}, "Queue: kind: 'Gang' is none of 'Queue'"),
    (Queue, [], "Queue: input should be a valid dictionary"),
    (Flavor, flavor(), "Flavor h100: spec: deviceSelector: is required without driver"),
    (
        Flavor,
        flavor(driver="GPU nvidia"),
        "spec.driver: 'GPU nvidia' is no name of a DRA driver: write it as in spec.driver of its",
    ),
    (Flavor, flavor(driver="a." * 32 + "b"), "spec.driver: "),
    (Flavor, flavor(deviceSelector="  "), "spec.deviceSelector: is blank"),
    (Flavor, flavor(deviceSelector="x" * 10241), "spec.deviceSelector: string should have at most 10240"),
    (
        Flavor,
        flavor(deviceSelector="true", measure="Capacity"),
        "spec: capacityName: is required with measure Capacity",
    ),
    (Flavor, flavor(deviceSelector="true", capacityName="memory"), "means nothing with measure Devices"),
    (Flavor, flavor(deviceSelector="true", measure="Capacity", capacityName="a-b"), "'a-b' is no capacity name"),
    (Flavor, flavor(measure="Resource"), "spec: resourceName: is required with measure Resource"),
    (Flavor, flavor(deviceSelector="true", resourceName="cpu"), "resourceName: means nothing with measure Devices"),
    (Flavor, flavor(driver="gpu.amd.com", nodeSelector={"a": "b"}), "nodeSelector: means nothing with measure Devices"),
    (
        Flavor,
        resource("gpu"),
        "spec.resourceName: 'gpu' is no resource that pods request: write one of cpu, memory, pods,",
    ),
    (Flavor, resource("requests.cpu"), "'requests.cpu' is no resource that pods request"),
    (Flavor, resource("x.kubernetes.io/y"), "'x.kubernetes.io/y' is no resource that pods request"),
    (Flavor, resource("cpu", driver="gpu.amd.com"), "driver: is about devices, and measure Resource counts what pods"),
    (Flavor, resource("cpu", deviceSelector="true"), "deviceSelector: is about devices"),
    (Flavor, resource("cpu", capacityName="memory"), "capacityName: means nothing with measure Resource"),
    (Flavor, resource("cpu", autoscaling={"mode": "Visible"}), "autoscaling: is about devices"),
    (Flavor, resource("cpu", nodeSelector={"a b": "c"}), "spec.nodeSelector"),
    (Gang, gang(size=0), "Gang ml/llm: spec.size: input should be greater than or equal to 1, not 0"),
    (Gang, gang(size=2, topology="rack"), "spec.topology: 'rack' is no topology: write required: or preferred:"),
    (Gang, gang(size=2, minRuntime="soon"), "spec.minRuntime: 'soon' is no duration"),
    (TenancyPolicy, policy(mode="Deny"), "spec.mode: 'Deny' is none of 'Enforce', 'Warn' or 'Audit'"),
    (TenancyPolicy, policy(maxDevicesPerClaim=0), "spec.maxDevicesPerClaim: input should be greater than"),
    (TenancyPolicy, policy(wish=[]), "spec.wish: unknown field; known here: namespaceSelector"),
    (
        TenancyPolicy,
        policy(tolerations={"tolerations": [{"key": "gpu", "operator": "Exists", "value": "yes"}]}),
        "value: means nothing with operator Exists: remove it",
    ),
    (TenancyPolicy, policy(tolerations={"tolerations": [{"value": "yes"}]}), "key: is required with operator Equal"),
    (
        TenancyPolicy,
        policy(isolation="Hardware", sharingStrategies=["MPS"]),
        "sharingStrategies: means nothing with isolation Hardware",
    ),
    (
        TenancyPolicy,
        policy(rules=[{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]),
        "rules: two of them have the same name",
    ),
]


@pytest.mark.parametrize(("kind", "raw", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_a_mistake_is_refused_with_object_field_value_and_next_step(
    kind: type[CustomResource], raw: dict[str, Any], message: str
) -> None:
    with pytest.raises(ManifestError) as refused:
        kind.read(raw)
    assert message in str(refused.value)


ACCEPTED = [
    (Queue, queue()),
    (Queue, queue(flavors=[{"flavor": "h100", "deserved": 8, "limit": "16", "weight": 0.5}], parent="root")),
    (Queue, queue(flavors=[{"flavor": "mem", "deserved": "640Gi", "limit": "1Ti"}])),
    (Queue, queue(namespaceSelector={"matchLabels": {"team": "ml"}}, ordering="StrictFIFO")),
    (Flavor, flavor(deviceSelector="device.driver == 'gpu.fairlead.dev'")),
    (Flavor, flavor(deviceSelector="true", measure="Capacity", capacityName="gpu.fairlead.dev/memory")),
    (Flavor, flavor(driver="gpu.nvidia.com")),
    (Flavor, resource("cpu")),
    (Flavor, resource("pods", nodeSelector={"pool": "fast"})),
    (Flavor, resource("example.com/hca")),
    (Flavor, flavor(driver="gpu.amd.com", deviceSelector="device.attributes['gpu.amd.com'].type == 'amdgpu'")),
    (Gang, gang(size=8, topology="required:topology.kubernetes.io/rack", minRuntime="1h30m", queue="ml")),
    (TenancyPolicy, policy(mode="Warn", maxGangSize=64, sharingStrategies=[], deviceClasses=["gpu.fairlead.dev"])),
]


@pytest.mark.parametrize(("kind", "raw"), ACCEPTED)
def test_what_is_accepted_comes_back_as_it_was_written(kind: type[CustomResource], raw: dict[str, Any]) -> None:
    read = kind.read(raw)
    manifest = read.model_dump(by_alias=True, exclude_none=True, mode="json")
    assert {key: manifest["spec"].get(key) for key in raw["spec"] if key not in {"flavors", "namespaceSelector"}} == {
        key: value for key, value in raw["spec"].items() if key not in {"flavors", "namespaceSelector"}
    }
    assert kind.read(manifest) == read


def test_what_a_newer_version_stored_is_read() -> None:
    raw = queue(flavors=[{"flavor": "x", "burst": 3}], quota="new")
    with pytest.raises(ManifestError):
        Queue.read(raw)
    assert Queue.stored(raw).spec.flavors[0].flavor == "x"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400), ("250ms", 0.25), ("0s", 0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "-1s", "1 h", "1h ", "1w", "\u0661s", "9" * 40 + "s"])
def test_what_is_no_duration_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="such as 90s or 1h30m"):
        duration_s(text)


@pytest.mark.parametrize(
    ("hours", "text"),
    [("0", "0"), ("1000", "1000"), ("999.9", "999.9"), ("999.999", "999.99"), ("2/3", "0.66"), ("0.05", "0.05")],
)
def test_hours_below_a_budget_are_not_shown_as_all_of_it(hours: str, text: str) -> None:
    assert hours_text(Fraction(hours)) == text


def test_topologies() -> None:
    assert levels("required:topology.kubernetes.io/rack") == (Level("required", "topology.kubernetes.io/rack"),)
    assert levels("preferred:rack") == (Level("preferred", "rack"),)
    for text in ("", "rack", "require:rack", "required:", "required:a b", "required:/x", "required:a, b"):
        with pytest.raises(ValueError, match="is no topology"):
            levels(text)


def test_levels_of_a_topology_are_written_outermost_first() -> None:
    text = "required:example.com/block, preferred:rack,preferred:nvidia.com/gpu.clique"
    assert list(map(str, levels(text))) == [part.strip() for part in text.split(",")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("required:rack, preferred:rack", "rack is named twice: keep one of its entries"),
        ("required:a,", "has an empty entry: take out the comma"),
        (
            "required:zone, preferred:block, required:rack",
            "required:rack comes after preferred:block.*write required:zone, required:rack, preferred:block",
        ),
        (", ".join(f"preferred:l{n}" for n in range(7)), "7 levels are named, and at most 6 count"),
    ],
)
def test_levels_that_mean_nothing_say_what_to_write_instead(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        levels(text)


def test_look_alike_letters_are_no_names() -> None:
    assert is_dns_subdomain("a.b-c")
    assert not is_dns_subdomain("а.b")  # the first letter is Cyrillic
    assert not is_dns_subdomain("a\n")
    assert not is_dns_subdomain("a" * 254)
