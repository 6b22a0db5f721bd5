"""Forecasts: how often gangs start before p90 and how far off p50 is, on simulated days; what a forecast and a what-if cost.

The days are held out: nothing was chosen by them, and `--seeds` draws others. Truth and forecast both come of the real `decide`; what differs
is what is known of run times and of what comes. `--kinds`: `usual`, and `wild`, on which run times have twice the spread, one run in ten ends
early, and two users share each team. Options: `--nodes=16 --load=0.75 --days=1.0 --seeds=101,102 --kinds=usual,wild --refresh=3600`.
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
from fairlead.engine.plan.decide import decide
from fairlead.history.facts.snapshot_file import dump
from tests.support.forecast import held_out
from tests.support.forecast.clusters import crowded
from tests.support.forecast.days import Days

DEFAULTS = {
    "nodes": "16", "load": "0.75", "days": "1.0", "seeds": "101,102", "kinds": "usual,wild", "refresh": "3600"
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {"usual": {}, "wild": {"spreads": (0.4, 1.0), "failing": 0.1, "users": 2}}
LEARNING_DAYS = (0.5, 1.0)  # from when on forecasts are made, and count
FIRST_TABLE_ENDS = "A forecast:"


def figures(*options: str) -> list[dict[str, Any]]:
    chosen = DEFAULTS | dict(option.removeprefix("--").split("=", 1) for option in options)
    return [*_what_if(), *_fork(), *_days(chosen)]


def _days(chosen: dict[str, str]) -> Iterator[dict[str, Any]]:
    held_out.REFRESH_S = float(chosen["refresh"])
    learn, count = LEARNING_DAYS
    until = count + float(chosen["days"])
    spent: list[float] = []
    for kind in chosen["kinds"].split(","):
        together = held_out.HeldOut()
        for seed in map(int, chosen["seeds"].split(",")):
            days = Days(
                seed=seed, nodes=int(chosen["nodes"]), load=float(chosen["load"]),
                days=until + held_out.TAIL_DAYS, **KINDS[kind],
            )  # fmt: skip
            found = held_out.Reality(days).play(seed=1, spans=held_out.Spans(learn, count, until))[
                held_out.Knows.HISTORY
            ]
            spent += found.spent_s
            together.starts += found.starts
            print(f"{kind} days of seed {seed}: {len(spent)} forecasts so far", file=sys.stderr)
            yield from _figures(f"forecast/days/{kind}/seed-{seed}", found)
        yield from _figures(f"forecast/days/{kind}/all", together)
    yield _plain("forecast/refresh/cpu-max", round(max(spent), 3), "s", 1.2)


def _figures(label: str, found: held_out.HeldOut) -> Iterator[dict[str, Any]]:
    for first, what in ((True, "first"), (False, "any")):
        before, error = found.before_p90(first=first), found.median_error(first=first)
        of_whole = found.median_error(first=first, of_whole=True)
        yield _plain(f"{label}/{what}/before-p90", round(100 * before, 1), "%", 85.0)
        yield _plain(f"{label}/{what}/before-p90-at-most", round(100 * before, 1), "of 100", 95.0)
        yield _plain(f"{label}/{what}/p50-median-error", round(100 * error, 1), "of 100 of the wait", 25.0)
        yield _plain(f"{label}/{what}/p50-median-error-of-age", round(100 * of_whole, 1), "of 100", None)
    yield _plain(f"{label}/given", round(100 * found.given, 1), "%", None)
    yield _plain(f"{label}/forecasts", len(found.starts), "", None)
    yield _plain(f"{label}/waits", sum(each.first for each in found.starts), "", None)


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
    decide(snapshot, now)

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
