"""The directory of one claim's MPS daemon, and what it shows of the process.

    <directory>/<claim UID>/tmp     /tmp of the daemon
                               nvidia-mps   CUDA_MPS_PIPE_DIRECTORY: mounted into the containers
                               nvidia-log   CUDA_MPS_LOG_DIRECTORY
                            shm     /dev/shm of daemon and containers
                            output  what the daemon prints
                            lock    held while the daemon or one of its servers runs
                            pid     process ID and start time of the daemon

Containers write into `tmp/nvidia-mps` and `shm`. With `SizeLimits`, `tmp` and `shm` are tmpfs of limited size: what a container
fills, nests or links is there, and gone when they are unmounted. Nothing in them is read or followed by the driver.

The kernel releases the lock with the last process that inherited it, however that ends: it is the proof of life that
survives a restart of the driver.

When the claim has ended its directory is renamed first, which no content can delay; from then on the claim is done with it. What its
containers left is removed in attempts of limited time, which upkeep.py repeats until nothing is left: a tree of any size
or a file that cannot be removed holds up no claim, no start, and not the GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import os
import re
import secrets
import signal
from pathlib import Path

from fairlead.driver.backend.interface import BackendError
from fairlead.driver.common import files, launch, mounts, trees

log = logging.getLogger(__name__)

OUTPUT_CHARS_MAX = 500
_TMP_BYTES, _TMP_INODES = 16 * 1024 * 1024, 1024  # pipes and logs
_SHM_INODES = 16384


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SizeLimits:
    """What the containers of one claim can write at most."""

    shm_bytes: int


class DaemonDirectory:
    """`limits`: None where nothing can be mounted (simulated hardware); then the directories are plain ones."""

    def __init__(self, path: Path, limits: SizeLimits | None = None) -> None:
        self.path = path
        self._limits = limits
        self.tmp = path / "tmp"
        self.pipe = self.tmp / "nvidia-mps"
        self.log = self.tmp / "nvidia-log"
        self.shm = path / "shm"
        self.pid_file = path / "pid"
        self._lock = path / "lock"

    def make(self) -> None:
        """Make what is missing. Raises OSError or BackendError."""
        for path, mode in ((self.path, 0o755), (self.tmp, 0o1777), (self.shm, 0o1777)):
            path.mkdir(parents=True, exist_ok=True)
            path.chmod(mode)  # whatever the umask: containers of any user reach through these
        if self._limits is not None:
            self._mount(self.tmp, _TMP_BYTES, _TMP_INODES)
            self._mount(self.shm, self._limits.shm_bytes, _SHM_INODES)
        for path in (self.pipe, self.log):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)

    def _mount(self, target: Path, size_bytes: int, inodes: int) -> None:
        if mounts.mounts_below(target):
            return
        try:
            mounts.mount_tmpfs(target, size_bytes=size_bytes, inodes=inodes, mode=0o1777)
        except OSError as error:
            step = "; the driver has to run privileged" if isinstance(error, PermissionError) else ""
            raise BackendError(f"cannot mount a tmpfs of {size_bytes} bytes ({files.describe(error)}){step}") from error
        if not mounts.reaches_host(target):
            mounts.unmount_below(target)
            raise BackendError(
                f"{target}: the host does not see the tmpfs that is mounted there; set mountPropagation: Bidirectional on "
                "the volume of the driver's pod that holds this directory",
                permanent=True,
            )

    # -- the process ---------------------------------------------------------------------------------------------------

    def open_lock(self) -> int:
        """A descriptor of the lock file, not locked yet, to be inherited by the daemon. Raises OSError."""
        return os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def locked(self) -> bool:
        """Whether the daemon or one of its servers runs."""
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not try_flock(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    @property
    def alive(self) -> bool:
        """Whether the daemon itself runs: the lock is held, and not only by a server that outlived it."""
        return self.locked and self._is_running()

    def _is_running(self) -> bool:
        pid, started = self._started()
        try:
            state, since = launch.stat(pid)
        except (OSError, IndexError):
            return False
        return since == started and state != "Z"

    def kill(self) -> None:
        """SIGKILL to every process that has the lock open: the daemon, and servers in process groups of their own."""
        for pid in _processes_with_open(self._lock):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def reap(self) -> None:
        """Take the daemon's exit status. As PID 1 of a container this process inherits the daemon."""
        if pid := self._started()[0]:
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)

    def _started(self) -> tuple[int, str]:
        """Process ID and start time; (0, "") when they are not known."""
        try:
            pid, started = self.pid_file.read_text(encoding="ascii").split()
            return int(pid), started
        except (OSError, ValueError):
            return 0, ""

    # -- its output ----------------------------------------------------------------------------------------------------

    @property
    def output_path(self) -> Path:
        return self.path / "output"

    def output(self) -> str:
        """The end of what the daemon printed."""
        with contextlib.suppress(OSError):
            return (
                files.tail(self.output_path, 4 * OUTPUT_CHARS_MAX).decode(errors="replace").strip()[-OUTPUT_CHARS_MAX:]
            )
        return ""


def try_flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _processes_with_open(path: Path) -> list[int]:
    """Other processes that have the file open, by its inode: they may see it under another path, with the same last part.

    Other files are not looked at: to stat one on a file system that hangs would hang here.
    """
    wanted = path.stat()
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # it ended meanwhile, or may not be read
            for descriptor in (process / "fd").iterdir():
                name = str(descriptor.readlink()).removesuffix(" (deleted)")
                if name.endswith(f"/{path.name}") and os.path.samestat(wanted, descriptor.stat()):
                    found.append(int(process.name))
                    break
    return sorted(found)


# -- what is removed ---------------------------------------------------------------------------------------------------

FIRST_ATTEMPT_S = 0.5
_ASIDE = re.compile(r"\.(?P<uid>.+)\.[0-9a-f]{8}\.removing")


class Removals:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def discard(self, path: Path) -> None:
        """Put `path`, named after a claim's UID, aside, and remove it if that is quick. Raises OSError; then it is where it was."""
        aside = self._directory / f".{path.name}.{secrets.token_hex(4)}.removing"
        path.rename(aside)
        try:
            self.attempt(aside.name, timeout_s=FIRST_ATTEMPT_S)
        except OSError as error:
            log.warning("claim %s: %s; it is tried again", path.name, files.describe(error))

    def pending(self) -> dict[str, str]:
        """What is left, by name, with the UID of its claim. Raises OSError."""
        try:
            names = sorted(path.name for path in self._directory.iterdir())
        except FileNotFoundError:
            return {}
        return {name: match["uid"] for name in names if (match := _ASIDE.fullmatch(name))}

    def attempt(self, name: str, *, timeout_s: float = trees.TIMEOUT_S) -> bool:
        """Go on removing; whether nothing is left. Raises OSError for what cannot be removed, after the rest was."""
        path = self._directory / name
        mounts.unmount_below(path)
        return trees.remove_tree(path, timeout_s=timeout_s)
