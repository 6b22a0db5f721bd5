"""The part of the placement benchmark that needs no files: made traces of MIG profiles and whole GPUs, beside best and first fit.

Figures are means over mixes and over seeds, of MIG cut on demand without departures and with
them, and of MIG cut beforehand. `ahead` is what Fairlead allocates more than the better of the other two, in points; its
bar is 0. Best and first fit fill nodes as they are listed, so nodes of several products come in two orders. `FAIRLEAD_MIG_SEEDS` (default 101-103) are the runs; constants were chosen on others.
"""

from __future__ import annotations

import os
from time import process_time
from typing import Any

from benchmarks.mig.hardware import parse_cluster
from benchmarks.mig.requests import DRAWN, MIXES
from benchmarks.mig.run import LOADS, POLICIES, Figures, measure
from fairlead.cli.simulate.replay import mean_and_sd, parse_seeds

CLUSTER = ("hgx-h100=12", "hgx-h200=4", "dgx-a100=4")
SMALL_CLUSTER = ("hgx-h100=8",)
EVERY = (*MIXES, DRAWN)
WAYS = {
    "dynamic": (CLUSTER, EVERY, False, False),
    "dynamic-a100-first": (tuple(reversed(CLUSTER)), EVERY, False, False),
    "dynamic-one-product": (("hgx-h100=20",), EVERY, False, False),
    "departures": (SMALL_CLUSTER, ("small", "partitions", DRAWN), False, True),
    "static": (CLUSTER, EVERY, True, False),
}
"""By name: nodes and mixes, whether GPUs are cut beforehand, and whether requests end."""
CPU_MS_MAX = 3.0


def mig_figures() -> list[dict[str, Any]]:
    seeds = parse_seeds([os.environ.get("FAIRLEAD_MIG_SEEDS", "101-103")])
    found: list[dict[str, Any]] = []
    for way, (nodes, mixes, static, departures) in WAYS.items():
        cluster = parse_cluster(nodes)
        results: dict[tuple[str, int], list[Figures]] = {}
        spent_s, arrived = 0.0, 0
        for mix in mixes:
            for seed in seeds:
                for policy in POLICIES:
                    began = process_time()
                    by_load, came = measure(cluster, mix, seed, policy, static=static, departures=departures)
                    if policy == "fairlead":
                        spent_s, arrived = spent_s + process_time() - began, arrived + came
                    for load, of_run in by_load.items():
                        results.setdefault((policy, load), []).append(of_run)
        allocated = {key: mean_and_sd([each.allocated for each in runs])[0] for key, runs in results.items()}
        for load in LOADS:
            found += [
                _figure(f"placement/mig-{way}/{policy}/allocated-at-{load}", allocated[policy, load], None)
                for policy in POLICIES
            ]
            others = max(allocated[policy, load] for policy in POLICIES if policy != "fairlead")
            ahead = allocated["fairlead", load] - others
            found.append(_figure(f"placement/mig-{way}/ahead-at-{load}", ahead, 0.0))
        for kind in ("all", "large", "whole"):
            for policy in POLICIES:
                refused = _refused(results[policy, 100], kind)
                found.append(_figure(f"placement/mig-{way}/{policy}/refused-at-100/{kind}", refused, None))
        cpu_ms = 1000 * spent_s / arrived
        name = f"placement/mig-{way}/fairlead/cpu-per-arrival"
        found.append({"figure": name, "value": round(cpu_ms, 4), "unit": "ms", "bar": CPU_MS_MAX})
    return found


def _refused(runs: list[Figures], kind: str) -> float:
    came = sum(each.came.get(kind, 0) for each in runs)
    return 100 * sum(each.refused.get(kind, 0) for each in runs) / came if came else 0.0


def _figure(name: str, value: float, bar: float | None) -> dict[str, Any]:
    return {"figure": name, "value": round(value, 4), "unit": "%", "bar": bar}
