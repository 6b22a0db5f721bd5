"""Placement on published pod lists, beside best fit and FGD on the same arrivals: percent of the GPUs allocated at each load.

The lists are not ours to hand out: `FAIRLEAD_TRACE` names a directory with `openb_node_list_gpu_node.csv` and any number of
`openb_pod_list_<name>.csv` (see docs/simulate.md); where it is not there, this says so and has none of their figures. Arrivals of the
default list are the recorded ones where they lie beside it (`arrivals_default.csv`), others are drawn. `FAIRLEAD_TRACE_SEEDS`
(default 42) are the runs, `FAIRLEAD_TRACE_LISTS` the lists by name, with commas (default: all).
Bars: at most 0.1 points below FGD at every load, and the CPU of one arrival.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.measured import figure
from benchmarks.simulate import DEFAULT
from fairlead.cli.simulate.replay import POINTS, drawn_arrivals, mean_and_sd, parse_seeds, replay
from fairlead.cli.simulate.trace import read_arrivals, read_trace

NODES, PREFIX, ARRIVALS = "openb_node_list_gpu_node.csv", "openb_pod_list_", "arrivals_default.csv"
BELOW_FGD = 0.1  # percentage points
MS_PER_ARRIVAL = 3.0


def list_figures() -> list[dict[str, Any]]:
    directory = Path(os.environ.get("FAIRLEAD_TRACE", DEFAULT))
    names = sorted(path.stem.removeprefix(PREFIX) for path in directory.glob(f"{PREFIX}*.csv"))
    chosen = os.environ.get("FAIRLEAD_TRACE_LISTS", "")
    if chosen:
        names = [name for name in names if name in chosen.split(",")]
    if not names or not (directory / NODES).is_file():
        print(f"placement: no {NODES} or no {PREFIX}*.csv in {directory}; set FAIRLEAD_TRACE", file=sys.stderr)
        return []
    return [each for name in names for each in _of_list(directory, name)]


def _of_list(directory: Path, name: str) -> list[dict[str, Any]]:
    seeds = parse_seeds([os.environ.get("FAIRLEAD_TRACE_SEEDS", "42")])
    trace = read_trace(directory / NODES, directory / f"{PREFIX}{name}.csv")
    recorded = directory / ARRIVALS
    if name == "default" and recorded.is_file():
        arrivals = read_arrivals(recorded, seeds, len(trace.pods))
    else:
        arrivals = {seed: drawn_arrivals(trace, seed) for seed in seeds}
    found: list[dict[str, Any]] = []
    fgd: dict[int, float] = {}
    for policy in ("best-fit", "fgd", "fairlead"):
        runs = [replay(trace, arrivals[seed], policy, seed, lambda _more: None) for seed in seeds]
        for point in POINTS:
            mean, _ = mean_and_sd([run.curve[point] for run in runs])
            bar = fgd[point] - BELOW_FGD if policy == "fairlead" else None
            found.append(figure(f"placement/{name}/{policy}/allocated-at-{point}", mean, "%", bar))
            if policy == "fgd":
                fgd[point] = mean
        if policy == "fairlead":
            cost = max(1000 * run.seconds / run.pods for run in runs)
            found.append(figure(f"placement/{name}/{policy}/cpu-per-arrival", cost, "ms", MS_PER_ARRIVAL))
    return found
