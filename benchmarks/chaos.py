"""How many runs of the campaign (tests/chaos) of 300 steps an hour has: two processes, fixed seeds."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

RUNS, WORKERS, STEPS = 12, 2, 300
BAR = 1000.0
_RATE = re.compile(r"(\d+) runs, (\d+) failed, \d+ s: (\d+) runs an hour")


def figures() -> list[dict[str, Any]]:
    """`chaos/runs-per-hour`: with the start of the clusters. Raises RuntimeError where the campaign ends without a rate."""
    command = [
        sys.executable,
        "-m",
        "tests.chaos",
        "--seed=1",
        f"--runs={RUNS}",
        f"--steps={STEPS}",
        f"--workers={WORKERS}",
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = _RATE.search(done.stdout)
    if found is None:
        raise RuntimeError(f"the campaign printed no rate: {done.stdout[-500:]}")
    return [{"figure": "chaos/runs-per-hour", "value": float(found[3]), "unit": "runs/h", "bar": BAR}]
