"""MPS control daemons: one process per claim on this node, with the claim's limits.

No pod, apiserver or scheduling is involved. A daemon outlives the driver where it can; the next driver finds it by its
directory. Blocks; of a claim it has the UID alone. steps.py decides when a daemon starts and stops, upkeep.py
restarts those that died.
Source: NVIDIA, Multi-Process Service, appendix "Tools and interface reference".
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.types import Mount, MpsProgram
from fairlead.driver.common import launch
from fairlead.driver.prepare.mps_directory import DaemonDirectory, Removals, SizeLimits, try_flock
from fairlead.driver.prepare.records import valid_uid
from fairlead.kube.limits import Clock

CONTAINER_PIPE = "/tmp/nvidia-mps"
CONTAINER_SHM = "/dev/shm"
START_S = 10.0
COMMAND_S = 10.0
QUIT_S = 5.0
KILL_S = 2.0
_POLL_S = 0.01


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of a client: percent of the multiprocessors, MiB of memory by UUID. None and absent: no limit."""

    active_thread_percentage: int | None = None
    memory_mib: Mapping[str, int] = dataclasses.field(default_factory=dict)
    multi_user: bool = False

    def commands(self) -> list[str]:
        """The commands of the control daemon that set them."""
        made = []
        if self.active_thread_percentage is not None:
            made.append(f"set_default_active_thread_percentage {self.active_thread_percentage}")
        made += [f"set_default_device_pinned_mem_limit {uuid} {mib}M" for uuid, mib in self.memory_mib.items()]
        return made


