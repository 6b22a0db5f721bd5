"""Profiles: recorded nodes come back as they were; broken ones are refused with the field."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairlead.cli.node import Devices, Fault, Load
from fairlead.driver.backend import profiles
from fairlead.driver.backend.profiles import recording
from fairlead.driver.backend.profiles.loading import ProfileError
from fairlead.driver.backend.simulated import fault_file
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import Gpu, Inventory, NvLink


def inventory(path_or_name: str, node: str = "n1") -> Inventory:
    return SimulatedBackend(profiles.load(path_or_name), node=node).inventory()


@pytest.mark.parametrize("name", profiles.known())
def test_a_recorded_node_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    before = inventory(name)
    path = tmp_path / "node.yaml"
    path.write_text(recording.to_yaml(recording.record(before, uuids=True)))
    assert inventory(str(path), node="elsewhere") == dataclasses.replace(before, gpus=_fresh_migs(before, str(path)))


def _fresh_migs(before: Inventory, path: str) -> tuple[Gpu, ...]:
    """The same GPUs with the UUIDs that a new process gives to MIG devices."""
    after = inventory(path, node="elsewhere")
    return tuple(
        dataclasses.replace(
            gpu,
            mig_devices=tuple(
                dataclasses.replace(mig, uuid=new.uuid)
                for mig, new in zip(gpu.mig_devices, twin.mig_devices, strict=True)
            ),
        )
        for gpu, twin in zip(before.gpus, after.gpus, strict=True)
    )


def test_uuids_are_left_out_unless_asked_for() -> None:
    before = inventory("hgx-h100")
    assert before.gpus[0].uuid not in recording.to_yaml(recording.record(before))
    assert before.gpus[0].uuid in recording.to_yaml(recording.record(before, uuids=True))


def test_connections_that_are_no_islands_are_kept(tmp_path: Path) -> None:
    before = inventory("hgx-h100")
    ring = tuple(
        dataclasses.replace(gpu, nvlink=NvLink(version=2, links=2, peers=tuple(sorted(((m - 1) % 8, (m + 1) % 8)))))
        for m, gpu in enumerate(before.gpus)
    )
    path = tmp_path / "ring.yaml"
    path.write_text(recording.to_yaml(recording.record(dataclasses.replace(before, gpus=ring))))
    found = inventory(str(path))
    assert [gpu.nvlink.peers for gpu in found.gpus if gpu.nvlink] == [gpu.nvlink.peers for gpu in ring if gpu.nvlink]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpus: [{minor: zero}]", r"Expected `int \| null`.*\$\.gpus\[0\]\.minor"),
        ("gpus: [{minor: 0}, {minor: 0}]", "minor 0 is given to two GPUs"),
        ("gpus: [{}]", r"gpus\[0\]\.minor: missing"),
        ("gpus: [{minor: 0, colour: red}]", "unknown field `colour`"),
        ("gpus: [{minor: 0, mig: b300}]", "known tables: a100-40gb"),
        ("gpus: [{minor: 0, mig: a100-80gb, migDevices: [1g.10gb@0]}]", "add migEnabled: true"),
        ("gpus: [{minor: 0, mig: a100-80gb, migEnabled: true, migDevices: [7g.80gb@0, 1g.10gb@0]}]", "does not fit"),
        ("gpus: [{minor: 0, mig: a100-80gb, migEnabled: true, migDevices: [1g.5gb@0]}]", "known profiles: 1g.10gb"),
        ("gpus: [{minor: 0, mig: a100-80gb, migEnabled: true, migDevices: [1g]}]", "write <profile>@<start>"),
        ("gpus: {", "while parsing a flow"),
        ("[]", "Expected `object`"),
    ],
)
def test_a_broken_profile_is_refused_with_the_field(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError, match=words):
        inventory(str(path))


class TestCommands:
    def test_devices_are_a_table(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert Devices(backend="simulated:dgx-a100").run() == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1 + 16
        assert "gpu-7-mig-3g40gb-9-0" in lines[14]

    @pytest.mark.slow
    def test_record_takes_the_file_as_its_argument(self, tmp_path: Path) -> None:
        file = tmp_path / "node.yaml"

        def record(*words: object) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "fairlead", "record", *map(str, words), "--backend", "simulated:l40s"]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        done = record(file)
        assert (done.returncode, inventory(str(file)).gpus[0].product_name) == (0, "NVIDIA L40S"), done.stderr
        again = record(file)
        assert (again.returncode, "is there already" in " ".join(again.stderr.replace("│", " ").split())) == (2, True)
        two = record(tmp_path / "a", tmp_path / "b")
        assert (two.returncode, "name one file" in " ".join(two.stderr.replace("│", " ").split())) == (2, True)

    def test_a_fault_is_written_where_the_driver_reads_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "gpu.fairlead.dev").mkdir()
        assert Fault(device="gpu-3", plugins_dir=tmp_path, xid=79).run() == 0
        assert "gpu-3 reports Xid 79 (ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS): fatal" in capsys.readouterr().out
        assert Fault(device="gpu-3", plugins_dir=tmp_path, throttle="thermal_hw").run() == 0
        assert Fault(device="gpu-3", plugins_dir=tmp_path, ecc="uncorrected").run() == 0
        wanted = fault_file.read(tmp_path / "gpu.fairlead.dev" / fault_file.NAME)
        assert wanted is not None
        assert wanted.throttled == {3: frozenset({"thermal_hw"})}
        assert wanted.memory_errors == {3: fault_file.MemoryErrors(uncorrected=1, pending=True)}
        assert Fault(device="all", plugins_dir=tmp_path, mend=True).run() == 0
        wanted = fault_file.read(tmp_path / "gpu.fairlead.dev" / fault_file.NAME)
        assert wanted is not None
        assert (wanted.throttled, wanted.recovery) == ({}, {})
        assert wanted.memory_errors == {3: fault_file.MemoryErrors(uncorrected=1)}

    def test_a_load_is_written_where_the_driver_reads_it(self, tmp_path: Path) -> None:
        (tmp_path / "gpu.fairlead.dev").mkdir()
        assert Load(device="gpu-1", plugins_dir=tmp_path, utilization=100, nvlink="0").run() == 0
        assert Load(device="held", plugins_dir=tmp_path, utilization=80, memory="20Gi").run() == 0
        wanted = fault_file.read(tmp_path / "gpu.fairlead.dev" / fault_file.NAME)
        assert wanted is not None
        assert wanted.loads == {"gpu-1": fault_file.Load(utilization_percent=100, nvlink_bytes_per_second=0)}
        assert wanted.held == fault_file.Load(utilization_percent=80, memory_used_bytes=20 * 2**30)

    @pytest.mark.parametrize(
        ("device", "options", "code"),
        [
            ("gpu-3", {}, 2),
            ("gpu-3", {"lost": True, "mend": True}, 2),
            ("gpu-3-mig-1g10gb-19-0", {"lost": True}, 2),
            ("gpu-3", {"lost": True}, 1),
            ("gpu-3", {"throttle": "too warm"}, 2),
            ("gpu-3", {"ecc": "some"}, 2),
            ("gpu-3", {"ecc": "corrected", "throttle": "thermal_hw"}, 2),
        ],
    )
    def test_nonsense_is_refused(
        self, tmp_path: Path, device: str, options: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert Fault(device=device, plugins_dir=tmp_path / "nowhere", **options).run() == code
        assert capsys.readouterr().err
