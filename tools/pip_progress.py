"""Runs a command of pip, and says every five seconds how far it is: `python tools/pip_progress.py PYTHON -m pip install …`.

By itself pip says thousands of words, or nothing for a minute. Needs nothing but Python: it runs before anything is installed. Where
the command fails, all that it said is printed.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence

EVERY_S = 5.0


def main(command: Sequence[str]) -> int:
    start_s = time.monotonic()
    said: list[str] = []
    ended = threading.Event()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - start_s:5.1f}s {text}", flush=True)

    def tell_often() -> None:
        while not ended.wait(EVERY_S):
            tell(stage(said))

    teller = threading.Thread(target=tell_often)
    teller.start()
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said.append(line)  # noqa: PERF402 - the other thread sees each at once
    finally:
        ended.set()
        teller.join()
    if process.returncode:
        print("".join(said), end="", flush=True)
    else:
        installed = next((line.split()[2:] for line in reversed(said) if line.startswith("Successfully installed")), [])
        tell(f"installed {len(installed)} package{'s' * (len(installed) != 1)}")
    return process.returncode


def stage(said: Sequence[str]) -> str:
    """What pip is at, by the lines that it has said so far."""
    for line in reversed(said):
        if line.startswith("Installing collected packages:"):
            return f"installing {line.count(',') + 1} packages"
        if line.startswith("Collecting "):
            return f"downloading {line.split()[1]}"
    return "starting pip"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
