"""What programs use of the stand-in's GPU, as files: one for each program, locked while it lives, and one for each Xid.

Imports nothing of ours: containers have another root.
"""

import contextlib
import fcntl
import json
import os
import secrets

UUID = "f0000000-0000-0000-0000-00000000000a"
RESERVED_BYTES = 644_939_776
TOTAL_BYTES = 143_771 * 2**20
MULTIPROCESSORS = 132
DIRECTORY = os.environ.get("GPU_STATE", "")  # of this moment: a program host forks with another environment
IDLE_W, BUSY_W = 76.0, 368.0


class Use:
    """A program's memory and whether it computes; forgotten when the process ends, however that is."""

    def __init__(self):
        self._file = open(f"{DIRECTORY}/use-{secrets.token_hex(8)}", "w+")  # noqa: SIM115 - its lock is held until the end
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._said = None

    def set(self, memory_bytes, busy):
        if self._said == (memory_bytes, busy):
            return
        self._said = memory_bytes, busy
        self._file.seek(0)
        self._file.truncate()
        json.dump({"memory": memory_bytes, "busy": busy}, self._file)
        self._file.flush()

    def end(self):
        with contextlib.suppress(OSError):
            os.unlink(self._file.name)


def uses():
    """What each living program uses."""
    found = []
    for name in sorted(os.listdir(DIRECTORY)):
        if not name.startswith("use-"):
            continue
        path = f"{DIRECTORY}/{name}"
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                found.append(json.load(file))
            else:
                os.unlink(path)
    return found


def used_bytes():
    return sum(each["memory"] for each in uses())


def busy():
    return any(each["busy"] for each in uses())


def report_xid(code):
    with open(f"{DIRECTORY}/xid-{secrets.token_hex(8)}", "w") as file:
        file.write(str(code))


def take_xids():
    """Each Xid once."""
    found = []
    for name in sorted(os.listdir(DIRECTORY)):
        if name.startswith("xid-"):
            path = f"{DIRECTORY}/{name}"
            with open(path) as file:
                found.append(int(file.read()))
            os.unlink(path)
    return found
