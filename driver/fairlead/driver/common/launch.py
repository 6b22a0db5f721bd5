"""Runs a program in another view of the files, and, if asked, as a daemon that outlives the driver.

    python -I -S launch.py [--root DIR] [--bind SOURCE TARGET]... [--pid FILE] -- COMMAND...

Exists as a program of its own, run by path in a bare interpreter, because none of this may happen in the driver: `--root`
changes the root, so that a program of the host runs with the host's libraries; `--bind` puts a directory at another place
(under that root), which nobody else sees; `--pid` starts a session of its own and writes down who it is. Every file
descriptor is inherited. Imports nothing of fairlead, and as little else as it can.
"""

import ctypes
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
    """Returns when the child has become the program, or has failed."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        with os.fdopen(reader) as said:
            problem = said.read()  # ends with the child's exec, or with the child
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
    """Raises OSError."""
    if binds:
        libc = ctypes.CDLL(None, use_errno=True)
        check(libc.unshare(CLONE_NEWNS), "unshare the mounts")
        check(libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None), "keep mounts from the host")
        for source, target in binds:
            at = os.fsencode(root.rstrip("/") + target)
            check(libc.mount(os.fsencode(source), at, None, MS_BIND | MS_REC, None), f"mount {target}")
    if root != "/":
        os.chroot(root)
    os.chdir("/")


def check(status: int, what: str) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {what}: {os.strerror(number)}; the driver has to run privileged")


def stat(pid: int) -> tuple[str, str]:
    """State and start of a process, in the kernel's ticks: a number that is used again comes with another start."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return fields[0], fields[19]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
