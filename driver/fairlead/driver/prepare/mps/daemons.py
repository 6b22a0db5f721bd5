"""MPS control daemons: one process per claim, with directories, limits, and a lock that tells that it lives.

Exists so that sharing by MPS needs no pod, no apiserver and no scheduling on the way of a claim: the daemon is a process on
this node. It outlives the driver where it can: whoever comes next finds it by its lock, which the kernel frees when the
daemon and its servers are gone, however they went. Blocks; knows no claims beyond their UIDs. When to start and when to
stop is steps.py's, looking after them is mps_watch.py's.

    <directory>/<claim UID>/tmp     /tmp of the daemon
                               nvidia-mps   CUDA_MPS_PIPE_DIRECTORY: the containers get it at the same place
                               nvidia-log   CUDA_MPS_LOG_DIRECTORY
                            shm     /dev/shm of daemon and containers
                            output  what the daemon prints
                            lock    held while the daemon or one of its servers lives
                            pid     number and start of the daemon
Source: NVIDIA, Multi-Process Service, appendix "Tools and interface reference".
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.backend.types import MpsProgram
from fairlead.driver.common import launch
from fairlead.driver.prepare.libraries import Mount
from fairlead.kube.limits import Clock

CONTAINER_PIPE = "/tmp/nvidia-mps"
CONTAINER_SHM = "/dev/shm"
START_S = 10.0
CONTROL_S = 10.0
QUIT_S = 5.0
KILL_S = 2.0
_POLL_S = 0.01


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a client may use: percent of the multiprocessors, MiB of memory by UUID. None and absent: no limit."""

    active_thread_percentage: int | None = None
    memory_mib: Mapping[str, int] = dataclasses.field(default_factory=dict)
    multi_user: bool = False

    def commands(self) -> list[str]:
        made = []
        if self.active_thread_percentage is not None:
            made.append(f"set_default_active_thread_percentage {self.active_thread_percentage}")
        made += [f"set_default_device_pinned_mem_limit {uuid} {mib}M" for uuid, mib in self.memory_mib.items()]
        return made


