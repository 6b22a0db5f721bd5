"""What rests on when a claim was allocated, on each release: min-runtime, which gang is evicted first, when a rollback comes.

An apiserver of 1.34 drops `allocationTimestamp`.
"""

from __future__ import annotations

import asyncio
import time

from fairlead.api import names
from fairlead.kube import core
from fairlead.kube.informer import Change
from fairlead.kube.releases import Minor
from fairlead.sandbox.release import Release
from tests.controller.conftest import NAMESPACE, Bench
from tests.support.teams import OTHER, borrowers, evicted, standing, teams


async def test_a_gang_that_has_just_begun_is_protected_by_min_runtime(bench: Bench, release: Minor):
    await teams(bench, minRuntime="10m")
    async with bench.controller():
        await borrowers(bench)
        kept = Release.of(release).has("allocation-time")
        assert all(bool(_stamp(claim)) == kept for claim in bench.allocated()), (
            "the sandbox is the release that it says"
        )
        await bench.pod("owner", template="eight", namespace=OTHER)
        await bench.until(
            lambda: (bench.gangs.get(f"{OTHER}/owner") or {}).get("status", {}).get("reason") == "VictimsProtected",
            "the status names min-runtime",
        )
        assert bench.running(["one", "two"])


async def test_the_gang_that_began_last_is_evicted_first(bench: Bench):
    await teams(bench)
    async with bench.controller():
        await bench.pod("two", template="eight")
        await bench.until(lambda: bench.running(["two"]), "the first runs")
        await asyncio.sleep(1.1)  # times of claims are whole seconds
        await bench.pod("one", template="eight")
        await bench.until(lambda: bench.running(["one", "two"]), "both run")
        await bench.pod("owner", template="eight", namespace=OTHER)
        await bench.until(lambda: standing(bench, OTHER, "owner") == "Running", "the owner has its own back")
        assert evicted(bench) == ["one"]


async def test_a_new_leader_knows_when_gangs_began(bench: Bench):
    await teams(bench, minRuntime="10m")
    async with bench.controller():
        await borrowers(bench)
    async with bench.controller():
        await bench.pod("owner", template="eight", namespace=OTHER)
        await bench.until(
            lambda: (bench.gangs.get(f"{OTHER}/owner") or {}).get("status", {}).get("reason") == "VictimsProtected",
            "the status names min-runtime",
        )
        assert bench.running(["one", "two"])


async def test_a_pod_that_does_not_bind_is_rolled_back_after_its_time_and_not_before(bench: Bench):
    """Its first tries fail. It is deleted, as it has no owner, and the event of that stays."""
    await bench.template("one")
    bench.cluster.server.faults.fail(
        500, verb="create", resource="pods", subresource="binding", name="lone", count=None
    )
    times: dict[str, float] = {}

    def note(change: Change[core.Pod]) -> None:
        if change.object.metadata.name == "lone" and not change.object.has_gate(names.ADMISSION_GATE):
            times.setdefault("released", time.monotonic())
            if change.new is None or change.new.metadata.deletion_timestamp:
                times.setdefault("deleted", time.monotonic())

    async with bench.controller(gang_timeout_s=5.0):
        bench.pods.subscribe(note)
        await bench.pod("lone", template="one")
        await bench.until(lambda: "deleted" in times, "it is rolled back")
    assert times["deleted"] - times["released"] >= 4.8  # as this watch saw it
    await bench.event("lone", "RolledBack: 1 of its pods (lone) did not bind")
    assert bench.pods.get(f"{NAMESPACE}/lone") is None


def _stamp(claim: object) -> str | None:
    return claim.status.allocation.allocation_timestamp  # type: ignore[attr-defined,no-any-return]
