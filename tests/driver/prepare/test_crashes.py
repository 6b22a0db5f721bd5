"""The driver is killed after every step of prepare and unprepare; a restart and a retry end right, and leak nothing.

DESIGN 7.7. The list of steps is taken from a run that is not killed, so a step that is added is killed at too.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest

from fairlead.driver.backend import profiles
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.prepare import mps_directory
from fairlead.kube.resource import ResourceClaim
from tests.support.driver.claims import claim, mps, time_slicing
from tests.support.driver.node import Node

WHOLE = ("gpu-0", "gpu-3")
MIGS = ("gpu-0-mig-3g40gb-9-4", "gpu-1", "gpu-2-mig-1g10gb-19-0")
SLICED = ("gpu-4", "gpu-5-mig-1g10gb-19-0")
SHARED = ("gpu-6", "gpu-7")
SHARED_MIG = ("gpu-6-mig-1g10gb-19-0",)


def wanted(uid: str, devices: tuple[str, ...]) -> ResourceClaim:
    """A claim for these devices; those of SLICED also set a time slice on their whole GPU, SHARED have an MPS daemon."""
    config = {
        SLICED: [time_slicing("Long")],
        SHARED: [mps(defaultActiveThreadPercentage=40)],
        SHARED_MIG: [mps("MigDeviceConfig")],
    }
    return claim(uid, *devices, config=config.get(devices, ()))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a first attempt does not remove in time is left for later attempts, which these tests do not wait for."""
    monkeypatch.setattr(mps_directory, "FIRST_ATTEMPT_S", 60.0)


def new_node(path: Path) -> Node:
    path.mkdir(exist_ok=True)
    return Node(path, SimulatedBackend(profiles.load("hgx-h100"), node="n1"), dynamic=True)


def steps(devices: tuple[str, ...], verb: str) -> list[str]:
    with tempfile.TemporaryDirectory() as path:
        node = new_node(Path(path))
        driver = node.start()
        driver.prepare(wanted("u1", devices))
        if verb == "prepare":
            return node.steps
        node.steps.clear()
        driver.unprepare("u1")
        return node.steps


CASES = [
    pytest.param(devices, verb, step, id=f"{name}-{verb}-{step.replace(' ', '_')}")
    for name, devices in (
        ("whole", WHOLE),
        ("mig", MIGS),
        ("sliced", SLICED),
        ("shared", SHARED),
        ("shared-mig", SHARED_MIG),
    )
    for verb in ("prepare", "unprepare")
    for step in steps(devices, verb)
]


def crash(node: Node, devices: tuple[str, ...], verb: str, step: str) -> None:
    driver = node.start()
    if verb == "unprepare":
        driver.prepare(wanted("u1", devices))
    with node.killed_at(step):
        if verb == "prepare":
            driver.prepare(wanted("u1", devices))
        else:
            driver.unprepare("u1")


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("devices", "verb", "step"), CASES)
def test_a_retry_after_the_restart_ends_right(tmp_path: Path, devices: tuple[str, ...], verb: str, step: str) -> None:
    node = new_node(tmp_path)
    crash(node, devices, verb, step)
    driver = node.start()
    if verb == "prepare":
        record = driver.prepare(wanted("u1", devices))
        assert [device.device for device in record.devices] == list(devices)
        assert node.cdi_files.exists("u1")
    driver.unprepare("u1")
    assert not node.leftovers()
    assert driver.records() == ()


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("devices", "verb", "step"), CASES)
def test_without_a_retry_a_second_claim_gets_the_devices_of_a_first_that_was_not_answered(
    tmp_path: Path, devices: tuple[str, ...], verb: str, step: str
) -> None:
    node = new_node(tmp_path)
    crash(node, devices, verb, step)
    driver = node.start()
    kept = node.recovery.kept
    assert not node.recovery.not_undone
    if kept:
        # Finished as far as the disk knows: kubelet will come for it. Nothing else may have its devices.
        assert kept == ("u1",)
        assert step in {"prepared", "CDI removed", "metadata removed"}
        driver.unprepare("u1")
    driver.prepare(wanted("u2", devices))
    driver.unprepare("u2")
    assert not node.leftovers()


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("devices", "verb", "step"), CASES[::3])
def test_a_second_crash_while_recovering_changes_nothing(
    tmp_path: Path, devices: tuple[str, ...], verb: str, step: str
) -> None:
    node = new_node(tmp_path)
    crash(node, devices, verb, step)
    for again in ("MPS stopped", "compute mode 0 reset", "time slice 0 reset", "destroyed 0", "CDI removed"):
        with (
            contextlib.suppress(AssertionError),
            node.killed_at(again),
        ):  # where there is nothing to undo up to that step
            node.start()
    driver = node.start()
    driver.unprepare("u1")
    assert not node.leftovers()


def test_a_kill_between_prepare_and_reply_is_answered_identically_after_the_restart(tmp_path: Path) -> None:
    node = new_node(tmp_path)
    driver = node.start()
    with node.killed_at("prepared"):
        driver.prepare(claim("u1", *MIGS))
    before = node.cdi_files.path("u1").read_bytes()
    unfinished = driver.record("u1")
    record = node.start().prepare(claim("u1", *MIGS))
    assert record == unfinished
    assert node.cdi_files.path("u1").read_bytes() == before
