"""`make gpu` on what takes the hardware's place: the checks run and find nothing, and one that finds something says so."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
CHECKS = (
    "discovery",
    "isolation",
    "CUDA",
    "Xid of a program",
    "memory limit of a share",
    "use of a share",
    "NCCL topology file",
    "smoke",
    "leftovers",
)


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path leaves room for unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="fl-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def made(*checks: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [word for check in checks for word in ("--only", check)]
    command = [sys.executable, "-m", "tests.hardware", "--standin", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_every_part_is_checked_and_nothing_is_left() -> None:
    done = made(*CHECKS)
    results = {line[8:36].strip(): line[:8].strip() for line in done.stdout.splitlines() if line[36:42].strip()}
    assert {name: results.get(name) for name in CHECKS if results.get(name) not in {"ok", "skipped"}} == {}, done.stdout
    assert results["discovery"] == results["Xid of a program"] == results["leftovers"] == results["settings"] == "ok"
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_same_holds_with_nvidias_driver_in_place_of_ours() -> None:
    names = [f"{name}, gpu.nvidia.com" for name in ("discovery", "isolation", "CUDA", "one of several", "leftovers")]
    done = made(*names, GPU_COUNT="2")
    assert done.returncode == 0, done.stdout
    results = {line[8:36].strip(): line[:8].strip() for line in done.stdout.splitlines() if line[36:42].strip()}
    assert results["discovery, gpu.nvidia.com"] == results["leftovers, gpu.nvidia.com"] == "ok", done.stdout
    assert "failed" not in {results[name] for name in names if name in results}


def test_a_plugin_of_nvidia_that_does_not_start_is_a_failure_with_what_it_said(tmp_path: Path) -> None:
    plugin = tmp_path / "gpu-kubelet-plugin"
    plugin.write_text("#!/bin/sh\necho no libnvidia-ml.so under $NVIDIA_DRIVER_ROOT\nexit 1\n")
    plugin.chmod(0o755)
    words = ("--standin", "--nvidia-driver", str(plugin), "--only", "discovery, gpu.nvidia.com")
    command = [sys.executable, "-m", "tests.hardware", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "NVIDIA's driver ended with exit code 1: no libnvidia-ml.so under" in done.stdout


def test_a_difference_to_nvidia_smi_is_a_failure() -> None:
    done = made("discovery", GPU_SMI_MEMORY="100000")
    assert done.returncode == 1
    assert "memory: 143771 and 100000 MiB" in done.stdout


def test_of_two_gpus_each_container_sees_its_own() -> None:
    done = made("discovery", "one of several", "leftovers", GPU_COUNT="2")
    assert done.returncode == 0, done.stdout
    if "plain processes" not in done.stdout:
        assert "2 GPUs: each of two pods at once sees one, another than the other's" in done.stdout


def test_settings_are_changed_for_claims_and_as_before_afterwards() -> None:
    checks = [word for name in ("time slice", "compute mode", "MIG mode") for word in ("--only", name)]
    command = [sys.executable, "-m", "tests.hardware", "--standin", "--settings", *checks]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "MIG mode Disabled again" in done.stdout
    if "plain processes" not in done.stdout:
        assert "Default, with a claim under MPS Exclusive_Process, then Default" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs containers, and so root")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_settings_are_put_back_when_the_run_ends_in_between(number: signal.Signals, short_path: Path) -> None:
    command = [sys.executable, "-m", "tests.hardware", "--standin", "--settings", "--only", "compute mode"]
    environment = {**os.environ, "TMPDIR": str(short_path)}

    def mode() -> int | None:
        [*files] = short_path.glob("fl-*/settings-*")
        return json.loads(files[0].read_text())["compute_mode"] if files else None

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment) as running:
        try:
            until(lambda: mode() == 3, 90)
            running.send_signal(number)
            running.wait(60)
        finally:
            running.kill()
    until(lambda: mode() in {0, None}, 60)  # None: a run that ended by itself has removed the stand-in
    if number is signal.SIGKILL:
        assert mode() == 0


def until(found: Callable[[], bool], timeout_s: float) -> None:
    end_s = time.monotonic() + timeout_s
    while not found():
        assert time.monotonic() < end_s, f"not within {timeout_s:.0f} s"
        time.sleep(0.05)
