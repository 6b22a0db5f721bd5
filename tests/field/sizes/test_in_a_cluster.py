"""A Job that is made smaller while it waits, on the sandbox: its pods still say the old size, and it starts with what is left."""

from __future__ import annotations

from typing import Any

from fairlead.api import names
from fairlead.kube.resources import JOBS
from tests.controller.admission.test_jobs_on_the_sandbox import job, pods_of, running
from tests.controller.conftest import NAMESPACE, Bench


async def test_a_waiting_job_that_is_made_smaller_starts_with_what_is_left(bench: Bench) -> None:
    """Sixteen GPUs: twelve pods of two do not fit, six do. A run of four that was six goes on, and is whole."""
    await bench.template("two", 2)
    spec: dict[str, Any] = {"parallelism": 12, "completions": 12, "completionMode": "Indexed"}
    async with bench.controller():
        await job(bench, "shrink", 12, command="serve", notes={names.SIZE_FROM: "Job/shrink"}, **spec)
        await bench.until(lambda: bench.status("shrink").get("members") == 12, "all twelve wait")
        assert not running(bench, "shrink")
        await bench.client.patch(JOBS, "shrink", {"spec": {"parallelism": 6, "completions": 6}}, namespace=NAMESPACE)
        await bench.until(lambda: len(running(bench, "shrink")) == 6, "six run")
        assert {each.metadata.annotations[names.GANG_SIZE] for each in pods_of(bench, "shrink")} == {"12"}
        await bench.client.patch(JOBS, "shrink", {"spec": {"parallelism": 4, "completions": 4}}, namespace=NAMESPACE)
        await bench.until(lambda: len(running(bench, "shrink")) == 4, "four run on")
        await bench.until(lambda: "4 of 4 members run" in bench.status("shrink").get("message", ""), "the status")
        bench.check()
