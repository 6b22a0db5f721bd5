"""What the driver says of a claim's devices is read as it was written, and what others wrote there does no harm."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.kube.device_usage import STATES, DeviceId, DeviceUsage, read, usage_of
from fairlead.kube.resource import ResourceClaim

USAGE = DeviceUsage(
    state="Idle",
    since_s=1_800_000_000.0,
    sampled_at_s=1_800_003_600.0,
    utilization_percent=1,
    memory_used_peak_bytes=7 * 2**30,
    memory_bytes=80 * 2**30,
    shared=True,
    below=((1.0, 1_800_000_100.0), (5.0, 1_800_000_000.0)),
)
VALID = USAGE.to_json()
DEVICE = DeviceId(names.DRIVER, "n1", "gpu-0")

wholes = st.integers(0, 2**63 - 1) | st.none()
usages = st.builds(
    DeviceUsage,
    state=st.sampled_from(STATES),
    since_s=st.integers(0, 2**33).map(float),
    sampled_at_s=st.integers(0, 2**33).map(float),
    utilization_percent=st.integers(0, 100) | st.none(),
    memory_used_peak_bytes=wholes,
    memory_bytes=wholes,
    shared=st.booleans(),
    below=st.dictionaries(st.sampled_from([0.5, 1.0, 5.0, 10.0, 99.0]), st.integers(0, 2**33).map(float)).map(
        lambda found: tuple(sorted(found.items()))
    ),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from([*VALID.values()]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*VALID]) | st.text(max_size=5), inner),
    max_leaves=10,
)


def claim(*entries: dict[str, Any], device: str = "gpu-0", allocated: bool = True) -> ResourceClaim:
    result = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": device}
    allocation = {"allocation": {"devices": {"results": [result]}}} if allocated else {}
    return msgspec.convert({"status": {**allocation, "devices": list(entries)}}, ResourceClaim)


def entry(data: Any, **fields: Any) -> dict[str, Any]:
    return {"driver": names.DRIVER, "pool": "n1", "device": "gpu-0", "data": data} | fields


def test_the_json_is_this() -> None:
    assert VALID == {
        "apiVersion": "gpu.fairlead.dev/v1alpha1",
        "kind": "DeviceUsage",
        "state": "Idle",
        "since": "2027-01-15T08:00:00Z",
        "sampledAt": "2027-01-15T09:00:00Z",
        "utilizationPercent": 1,
        "memoryUsedPeakBytes": 7 * 2**30,
        "memoryBytes": 80 * 2**30,
        "shared": True,
        "belowSince": {"1": "2027-01-15T08:01:40Z", "5": "2027-01-15T08:00:00Z"},
    }
    unknown = DeviceUsage(state="Unknown", since_s=0, sampled_at_s=0).to_json()
    assert "utilizationPercent" not in unknown, "what is not known is not written as 0"


@given(usages)
def test_what_is_written_is_read_again(usage: DeviceUsage) -> None:
    written = msgspec.json.decode(msgspec.json.encode(usage.to_json()))
    assert read(written) == usage
    assert len(msgspec.json.encode(written)) < 600, "of the 10 KiB that Kubernetes allows"


@pytest.mark.parametrize(("percent", "since"), [(1, 200.0), (4, 200.0), (5, 100.0), (20, 100.0), (0.5, None)])
def test_of_a_level_that_is_not_measured_the_next_lower_one_counts(percent: float, since: float | None) -> None:
    usage = DeviceUsage(state="Busy", since_s=0, sampled_at_s=900, below=((1.0, 200.0), (5.0, 100.0)))
    assert usage.below_since(percent) == since


@pytest.mark.parametrize(
    "change",
    [
        {"apiVersion": "gpu.fairlead.dev/v2"},
        {"kind": "Poem"},
        {"state": "Sleepy"},
        {"state": None},
        {"since": "yesterday"},
        {"since": 5},
        {"since": "9999-12-31T23:59:59-23:00"},
        {"since": "0001-01-01T00:00:00"},
        {"sampledAt": ""},
        {"utilizationPercent": 101},
        {"utilizationPercent": -1},
        {"utilizationPercent": "7"},
        {"utilizationPercent": True},
        {"memoryUsedPeakBytes": -1},
        {"memoryUsedPeakBytes": 10**30},
        {"memoryBytes": 1.5},
        {"shared": "no"},
    ],
)
def test_what_is_no_usage_is_as_if_it_were_not_there(change: dict[str, Any]) -> None:
    found = read({**VALID, **change})
    assert found is None or change["since"] == "9999-12-31T23:59:59-23:00", "a late time is a time"
    assert usage_of(claim(entry({**VALID, **change}))) == ({} if found is None else {DEVICE: found})


@given(json_values)
def test_any_data_is_read_without_an_error(data: Any) -> None:
    usage_of(claim(entry(data)))
    usage_of(claim(entry({**VALID, "state": data, "since": data, "shared": data})))


def test_only_the_drivers_entries_of_allocated_devices_count() -> None:
    assert usage_of(claim(entry(VALID))) == {DEVICE: USAGE}
    assert usage_of(claim(entry(VALID, driver="nic.example.com"))) == {}
    assert usage_of(claim(entry(VALID), device="gpu-1")) == {}
    assert usage_of(claim(entry(VALID, shareID="11111111-2222-3333-4444-555555555555"))) == {}
    assert usage_of(claim(entry(VALID), allocated=False)) == {}
    assert usage_of(claim()) == {}
