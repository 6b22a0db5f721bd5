"""Programs of NVIDIA's driver run with the libraries of the root that they are installed under, and MPS with a /tmp of its own.

The roots here are real: a shell with its libraries. Changing the root needs to be root, and mounts of one's own; where that is
not allowed these tests skip.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.nvml import programs
from fairlead.driver.common import launch
from fairlead.driver.common.driver_root import DriverRoot
from fairlead.driver.prepare.mps_daemons import Daemons, Limits

CONTROL = """#!/bin/sh
if [ "$1" = -f ]; then
  echo "$CUDA_VISIBLE_DEVICES" > /dev/shm/devices
  echo $$ > "$CUDA_MPS_PIPE_DIRECTORY/control"
  exec sleep 60
fi
read pid < "$CUDA_MPS_PIPE_DIRECTORY/control"
while read line; do
  [ "$line" = quit ] && kill "$pid"
  echo "$CUDA_MPS_PIPE_DIRECTORY: $line"
done
"""


def allowed() -> bool:
    python = (sys.executable, "-I", "-S", launch.__file__)
    there = ("--root", "/", "--bind", "/tmp", "/tmp", "--", "/bin/true")
    return subprocess.run((*python, *there), check=False, capture_output=True).returncode == 0


needs_root = pytest.mark.skipif(not allowed(), reason="a mount namespace cannot be made here: that takes CAP_SYS_ADMIN")


def put(root: Path, program: str) -> None:
    """A program of this machine with the libraries that it is built against."""
    real = Path(shutil.which(program) or "").resolve()
    said = subprocess.run(("ldd", str(real)), check=True, capture_output=True, text=True).stdout
    for path in (Path(found) for found in re.findall(r"(/\S+)", said)):
        copy = root / str(path).lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path.resolve(), copy)
    (root / "bin").mkdir(exist_ok=True)
    shutil.copy(real, root / "bin" / program)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host's root in small."""
    path = tmp_path / "root"
    for each in ("tmp", "dev/shm", "usr/bin", "usr/lib64"):
        (path / each).mkdir(parents=True)
    put(path, "sh")
    put(path, "sleep")
    for name, text in (
        ("nvidia-smi", '#!/bin/sh\n[ -d /driver-root ] || echo "$@" > /said\n'),
        ("nvidia-cuda-mps-control", CONTROL),
        ("nvidia-cuda-mps-server", "#!/bin/sh\n"),
    ):
        (path / "usr/bin" / name).write_text(text)
        (path / "usr/bin" / name).chmod(0o755)
    return path


@needs_root
def test_a_program_of_a_whole_root_runs_with_that_root(root: Path) -> None:
    assert DriverRoot(root).has_libc
    programs.set_time_slice(programs.smi(DriverRoot(root)), "GPU-1", "Medium")
    assert (root / "said").read_text() == "compute-policy -i GPU-1 --set-timeslice 2\n"


@needs_root
def test_an_mps_daemon_of_a_whole_root_has_a_tmp_and_a_shm_that_are_only_its_claims(root: Path, tmp_path: Path) -> None:
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    (tmp_path / "proc/self/ns/pid").symlink_to("pid:[4026531836]")
    daemons = Daemons(tmp_path / "mps", lambda: programs.mps(DriverRoot(root), proc=tmp_path / "proc"))
    daemons.start("u1", ["GPU-1", "GPU-2"], Limits(active_thread_percentage=50))
    assert daemons.alive("u1")
    assert daemons.command("u1", ["ps"]) == "/tmp/nvidia-mps: ps"
    assert (tmp_path / "mps/u1/shm/devices").read_text() == "GPU-1,GPU-2\n"
    assert list((root / "tmp").iterdir()) == list((root / "dev/shm").iterdir()) == []
    assert daemons.stop("u1") is True
    assert daemons.uids() == []


@needs_root
def test_a_program_that_does_not_run_in_its_root_says_so(root: Path) -> None:
    (root / "bin/sh").unlink()
    with pytest.raises(BackendError, match=r"exit status 127: .*No such file"):
        programs.set_time_slice(programs.smi(DriverRoot(root)), "GPU-1", "Medium")


def test_a_root_without_a_c_library_is_a_place_to_search(tmp_path: Path) -> None:
    root = DriverRoot(tmp_path)
    assert not root.has_libc
    assert root.launcher() == ()
    assert root.environment()["LD_LIBRARY_PATH"].startswith(f"{tmp_path}/usr/lib64:")
    assert root.program_path("usr/bin/nvidia-smi") == f"{tmp_path}/usr/bin/nvidia-smi"


def test_the_hosts_own_root_is_not_changed() -> None:
    root = DriverRoot(Path("/"))
    assert not root.needs_chroot
    assert root.launcher() == ()
    assert root.program_path("usr/bin/nvidia-smi") == "/usr/bin/nvidia-smi"
    assert "LD_LIBRARY_PATH" not in root.environment()


def test_a_program_that_is_a_link_is_followed_within_the_root(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "opt/nvidia").mkdir(parents=True)
    (tmp_path / "opt/nvidia/nvidia-smi").write_bytes(b"")
    (tmp_path / "usr/bin/nvidia-smi").symlink_to("/opt/nvidia/nvidia-smi")
    assert DriverRoot(tmp_path).find_program("nvidia-smi") == "opt/nvidia/nvidia-smi"
    (tmp_path / "opt/nvidia/nvidia-smi").unlink()
    (tmp_path / "opt/nvidia/nvidia-smi").mkdir()  # a directory that a bind mount of nothing made
    assert DriverRoot(tmp_path).find_program("nvidia-smi") is None


class TestBinds:
    """What a program finds where directories are bound for it: of a launch with these mounts, what `ls` says."""

    def launch(self, *binds: Path, target: Path) -> subprocess.CompletedProcess[str]:
        words = [word for at in range(0, len(binds), 2) for word in ("--bind", str(binds[at]), str(binds[at + 1]))]
        command = (sys.executable, "-I", "-S", launch.__file__, *words, "--", "/bin/ls", str(target))
        return subprocess.run(command, check=False, capture_output=True, text=True)

    @needs_root
    def test_a_directory_below_the_target_of_another_is_bound_all_the_same(self, tmp_path: Path) -> None:
        common, claim = (
            tmp_path / "tmp",
            tmp_path / "tmp/claim",
        )  # a daemon's directory in /tmp, which gets another /tmp
        for each in (common, claim / "tmp", claim / "shm", tmp_path / "shm"):
            each.mkdir(exist_ok=True, parents=True)
        (claim / "shm/found").touch()
        done = self.launch(claim / "tmp", common, claim / "shm", tmp_path / "shm", target=tmp_path / "shm")
        assert (done.returncode, done.stdout, done.stderr) == (0, "found\n", "")

    @needs_root
    def test_a_target_that_is_missing_is_made(self, tmp_path: Path) -> None:
        (tmp_path / "shm").mkdir()
        (tmp_path / "shm/found").touch()
        done = self.launch(tmp_path / "shm", tmp_path / "dev/shm", target=tmp_path / "dev/shm")
        assert (done.returncode, done.stdout, done.stderr) == (0, "found\n", "")

    @needs_root
    def test_only_a_privilege_that_is_missing_is_said_to_be_missing(self, tmp_path: Path) -> None:
        done = self.launch(tmp_path / "nowhere", tmp_path, target=tmp_path)
        assert done.returncode == 127
        assert "No such file or directory" in done.stderr
        assert "privileged" not in done.stderr
