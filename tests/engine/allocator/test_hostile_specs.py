"""A claim's spec that costs much to compile or to count is refused with the reason, and leaves nothing behind."""

from typing import Any

import msgspec
import pytest

from fairlead.cel.devices.selector import programs
from fairlead.engine.allocator.requests import Compiler, InvalidClaimError
from fairlead.engine.inventory.selectors import UNUSED_MAX, Selectors
from fairlead.engine.types.pods import milli
from fairlead.engine.types.values import amount
from fairlead.kube.quantity import Quantity, QuantityError
from fairlead.kube.resource import DeviceClass, ResourceClaimSpec
from fairlead.kube.semver import Version, VersionError
from tests.support import cpu

CLASS = "gpu.example.com"
CLASSES = {CLASS: msgspec.convert({"metadata": {"name": CLASS}, "spec": {}}, DeviceClass)}


def spec(*texts: str, **more: Any) -> ResourceClaimSpec:
    requests = [
        {
            "name": f"r{index}",
            "exactly": {"deviceClassName": CLASS, "selectors": [{"cel": {"expression": text}} for text in texts[index : index + 32]]} | more,
        }
        for index in range(0, max(len(texts), 1), 32)
    ]  # fmt: skip
    return msgspec.convert({"devices": {"requests": requests}}, ResourceClaimSpec)


def test_a_claim_of_bombs_is_refused_before_anything_is_compiled() -> None:
    texts = ["||".join(f"{j % 10}<{n + j % 7}" for j in range(1400)) for n in range(128)]
    programs.clear()
    with pytest.raises(
        InvalidClaimError, match=r"spec\.devices\.requests: the distinct selectors have more than 1500 tokens"
    ):
        Compiler(CLASSES).compile_spec(spec(*texts))
    assert len(programs) == 0


@pytest.mark.parametrize(
    "value", ["1e999999999", "1e2147483647", "-1e99999", "9" * 5000, "0." + "1" * 9000, "9" * 100_000]
)
def test_a_quantity_of_endless_digits_is_an_error_at_once(value: str) -> None:
    with cpu.at_most(1.0):
        with pytest.raises(QuantityError):
            amount(value)
        assert milli(value) >= 0 or value.startswith("-")


def test_a_claim_that_asks_for_endless_capacity_is_refused_with_the_field() -> None:
    with (
        cpu.at_most(1.0),
        pytest.raises(
            InvalidClaimError,
            match=r"spec\.devices\.requests\[0\]\.exactly\.capacity\.requests: quantity '1e999999999' is too",
        ),
    ):
        Compiler(CLASSES).compile_spec(spec(capacity={"requests": {"memory": "1e999999999"}}))


@pytest.mark.parametrize("text", ["1.1.1-" + ".".join("1" * 50_000), "9" * 100_000 + ".1.1"])
def test_an_endless_version_is_an_error_at_once(text: str) -> None:
    with cpu.at_most(1.0), pytest.raises(VersionError) as raised:
        Version.parse(text)
    assert len(str(raised.value)) < 300


def test_the_longest_quantities_can_be_written_out() -> None:
    for value in ("9" * 1000, "1." + "1" * 990, "1.5e1990", "9" * 900 + "Ei"):
        assert str(Quantity.of(value))


def test_selectors_that_no_decision_uses_are_dropped() -> None:
    selectors = Selectors()
    for n in range(100):
        assert selectors.problem(f"device.driver == 'x{n}'") is None
    assert selectors.size_bytes > 0
    for _ in range(UNUSED_MAX + 10):
        selectors.begin()
        selectors.problem("device.driver == 'x1'")
    assert len(selectors._known) == 1


def test_what_is_remembered_of_selectors_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead.engine.inventory.selectors.BYTES_MAX", 100_000)
    selectors = Selectors()
    for n in range(400):
        selectors.begin()
        selectors.problem(f"device.driver == 'x{n}' || 1 < {n}")
        assert selectors.size_bytes < 200_000
