"""`make gpu` on what takes the hardware's place: the checks run and find nothing, and one that finds something says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow
CHECKS = (
    "discovery",
    "isolation",
    "CUDA",
    "Xid of a program",
    "memory limit of a share",
    "NCCL topology file",
    "smoke",
    "leftovers",
)


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


def test_a_difference_to_nvidia_smi_is_a_failure() -> None:
    done = made("discovery", GPU_SMI_MEMORY="100000")
    assert done.returncode == 1
    assert "memory: 143771 and 100000 MiB" in done.stdout
