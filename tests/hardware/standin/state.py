"""What programs use of the stand-in's GPUs, as files: one for each program, locked while it lives, one for each Xid; and the GPUs' settings.

Imports nothing of ours: containers have another root.
"""

import contextlib
import fcntl
import json
import os
import secrets

UUIDS = ("f0000000-0000-0000-0000-00000000000a", "f0000000-0000-0000-0000-00000000000b")[
    : int(os.environ.get("GPU_COUNT", "1"))
]
RESERVED_BYTES = 644_939_776
TOTAL_BYTES = 143_771 * 2**20
MULTIPROCESSORS = 132
DIRECTORY = os.environ.get("GPU_STATE", "")  # of this moment: a program host forks with another environment
IDLE_W, BUSY_W = 76.0, 368.0
DEFAULTS = {"compute_mode": 0, "mig": 0, "time_slice": "Default"}  # as NVML numbers them


class Use:
    """A program's memory on one GPU, and whether it computes; forgotten when the process ends, however that is."""

    def __init__(self, uuid):
        self._uuid = uuid
        self._file = open(f"{DIRECTORY}/use-{secrets.token_hex(8)}", "w+")  # noqa: SIM115 - its lock is held until the end
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._said = None

    def set(self, memory_bytes, busy):
        if self._said == (memory_bytes, busy):
            return
        self._said = memory_bytes, busy
        self._file.seek(0)
        self._file.truncate()
        json.dump({"uuid": self._uuid, "memory": memory_bytes, "busy": busy}, self._file)
        self._file.flush()

    def end(self):
        with contextlib.suppress(OSError):
            os.unlink(self._file.name)


def uses(uuid):
    """What each living program uses of the GPU."""
    found = []
    for name in sorted(os.listdir(DIRECTORY)):
        if not name.startswith("use-"):
            continue
        path = f"{DIRECTORY}/{name}"
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                found.append({**json.load(file), "file": name})
            else:
                os.unlink(path)
    return [each for each in found if each["uuid"] == uuid]


def used_bytes(uuid):
    return sum(each["memory"] for each in uses(uuid))


def busy(uuid):
    return any(each["busy"] for each in uses(uuid))


def settings(uuid):
    try:
        with open(f"{DIRECTORY}/settings-{uuid}") as file:
            return {**DEFAULTS, **json.load(file)}
    except OSError:
        return dict(DEFAULTS)


def change(uuid, **changed):
    draft = f"{DIRECTORY}/draft-{secrets.token_hex(8)}"
    with open(draft, "w") as file:
        json.dump({**settings(uuid), **changed}, file)
    os.replace(draft, f"{DIRECTORY}/settings-{uuid}")


def report_xid(uuid, code):
    with open(f"{DIRECTORY}/xid-{secrets.token_hex(8)}", "w") as file:
        json.dump([uuid, code], file)


def take_xids():
    """Each Xid once, with its GPU."""
    found = []
    for name in sorted(os.listdir(DIRECTORY)):
        if name.startswith("xid-"):
            path = f"{DIRECTORY}/{name}"
            with open(path) as file:
                found.append(json.load(file))
            os.unlink(path)
    return found
