"""What a gang costs the loop: it is not looked at while it is being admitted, and a gang of one not before its pod is bound."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.commit.gang_tasks import SETTLE_S, GangTasks
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.controller.watch import indexes
from fairlead.controller.watch.caches import Caches
from fairlead.controller.watch.triggers import Triggers
from fairlead.engine.types.plan import Admission
from fairlead.kube import core, timing
from tests.controller.conftest import Bench
from tests.support.parts import shared

A = ("ml", "a")
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
    parts = shared(caches=SimpleNamespace(triggers=triggers), time=timing.Time(clock=time, wall=time))
    return GangTasks(parts)


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


async def test_one_that_settles_is_busy_and_is_written_no_more_until_it_has_settled_too_long(
    tasks: GangTasks, triggers: Triggers, time: Time
):
    await admit(tasks, settles=True)
    state = tasks._book[A]
    assert triggers.take_gangs() == set()
    assert (state.busy, tasks.settled_at(), dict(tasks.admissions())) == (True, time.now + SETTLE_S, {})
    assert (tasks.take_written(), tasks.take_written()) == ([A], [])
    tasks.settle_due(time.now + SETTLE_S - 1)
    assert triggers.take_gangs() == set()
    tasks.settle_due(time.now + SETTLE_S)
    assert triggers.take_gangs() == {A}
    assert (state.busy, tasks.settled_at(), triggers.decision) == (None, None, False)


async def test_a_gang_that_waits_for_the_admission_is_decided_on_at_its_end(tasks: GangTasks, triggers: Triggers):
    await admit(tasks, settles=True)
    tasks.awaited()
    tasks.settle(A)
    assert triggers.decision


# -- which changes of a pod are news -------------------------------------------------------------------------------


def pod(version: int = 1, *, uses: str = "resourceClaimName", **status: object) -> core.Pod:
    raw = {
        "metadata": {"name": "a", "namespace": "ml", "uid": "1", "resourceVersion": str(version)},
        "spec": {"resourceClaims": [{"name": "gpu", uses: "x"}]},
        "status": status,
    }
    return msgspec.convert(raw, core.Pod)


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
def test_what_is_read_of_a_pod_is_news_and_any_version_of_one_whose_status_is_written_with_it(changed: core.Pod):
    assert not indexes.reads_the_same(pod(1), changed)
    assert indexes.reads_the_same(pod(1), pod(2, qosClass="Guaranteed"))
    template = "resourceClaimTemplateName"
    assert not indexes.reads_the_same(pod(1, uses=template), pod(2, uses=template))


# -- the whole path ------------------------------------------------------------------------------------------------


@pytest.fixture
def named() -> bool:
    return True


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Member]:
    """The members of each gang that was looked at, as they were then."""
    found: list[Member] = []
    refresh = Caches.refresh

    def noted(self: Caches, *, turns: bool = False) -> set[GangId]:
        changed = refresh(self, turns=turns)
        found.extend(member for gang_id in changed if gang_id in self.gangs for member in self.gangs[gang_id].members)
        return changed

    monkeypatch.setattr(Caches, "refresh", noted)
    return found


async def test_a_released_pod_is_looked_at_when_kube_scheduler_has_bound_or_tried_it(
    bench: Bench, looked_at: list[Member]
):
    await bench.template("t1", 1)
    async with bench.controller():
        for number in range(4):
            await bench.pod(f"solo-{number}", template="t1", sleep=600)
        await bench.until(lambda: bound(looked_at) == 4, "every pod was looked at when it was bound")
    assert [each.pod.metadata.name for each in looked_at if each.stage is Stage.RELEASED and not each.tried] == []


async def test_a_gang_of_several_is_not_looked_at_while_its_admission_is_written(bench: Bench, looked_at: list[Member]):
    """Nothing is started for it meanwhile, and each of its writes would have all of its members read again."""
    await bench.template("t1", 1)
    async with bench.controller():
        await bench.gang("four", 4, template="t1", sleep=600)
        await bench.until(lambda: bound(looked_at) == 4, "all were looked at when they were bound")
    halfway = [each for each in looked_at if each.stage is Stage.GATED and any(c.allocated for c in each.claims)]
    assert [each.pod.metadata.name for each in halfway] == []


def bound(looked_at: list[Member]) -> int:
    return len({member.uid for member in looked_at if member.bound})
