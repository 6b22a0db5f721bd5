"""A Job's deadline is known to the decision while its pods wait, and that of a pod, which does not count yet, is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.engine.plan.decide import decide
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Plan
from fairlead.history.recording.reader import Reader
from fairlead.history.replay.verify import Counts, differences
from fairlead.kube import timestamps
from tests.controller.admission.test_jobs_on_the_sandbox import job, status
from tests.controller.conftest import Bench, benches


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with benches(tmp_path, count=1) as made:
        await made.template("eight", 8)
        yield made


async def test_a_jobs_deadline_bounds_its_wait_and_a_pods_does_not(bench: Bench):
    spec: dict[str, Any] = {"parallelism": 1, "completions": 1, "completionMode": "Indexed"}
    async with bench.controller():
        holder = await bench.gang("holder", 1, template="eight")
        await bench.until(lambda: bench.running(holder), "the GPUs are in use")
        await job(bench, "bound", 1, command="serve", template="eight", activeDeadlineSeconds=900, **spec)
        await job(bench, "free", 1, command="serve", template="eight", pod={"activeDeadlineSeconds": 900}, **spec)
        await bench.until(lambda: bench.status("bound").get("phase") == "Waiting", "it waits")
        await bench.until(lambda: bench.status("free").get("phase") == "Waiting", "it waits")
        began = (await status(bench, "bound"))["startTime"]
    ends: dict[str, float | None] = {}

    def seen(snapshot: Snapshot, now: float) -> Plan:
        ends.update({each.name: each.ends_by for each in snapshot.gangs})
        return decide(snapshot, now)

    assert not list(differences(Reader([bench.recording]), Counts(), decide=seen))
    assert ends["bound"] == timestamps.parse(began) + 900
    assert ends["free"] is None
