"""Files that a disk or an editor left broken, found by fuzzing: the driver starts, or says what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlead.driver.backend import device_names, profiles
from fairlead.driver.backend.profiles import loading
from fairlead.driver.backend.simulated import fault_file
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.publish import faults
from tests.support import cpu

BROKEN = (b"", b"[]", b'{"boot_id":"\xff"}', b'{"xids":"\xc4"}', b'{"a":' * 3000, b"\x00" * 100)


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_of_faults_is_none(content: bytes, tmp_path: Path) -> None:
    assert faults.decode(content, boot_id="b") == {}
    path = tmp_path / "faults"
    path.write_bytes(content)
    assert fault_file.read(path) in (None, fault_file.WantedFaults())


@pytest.mark.parametrize(
    "instances",
    [
        [{"profile_id": 999, "start": 0, "gi_id": 1, "ci_id": 0, "uuid": "MIG-1"}],
        [{"profile_id": 14, "start": "x", "gi_id": 1, "ci_id": 0, "uuid": "MIG-1"}],
        [{"profile_id": None, "start": 0, "gi_id": 1, "ci_id": 0, "uuid": None}],
        {},
    ],
)
def test_simulated_hardware_forgets_a_state_that_it_cannot_have(instances: object, tmp_path: Path) -> None:
    path = tmp_path / "state"
    profile = profiles.load("a30")
    uuids = [gpu.uuid for gpu in SimulatedBackend(profile, node="n1").inventory().gpus]
    path.write_text(json.dumps({"made": 1, "instances": dict.fromkeys(uuids, instances)}))
    found = SimulatedBackend(profile, node="n1", state_file=path).inventory()
    assert [(gpu.uuid, gpu.mig_devices) for gpu in found.gpus] == [(uuid, ()) for uuid in uuids]
    for content in BROKEN:
        path.write_bytes(content)
        assert SimulatedBackend(profile, node="n1", state_file=path).inventory() == found


@pytest.mark.parametrize(
    "text",
    [
        "gpu: 2001-99-99",
        "gpu: !!timestamp x",
        "gpu: !!int x",
        "gpu: {mig: ../../xids}\ngpus: [{minor: 0}]",
        f"gpu: {{mig: {'a' * 300}}}\ngpus: [{{minor: 0}}]",
        "- " * 2000 + "x",
        "{a: " * 500,
    ],
)
def test_a_profile_that_cannot_be_read_is_a_profile_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(text)
    with pytest.raises(loading.ProfileError):
        loading.gpus(loading.load(str(path)), node="n1")


def test_brackets_within_brackets_cost_no_second(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text("gpus: " + "[" * 20_000)
    with cpu.at_most(0.5), pytest.raises(loading.ProfileError, match="nested more than 64 levels"):
        loading.load(str(path))


@pytest.mark.parametrize(
    "name", ["gpu-\u0661", "gpu-" + "9" * 5000, "gpu-1-mig-a-\u0661-0", "gpu-1-mig-a-1-" + "1" * 5000]
)
def test_a_devices_name_has_short_ascii_numbers(name: str) -> None:
    assert device_names.parse(name) is None
