"""An eviction on the sandbox: marked, evicted, recreated with its age; or cancelled, or refused.

Victims are chosen by a stand-in: for a waiting gang named in `plot` the gangs that it names are evicted, and no other gang
is admitted while a preemptor waits. The engine has its own tests.
"""

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Iterable

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.controller import term
from fairlead.controller.cycle import Cycle
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.engine.plan import decide as plan
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.plan import Eviction, Plan
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube import resources, timestamps
from tests.controller.conftest import NAMESPACE, Bench, Life

WHY = Reason(code=Code.NO_DEVICES, message="its queue is above its fair share")


class Plot:
    """Which gangs go for which; `grace_s` for all of them."""

    def __init__(self) -> None:
        self.victims: dict[str, list[str]] = {}
        self.grace_s = 0.0
        self.surplus: list[str] = []  # only these pods, where not the whole gang goes
        self.seen: list[Snapshot] = []

    def decide(self, snapshot: Snapshot, now: float) -> Plan:
        self.seen = [*self.seen[-20:], snapshot]
        first = [gang for gang in snapshot.gangs if gang.preemptor]
        decided = plan.decide(replace(snapshot, gangs=tuple(first)) if first else snapshot, now)
        running = {gang.name: gang for gang in snapshot.running}
        found = []
        for waiting in decided.waiting:
            for name in self.victims.get(waiting.name, ()):
                gang = running.get(name)
                if gang is None or not gang.members or any(member.leaving for member in gang.members):
                    continue
                pods = [member.pod for member in gang.members if not self.surplus or member.pod.name in self.surplus]
                found.append(
                    Eviction(
                        kind="Reclaim",
                        namespace=gang.namespace,
                        name=gang.name,
                        uid=gang.uid,
                        queue=gang.queue or "",
                        pods=tuple(pods),
                        whole=not self.surplus,
                        reason=WHY,
                        beneficiary=waiting.id,
                        checkpoint_grace_s=self.grace_s,
                    )
                )
        return dataclasses.replace(decided, evictions=tuple(found))


@pytest.fixture
def plot(monkeypatch) -> Plot:
    made = Plot()
    monkeypatch.setattr(term, "Cycle", functools.partial(Cycle, decide=made.decide))
    return made


def condition(bench: Bench, pod: str, kind: str = names.EVICTING_CONDITION):
    found = bench.get(pod)
    return found.condition(kind) if found else None


def gang_condition(bench: Bench, gang: str, kind: str) -> dict[str, str]:
    found = [each for each in bench.status(gang).get("conditions", ()) if each["type"] == kind]
    return found[0] if found else {}


def gone(bench: Bench, pods: Iterable[str]) -> bool:
    return all(bench.get(name) is None for name in pods)


async def fill(bench: Bench, **more) -> list[str]:
    """A gang on all sixteen GPUs."""
    await bench.template("eight", 8)
    pods = await bench.gang("old", 2, template="eight", **more)
    await bench.until(lambda: bench.running(pods), "the first gang runs")
    await bench.until(lambda: bench.status("old").get("phase") == "Running", "its status is Running")
    return pods


@pytest.mark.core
async def test_a_gang_is_evicted_whole_for_another_and_queues_again_with_its_age(bench: Bench, plot: Plot):
    plot.victims = {"new": ["old"]}
    async with bench.controller():
        old = await fill(bench)
        new = await bench.gang("new", 2, template="eight")
        await bench.until(lambda: bench.running(new), "the gang for which it went runs")
        assert gone(bench, old)
        await bench.event(
            "old", "Evicted: 2 pods evicted: reclaimed for gang ml/new: its queue is above its fair share"
        )
        await bench.until(lambda: bench.status("old").get("reason") == "Evicted", "the evicted gang is remembered")
        plot.victims = {}
        again = [f"{name}-again" for name in old]
        for name in again:
            await bench.pod(name, template="eight", gang="old", size=2)
        await bench.until(lambda: bench.status("old").get("phase") == "Waiting", "recreated, it waits")
        assert gang_condition(bench, "old", "Evicted")["status"] == "True"
        (asked,) = [gang for gang in plot.seen[-1].gangs if gang.name == "old"]
        first = timestamps.parse(next(g for g in bench.gangs.all() if g["metadata"]["name"] == "old")["metadata"]["creationTimestamp"])  # fmt: skip
        assert asked.created <= first
        await bench.delete(new)
        await bench.until(lambda: bench.running(again), "it runs again")
        await bench.until(
            lambda: gang_condition(bench, "old", "Evicted").get("status") == "False", "its eviction is past"
        )


