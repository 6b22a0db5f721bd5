"""A controller that records leaves segments that replay, through kills and changes of leader; a disk that refuses stops no gang."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fairlead.api import names
from fairlead.engine.plan.decide import decide
from fairlead.history.facts.snapshot_file import load
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.records import Decision
from fairlead.history.recording.verify import Counts, differences
from fairlead.kube import resources
from tests.controller.conftest import Bench, Life


def recorded(bench: Bench) -> list[Decision]:
    return [read.record for read in Reader([bench.recording]) if isinstance(read.record, Decision)]


async def test_what_leaders_decided_before_and_after_a_kill_is_recorded_and_replays(bench: Bench):
    await bench.template("four", 4)
    pods = await bench.gang("killed", 3, template="four")
    await bench.mortal(Life(4, after=True), lambda: bench.bound(pods))
    first = len(recorded(bench))
    assert first >= 1
    async with bench.controller():
        more = await bench.gang("other", 1, template="four")
        await bench.until(lambda: bench.running(pods), "the first gang runs")
        waits = await bench.gang("waits", 1, template="four")
        await bench.until(
            lambda: bench.status("waits").get("phase") == "Waiting" or bench.running(waits), "a third waits"
        )
        await bench.delete([*pods, *more, *waits])
        await bench.until(lambda: bench.watchdog.held == 0, "all is given back")
    records = recorded(bench)
    assert [record.number for record in records] == list(range(1, len(records) + 1))
    assert len(records) > first
    assert {gang for record in records for gang in record.facts.gangs} >= {"ml/killed", "ml/other"}
    admitted = {entry["gang"] for record in records if record.plan for entry in record.plan.get("admissions", ())}
    assert admitted >= {"ml/killed", "ml/other"}
    counts = Counts()
    assert list(differences(Reader([bench.recording]), counts)) == []
    assert counts.decisions == len(records)


async def test_a_directory_that_cannot_be_written_is_told_on_the_lease_and_gangs_start(bench: Bench):
    await bench.template("one")
    nowhere = bench.workdir / "file"
    nowhere.write_text("not a directory")
    async with bench.controller(record=nowhere):
        pods = await bench.gang("starts", 2, template="one")
        await bench.until(lambda: bench.running(pods), "the gang runs, unrecorded")
        found: list[str] = []

        for number in range(20):
            await bench.gang(f"more{number}", 1, template="one")
            found = [
                event["message"]
                for event in (await bench.client.list(resources.EVENTS, "fairlead-system")).items
                if event["involvedObject"]["kind"] == "Lease" and event["reason"] == "RecordingProblem"
            ]
            if found:
                break
            await bench.until(lambda: bench.running([f"more{number}-0"]) or number > 12, "it runs")  # noqa: B023
    assert any("decisions go on unrecorded" in message for message in found)


async def fairlead(*words: str | Path) -> tuple[int, bytes, str]:
    """The command's exit code, output and messages."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "fairlead",
        *map(str, words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err.decode()


async def test_a_snapshot_of_the_cluster_is_what_a_leader_would_decide_on(bench: Bench):
    await bench.template("four", 4)
    await bench.gang("waits", 2, template="four")
    await bench.until(lambda: len(bench.claims.all()) == 2, "the claims are there")
    kubeconfig = bench.cluster.kubeconfig(names.CONTROLLER_USER)
    code, out, err = await fairlead("snapshot", "--kubeconfig", kubeconfig)
    assert (code, "--anonymise" in err) == (0, True)
    snapshot, now = load(out)
    assert len(snapshot.nodes) == 2
    (admission,) = decide(snapshot, now).admissions
    assert admission.id == "ml/waits"
    assert bench.gated(["waits-0", "waits-1"])
    assert bench.allocated() == [], "nothing was written"
