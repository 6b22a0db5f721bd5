"""Stands in for nvidia-cuda-mps-control on simulated hardware: the same commands, no CUDA.

A claim with MPS starts, commands and stops a real process wherever tests and the demo run. With `-f` this is the
daemon: it listens at `control` in $CUDA_MPS_PIPE_DIRECTORY and logs its commands to $CUDA_MPS_LOG_DIRECTORY. Without,
it is the front end, which sends the lines of its standard input. The daemon ends on `quit`, or when its directory is
removed. Run by path in a bare interpreter; imports nothing of fairlead.
"""

import contextlib
import os
import socket
import sys
import time

POLL_S = 1.0


class Daemon:
    """The limits that were set, and the answer to each command."""

    def __init__(self) -> None:
        self.percentage = 100.0
        self.limits: dict[str, str] = {}
        self.stopped = False

    def answer(self, line: str) -> str:
        name, *arguments = line.split() or [""]
        if name == "quit":
            self.stopped = True
            return ""
        if name == "get_server_list":
            return ""
        if name == "get_default_active_thread_percentage":
            return f"{self.percentage:.1f}"
        if name == "set_default_active_thread_percentage" and len(arguments) == 1:
            self.percentage = float(arguments[0])
            return f"{self.percentage:.1f}"
        if name == "get_default_device_pinned_mem_limit" and len(arguments) == 1:
            return self.limits.get(arguments[0], "0G")
        if name == "set_default_device_pinned_mem_limit" and len(arguments) == 2:
            self.limits[arguments[0]] = arguments[1]
            return ""
        return f"Invalid command: {line}"


def serve() -> int:
    # By a relative name: a path to a socket ends at 107 bytes.
    os.chdir(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    with contextlib.suppress(FileNotFoundError):
        os.unlink("control")  # noqa: PTH108 - a bare interpreter starts faster without pathlib
    daemon = Daemon()
    with (
        socket.socket(socket.AF_UNIX) as listener,
        open(os.environ["CUDA_MPS_LOG_DIRECTORY"] + "/control.log", "a", encoding="utf-8") as log,  # noqa: PTH123
    ):
        listener.bind("control")
        listener.listen()
        listener.settimeout(POLL_S)
        while not daemon.stopped and os.path.exists("control"):  # noqa: PTH110
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection, connection.makefile("rw", encoding="utf-8") as lines:
                for line in lines:
                    log.write(f"{time.time():.3f} {line}")
                    log.flush()
                    lines.write(daemon.answer(line) + "\n")
                    lines.flush()
    return 0


def send() -> int:
    os.chdir(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect("control")
        except OSError:
            sys.stdout.write("Cannot find MPS control daemon process\n")
            return 1
        with connection.makefile("rw", encoding="utf-8") as lines:
            for line in sys.stdin:
                lines.write(line)
                lines.flush()
                answer = lines.readline().rstrip("\n")
                if answer:
                    sys.stdout.write(answer + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(serve() if "-f" in sys.argv[1:] else send())
