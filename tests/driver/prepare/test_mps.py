"""MPS: a claim's daemon is a real process that has the claim's limits, lives as long as the claim, and leaves nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.nvml import programs
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.backend.types import SharedLimits
from fairlead.driver.common.driver_root import DriverRoot
from fairlead.driver.common.locks import ProcessLock
from fairlead.driver.common.threads import Threads
from fairlead.driver.prepare.claims import ClaimError
from fairlead.driver.prepare.mps_daemons import Limits
from fairlead.driver.prepare.preparer import Gpus, PrepareError, Preparer
from fairlead.driver.prepare.upkeep import MpsSupervisor
from tests.support.commands import invoke
from tests.support.driver.claims import claim, gpu_config, mps, time_slicing
from tests.support.driver.node import Node

PERCENTAGE = "get_default_active_thread_percentage"


def kill_daemon(node: Node, uid: str) -> int:
    """As the kernel's memory killer would; returns when the daemon is gone."""
    pid = int((node.path / "mps" / uid / "pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    assert node.daemons._wait(lambda: not node.daemons._home(uid).locked, 10)
    return pid


def edits(node: Node, uid: str) -> dict[str, Any]:
    spec = json.loads(node.cdi_files.path(uid).read_bytes())
    return {device["name"]: device["containerEdits"] for device in spec["devices"]}


class TestClaim:
    def test_its_daemon_has_its_limits_and_its_gpus_for_itself_and_ends_with_it(
        self, node: Node, hgx: SimulatedBackend
    ) -> None:
        driver = node.start()
        config = mps(
            defaultActiveThreadPercentage=50,
            defaultPinnedDeviceMemoryLimit="10Gi",
            defaultPerDevicePinnedMemoryLimit={"1": "512Mi"},
        )
        record = driver.prepare(claim("u1", "gpu-0", "gpu-3", config=[config]))
        first, second = (device.gpu_uuid for device in record.devices)
        limits = [f"get_default_device_pinned_mem_limit {uuid}" for uuid in (first, second)]
        assert node.daemons.command("u1", [PERCENTAGE, *limits]).split() == ["50.0", "10240M", "512M"]
        assert hgx.state.compute_modes == {0: "ExclusiveProcess", 3: "ExclusiveProcess"}
        assert driver.unprepare("u1") is True
        assert not node.leftovers()

    def test_its_containers_reach_the_daemon_and_those_of_other_requests_do_not(self, node: Node) -> None:
        config = mps() | {"requests": ["shared"]}
        shared, own = {"device": "gpu-0", "request": "shared"}, {"device": "gpu-1", "request": "own"}
        driver = node.start()
        driver.prepare(claim("u1", shared, own, config=[config]))
        found = edits(node, "u1")
        assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps" in found["u1-gpu-0"]["env"]
        mounts = {mount["containerPath"]: mount for mount in found["u1-gpu-0"]["mounts"]}
        assert Path(mounts["/tmp/nvidia-mps"]["hostPath"], "control").is_socket()
        assert Path(mounts["/dev/shm"]["hostPath"]).stat().st_mode & 0o7777 == 0o1777
        assert {mounts[path]["options"][0] for path in ("/tmp/nvidia-mps", "/dev/shm")} == {"rw"}
        assert not any("MPS" in entry for entry in found["u1-gpu-1"]["env"])
        assert "/tmp/nvidia-mps" not in {mount["containerPath"] for mount in found["u1-gpu-1"]["mounts"]}
        driver.unprepare("u1")

    def test_a_mig_device_created_for_it_is_served_by_its_uuid_and_keeps_its_gpus_compute_mode(
        self, node: Node, hgx: SimulatedBackend
    ) -> None:
        driver = node.start()
        config = mps("MigDeviceConfig", defaultPerDevicePinnedMemoryLimit={"0": "4Gi"})
        record = driver.prepare(claim("u1", "gpu-0-mig-3g40gb-9-4", config=[config]))
        assert record.devices[0].mig is not None
        command = f"get_default_device_pinned_mem_limit {record.devices[0].mig.uuid}"
        assert node.daemons.command("u1", [command]) == "4096M"
        assert hgx.state.compute_modes == {}
        driver.unprepare("u1")
        assert not node.leftovers()

    def test_a_compute_mode_that_an_administrator_set_is_restored(self, node: Node, hgx: SimulatedBackend) -> None:
        hgx.state.compute_modes = {0: "Prohibited", 1: "ExclusiveProcess"}
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0", "gpu-1", config=[mps()]))
        driver.unprepare("u1")
        assert hgx.state.compute_modes == {0: "Prohibited", 1: "ExclusiveProcess"}

    @pytest.mark.parametrize("permanent", [True, False])
    def test_a_compute_mode_that_cannot_be_set_is_reported_and_holds_nothing(
        self, node: Node, hgx: SimulatedBackend, permanent: bool
    ) -> None:
        refused = ["set_compute_mode"]

        def refuse(operation: str, minor: int) -> None:
            if operation in refused:
                raise BackendError("no permission", permanent=permanent)

        driver = node.start()
        hgx.faults.before = refuse
        with pytest.raises(PrepareError, match="no permission"):
            driver.prepare(claim("u1", "gpu-0", config=[mps()]))
        if not permanent:  # setting it back may have failed, too: it is tried until it works
            assert [record.state for record in driver.records()] == ["preparing"]
            refused.clear()
            driver.unprepare("u1")
        assert driver.records() == ()
        assert not node.leftovers()

    def test_a_lost_gpu_does_not_keep_its_claim_from_ending(self, node: Node, hgx: SimulatedBackend) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0", config=[mps()]))
        hgx.faults.lost.add(0)
        assert driver.unprepare("u1") is True
        assert not node.daemons.uids()


def share(memory: str, multiprocessors: int = 0, share_id: str = "a") -> dict[str, Any]:
    """An allocation result: a part of gpu-0."""
    consumed = {"memory": memory, "multiprocessors": str(multiprocessors)}
    return {"device": "gpu-0", "shareID": share_id, "consumedCapacity": consumed}


class TestShares:
    """Of a GPU that several claims share each has a daemon of its own, with its share as the limit of each program."""

    def test_a_share_is_the_limit_of_its_programs_and_the_gpu_stays_open_for_others(
        self, node: Node, hgx: SimulatedBackend
    ) -> None:
        driver = node.start()
        driver.prepare(claim("u1", share("20Gi", 33, "a"), config=[mps()]))
        driver.prepare(claim("u2", share("40Gi", 0, "b"), config=[mps(defaultActiveThreadPercentage=10)]))
        driver.prepare(claim("u3", share("1Gi", 0, "c")))
        uuid = hgx.inventory().gpus[0].uuid
        limits = [PERCENTAGE, f"get_default_device_pinned_mem_limit {uuid}"]
        assert node.daemons.command("u1", limits).split() == ["25.0", "20480M"]
        assert node.daemons.command("u2", limits).split() == ["10.0", "40960M"]
        assert node.daemons.uids() == ["u1", "u2"]
        assert hgx.compute_mode(uuid) == "Default"
        for uid in ("u1", "u2", "u3"):
            driver.unprepare(uid)
        assert not node.leftovers()

    def test_all_of_a_gpu_may_be_time_sliced_as_no_other_claim_has_a_share(
        self, node: Node, hgx: SimulatedBackend
    ) -> None:
        whole = share(f"{81559}Mi")
        node.start().prepare(claim("u1", whole, config=[time_slicing("Long")]))
        assert hgx.state.time_slices == {0: "Long"}

    def test_two_shares_of_one_gpu_in_one_claim_are_one_limit(self, node: Node, hgx: SimulatedBackend) -> None:
        node.start().prepare(claim("u1", share("20Gi", 33, "a"), share("10Gi", 33, "b"), config=[mps()]))
        limit = f"get_default_device_pinned_mem_limit {hgx.inventory().gpus[0].uuid}"
        assert node.daemons.command("u1", [PERCENTAGE, limit]).split() == ["50.0", "30720M"]

    def test_a_config_of_the_claim_without_sharing_leaves_the_classs_limits(self, node: Node) -> None:
        of_class = mps() | {"source": "FromClass"}
        node.start().prepare(claim("u1", share("20Gi", 33), config=[of_class, gpu_config(capabilities=["compute"])]))
        assert node.daemons.command("u1", [PERCENTAGE]) == "25.0"

    @pytest.mark.parametrize("default", ["none", "MPS"])
    def test_a_share_of_a_mig_device_counts_in_its_memory_and_multiprocessors(
        self, static_node: Node, dgx: SimulatedBackend, default: SharedLimits
    ) -> None:
        static_node.shared_limits = default
        consumed = {"memory": "4Gi", "multiprocessors": "7"}
        part = {"device": "gpu-6-mig-1g10gb-19-0", "shareID": "a", "consumedCapacity": consumed}
        driver = static_node.start()
        configs = [] if default == "MPS" else [mps("MigDeviceConfig")]
        record = driver.prepare(claim("u1", part, config=configs))
        [device] = record.devices
        assert device.uuid.startswith("MIG-")
        limit = f"get_default_device_pinned_mem_limit {device.uuid}"
        assert static_node.daemons.command("u1", [PERCENTAGE, limit]).split() == ["50.0", "4096M"]
        pid = (static_node.path / "mps/u1/pid").read_text().split()[0]
        environment = Path("/proc", pid, "environ").read_bytes().split(b"\0")
        assert f"CUDA_VISIBLE_DEVICES={device.uuid}".encode() in environment
        assert dgx.state.compute_modes == {}
        driver.unprepare("u1")
        assert not static_node.leftovers()

    def test_shares_of_two_mig_devices_in_one_claim_are_refused_with_the_reason(self, static_node: Node) -> None:
        static_node.shared_limits = "MPS"
        both = [
            {"device": f"gpu-6-mig-1g10gb-19-{start}", "shareID": "ab"[start], "consumedCapacity": {"memory": "4Gi"}}
            for start in (0, 1)
        ]
        with pytest.raises(ClaimError, match=r"--shared-limits.* CUDA shows .* one MIG device only"):
            static_node.start().prepare(claim("u1", *both))
        assert not static_node.leftovers()


class TestDefaultOfTheDriver:
    """`--shared-limits MPS`: a share holds though neither its claim nor its class says so."""

    @pytest.fixture
    def limited(self, node: Node) -> Preparer:
        node.shared_limits = "MPS"
        return node.start()

    def test_a_share_of_which_nothing_is_said_holds(self, node: Node, limited: Preparer, hgx: SimulatedBackend) -> None:
        limited.prepare(claim("u1", share("20Gi", 33, "a")))
        limited.prepare(claim("u2", share("10Gi", 0, "b"), config=[gpu_config(capabilities=["compute"])]))
        uuid = hgx.inventory().gpus[0].uuid
        limits = [PERCENTAGE, f"get_default_device_pinned_mem_limit {uuid}"]
        assert node.daemons.command("u1", limits).split() == ["25.0", "20480M"]
        assert node.daemons.command("u2", limits).split() == ["100.0", "10240M"]
        assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps" in edits(node, "u1")["u1-gpu-0-a"]["env"]
        for uid in ("u1", "u2"):
            limited.unprepare(uid)
        assert not node.leftovers()

    def test_less_that_the_claim_or_its_class_says_wins(self, node: Node, limited: Preparer) -> None:
        of_class = mps(defaultActiveThreadPercentage=20) | {"source": "FromClass"}
        limited.prepare(claim("u1", share("20Gi", 33), config=[of_class]))
        own = mps(defaultActiveThreadPercentage=10)
        limited.prepare(claim("u2", share("20Gi", 33, "b"), config=[of_class, own]))
        assert [node.daemons.command(uid, [PERCENTAGE]) for uid in ("u1", "u2")] == ["20.0", "10.0"]

    @pytest.mark.parametrize("device", ["gpu-0", share(f"{81559}Mi"), {"device": "gpu-0", "adminAccess": True}])
    def test_nothing_limits_who_has_a_gpu_alone_or_observes(
        self, node: Node, limited: Preparer, device: str | dict[str, Any]
    ) -> None:
        limited.prepare(claim("u1", device))
        assert node.daemons.uids() == []

    def test_the_claims_other_gpu_is_served_by_the_same_daemon(
        self, node: Node, limited: Preparer, hgx: SimulatedBackend
    ) -> None:
        record = limited.prepare(claim("u1", share("20Gi"), share(f"{81559}Mi", 0, "b") | {"device": "gpu-1"}))
        assert record.mps is not None
        assert record.mps.devices == ("gpu-0", "gpu-1")

    def test_time_slices_beside_it_are_refused(self, node: Node, limited: Preparer) -> None:
        both = [share("20Gi") | {"request": "a"}, share(f"{81559}Mi", 0, "b") | {"device": "gpu-1", "request": "b"}]
        config = time_slicing("Long") | {"requests": ["b"]}
        with pytest.raises(
            ClaimError, match=r"'TimeSlicing' of gpu-1, and another .* --shared-limits, .* make two claims"
        ):
            limited.prepare(claim("u1", *both, config=[config]))
        assert not node.leftovers()

    def test_a_node_without_shared_devices_has_none(self) -> None:
        found = invoke(["driver", "--node-name=n1", "--shared-limits=MPS"])
        assert found.exit_code == 2
        said = " ".join(found.output.replace("│", " ").split())
        assert "MPS: no device of this node is shared; add --shared-gpus" in said


class TestRefusals:
    @pytest.mark.parametrize(
        ("devices", "config", "words"),
        [
            (
                [share("40Gi")],
                mps(defaultPinnedDeviceMemoryLimit="41Gi"),
                r"41984Mi for a program is more than the share of gpu-0 that the claim has \(40960Mi\)",
            ),
            (
                [share("40Gi", 33)],
                mps(defaultActiveThreadPercentage=50),
                r"defaultActiveThreadPercentage: 50 is more than the claim's share of gpu-0, 25",
            ),
            ([{"device": "gpu-0", "adminAccess": True}], mps(), "adminAccess only observes its device"),
            (
                ["gpu-0"],
                mps(defaultPerDevicePinnedMemoryLimit={"1": "1Gi"}),
                r"mpsConfig\.defaultPerDevicePinnedMemoryLimit: '1' is none of the claim's 1 devices",
            ),
            (
                ["gpu-0"],
                mps(defaultPerDevicePinnedMemoryLimit={"GPU-other": "1Gi"}),
                "'GPU-other' is none of the claim's",
            ),
            (
                ["gpu-0-mig-1g10gb-19-0", "gpu-0-mig-1g10gb-19-1"],
                mps("MigDeviceConfig"),
                r"'MPS' over gpu-0-mig-1g10gb-19-0, gpu-0-mig-1g10gb-19-1: CUDA shows .* one MIG device only, .*; make a claim",
            ),
        ],
    )
    def test_what_mps_cannot_do_is_refused_and_leaves_nothing(
        self, node: Node, devices: list[str | dict[str, Any]], config: dict[str, Any], words: str
    ) -> None:
        with pytest.raises(ClaimError, match=words):
            node.start().prepare(claim("u1", *devices, config=[config]))
        assert not node.leftovers()

    def test_two_requests_with_different_limits_are_refused_with_both_fields(self, node: Node) -> None:
        configs = [mps() | {"requests": ["a"]}, mps(multiUser=True) | {"requests": ["b"]}]
        devices = ({"device": "gpu-0", "request": "a"}, {"device": "gpu-1", "request": "b"})
        with pytest.raises(
            ClaimError, match=r"config\[1\].*differs from that at status\.allocation\.devices\.config\[0\]"
        ):
            node.start().prepare(claim("u1", *devices, config=configs))

    def test_several_users_need_a_gpu_that_can_serve_them(self, node: Node, hgx: SimulatedBackend) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0", config=[mps(multiUser=True)]))
        driver.unprepare("u1")
        old = dataclasses.replace(hgx.inventory().gpus[0], cuda_compute_capability="6.1")
        driver._gpus = Gpus(inventory=lambda: dataclasses.replace(hgx.inventory(), gpus=(old,)))
        with pytest.raises(ClaimError, match=r"multiUser: gpu-0 has compute capability 6\.1, and needs 7\.0"):
            driver.prepare(claim("u1", "gpu-0", config=[mps(multiUser=True)]))

    def test_a_host_without_mps_changes_nothing(
        self, node: Node, hgx: SimulatedBackend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hgx, "mps_program", lambda: programs.mps(DriverRoot(node.path / "nowhere")))
        driver = node.start()
        with pytest.raises(PrepareError, match="MPS needs nvidia-cuda-mps-control and nvidia-cuda-mps-server"):
            driver.prepare(claim("u1", "gpu-0", config=[mps()]))
        assert hgx.state.compute_modes == {}
        assert not node.leftovers()


class TestHost:
    def root(self, path: Path) -> Path:
        (path / "usr/bin").mkdir(parents=True)
        for name in ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"):
            (path / "usr/bin" / name).write_bytes(b"\x7fELF")
        return path

    def test_the_programs_are_those_of_the_drivers_root(self, tmp_path: Path) -> None:
        root = self.root(tmp_path)
        (tmp_path / "proc/self/ns").mkdir(parents=True)
        (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
        program = programs.mps(DriverRoot(root), proc=tmp_path / "proc")
        assert program.daemon == (f"{root}/usr/bin/nvidia-cuda-mps-control", "-f")
        assert program.control == (f"{root}/usr/bin/nvidia-cuda-mps-control",)
        assert program.environment["LD_LIBRARY_PATH"].startswith(f"{root}/usr/lib64:")

    def test_a_driver_that_does_not_see_the_hosts_processes_is_refused_with_the_way_out(self, tmp_path: Path) -> None:
        (tmp_path / "proc/self/ns").mkdir(parents=True)
        (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026532999]")
        with pytest.raises(BackendError, match="set hostPID: true") as raised:
            programs.mps(DriverRoot(self.root(tmp_path)), proc=tmp_path / "proc")
        assert raised.value.permanent


class TestRestarts:
    def test_a_restarted_driver_adopts_the_daemon(self, node: Node) -> None:
        node.start().prepare(claim("u1", "gpu-0", config=[mps(defaultActiveThreadPercentage=30)]))
        before = (node.path / "mps/u1/pid").read_text()
        driver = node.start()
        assert driver.without_mps_daemon() == ()
        driver.prepare(claim("u1", "gpu-0", config=[mps(defaultActiveThreadPercentage=30)]))
        assert (node.path / "mps/u1/pid").read_text() == before
        driver.unprepare("u1")
        assert not node.leftovers()

    def test_a_daemon_that_died_is_started_again_with_its_limits_at_the_next_prepare(self, node: Node) -> None:
        driver = node.start()
        wanted = claim("u1", "gpu-0", config=[mps(defaultActiveThreadPercentage=30)])
        driver.prepare(wanted)
        kill_daemon(node, "u1")
        driver.prepare(wanted)
        assert node.daemons.command("u1", [PERCENTAGE]) == "30.0"
        driver.unprepare("u1")

    def test_a_daemon_without_a_claim_is_ended_at_the_start(self, node: Node) -> None:
        node.daemons.start("lost", ["GPU-0"], Limits())
        node.start()
        assert not node.daemons.uids()


class TestSupervisor:
    async def test_one_that_cannot_be_started_makes_its_devices_unhealthy_until_it_can(
        self, node: Node, hgx: SimulatedBackend, threads: Threads, tmp_path: Path
    ) -> None:
        driver = node.start()
        driver.prepare(claim("u1", "gpu-0", config=[mps()]))
        process_lock = ProcessLock(tmp_path / "turn", reload=_nothing)
        reported: list[Mapping[str, str]] = []
        supervisor = MpsSupervisor(
            driver,
            process_lock=process_lock,
            threads=threads,
            restarted=lambda: None,
            report_unhealthy=reported.append,
        )
        kill_daemon(node, "u1")

        def broken(operation: str, minor: int) -> None:
            raise BackendError("the GPU wants a reset")

        hgx.faults.before = broken
        await supervisor.check()
        assert reported[-1] == {"gpu-0": "no MPS daemon: ResourceClaim ml/claim-u1 (u1): the GPU wants a reset"}
        hgx.faults.before = None
        await supervisor.check()
        assert reported[-1] == {}
        driver.unprepare("u1")


async def _nothing() -> None:
    pass
