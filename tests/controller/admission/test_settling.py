"""What a gang of one costs the loop: it is looked at when it is new and when its pod is bound, and not between."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.book.book import Book
from fairlead.controller.commit.backoff import GangBackoffs
from fairlead.controller.commit.gang_tasks import GangTasks
from fairlead.controller.commit.tasks import Tasks
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.watch import indexes
from fairlead.controller.watch.caches import Caches
from fairlead.controller.watch.triggers import Triggers
from fairlead.engine.types.plan import Admission
from fairlead.kube import core
from tests.controller.conftest import Bench
from tests.controller.watch.test_triggers import Term

A, B = ("ml", "a"), ("ml", "b")
ADMISSION = Admission(namespace="ml", name="a", uid="a", queue="", claims=(), assignments=())


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def triggers() -> Triggers:
    made = Triggers()
    made.decided()
    return made


@pytest.fixture
def tasks(triggers: Triggers, time: Time) -> GangTasks:
    book = Book()
    return GangTasks(book, Tasks(Metrics(), time), GangBackoffs(book, Random(1)), triggers, wall=time, settle_s=15.0)


async def admit(tasks: GangTasks, *, settles: bool) -> None:
    async def job() -> None:
        if settles:
            tasks.settle_later(A)

    tasks.start(A, job(), ADMISSION)
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_gang_is_looked_at_when_its_admission_ends(tasks: GangTasks, triggers: Triggers):
    await admit(tasks, settles=False)
    assert triggers.take_gangs() == {A}
    assert not tasks._book[A].busy


async def test_one_that_settles_is_busy_and_is_written_no_more(tasks: GangTasks, triggers: Triggers):
    await admit(tasks, settles=True)
    state = tasks._book[A]
    assert triggers.take_gangs() == set()
    assert (state.busy, state.settles_until is not None, dict(tasks.admissions())) == (True, True, {})
    assert (tasks.take_written(), tasks.take_written()) == ([A], [])
    tasks.settle(A)
    assert (state.busy, state.settles_until) == (None, None)
    assert not triggers.decision


async def test_one_that_settles_for_too_long_is_looked_at(tasks: GangTasks, triggers: Triggers, time: Time):
    await admit(tasks, settles=True)
    assert tasks.settled_at() == time.now + 15
    tasks.settle_due(time.now + 14)
    assert triggers.take_gangs() == set()
    tasks.settle_due(time.now + 15)
    assert triggers.take_gangs() == {A}
    assert tasks.settled_at() is None


async def test_a_gang_that_waits_for_the_admission_is_decided_on_at_its_end(tasks: GangTasks, triggers: Triggers):
    await admit(tasks, settles=True)
    tasks.awaited()
    tasks.settle(A)
    assert triggers.decision


def test_a_gang_that_is_put_off_does_not_wake_the_loop(triggers: Triggers):
    triggers.wake.clear()
    triggers.begin(Term(puts_off={A}))
    triggers.gangs([A, A])
    assert not triggers.wake.is_set()
    triggers.gangs([A, B])
    assert triggers.wake.is_set()
    assert triggers.take_gangs() == {B}


# -- which changes of a pod are news -------------------------------------------------------------------------------


def pod(version: int = 1, *, uses: str = "resourceClaimName", **status: object) -> core.Pod:
    raw = {
        "metadata": {"name": "a", "namespace": "ml", "uid": "1", "resourceVersion": str(version)},
        "spec": {"resourceClaims": [{"name": "gpu", uses: "x"}]},
        "status": status,
    }
    return msgspec.convert(raw, core.Pod)


def test_a_field_that_is_not_read_is_no_news():
    assert indexes.reads_the_same(pod(1), pod(2, qosClass="Guaranteed"))


@pytest.mark.parametrize(
    "changed",
    [
        pod(2, phase="Running"),
        pod(2, nominatedNodeName="node-a"),
        pod(2, conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]),
        msgspec.structs.replace(pod(2), spec=core.PodSpec(node_name="node-a")),
        msgspec.structs.replace(
            pod(2), metadata=msgspec.structs.replace(pod(2).metadata, annotations={names.QUEUE: "q"})
        ),
    ],
)
def test_what_is_read_is(changed: core.Pod):
    assert not indexes.reads_the_same(pod(1), changed)


def test_so_is_any_version_of_a_pod_whose_status_is_written_with_it():
    assert not indexes.reads_the_same(
        pod(1, uses="resourceClaimTemplateName"), pod(2, uses="resourceClaimTemplateName")
    )


# -- the whole path ------------------------------------------------------------------------------------------------


@pytest.fixture
def named() -> bool:
    return True


async def test_a_released_pod_is_looked_at_when_kube_scheduler_has_bound_or_tried_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    looked_at: list[Member] = []
    refresh = Caches.refresh

    def noted(self: Caches, *, turns: bool = False) -> set[GangId]:
        changed = refresh(self, turns=turns)
        looked_at.extend(
            member for gang_id in changed if gang_id in self.gangs for member in self.gangs[gang_id].members
        )
        return changed

    monkeypatch.setattr(Caches, "refresh", noted)
    await bench.template("t1", 1)
    async with bench.controller():
        for number in range(4):
            await bench.pod(f"solo-{number}", template="t1", sleep=600)
        await bench.until(lambda: bound(looked_at) == 4, "every pod was looked at when it was bound")
    assert [each.pod.metadata.name for each in looked_at if each.stage is Stage.RELEASED and not each.tried] == []


def bound(looked_at: list[Member]) -> int:
    return len({member.uid for member in looked_at if member.bound})
