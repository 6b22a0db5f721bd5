"""The texts of an eviction, from the decision to the recreated pods: each fact once, with cause and what would prevent it."""

from __future__ import annotations

import re

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.evictions import eviction_marks, past_evictions
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark, EvictionProgress
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.controller.report import gang_status as status
from fairlead.controller.report.gang_phase import summarize
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import PreemptionBlock, PreemptionBlocker
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube import core, timestamps
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world

NOW = 1_800_000_000.0
ONE = claim_spec(device_request())
H100 = FlavorSpec(name="h100", device_selector=f'device.driver == "{names.DRIVER}"')


def quota(name: str, deserved: int = 0, **more: object) -> QueueSpec:
    return QueueSpec(name=name, quotas=(FlavorQuota(flavor="h100", deserved=deserved),), **more)  # type: ignore[arg-type]


def world_of(*queues: QueueSpec) -> World:
    world = h100_world(1)
    world.flavors, world.queues = (H100,), queues
    return world


def evicted_by(world: World, *running: object, waiting: object) -> Eviction:
    assert world.carry_out(world.decide(*running), list(running)) == []  # type: ignore[arg-type]
    (first, *_) = world.decide(waiting).evictions  # type: ignore[arg-type]
    return first


def test_a_queue_above_its_deserved_quota_reads_what_the_other_deserves():
    borrowers = [gang(f"b{number}", 1, ONE, queue="b", created=float(number)) for number in range(8)]
    owner = gang("a0", 2, ONE, queue="a", created=100.0)
    eviction = evicted_by(world_of(quota("a", 4), quota("b", 4)), *borrowers, waiting=owner)
    assert eviction.reason.message == (
        "queue a holds 0 of h100, asks for 2 more and deserves 4; queue b holds 8 and deserves 4"
    )
    assert eviction.reason.advice == (
        "recreated, its pods wait with its age; more deserved for queue b, or a longer min-runtime, would keep it"
    )


def test_a_queue_above_its_fair_share_reads_both_shares():
    borrowers = [gang(f"b{number}", 1, ONE, queue="b", created=float(number)) for number in range(8)]
    poor = gang("a0", 2, ONE, queue="a", created=100.0)
    eviction = evicted_by(world_of(quota("a"), quota("b")), *borrowers, waiting=poor)
    assert eviction.reason.message == (
        "queue a holds 0 of h100, asks for 2 more and has a fair share of 2; queue b holds 8 and has a fair share of 6"
    )


def test_a_gang_of_lower_priority_reads_both_priorities():
    low = [gang(f"b{number}", 1, ONE, queue="a", priority=1, created=float(number)) for number in range(8)]
    eviction = evicted_by(world_of(quota("a", 8)), *low, waiting=gang("a0", 1, ONE, queue="a", priority=9, created=9.0))
    assert str(eviction_marks.mark_for(eviction, at=NOW).description) == (
        "preempted for gang ml/a0: of the same queue a, with priority 9 against its 1; recreated, its pods wait with "
        "its age; a higher priority, or preemption: Never in queue a, would keep it"
    )


def mark() -> EvictionMark:
    borrowers = [gang(f"b{number}", 1, ONE, queue="b", created=float(number)) for number in range(8)]
    owner = gang("a0", 2, ONE, queue="a", created=100.0)
    eviction = evicted_by(world_of(quota("a", 4), quota("b", 4)), *borrowers, waiting=owner)
    return eviction_marks.mark_for(eviction, at=NOW)


def message(marked: EvictionMark, *, leaving: bool) -> str:
    meta = {"name": "b0", "namespace": "ml", "uid": "u", "annotations": marked.annotations()}
    if leaving:
        meta["deletionTimestamp"] = timestamps.seconds(NOW)
    pod = msgspec.convert({"metadata": meta, "status": {"phase": "Running"}}, core.Pod)
    found = Gang(id=("ml", "b0"), size=1, members=(Member(pod=pod, stage=Stage.RELEASED),))
    progress = None if leaving else EvictionProgress(mark=marked)
    return summarize(found, SchedulingState(eviction=progress)).message


def test_each_step_states_each_fact_once():
    marked = mark()
    past = past_evictions.PastEviction(
        at=NOW, queued_since=NOW - 100, mark=str(marked), why=marked.why, until=NOW + 900
    )
    told = {
        "before": str(EvictionProgress(mark=marked)),
        "refused": str(
            EvictionProgress(mark=marked, refused="PodDisruptionBudget ml/guard allows 0 of the 1 eviction")
        ),
        "gang": message(marked, leaving=False),
        "leaving": message(marked, leaving=True),
        "past": str(
            status.evicted_status(past, past_evictions.outlook(past, (), now=NOW, without_job_since=None), {}, NOW)[
                "message"
            ]
        ),
    }
    for step, text in told.items():
        assert text.count("reclaimed for gang ml/a0") == 1, step
        assert len(re.findall(r"evicted", text)) <= 1, (step, text)
        assert text.count("gang ml/a0") == 1, (step, text)
        assert "queue a holds 0 of h100, asks for 2 more and deserves 4" in text, step
        assert "more deserved for queue b" in text, step
        assert ".." not in text and ":;" not in text, step
    assert told["before"].startswith("to be evicted at 2027-01-15T08:00:00Z: reclaimed for gang ml/a0: queue a holds")
    assert told["refused"].endswith("; not yet: PodDisruptionBudget ml/guard allows 0 of the 1 eviction; tried until 2027-01-15T08:05:00Z")  # fmt: skip
    assert told["leaving"].startswith("1 pod is on the way out, and devices still held: evicted, reclaimed for gang")
    assert told["past"].endswith(
        "; its pods have no controller: create them again; its age is kept until 2027-01-15T08:15:00Z"
    )


@pytest.mark.parametrize(
    ("barrier", "text"),
    [
        (
            PreemptionBlocker(
                block=PreemptionBlock.WITHIN_SHARE,
                queue="b",
                gangs=4,
                devices=4,
                example="ml/b3",
                detail="4 of gpu held",
            ),
            "queue b: holds no more than its fair share: 4 of gpu held (4 gangs with 4 devices, such as ml/b3)",
        ),
        (
            PreemptionBlocker(
                block=PreemptionBlock.MIN_RUNTIME, queue="b", gangs=1, devices=1, example="ml/b3", until=NOW
            ),
            "queue b: within min-runtime until 2027-01-15T08:00:00Z (gang ml/b3 with 1 device)",
        ),
        (
            PreemptionBlocker(block=PreemptionBlock.LEAVING, queue="b"),
            "queue b: others evicted for it have not gone yet",
        ),
    ],
)
def test_a_preemption_blocker_names_the_block_before_the_gangs(barrier: PreemptionBlocker, text: str):
    assert str(barrier) == text
