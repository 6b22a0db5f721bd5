"""What is told of gangs whose Jobs people delete and create again, and of runs that they end: of what is there, not of what was."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlead.kube import resources
from fairlead.kube.resources import Raw
from fairlead.ui.model.gangs import line
from tests.controller.admission.test_jobs_on_the_sandbox import IGNORE, job, running
from tests.controller.conftest import NAMESPACE, Bench, benches
from tests.controller.evictions.test_evictions import Plot, plot

__all__ = ["plot"]

pytestmark = pytest.mark.slow


@pytest.fixture
async def bench(tmp_path: Path, plot: Plot) -> AsyncIterator[Bench]:
    async with benches(tmp_path) as made:
        await made.template("eight", 8)
        async with made.controller():
            yield made


def gang(bench: Bench, name: str) -> Raw | None:
    return next((raw for raw in bench.gangs.all() if raw["metadata"]["name"] == name), None)


async def train(bench: Bench, name: str, *, command: str | Sequence[str] = "serve", grace_s: int = 0) -> None:
    """A Job of two pods of eight GPUs: the whole cluster."""
    spec: dict[str, Any] = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 3}
    more = {"terminationGracePeriodSeconds": grace_s}
    await job(bench, name, 2, command=command, template="eight", podFailurePolicy=IGNORE, pod=more, **spec)


def fresh(bench: Bench, name: str, since: float) -> bool:
    """Whether it is shown with the age of what was created at `since`, and as nothing that was evicted."""
    raw = gang(bench, name)
    if raw is None or not (raw.get("status") or {}).get("phase"):
        return False
    now = time.time()
    conditions = raw["status"].get("conditions") or ()
    evicted = any(each["type"] == "Evicted" and each["status"] == "True" for each in conditions)
    return not evicted and line(raw, now=now).age_s <= now - since + 2.0


async def test_an_evicted_gang_whose_job_is_deleted_is_gone_and_one_that_is_created_anew_is_new(
    bench: Bench, plot: Plot
) -> None:
    plot.victims = {"new": ["old"]}
    await train(bench, "old")
    await bench.until(lambda: len(running(bench, "old")) == 2, "the first runs")
    new = await bench.gang("new", 2, template="eight")
    await bench.until(lambda: bench.running(new), "the gang for which it was evicted runs")
    await bench.until(lambda: bench.status("old").get("phase") == "Waiting", "its pods are back, and wait")
    plot.victims = {}
    await bench.client.delete(resources.JOBS, "old", NAMESPACE, propagation="Background")
    await bench.until(lambda: gang(bench, "old") is None, "with its Job the gang is gone", 8.0)
    began = time.time()
    await train(bench, "old")
    await bench.until(lambda: fresh(bench, "old", began), "who creates it again submits another", 10.0)
