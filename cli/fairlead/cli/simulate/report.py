"""The results of the runs, beside the published ones where there are any: a table, a plot, JSON.

Published means are known by what they are of: the digest of both lists (`Trace.digest`). They are of seeds 42 to 51. Beside
another list nothing published is shown.
Source: Weng et al., USENIX ATC 2023, results of the authors' simulator (`experiments/analysis/expected_results`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from fairlead.cli.simulate.replay import POINTS, Run, mean_and_sd
from fairlead.cli.simulate.trace import Trace

Published = Mapping[str, Mapping[int, float]]  # by policy: percent allocated by percent of load
_OPENB_DEFAULT: Published = {
    "Random": {80: 78.66, 90: 85.02, 100: 86.30, 110: 86.88, 120: 87.28, 130: 87.47},
    "DotProd": {80: 80.02, 90: 89.98, 100: 90.62, 110: 90.70, 120: 90.77, 130: 90.85},
    "GPUClustering": {80: 80.02, 90: 89.98, 100: 91.65, 110: 91.73, 120: 91.80, 130: 91.88},
    "GPUPacking": {80: 80.02, 90: 89.98, 100: 91.78, 110: 91.86, 120: 91.92, 130: 92.00},
    "BestFit": {80: 80.02, 90: 89.99, 100: 92.86, 110: 92.94, 120: 93.00, 130: 93.08},
    "FGD": {80: 80.02, 90: 89.98, 100: 95.23, 110: 95.30, 120: 95.35, 130: 95.39},
}
PUBLISHED: Mapping[str, Published] = {
    # openb_node_list_gpu_node.csv with openb_pod_list_default.csv
    "b34f5a68b35230a70679d4b3892c391a90ed3137298acb1ff8c63948cddbf9bf": _OPENB_DEFAULT
}
ROWS, COLUMNS = 16, 61
LEAST, MOST = 70, 130  # percent of load that is drawn


def mean_curve(runs: Sequence[Run]) -> dict[int, float]:
    """The mean over runs at the points that every run reached."""
    points = set.intersection(*(set(run.curve) for run in runs))
    return {point: mean_and_sd([run.curve[point] for run in runs])[0] for point in sorted(points)}


def published(digest: str) -> Published:
    """What was published of these lists; empty where nothing was."""
    return PUBLISHED.get(digest, {})


def table(policy: str, runs: Sequence[Run], known: Published) -> Table:
    """`known`: what was published of the same lists."""
    seeds = f"{len(runs)} seeds" if len(runs) > 1 else f"seed {runs[0].seed}"
    shown = Table(title=f"GPUs allocated, % of the cluster, by load that arrived ({seeds})", title_justify="left")
    shown.add_column("policy", no_wrap=True)
    for point in POINTS:
        shown.add_column(f"{point} %", justify="right")
    means, sds = [], []
    for point in POINTS:
        values = [run.curve[point] for run in runs if point in run.curve]
        mean, sd = mean_and_sd(values) if values else (None, None)
        means.append("–" if mean is None else f"[bold]{mean:.2f}[/]")
        sds.append("" if sd is None else f"±{sd:.2f}")
    shown.add_row(f"[bold]{policy}[/], now", *means)
    if any(sds):
        shown.add_row("", *sds)
    if known:
        shown.add_section()
    for name, figures in known.items():
        shown.add_row(f"{name}, published", *(f"{figures[point]:.2f}" for point in POINTS))
    return shown


def chart(policy: str, runs: Sequence[Run], known: Published) -> Text:
    """Allocated by arrived load, with FGD's and BestFit's published points if there are any: the part where policies differ."""
    lines: dict[str, Mapping[int, float]] = {"*": mean_curve(runs)}
    lines |= {mark: known[name] for mark, name in (("f", "FGD"), ("b", "BestFit")) if name in known}
    values = [value for line in lines.values() for point, value in line.items() if LEAST <= point <= MOST]
    low, high = min(values, default=0.0), max(values, default=100.0)
    grid = [[" "] * COLUMNS for _ in range(ROWS)]
    for mark in [mark for mark in "bf*" if mark in lines]:
        for point, value in lines[mark].items():
            if LEAST <= point <= MOST:
                row = round((value - low) / (high - low) * (ROWS - 1)) if high > low else 0
                grid[ROWS - 1 - row][round((point - LEAST) / (MOST - LEAST) * (COLUMNS - 1))] = mark
    text = Text()
    for number, row_of in enumerate(grid):
        level = high - (high - low) * number / (ROWS - 1)
        text.append(f"{level:6.1f} |{''.join(row_of)}\n")
    text.append(f"       +{'-' * COLUMNS}\n")
    ticks = "".join(f"{point:<10}" for point in range(LEAST, MOST + 1, 10))
    keys = "".join(f"   {mark} {name} (published)" for mark, name in (("f", "FGD"), ("b", "BestFit")) if name in known)
    text.append(f"        {ticks.rstrip()}\n        load that arrived, %   * {policy}{keys}\n")
    return text


def as_json(policy: str, runs: Sequence[Run], trace: Trace, *, arrivals: str) -> dict[str, Any]:
    """Everything that was measured."""
    points: dict[str, Any] = {}
    for point in POINTS:
        values = [run.curve[point] for run in runs if point in run.curve]
        if values:
            mean, sd = mean_and_sd(values)
            points[str(point)] = {"mean": mean, "sd": sd, "n": len(values)}
    return {
        "policy": policy,
        "arrivals": arrivals,
        "nodes": len(trace.nodes),
        "gpuMilli": trace.capacity,
        "lists": trace.digest,
        "unplaceable": len(trace.unplaceable),
        "allocationRatio": points,
        "published": {name: {str(p): v for p, v in line.items()} for name, line in published(trace.digest).items()},
        "seeds": [
            {
                "seed": run.seed,
                "arrivals": run.pods,
                "failed": run.failed,
                "unplaceable": run.unplaceable,
                "seconds": round(run.seconds, 3),
                "allocationRatio": {str(point): value for point, value in run.curve.items()},
            }
            for run in runs
        ],
    }