async def test_pods_carry_the_time_of_their_eviction_and_run_until_then(bench: Bench, plot: Plot):
    plot.victims, plot.grace_s = {"new": ["old"]}, 3.0
    async with bench.controller():
        old = await fill(bench)
        new = await bench.gang("new", 2, template="eight")
        await bench.until(lambda: all(condition(bench, pod) for pod in old), "both pods have the condition")
        told = condition(bench, old[0])
        assert told is not None
        assert (told.status, told.reason) == ("True", "Reclaim")
        assert "reclaimed for gang ml/new" in told.message
        pod = bench.get(old[0])
        assert pod is not None
        at = timestamps.parse(pod.metadata.annotations[names.EVICT_AT])
        await bench.until(
            lambda: gang_condition(bench, "old", "Evicting").get("status") == "True", "the gang has the condition"
        )
        await bench.until(
            lambda: gang_condition(bench, "new", "Preempting").get("message") == "being evicted for it: ml/old",
            "the status of the other names the gangs evicted for it",
        )
        assert bench.running(old)
        await bench.until(lambda: bench.running(new), "the new gang runs")
        assert timestamps.parse(timestamps.seconds(at)) == at
        await bench.until(lambda: "admittedTime" in bench.status("new"), "its status says when it was admitted")
        assert timestamps.parse(bench.status("new")["admittedTime"]) >= at


@pytest.mark.core
async def test_an_eviction_is_cancelled_when_its_beneficiary_no_longer_waits(bench: Bench, plot: Plot):
    plot.victims, plot.grace_s = {"new": ["old"]}, 600.0
    async with bench.controller():
        old = await fill(bench)
        new = await bench.gang("new", 2, template="eight")
        await bench.until(lambda: all(condition(bench, pod) for pod in old), "both pods have the condition")
        await bench.delete(new)

        def spared(pod: str) -> bool:
            told, seen = condition(bench, pod), bench.get(pod)
            return (
                told is not None
                and (told.status, told.reason) == ("False", "Cancelled")
                and seen is not None
                and names.EVICT_AT not in seen.metadata.annotations
            )

        await bench.until(lambda: all(spared(pod) for pod in old), "both may stay")
        assert bench.running(old)
        await bench.event("old", "EvictionCancelled: it stays: gang ml/new no longer waits for it")


async def budget(bench: Bench, least: int) -> None:
    body = {
        "metadata": {"name": "guard", "namespace": NAMESPACE},
        "spec": {"minAvailable": least, "selector": {}},
    }
    await bench.client.create(resources.POD_DISRUPTION_BUDGETS, body)


async def test_a_budget_that_forbids_it_is_waited_for_and_named(bench: Bench, plot: Plot):
    async with bench.controller():
        old = await fill(bench)
        await budget(bench, 1)
        plot.victims = {"new": ["old"]}
        new = await bench.gang("new", 2, template="eight")
        said = "PodDisruptionBudget ml/guard allows 1 of the 2 evictions that this needs"
        await bench.until(
            lambda: said in gang_condition(bench, "old", "Evicting").get("message", ""), "the budget is named"
        )
        assert bench.running(old)
        (held,) = [gang for gang in plot.seen[-1].running if gang.name == "old"]
        assert [member.guarded_by for member in held.members] == [("guard",), ("guard",)]
        await bench.client.delete(resources.POD_DISRUPTION_BUDGETS, "guard", NAMESPACE)
        await bench.until(lambda: bench.running(new), "without the budget it is done")


