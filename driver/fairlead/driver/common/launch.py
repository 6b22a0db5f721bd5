"""Runs a program with another root or other mounts, and on request as a daemon that outlives the driver.

    python -I -S launch.py [--root DIR] [--bind SOURCE TARGET]... [--pid FILE] -- COMMAND...

`--root` changes the root, so that a program of the host runs with the host's libraries. `--bind` mounts a directory at
another path under that root, in a mount namespace of the program's own; the path is made where it is missing, as a host without
/dev/shm. `--pid` starts the program in a session of its
own and writes its process ID and start time to FILE. File descriptors are inherited.
It is a program, run by path in a bare interpreter: the driver's own process keeps its root, mounts and session. Imports
nothing of fairlead, and little else, to start fast.
"""

import ctypes
import errno
import os
import sys

CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19


def main(arguments: list[str]) -> int:
    root, pid_file, binds = "/", "", []
    while (option := arguments.pop(0)) != "--":
        if option == "--root":
            root = arguments.pop(0)
        elif option == "--pid":
            pid_file = arguments.pop(0)
        elif option == "--bind":
            binds.append((arguments.pop(0), arguments.pop(0)))
        else:
            raise SystemExit(f"{option}: unknown")
    try:
        if not pid_file:
            enter(root, binds)
            os.execv(arguments[0], arguments)  # noqa: S606
        return detach(root, pid_file, binds, arguments)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 127


def detach(root: str, pid_file: str, binds: list[tuple[str, str]], command: list[str]) -> int:
    """Start the command as a daemon. Returns after its exec, or with 127 and the reason on stderr."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        with os.fdopen(reader) as pipe:
            problem = pipe.read()  # ends with the child's exec, or with the child
        sys.stderr.write(problem)
        return 127 if problem else 0
    os.close(reader)
    try:
        os.setsid()
        with open(pid_file, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib triples the start's time
            file.write(f"{os.getpid()} {stat(os.getpid())[1]}\n")
        enter(root, binds)
        os.execv(command[0], command)  # noqa: S606 - the writer closes with it
    except OSError as error:
        os.write(writer, f"{error}\n".encode())
    os._exit(127)


def enter(root: str, binds: list[tuple[str, str]]) -> None:
    """Make the mounts and change the root. Raises OSError."""
    if binds:
        libc = ctypes.CDLL(None, use_errno=True)
        check(libc.unshare(CLONE_NEWNS), "unshare the mounts")
        check(libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None), "keep mounts from the host")
        # Opened before anything is mounted: a source may be below a target, as a directory in /tmp is below /tmp.
        sources = [(os.open(source, os.O_PATH), target) for source, target in binds]
        for source, target in sources:
            at = os.fsencode(root.rstrip("/") + target)
            os.makedirs(at, exist_ok=True)  # noqa: PTH103 - pathlib triples the start's time
            check(libc.mount(b"/proc/self/fd/%d" % source, at, None, MS_BIND | MS_REC, None), f"mount {target}")
            os.close(source)
    if root != "/":
        os.chroot(root)
    os.chdir("/")


def check(status: int, what: str) -> None:
    """Raise the OSError of a failed libc call."""
    if status:
        number = ctypes.get_errno()
        step = "; the driver has to run privileged" if number in (errno.EPERM, errno.EACCES) else ""
        raise OSError(number, f"cannot {what}: {os.strerror(number)}{step}")


def stat(pid: int) -> tuple[str, str]:
    """State and start time of a process, in kernel ticks: a reused process ID has another start time."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return fields[0], fields[19]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