@dataclasses.dataclass(eq=False)
class Daemons:
    """The daemons of one node. `program` says how to run one here, or raises BackendError where there is no MPS.

    `size_limits` bound what a claim's containers can write; None: nothing is mounted, and only the disk bounds it.
    `removals` are the directories of ended claims that are not gone yet.
    """

    directory: Path
    program: Callable[[], MpsProgram]
    _: dataclasses.KW_ONLY
    size_limits: SizeLimits | None = None
    clock: Clock = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.removals = Removals(self.directory)

    def mounts(self, uid: str) -> tuple[Mount, Mount]:
        """For a client's container: the pipes of the daemon, and the shared memory."""
        home = self._home(uid)
        return (
            Mount(host_path=str(home.pipe), container_path=CONTAINER_PIPE, read_only=False),
            Mount(host_path=str(home.shm), container_path=CONTAINER_SHM, read_only=False),
        )

    def uids(self) -> list[str]:
        """Claims that have a daemon, or had one that was not cleaned up; sorted."""
        try:
            return sorted(path.name for path in self.directory.iterdir() if valid_uid(path.name) and path.is_dir())
        except FileNotFoundError:
            return []

    def alive(self, uid: str) -> bool:
        return self._home(uid).alive

    def start(self, uid: str, uuids: Iterable[str], limits: Limits) -> None:
        """Start a daemon over these GPUs or this MIG device, and set its limits; a running daemon is kept.

        Raises BackendError or OSError; then no daemon is left, or `stop` finds it.
        """
        program = self.program()
        if not self.alive(uid):
            self.stop(uid)  # servers without their daemon, and files of one that ended
            self._launch(uid, program, ",".join(uuids), multi_user=limits.multi_user)
        try:
            self.command(uid, limits.commands())
        except BackendError:
            with contextlib.suppress(BackendError):
                self.stop(uid)
            raise

    def command(self, uid: str, commands: Iterable[str], *, timeout_s: float = COMMAND_S) -> str:
        """The daemon's answer to these commands. Raises BackendError.

        A container can answer in the daemon's place, with anything: time and size of the answer are bounded.
        """
        lines = list(commands)
        if not lines:
            return ""
        program = self.program()
        try:
            status, answer = converse(
                (*self._launcher(uid, program), *program.control),
                "".join(f"{line}\n" for line in lines).encode(),
                environment=self._environment(uid, program),
                timeout_s=timeout_s,
            )
        except (OSError, TimeoutError) as error:
            raise BackendError(f"MPS daemon of claim {uid}: {lines[0]}: {error}") from error
        output = answer.decode(errors="replace").strip()
        if status or "Cannot find MPS control daemon" in output or "Invalid command" in output:
            raise BackendError(f"MPS daemon of claim {uid}: {lines[0]}: exit status {status}: {output[:500]}")
        return output

    def stop(self, uid: str) -> bool:
        """End the claim's daemon and put its directory aside; False when there is none. Raises BackendError or OSError."""
        home = self._home(uid)
        if not home.path.is_dir():
            return False
        if home.locked:
            with contextlib.suppress(BackendError):
                self.command(uid, ["quit"], timeout_s=QUIT_S)
            if not self._wait(lambda: not home.locked, QUIT_S):
                home.kill()
                if not self._wait(lambda: not home.locked, KILL_S):
                    raise BackendError(f"MPS daemon of claim {uid} does not end; see {home.output_path}")
        home.reap()
        self.removals.discard(home.path)
        return True

    # ------------------------------------------------------------------------------------------------------------------

    def _home(self, uid: str) -> DaemonDirectory:
        return DaemonDirectory(self.directory / uid, self.size_limits)

    def _launch(self, uid: str, program: MpsProgram, visible: str, *, multi_user: bool) -> None:
        home = self._home(uid)
        try:
            home.make()
        except BackendError as error:
            with contextlib.suppress(OSError):
                self.removals.discard(home.path)
            raise BackendError(f"MPS daemon of claim {uid}: {error}", permanent=error.permanent) from error
        daemon = (*program.daemon, *(("-multiuser-server",) if multi_user else ()))
        problem = "it does not listen"
        with self._lock(home, uid) as lock, home.output_path.open("ab") as output:
            try:
                subprocess.run(  # noqa: S603 - our own launcher
                    (*self._launcher(uid, program, "--pid", str(home.pid_file)), *daemon),
                    env=self._environment(uid, program) | {"CUDA_VISIBLE_DEVICES": visible},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(lock,),
                    cwd="/",
                    timeout=START_S,
                    check=True,
                )
            except (OSError, subprocess.SubprocessError) as error:
                problem = str(error)
        control = home.pipe / "control"
        self._wait(lambda: control.exists() or not home.locked, START_S)
        if control.exists() and home.locked:
            return
        problem = home.output() or problem
        with contextlib.suppress(BackendError, OSError):
            self.stop(uid)
        raise BackendError(f"MPS daemon of claim {uid} did not start: {problem}")

    @contextlib.contextmanager
    def _lock(self, home: DaemonDirectory, uid: str) -> Iterator[int]:
        """The lock for a daemon to inherit. Raises BackendError when another process holds it."""
        descriptor = home.open_lock()
        try:
            if not self._wait(lambda: try_flock(descriptor, fcntl.LOCK_EX), KILL_S):
                raise BackendError(f"MPS daemon of claim {uid} is being started by another process of this driver")
            yield descriptor
        finally:
            os.close(descriptor)

    def _launcher(self, uid: str, program: MpsProgram, *options: str) -> tuple[str, ...]:
        """The words before the program: its root and mounts."""
        if program.root is not None:
            home = self._home(uid)
            binds = ("--bind", str(home.tmp), "/tmp", "--bind", str(home.shm), CONTAINER_SHM)
            return program.root.launcher(*binds, *options)
        return (sys.executable, "-I", "-S", launch.__file__, *options, "--") if options else ()

    def _environment(self, uid: str, program: MpsProgram) -> dict[str, str]:
        """With a root, /tmp is the directory's own."""
        home = self._home(uid)
        tmp = Path("/tmp") if program.root is not None else home.tmp
        return dict(program.environment) | {
            "CUDA_MPS_PIPE_DIRECTORY": str(tmp / home.pipe.name),
            "CUDA_MPS_LOG_DIRECTORY": str(tmp / home.log.name),
        }

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        until = self.clock() + timeout_s
        while not condition():
            if self.clock() >= until:
                return False
            self.sleep(_POLL_S)
        return True


# -- what is said to a daemon ------------------------------------------------------------------------------------------

OUTPUT_BYTES_MAX = 64 * 1024


def converse(
    command: Sequence[str], text: bytes, *, environment: Mapping[str, str], timeout_s: float
) -> tuple[int, bytes]:
    """Exit status and output (with the errors). Raises OSError, TimeoutError when it does not end in time.

    A command that writes more than `OUTPUT_BYTES_MAX` is killed, and what it wrote is the output.
    """
    until = time.monotonic() + timeout_s
    with subprocess.Popen(  # noqa: S603 - a fixed program, its input our own
        command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(text)
                process.stdin.flush()
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            output = _output(process.stdout.fileno(), until)
            if len(output) > OUTPUT_BYTES_MAX:
                process.kill()
            return process.wait(max(0.1, until - time.monotonic())), output
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from error
        except TimeoutError as error:
            raise TimeoutError(f"no answer within {timeout_s:g} s") from error
        finally:
            process.kill()


def _output(descriptor: int, until: float) -> bytes:
    """Until its end, or a little more than the limit. Raises TimeoutError."""
    output, poll = b"", select.poll()  # select() takes no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    while len(output) <= OUTPUT_BYTES_MAX:
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise TimeoutError
        part = os.read(descriptor, 65536)
        if not part:
            break
        output += part
    return output
