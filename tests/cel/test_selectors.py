"""Selectors on devices: verdicts, reasons, what they read, what they cost, and which drivers they may select."""

from collections.abc import Callable

import pytest

from fairlead.cel import (
    CompileError,
    DeviceView,
    EvaluationError,
    Outcome,
    Read,
    admit_selector,
    compile_selector,
    may_select,
)

MakeDevice = Callable[..., DeviceView]
SEED = (
    'device.driver == "gpu.example.com" && '
    'device.attributes["gpu.example.com"].productName.lowerAscii().matches("^.*h100.*$") && '
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0'
)


def test_a_selector_says_yes_no_or_why_not(h100: DeviceView, device: MakeDevice) -> None:
    selector = compile_selector(SEED)
    assert selector.verdict(h100).outcome is Outcome.MATCH
    assert selector.verdict(device({"productName": "T4"}, {"memory": "15Gi"})).outcome is Outcome.NO_MATCH
    failed = selector.verdict(device({"type": "gpu"}))
    assert failed.outcome is Outcome.ERROR
    assert failed.reason == "no such key: productName"
    with pytest.raises(EvaluationError, match="no such key: productName"):
        selector.matches(device())


def test_a_selector_is_compiled_once() -> None:
    assert compile_selector(SEED) is compile_selector(SEED)


def test_an_unknown_domain_is_an_empty_map_that_in_does_not_find(h100: DeviceView) -> None:
    assert compile_selector('!("other" in device.attributes)').matches(h100)
    assert compile_selector('size(device.attributes["other"]) == 0').matches(h100)
    assert compile_selector('!has(device.attributes["other"].x)').matches(h100)
    assert compile_selector('device.attributes[?"other"].hasValue()').matches(h100)
    assert compile_selector('device.attributes["other"].x == 1').verdict(h100).reason == "no such key: x"


def test_names_with_a_domain_keep_it(h100: DeviceView) -> None:
    assert compile_selector('device.attributes["resource.kubernetes.io"].numaNode == 1').matches(h100)
    assert compile_selector('!("numaNode" in device.attributes["gpu.example.com"])').matches(h100)


def test_only_a_boolean_selects(h100: DeviceView) -> None:
    assert compile_selector('device.attributes["gpu.example.com"].healthy').matches(h100)
    verdict = compile_selector('device.attributes["gpu.example.com"].type').verdict(h100)
    assert verdict.outcome is Outcome.ERROR
    assert "string could not be converted to bool" in (verdict.reason or "")


def test_what_cannot_be_compared_fails_alone_but_not_within_lists(h100: DeviceView) -> None:
    version = 'device.attributes["gpu.example.com"].cudaComputeCapability'
    assert compile_selector(f'{version} == "9.0.0"').verdict(h100).outcome is Outcome.ERROR
    assert not compile_selector(f'"9.0.0" == {version}').matches(h100)
    assert not compile_selector(f'{version} in ["9.0.0"]').matches(h100)
    assert compile_selector(f'[{version}] == ["9.0.0"]').matches(h100)  # a bug of cel-go that Kubernetes has


def test_lists_are_searched_with_includes(device: MakeDevice) -> None:
    selector = compile_selector('device.attributes["gpu.example.com"].islands.includes(2)')
    assert selector.matches(device({"islands": [1, 2]}))
    assert not selector.matches(device({"islands": [3]}))
    assert selector.matches(device({"islands": 2}))


def test_a_device_that_cannot_be_read_fails_every_selector(device: MakeDevice) -> None:
    broken = device({"driverVersion": "v:not-a-version"})
    verdict = compile_selector("true").verdict(broken)
    assert verdict.outcome is Outcome.ERROR
    assert verdict.reason is not None
    assert verdict.reason.startswith("attribute driverVersion: parse semantic version")


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("true", set()),
        (SEED, {Read("driver"), Read("attributes", "gpu.example.com", "productName"), Read("capacity", "gpu.example.com", "memory")}),
        ('has(device.attributes["d"].a)', {Read("attributes", "d", "a")}),
        ('device.attributes["d"].?a.orValue(1) == 1', {Read("attributes", "d", "a")}),
        ("device.attributes.d.a == 1", {Read("attributes", "d", "a")}),
        ('"a" in device.attributes["d"]', {Read("attributes", "d")}),
        ('"a" in device.attributes["d"] && device.attributes["d"].a == 1', {Read("attributes", "d")}),
        ('device.attributes["d"].exists(k, k == "a")', {Read("attributes", "d")}),
        ('"d" in device.attributes', {Read("attributes")}),
        ("device.attributes[device.driver].a == 1", {Read("attributes"), Read("driver")}),
        ('cel.bind(d, device.attributes["d"], d.a == 1 || d.?b == d.?c)', {Read("attributes", "d", name) for name in "abc"}),
        ('cel.bind(d, device.attributes["d"], [1].exists(d, d == 1))', set()),
        ('cel.bind(d, device, d.attributes["d"].a == 1)', {Read("attributes", "d", "a")}),
        ("device.allowMultipleAllocations", {Read("allowMultipleAllocations")}),
        ("device == device", {Read("driver"), Read("attributes"), Read("capacity"), Read("allowMultipleAllocations")}),
        ("[1].exists(device, device == 1)", set()),
    ],
)  # fmt: skip
def test_what_a_selector_reads_is_known(text: str, reads: set[Read]) -> None:
    assert compile_selector(text).reads == reads


def test_cost_is_what_the_api_server_estimates() -> None:
    assert compile_selector(SEED).estimated_cost == 43
    admit_selector(SEED)


def test_an_expensive_selector_is_stored_but_not_admitted() -> None:
    text = 'device.attributes["d"].?a == optional.none()'
    assert compile_selector(text).estimated_cost > 10**18
    with pytest.raises(CompileError, match="exceeds cost limit"):
        admit_selector(text)


def test_a_function_behind_a_gate_is_understood_but_not_admitted() -> None:
    text = 'device.attributes["d"].a.includes(1)'
    compile_selector(text)
    with pytest.raises(CompileError, match="undeclared reference to 'includes'"):
        admit_selector(text)
    admit_selector(text, gated=True)


@pytest.mark.parametrize(
    ("texts", "driver", "may"),
    [
        ([], "a", True), (["true"], "a", True), (["false"], "a", False), (['device.driver == "a"'], "a", True), (['device.driver == "a"'], "b", False),
        (['"a" == device.driver'], "b", False), (['device.driver != "a"'], "a", False), (['device.driver in ["a", "b"]'], "c", False),
        (['device.driver.startsWith("gpu.")'], "nic.x", False), (['device.driver.endsWith("x") || device.driver == "b"'], "b", True),
        (['device.attributes["a"].type == "gpu"'], "b", True), (['device.driver == "a" && device.attributes["a"].x'], "b", False),
        (['device.attributes["a"].x && device.driver == "a"'], "b", False), (['device.driver == "a" || device.attributes["z"].x'], "b", True),
        (['device.driver == "a"', 'device.attributes["a"].x'], "b", False), (['device.driver.matches("^gpu")'], "nic", False),
        (['device.driver == "a" ? true : false'], "b", False), (["!(device.driver == 'a')"], "a", False), (["broken("], "a", True),
    ],
)  # fmt: skip
def test_which_drivers_selectors_may_select(texts: list[str], driver: str, may: bool) -> None:
    assert may_select(texts, driver) is may
