"""What a driver says of devices that it leaves out: read back as it was written, and nothing of what is malformed or too large."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.api import withheld
from fairlead.api.withheld import Taint

LOST = Taint(key="gpu.fairlead.dev/gpu-lost", effect="NoExecute", reason="it has fallen off the bus")
DRAINED = Taint(key="gpu.fairlead.dev/repair", value="drained", effect="NoSchedule")


def read(text: str) -> dict[str, tuple[Taint, ...]]:
    return withheld.read({withheld.WITHHELD: text})


def test_what_was_written_is_read() -> None:
    said = {"gpu-3": (LOST, DRAINED), "gpu-4-mig-1g10gb-19-0": (DRAINED,)}
    assert read(withheld.encode(said)) == said
    assert json.loads(withheld.encode({"gpu-3": (DRAINED,)})) == {
        "gpu-3": [{"key": "gpu.fairlead.dev/repair", "effect": "NoSchedule", "value": "drained"}]
    }
    assert withheld.read({}) == {}


def test_an_entry_of_a_gpu_is_of_its_mig_devices_too() -> None:
    said = {"gpu-3": (LOST,), "gpu-4-mig-1g10gb-19-0": (DRAINED,)}
    assert withheld.taints_of(said, "gpu-3") == (LOST,)
    assert withheld.taints_of(said, "gpu-3-mig-1g10gb-19-0") == (LOST,)
    assert withheld.taints_of(said, "gpu-4-mig-1g10gb-19-0") == (DRAINED,)
    assert withheld.taints_of(said, "gpu-4") == ()
    assert withheld.taints_of(said, "gpu-33") == ()


ONE: dict[str, Any] = {"key": "k", "effect": "NoExecute"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"gpu-3": {}}',
        json.dumps({"gpu-3": []}),
        json.dumps({"gpu-3": [{"key": "k"}]}),
        json.dumps({"gpu-3": [ONE | {"effect": "None"}]}),
        json.dumps({"gpu-3": [ONE | {"key": ""}]}),
        json.dumps({"gpu-3": [ONE | {"value": 1}]}),
        json.dumps({"gpu-3": [ONE | {"value": "v" * 64}]}),
        json.dumps({"gpu-3": [ONE | {"reason": "r" * 161}]}),
        json.dumps({"gpu-3": [ONE] * 5}),
        json.dumps({"": [ONE]}),
        json.dumps({f"gpu-{number}": [ONE] for number in range(129)}),
        '{"a":' * 5000,
        '"\ud800"',
        json.dumps({"gpu-3": [ONE | {"later": "x" * 70_000}]}),
    ],
)
def test_what_is_malformed_or_too_large_is_ignored(text: str) -> None:
    assert read(text) == {}


def test_what_is_written_is_within_the_bounds_and_what_evicts_comes_first() -> None:
    long = "r" * 1000
    many = {f"gpu-{number}": (DRAINED,) * 9 for number in range(300)}
    last = Taint(key="k" * 300, value="v" * 63, effect="NoExecute", reason=long)
    text = withheld.encode(many | {"gpu-999": (DRAINED, last)})
    found = read(text)
    assert len(found) == withheld.DEVICES_MAX
    assert [len(taint.reason) for taint in found["gpu-999"]] == [withheld.REASON_MAX, 0]
    wide = {f"gpu-{number}": (last,) * 4 for number in range(128)}
    assert 0 < len(read(withheld.encode(wide))) < 128
    assert len(withheld.encode(wide)) <= withheld.BYTES_MAX
