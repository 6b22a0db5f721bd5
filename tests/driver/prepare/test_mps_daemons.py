"""MPS daemons by themselves: what does not start, quit or listen, and what outlives them."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from pathlib import Path

import pytest

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.simulated.backend import SimulatedBackend
from fairlead.driver.common import launch
from fairlead.driver.prepare.mps_daemons import Daemons, Limits

PERCENTAGE = "get_default_active_thread_percentage"


class TestDaemons:
    def test_one_that_does_not_listen_is_refused_with_what_it_said(self, tmp_path: Path, hgx: SimulatedBackend) -> None:
        broken = dataclasses.replace(
            hgx.mps_program(), daemon=(sys.executable, "-I", "-c", "raise SystemExit('no CUDA')")
        )
        daemons = Daemons(tmp_path / "mps", lambda: broken)
        with pytest.raises(BackendError, match="did not start: no CUDA"):
            daemons.start("u1", ["GPU-0"], Limits())
        assert daemons.uids() == []

    @pytest.mark.slow
    def test_one_that_does_not_quit_is_killed(self, tmp_path: Path, hgx: SimulatedBackend) -> None:
        daemons = Daemons(tmp_path / "mps", hgx.mps_program, clock=Steps())
        daemons.start("u1", ["GPU-0"], Limits())
        pid = int((tmp_path / "mps/u1/pid").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)
        (tmp_path / "mps/u1/tmp/nvidia-mps/control").unlink()  # so that asking fails at once
        assert daemons.stop("u1") is True
        assert daemons.uids() == []
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or launch.stat(pid)[0] == "Z"  # gone, or waiting for the first process to reap it

    @pytest.mark.slow
    def test_servers_that_outlive_it_in_groups_of_their_own_are_killed(
        self, tmp_path: Path, hgx: SimulatedBackend
    ) -> None:
        script = (
            "import os, time\n"
            "server = os.fork()\n"
            "if server == 0:\n"
            "    os.setsid()\n"
            "    time.sleep(60)\n"
            "pipe = os.environ['CUDA_MPS_PIPE_DIRECTORY']\n"
            "open(pipe + '/server', 'w').write(str(server))\n"
            "open(pipe + '/control', 'w').close()\n"
        )
        stubborn = dataclasses.replace(hgx.mps_program(), daemon=(sys.executable, "-I", "-S", "-c", script))
        daemons = Daemons(tmp_path / "mps", lambda: stubborn, clock=Steps())
        daemons.start("u1", ["GPU-0"], Limits())
        server = int((tmp_path / "mps/u1/tmp/nvidia-mps/server").read_text())
        assert daemons._wait(lambda: not daemons.alive("u1"), 10)
        assert daemons._home("u1").locked
        assert daemons.stop("u1") is True
        stat = Path(f"/proc/{server}/stat")
        assert not stat.exists() or launch.stat(server)[0] == "Z"

    def test_a_servers_lock_does_not_pass_for_a_daemon(self, tmp_path: Path, hgx: SimulatedBackend) -> None:
        daemons = Daemons(tmp_path / "mps", hgx.mps_program)
        daemons.start("u1", ["GPU-0"], Limits(active_thread_percentage=5))
        (tmp_path / "mps/u1/pid").write_text("1 0\n")  # another process has the daemon's number by now
        assert not daemons.alive("u1")
        daemons.start("u1", ["GPU-0"], Limits(active_thread_percentage=6))
        assert daemons.alive("u1")
        assert daemons.command("u1", [PERCENTAGE]) == "6.0"
        daemons.stop("u1")

    def test_a_command_that_it_does_not_know_is_an_error(self, tmp_path: Path, hgx: SimulatedBackend) -> None:
        daemons = Daemons(tmp_path / "mps", hgx.mps_program)
        daemons.start("u1", ["GPU-0"], Limits())
        with pytest.raises(BackendError, match="Invalid command: sing"):
            daemons.command("u1", ["sing"])
        daemons.stop("u1")


class Steps:
    """A clock that advances when it is read: deadlines pass without waiting for them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.02
        return self.now