class Daemons:
    """The daemons of one node. `program` says how to run one here; raises BackendError where MPS cannot be had."""

    def __init__(
        self,
        directory: Path,
        program: Callable[[], MpsProgram],
        *,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = directory
        self._program = program
        self._clock = clock
        self._sleep = sleep

    def mounts(self, uid: str) -> tuple[Mount, Mount]:
        """What a client's container gets: the way to the daemon, and the memory that it shares with it."""
        return (
            Mount(host_path=str(self._pipe(uid)), container_path=CONTAINER_PIPE, read_only=False),
            Mount(host_path=str(self._shm(uid)), container_path=CONTAINER_SHM, read_only=False),
        )

    def uids(self) -> list[str]:
        """Claims that have a daemon, or had one and were not cleaned up; sorted."""
        try:
            return sorted(path.name for path in self._directory.iterdir() if path.is_dir())
        except FileNotFoundError:
            return []

    def alive(self, uid: str) -> bool:
        """Whether the claim's control daemon lives: its lock is held, and not just by a server that it left behind."""
        return self._locked(uid) and self._process(uid) is not None

    def start(self, uid: str, uuids: Iterable[str], limits: Limits) -> None:
        """Have a daemon for the claim, over these GPUs or this MIG device, with these limits; one that lives is kept.

        Raises BackendError or OSError; then none is left, or `stop` finds what is.
        """
        program = self._program()
        if not self.alive(uid):
            self.stop(uid)  # servers without their daemon, and files of a dead one
            self._launch(uid, program, ",".join(uuids), multi_user=limits.multi_user)
        try:
            self.ask(uid, limits.commands())
        except BackendError:
            with contextlib.suppress(BackendError):
                self.stop(uid)
            raise

    def ask(self, uid: str, commands: Iterable[str]) -> str:
        """What the daemon answers to these commands. Raises BackendError."""
        lines = list(commands)
        if not lines:
            return ""
        program = self._program()
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program, its input our own
                (*self._launcher(uid, program), *program.control),
                input="".join(f"{line}\n" for line in lines).encode(),
                env=self._environment(uid, program),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=CONTROL_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BackendError(f"MPS daemon of claim {uid}: {lines[0]}: {error}") from error
        said = done.stdout.decode(errors="replace").strip()
        if done.returncode or "Cannot find MPS control daemon" in said or "Invalid command" in said:
            raise BackendError(f"MPS daemon of claim {uid}: {lines[0]}: exit status {done.returncode}: {said[:500]}")
        return said

    def stop(self, uid: str) -> bool:
        """End the claim's daemon and take its files away; False when there was nothing. Raises BackendError or OSError."""
        home = self._directory / uid
        if not home.is_dir():
            return False
        if self._locked(uid):
            with contextlib.suppress(BackendError):
                self.ask(uid, ["quit"])
            if not self._wait(lambda: not self._locked(uid), QUIT_S):
                self._kill(uid)
                if not self._wait(lambda: not self._locked(uid), KILL_S):
                    raise BackendError(f"MPS daemon of claim {uid} does not end; see {home / 'output'}")
        if pid := self._started(uid)[0]:
            # As the first process of a container this one inherits the daemon, and is the one to take its exit status.
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        shutil.rmtree(home)
        return True

    # ------------------------------------------------------------------------------------------------------------------

    def _launch(self, uid: str, program: MpsProgram, visible: str, *, multi_user: bool) -> None:
        home = self._directory / uid
        wanted = ((home, 0o755), (home / "tmp", 0o1777), (self._shm(uid), 0o1777))
        for path, mode in (*wanted, (self._pipe(uid), 0o755), (home / "tmp" / "nvidia-log", 0o755)):
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(mode)  # whatever the umask: containers of any user reach through these
        daemon = (*program.daemon, *(("-multiuser-server",) if multi_user else ()))
        problem = "it does not listen"
        with self._lock(uid) as lock, (home / "output").open("ab") as output:
            try:
                subprocess.run(  # noqa: S603 - our own launcher
                    (*self._launcher(uid, program, "--pid", str(home / "pid")), *daemon),
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
        control = self._pipe(uid) / "control"
        self._wait(lambda: control.exists() or not self._locked(uid), START_S)
        if control.exists() and self._locked(uid):
            return
        problem = self._output(home) or problem
        with contextlib.suppress(BackendError, OSError):
            self.stop(uid)
        raise BackendError(f"MPS daemon of claim {uid} did not start: {problem}")

    def _pipe(self, uid: str) -> Path:
        return self._directory / uid / "tmp" / "nvidia-mps"

    def _shm(self, uid: str) -> Path:
        return self._directory / uid / "shm"

    def _launcher(self, uid: str, program: MpsProgram, *options: str) -> tuple[str, ...]:
        """What comes before the program: how it sees the files."""
        home = self._directory / uid
        if program.root is not None:
            binds = ("--bind", str(home / "tmp"), "/tmp", "--bind", str(self._shm(uid)), CONTAINER_SHM)
            return program.root.launcher(*binds, *options)
        return (sys.executable, "-I", "-S", launch.__file__, *options, "--") if options else ()

    def _environment(self, uid: str, program: MpsProgram) -> dict[str, str]:
        tmp = Path("/tmp") if program.root is not None else self._directory / uid / "tmp"
        return dict(program.environment) | {
            "CUDA_MPS_PIPE_DIRECTORY": str(tmp / "nvidia-mps"),
            "CUDA_MPS_LOG_DIRECTORY": str(tmp / "nvidia-log"),
        }

    @contextlib.contextmanager
    def _lock(self, uid: str) -> Iterator[int]:
        """The lock to hand to a daemon. Raises BackendError when one has it already."""
        descriptor = os.open(self._directory / uid / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not self._wait(lambda: _flocked(descriptor, fcntl.LOCK_EX), KILL_S):
                raise BackendError(f"MPS daemon of claim {uid} is being started by another process of this driver")
            yield descriptor
        finally:
            os.close(descriptor)

    def _locked(self, uid: str) -> bool:
        try:
            descriptor = os.open(self._directory / uid / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _flocked(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def _process(self, uid: str) -> int | None:
        """The daemon's process ID, if that process still is the one that was started, and runs."""
        pid, started = self._started(uid)
        try:
            state, since = launch.stat(pid)
        except (OSError, IndexError):
            return None
        return pid if since == started and state != "Z" else None

    def _kill(self, uid: str) -> None:
        """Whoever has the lock open: the daemon, and servers that it started in groups of their own."""
        for pid in _openers(self._directory / uid / "lock"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _started(self, uid: str) -> tuple[int, str]:
        try:
            pid, started = (self._directory / uid / "pid").read_text(encoding="ascii").split()
            return int(pid), started
        except (OSError, ValueError):
            return 0, ""

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        until = self._clock() + timeout_s
        while not condition():
            if self._clock() >= until:
                return False
            self._sleep(_POLL_S)
        return True

    def _output(self, home: Path) -> str:
        with contextlib.suppress(OSError):
            return (home / "output").read_text(encoding="utf-8", errors="replace").strip()[-500:]
        return ""


def _flocked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _openers(path: Path) -> list[int]:
    """Processes other than this one that have the file open, by its inode: they may see it under another path."""
    wanted = path.stat()
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile, or is not ours to look at
            if any(os.path.samestat(wanted, descriptor.stat()) for descriptor in (process / "fd").iterdir()):
                found.append(int(process.name))
    return sorted(found)
