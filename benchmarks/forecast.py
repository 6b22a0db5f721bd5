"""Forecasts: how often gangs start before p90 and how far off p50 is, on simulated days; what a forecast and a what-if cost.

The days are held out: nothing was chosen by them, and `--seeds` draws others. Truth and forecast both come of the real `decide`; what differs
is what is known of run times and of what comes. Beside each figure of the forecaster are those of two that know more than any can, for the same
starts: the true distribution of each program's run times (`if-programs-known`), and the true length of each run (`if-runs-known`).
`--kinds`, of which docs/forecast.md says what they are like: `usual`, `wild`, `repeating`, `reporting`, `all-reporting`. Options:
`--nodes=16 --load=0.75 --before=3 --learn=0.5 --days=1 --seeds=301,303 --kinds=usual,wild --refresh=3600 --knows=history,programs,runs`:
days of runs before the first forecast, days of forecasts from which the correction learns, days that count.
All of it takes an hour and a half of CPU, and a third of that with `--knows=history`.
The what-if is the command as a user calls it, timed to the last line of its first table, imports included.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlead.controller.forecasting.forked import Forked
from fairlead.engine.plan.decide import Engine
from fairlead.history.facts.snapshot_file import dump
from tests.support.forecast import held_out
from tests.support.forecast.clusters import crowded
from tests.support.forecast.days import Days

DEFAULTS = {
    "nodes": "16", "load": "0.75", "before": "3", "learn": "0.5", "days": "1", "seeds": "301", "refresh": "3600",
    "kinds": "usual,wild,repeating,reporting,all-reporting", "knows": "history,programs,runs",
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "wild": {"spreads": (0.4, 1.0), "failing": 0.1, "users": 2},
    "repeating": {"spreads": (0.1, 0.6), "steady": 0.7, "failing": 0.05},
    "reporting": {"reporting": 0.5},
    "all-reporting": {"reporting": 1.0},
}
FIRST_TABLE_ENDS = "A forecast:"


def figures(*options: str) -> list[dict[str, Any]]:
    chosen = DEFAULTS | dict(option.removeprefix("--").split("=", 1) for option in options)
    return [*_what_if(), *_fork(), *_days(chosen)]


def _days(chosen: dict[str, str]) -> Iterator[dict[str, Any]]:
    held_out.REFRESH_S = float(chosen["refresh"])
    learn = float(chosen["before"])
    count = learn + float(chosen["learn"])
    until = count + float(chosen["days"])
    knows = [held_out.Knows(each) for each in chosen["knows"].split(",")]
    spent: list[float] = []
    for kind in chosen["kinds"].split(","):
        together = {each: held_out.HeldOut() for each in knows}
        seeds = [int(seed) for seed in chosen["seeds"].split(",")]
        for seed in seeds:
            days = Days(
                seed=seed, nodes=int(chosen["nodes"]), load=float(chosen["load"]),
                days=until + held_out.TAIL_DAYS, **KINDS[kind],
            )  # fmt: skip
            found = held_out.Reality(days).play(seed=1, spans=held_out.Spans(learn, count, until), knows=knows)
            for each, of_seed in found.items():
                together[each].starts += of_seed.starts
            spent += found[knows[0]].spent_s
            print(f"{kind} days of seed {seed}: {len(spent)} forecasts so far", file=sys.stderr, flush=True)
            yield from _figures(f"forecast/days/{kind}/seed-{seed}", found)
        if len(seeds) > 1:
            yield from _figures(f"forecast/days/{kind}/all", together)
    yield _plain("forecast/refresh/cpu-max", round(max(spent), 3), "s", 1.2)


def _figures(label: str, found: dict[held_out.Knows, held_out.HeldOut]) -> Iterator[dict[str, Any]]:
    for knows, of_days in found.items():
        ours = knows is held_out.Knows.HISTORY
        suffix = "" if ours else f"/if-{knows}-known"
        for first, what in ((True, "first"), (False, "any")):
            before, error = of_days.before_p90(first=first), of_days.median_error(first=first)
            of_whole = of_days.median_error(first=first, of_whole=True)
            at_least, at_most, of_error = (85.0, 95.0, 25.0) if ours else (None, None, None)
            yield _plain(f"{label}/{what}/before-p90{suffix}", round(100 * before, 1), "%", at_least)
            if ours:
                yield _plain(f"{label}/{what}/before-p90-at-most", round(100 * before, 1), "of 100", at_most)
            yield _plain(
                f"{label}/{what}/p50-median-error{suffix}", round(100 * error, 1), "of 100 of the wait", of_error
            )
            yield _plain(f"{label}/{what}/p50-median-error-of-age{suffix}", round(100 * of_whole, 1), "of 100", None)
        for evicted, what in ((False, "submitted"), (True, "evicted")):  # first forecasts, by what the wait began with
            waits = sum(each.first and each.evicted == evicted for each in of_days.starts)
            error = of_days.median_error(first=True, evicted=evicted)
            yield _plain(f"{label}/first-{what}/waits{suffix}", waits, "", None)
            yield _plain(
                f"{label}/first-{what}/p50-median-error{suffix}", round(100 * error, 1), "of 100 of the wait", None
            )
        if ours:
            yield _plain(f"{label}/given", round(100 * of_days.given, 1), "%", None)
            yield _plain(f"{label}/forecasts", len(of_days.starts), "", None)
            yield _plain(f"{label}/waits", sum(each.first for each in of_days.starts), "", None)


def _what_if() -> Iterator[dict[str, Any]]:
    snapshot, now = crowded(nodes=500, waiting=2_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.json"
        path.write_bytes(dump(snapshot, now))
        command = [sys.executable, "-m", "fairlead", "what-if", "--snapshot", str(path), "--add-nodes", "4xnode-00000"]
        began = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as running:
            assert running.stdout is not None
            for line in running.stdout:
                if line.startswith(FIRST_TABLE_ENDS):
                    break
            first_s, first_cpu_s = time.perf_counter() - began, _cpu_s(running.pid)
            rest = running.stdout.read()
        whole_s = time.perf_counter() - began
    if running.returncode or FIRST_TABLE_ENDS not in rest:
        raise RuntimeError(f"what-if ended with {running.returncode}")
    yield {"figure": "forecast/what-if/500x8/2000/first-table", "value": round(first_s, 2), "unit": "s", "bar": 5.0}
    yield {"figure": "forecast/what-if/500x8/2000/first-table/cpu", "value": first_cpu_s, "unit": "s", "bar": None}
    yield {"figure": "forecast/what-if/500x8/2000/whole", "value": round(whole_s, 2), "unit": "s", "bar": None}


def _cpu_s(pid: int) -> float:
    """What a process has spent so far, where there is a /proc; where others use the machine it says more than the clock."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _fork() -> Iterator[dict[str, Any]]:
    """For how long the loop is held: it forks, and goes on."""
    snapshot, now = crowded(nodes=500, waiting=2_000)
    engine = Engine()  # whose caches are in the memory that is forked
    engine.decide(snapshot, now)

    async def held() -> float:
        began = time.perf_counter()
        forked = Forked(lambda: len(snapshot.gangs))
        took = time.perf_counter() - began
        assert await forked.answer(30.0) == len(snapshot.gangs)
        return took

    times = sorted(asyncio.run(held()) for _ in range(9))
    yield {"figure": "forecast/fork/500x8", "value": round(times[4], 4), "unit": "s", "bar": 0.05}


def _plain(figure: str, value: float, unit: str, bar: float | None) -> dict[str, Any]:
    """Not scaled by the machine's speed."""
    return {"figure": figure, "value": value, "unit": unit, "bar": bar, "scaled": False}
