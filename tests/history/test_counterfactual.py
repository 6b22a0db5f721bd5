"""A recorded day lived again: under its own policy it goes as recorded; under another one the figures change as they must."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from fairlead.cli.replay.policy import PolicyError, read_policy
from fairlead.engine.types.settings import FlavorQuota
from fairlead.history.recording.reader import Reader
from fairlead.history.replay.counterfactual import Outcome, Policy, live
from fairlead.history.replay.day import Day, read_day
from tests.support.days import BEGIN, CORPUS, HOUR, Shape, SimulatedDay
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import h100_world
from tests.support.history import record


@pytest.fixture(scope="module")
def busy() -> Day:
    return read_day(Reader([CORPUS / "busy"]))


def queue_hours(outcome: Outcome, queue: str) -> float:
    return outcome.totals.queues[queue, "gpu"].used / HOUR


def test_a_day_without_contention_goes_as_it_was_recorded(tmp_path: Path):
    (directory,) = record(SimulatedDay(Shape(9, nodes=8, gangs=12, run_hours=0.5, failures=0)).run, tmp_path)
    day = read_day(Reader([directory]))
    outcome = live(day, Policy())
    assert len(day.jobs) == 12
    for key, job in day.jobs.items():
        life = outcome.lives[key]
        assert life.started == pytest.approx(job.started, abs=0.1)
        if job.ended is not None:
            assert life.ended == pytest.approx(job.ended, abs=0.1)
    assert outcome.evictions == 0


def test_two_lives_under_one_policy_are_the_same(busy: Day):
    first, second = live(busy, Policy()), live(busy, Policy())
    assert first.lives == second.lives
    assert first.totals.curve == second.totals.curve


def test_the_sums_add_up(busy: Day):
    totals = live(busy, Policy()).totals
    assert totals.seconds == pytest.approx(busy.ended - busy.began)
    assert totals.capacity == 32
    assert totals.capacity_s == pytest.approx(32 * totals.seconds - 8 * 2 * HOUR), (
        "a node of eight was away for two hours"
    )
    assert 0 < totals.used_s <= totals.capacity_s
    by_queue = sum(sums.used for sums in totals.queues.values())
    assert by_queue == pytest.approx(totals.used_s, rel=0.05), "queues are not charged for what is leaving"


def test_a_queue_that_deserves_more_gets_more(busy: Day):
    batch = replace(
        next(iter(live_queues(busy, "batch"))), quotas=(FlavorQuota(flavor="gpu", deserved=24, weight=5.0),)
    )
    before, after = live(busy, Policy()), live(busy, Policy(queues=(batch,)))
    assert queue_hours(after, "batch") > 1.5 * queue_hours(before, "batch")
    assert before.lives != after.lives


def live_queues(day: Day, name: str):
    from fairlead.history.facts import read

    return [read.queue(name, queue) for key, queue in day.cluster[0][1].queues.items() if key == name and queue]


def test_an_evicted_gang_starts_from_the_beginning(tmp_path: Path):
    """Day: `old` runs 2 h on everything. Life under a policy that reclaims for `new`: old goes, and runs 2 h again later."""
    from fairlead.engine.types.settings import FlavorSpec, QueueSpec

    def run() -> None:
        world = h100_world(1)
        world.flavors = (FlavorSpec(name="gpu", device_selector="true"),)
        world.queues = tuple(
            QueueSpec(name=name, uid=name, quotas=(FlavorQuota(flavor="gpu", deserved=deserved),))
            for name, deserved in (("a", 8), ("b", 0))
        )
        old = gang("old", 1, claim_spec(device_request(8)), queue="a", created=BEGIN)
        new = gang("new", 1, claim_spec(device_request(8)), queue="b", created=BEGIN + 60)
        waiting = [old]
        for at, what in ((0.0, "old"), (60.0, "new"), (7200.0, "end old"), (10800.0, "end new"), (20000.0, "")):
            world.now = BEGIN + at
            if what == "new":
                waiting.append(new)
            if what.startswith("end"):
                world.end(f"ml/{what[4:]}")
            waiting = world.carry_out(world.decide(*waiting), waiting)

    (directory,) = record(run, tmp_path)
    day = read_day(Reader([directory]))
    same = live(day, Policy())
    assert same.evictions == 0
    assert same.lives["ml/new", BEGIN + 60].started == BEGIN + 7200
    queues = [*live_queues(day, "a"), *live_queues(day, "b")]
    turned = tuple(
        replace(queue, quotas=(FlavorQuota(flavor="gpu", deserved=0 if queue.name == "a" else 8),)) for queue in queues
    )
    other = live(day, Policy(queues=turned))
    assert other.evictions == 1
    assert other.lives["ml/new", BEGIN + 60].started == pytest.approx(BEGIN + 60, abs=1)
    assert other.lives["ml/new", BEGIN + 60].ended == pytest.approx(BEGIN + 60 + 3600, abs=1)
    assert other.lives["ml/old", BEGIN].evicted == 1
    assert other.lives["ml/old", BEGIN].ended == pytest.approx(BEGIN + 60 + 3600 + 7200, abs=2), "two hours again"
    assert other.lost_s == pytest.approx(60 * 8, rel=0.01)
    later = live(day, Policy(queues=tuple(queues), changes=((BEGIN + 3600, turned),)))
    assert later.lives["ml/new", BEGIN + 60].started == pytest.approx(BEGIN + 3600, abs=1), "turned after an hour"
    assert later.lost_s == pytest.approx(3600 * 8, rel=0.01)


def test_a_policys_schedules_are_followed_through_the_recorded_time(tmp_path: Path):
    text = BATCH.replace(
        "weight: 5}]}",
        """weight: 5}], schedule: [{name: hourly, start: "30 * * * *", for: 10m, flavors: [{flavor: gpu, limit: 30}]}]}""",
    )
    began = BEGIN - BEGIN % 3600
    read = functools.partial(read_policy, policy(tmp_path, text), usage_weight=None, half_life_s=1.0)
    found = read(began=began, ended=began + 7200)
    assert [(at - began, queues[0].quotas[0].limit) for at, queues in found.changes] == [
        (1800, 30),
        (2400, None),
        (5400, 30),
        (6000, None),
    ]
    assert [queue.quotas[0].limit for queue in found.queues] == [None]
    assert read(began=began + 1900, ended=began + 1950).queues[0].quotas[0].limit == 30
    with pytest.raises(PolicyError, match="change quotas more than 10000 times in this recording"):
        read(began=began, ended=began + 5001 * 3600)


# -- the command ---------------------------------------------------------------------------------------------------


def fairlead(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fairlead", *map(str, words)], capture_output=True, text=True, check=False
    )


def policy(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return path


BATCH = """
apiVersion: fairlead.dev/v1alpha1
kind: Queue
metadata: {name: batch}
spec: {flavors: [{flavor: gpu, deserved: 24, weight: 5}]}
"""


def test_the_command_shows_both_lives(tmp_path: Path):
    drawing = tmp_path / "day.svg"
    file = policy(tmp_path, BATCH)
    done = fairlead("replay", CORPUS / "busy", "--policy", file, "--svg", drawing)
    assert done.returncode == 0, done.stderr
    for words in ("GPU-hours idle", "evictions", "FAIR SHARE", "gangs start at another time"):
        assert words in done.stdout
    assert len(ET.parse(drawing).getroot().findall("{http://www.w3.org/2000/svg}polyline")) == 4
    body = json.loads(fairlead("replay", CORPUS / "busy", "--policy", file, "-o", "json").stdout)
    assert body["otherPolicy"]["queues"][0]["queue"] == "batch"
    assert body["recorded"]["started"] > 10
    assert any(each["started"]["recordedPolicy"] != each["started"]["otherPolicy"] for each in body["gangs"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no Queue and no Flavor"),
        ("kind: Pod", "kind: 'Pod': a policy is made of Queues and Flavors"),
        ("[1, 2]", "kind: 'list'"),
        ("a: [", "no YAML"),
        (BATCH.replace("deserved: 24", "deserved: many"), "deserved"),
    ],
)
def test_a_file_that_is_no_policy_is_named(text: str, words: str, tmp_path: Path):
    done = fairlead("replay", CORPUS / "quiet", "--policy", policy(tmp_path, text))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_the_command_says_that_all_is_the_same():
    done = fairlead("replay", CORPUS / "quiet")
    assert done.returncode == 0
    assert "decided again: all the same, bit by bit" in done.stdout
    body = json.loads(fairlead("replay", CORPUS / "quiet", "-o", "json").stdout)
    assert (body["first"], body["missed"], body["torn"]) == (None, 0, "")


CHANGED = """
import sys
from dataclasses import replace
from fairlead.engine.queues import order
import fairlead.history.replay.verify as verify
original = verify.decide_now
def decide(snapshot, now):
    turned = tuple(replace(each, priority=-(now - each.created >= 7200.0)) for each in snapshot.gangs)
    return original(replace(snapshot, gangs=turned), now)
verify.differences.__kwdefaults__["decide"] = decide
from fairlead.cli.main import main
main()
"""


def test_the_command_shows_the_first_decision_that_differs_and_writes_its_inputs(tmp_path: Path):
    from fairlead.engine.plan.decide import decide
    from fairlead.history.facts.snapshot_file import load

    inputs = tmp_path / "inputs.json"
    command = [sys.executable, "-c", CHANGED, "replay", str(CORPUS / "strict"), "--dump", str(inputs), "--all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "first: decision " in done.stdout
    assert "≠" in done.stdout
    assert "inputs: " in done.stdout
    assert "also decision " in done.stdout
    snapshot, now = load(inputs.read_bytes())
    assert decide(snapshot, now).waiting


def test_what_is_no_recording_is_named_and_no_traceback(tmp_path: Path):
    (tmp_path / "file").write_text("text")
    for path in (tmp_path / "file", tmp_path, tmp_path / "absent"):
        for done in (fairlead("replay", path), fairlead("replay", path, "--policy", policy(tmp_path, BATCH))):
            assert done.returncode == 2, done.stdout
            assert str(path) in done.stderr
            assert "Traceback" not in done.stderr
