"""Settings of the GPUs as they were before, whatever becomes of the run: an error, SIGTERM, or SIGKILL.

    python -m tests.hardware.settings NVIDIA-SMI…   reads the settings as JSON lines, waits for the end of its input, puts them back

A process of its own waits for the run's end: the kernel closes its input, however the run ends.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from tests.hardware.smi import Smi

ATTEMPTS = 10
PAUSE_S = 2.0
MODES = {"Default": "DEFAULT", "Exclusive_Process": "EXCLUSIVE_PROCESS", "Prohibited": "PROHIBITED"}


@contextlib.contextmanager
def guarded(smi: Smi) -> Iterator[None]:
    """Afterwards the settings are as they are now."""
    command = (sys.executable, "-m", "tests.hardware.settings", *smi.command)
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert guard.stdin is not None
    guard.stdin.write(json.dumps(smi.settings()).encode() + b"\n")
    guard.stdin.flush()
    try:
        yield
    finally:
        guard.stdin.close()
        guard.wait()


def put_back(smi: Smi, before: list[list[str]]) -> list[str]:
    """What could not be put back, in words. What a killed run had started may use the GPU for a moment."""
    problems: list[str] = []
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_S)
        problems = []
        for then, now in zip(before, smi.settings(), strict=True):
            uuid, compute_mode, persistence, mig = then
            steps = [
                (now[3] != mig, ("mig", "-i", uuid, "-dci")),  # of a GPU that was not in MIG mode
                (now[3] != mig, ("mig", "-i", uuid, "-dgi")),
                (now[3] != mig, ("-i", uuid, "-mig", str(int(mig == "Enabled")))),
                (now[2] != persistence, ("-i", uuid, "-pm", str(int(persistence == "Enabled")))),
                (now[1] != compute_mode and compute_mode in MODES, ("-i", uuid, "-c", MODES.get(compute_mode, ""))),
                (True, ("compute-policy", "-i", uuid, "--set-timeslice", "0")),
            ]
            for wanted, step in steps:
                with contextlib.suppress(OSError, subprocess.SubprocessError):
                    if wanted:
                        smi.change(*step)
        problems = [f"{now} was {then}" for then, now in zip(before, smi.settings(), strict=True) if list(now) != then]
        if not problems:
            break
    return problems


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    smi = Smi(tuple(sys.argv[1:]))
    before = json.loads(sys.stdin.readline())
    sys.stdin.read()
    problems = put_back(smi, before)
    for problem in problems:
        print(f"settings of a GPU could not be put back: {problem}", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
