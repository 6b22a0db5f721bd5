"""The placement trace, filled by the controller's placement: how much of the GPUs is allocated, and how long a seed takes.

The trace is not ours to hand out: `FAIRLEAD_TRACE` names the directory with its three files (see docs/simulate.md); where it is
not there, this says so and has no figures. `FAIRLEAD_TRACE_SEEDS` (default 42) are the runs, such as 42-51; the bars are for the
mean of those ten.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.measured import figure
from fairlead.cli.simulate.replay import mean_and_sd, parse_seeds, replay
from fairlead.cli.simulate.trace import read_arrivals, read_trace

FILES = ("openb_node_list_gpu_node.csv", "openb_pod_list_default.csv", "arrivals_default.csv")
DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
BARS = {100: 95.5, 130: 95.7}
SECONDS_MAX = 60


def figures() -> list[dict[str, Any]]:
    directory = Path(os.environ.get("FAIRLEAD_TRACE", DEFAULT))
    nodes, pods, arrivals = (directory / name for name in FILES)
    if not all(path.is_file() for path in (nodes, pods, arrivals)):
        print(
            f"simulate: no trace in {directory}; set FAIRLEAD_TRACE to a directory with {', '.join(FILES)}",
            file=sys.stderr,
        )
        return []
    seeds = parse_seeds([os.environ.get("FAIRLEAD_TRACE_SEEDS", "42")])
    trace = read_trace(nodes, pods)
    orders = read_arrivals(arrivals, seeds, len(trace.pods))
    found: list[dict[str, Any]] = []
    for policy in ("best-fit", "fgd", "fairlead"):
        runs = [replay(trace, orders[seed], policy, seed, lambda _more: None) for seed in seeds]
        ours = policy == "fairlead"
        for point, bar in BARS.items():
            mean, _ = mean_and_sd([run.curve[point] for run in runs])
            found.append(figure(f"simulate/{policy}/allocated-at-{point}", mean, "%", bar if ours else None))
        if ours:
            slowest = max(run.seconds for run in runs)
            found.append(figure(f"simulate/{policy}/slowest-seed", slowest, "s", SECONDS_MAX))
    return found
