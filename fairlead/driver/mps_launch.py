"""Starts an MPS control daemon that outlives the driver, and writes down who it is.

Exists as a program of its own, run by path in a bare interpreter (`python -I -S mps_launch.py PIDFILE SHM|- COMMAND…`),
because what it does must not happen in the driver: the daemon gets a session of its own, and, where SHM names a directory,
a mount namespace in which /dev/shm is that directory, so that the claims' daemons do not share memory. It keeps every file
descriptor that it inherited: the lock that tells that the daemon lives goes on to it and to the servers that it starts.
Imports nothing of fairlead. Source: NVIDIA's driver starts the daemon in a pod of its own with the same mounts.
"""

import ctypes
import os
import sys

CLONE_NEWNS = 0x00020000
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19


def main(arguments: list[str]) -> int:
    pid_file, shm, *command = arguments
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        with os.fdopen(reader) as said:
            problem = said.read()  # ends when the child has become the daemon, or has failed
        sys.stderr.write(problem)
        return 1 if problem else 0
    os.close(reader)
    os.setsid()
    try:
        if shm != "-":
            private_shm(shm)
        with open(pid_file, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib triples the start's time
            file.write(f"{os.getpid()} {stat(os.getpid())[1]}\n")
        os.execv(command[0], command)  # noqa: S606 - the writer closes with it
    except OSError as error:
        os.write(writer, f"{error}\n".encode())
    os._exit(1)


def stat(pid: int) -> tuple[str, str]:
    """State and start of a process, in the kernel's ticks: a number that is used again comes with another start."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        fields = file.read().rpartition(")")[2].split()
    return fields[0], fields[19]


def private_shm(directory: str) -> None:
    """Raises OSError: without CAP_SYS_ADMIN there is no mount namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    for what, failed in (
        ("unshare the mounts", libc.unshare(CLONE_NEWNS)),
        ("keep mounts from the host", libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None)),
        ("mount /dev/shm", libc.mount(os.fsencode(directory), b"/dev/shm", None, MS_BIND, None)),
    ):
        if failed:
            number = ctypes.get_errno()
            raise OSError(number, f"cannot {what}: {os.strerror(number)}; the driver has to run privileged")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