async def test_a_pod_of_a_job_that_is_evicted_keeps_its_age_under_its_new_name(bench: Bench, plot: Plot):
    """A gang of one is named after its pod, and a Job gives the next pod another name."""
    await bench.template("eight", 8)
    owner = await bench.client.create(
        resources.raw(resources.JOBS),
        {
            "metadata": {"name": "j", "namespace": NAMESPACE},
            "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        },
    )  # fmt: skip
    owners = [
        {
            "apiVersion": "batch/v1",
            "kind": "ReplicaSet",
            "name": "j",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
    ]

    async def made(name: str) -> None:
        await bench.pod(name, template="eight")
        body = {"metadata": {"ownerReferences": owners}}
        await bench.client.patch(resources.PODS, name, body, namespace=NAMESPACE)

    async with bench.controller():
        await made("j-a")
        await bench.pod("other", template="eight")
        await bench.until(lambda: bench.running(["j-a", "other"]), "both run")
        await bench.until(lambda: bench.status("j-a").get("phase") == "Running", "its status is Running")
        plot.victims = {"new": ["j-a"]}
        await bench.pod("new", template="eight")
        await bench.until(lambda: bench.running(["new"]), "the new pod runs")
        first = next(g for g in bench.gangs.all() if g["metadata"]["name"] == "j-a")["metadata"]["creationTimestamp"]
        plot.victims = {}
        await asyncio.sleep(1.1)  # timestamps are whole seconds
        await made("j-b")
        await bench.until(
            lambda: gang_condition(bench, "j-b", "Evicted").get("status") == "True", "it is the same work"
        )
        (asked,) = [gang for gang in plot.seen[-1].gangs if gang.name == "j-b"]
        assert asked.created <= timestamps.parse(first)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_controller_killed_at_any_write_of_an_eviction_is_followed_by_one_that_ends_it(
    bench: Bench, plot: Plot, after: bool
):
    """Marks, hold, evictions, the admission that follows: the next leader continues, and no gang is evicted in vain."""
    await bench.template("eight", 8)
    for step in range(1 + after, 40, 2):  # odd writes before, even ones after
        plot.victims = {}

        def over(pods: list[str]) -> Callable[[], bool]:
            return lambda: bench.running(pods)

        old = [f"old-{step}-{number}" for number in range(2)]
        new = [f"new-{step}-{number}" for number in range(2)]
        async with bench.controller():
            for name in old:
                await bench.pod(name, template="eight", gang=f"old-{step}", size=2)
            await bench.until(over(old), "the first gang runs")
        plot.victims = {f"new-{step}": [f"old-{step}"]}
        for name in new:
            await bench.pod(name, template="eight", gang=f"new-{step}", size=2)
        life = Life(step, after=after)
        await bench.mortal(life, over(new))
        async with bench.controller():
            await bench.until(over(new), f"it lands after step {step}: {life.done}")
            bench.check()
            assert gone(bench, old), f"step {step}: {life.done}"
            await bench.delete(new)
            await bench.until(lambda: bench.watchdog.held == 0, f"all is given back after step {step}")
        if life.left is not None and life.left > 0:
            assert step > 6
            return
    raise AssertionError("an eviction has more writes than expected")


async def test_an_eviction_that_the_apiserver_refuses_is_retried_with_backoff_and_given_up(
    bench: Bench, plot: Plot, monkeypatch
):
    """A 429 that no PodDisruptionBudget we know of explains: its own count lags, or the apiserver has too much to do."""
    monkeypatch.setattr(eviction_marks, "REFUSAL_TIMEOUT_S", 4.0)
    monkeypatch.setattr(eviction_marks, "RETRY_S", 0.25)
    async with bench.controller():
        old = await fill(bench)
        fault = bench.cluster.server.faults.fail(
            429, verb="create", resource="pods", count=None, subresource="eviction", message="not now"
        )
        plot.victims = {"new": ["old"]}
        await bench.gang("new", 2, template="eight")
        await bench.until(
            lambda: (told := condition(bench, old[0])) is not None and told.reason == "Refused", "it is given up"
        )
        assert bench.running(old)
        assert 3 <= fault.hits <= 6  # after 0.25, 0.5, 1, 2 s; of two pods the first alone is tried
        spared = lambda: not next(gang for gang in plot.seen[-1].running if gang.name == "old").members  # noqa: E731
        await bench.until(spared, "it is no victim for a while")
        await bench.event("old", "EvictionRefused: ")
