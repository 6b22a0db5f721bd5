"""Moves with the true core, on the sandbox: two Jobs on two nodes, a gang that needs a whole node, and one of them makes room.

The Job controller is that of the sandbox, with a back-off of 0.2 s instead of 10 s.
"""

import json
from typing import Any

import pytest

from fairlead.api import names
from fairlead.kube import core, resources, timestamps
from fairlead.kube.resources import PRIORITY_CLASSES
from tests.controller.admission.test_jobs_on_the_sandbox import IGNORE, pods_of, running
from tests.controller.admission.test_jobs_on_the_sandbox import job as gang_job
from tests.controller.conftest import NAMESPACE, Bench, Life

SPEC: dict[str, Any] = {
    "parallelism": 1,
    "completions": 1,
    "completionMode": "Indexed",
    "backoffLimitPerIndex": 9,
    "podFailurePolicy": IGNORE,
}


async def job(bench: Bench, name: str, **annotations: str) -> None:
    notes = {names.MOVABLE: "true"} | {f"fairlead.dev/{k.replace('_', '-')}": value for k, value in annotations.items()}
    # Not 0: the claim would go before kubelet has unprepared it, and its devices be withheld.
    graceful = {"terminationGracePeriodSeconds": 1}
    await gang_job(bench, name, 1, command="serve", template="four", pod=graceful, notes=notes, **SPEC)


def node_of(bench: Bench, name: str) -> str:
    (pod,) = running(bench, name)
    return pod.spec.node_name


async def fragment(bench: Bench, **annotations: str) -> None:
    """Jobs `one` and `two` hold half of a node each, on different nodes; the rest of both is free."""
    await bench.template("four", 4)
    await bench.template("eight", 8)
    for name, value in (("urgent", 1000), ("batch", 10)):
        await bench.client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    for name in ("one", "gone", "two"):
        await job(bench, name, **annotations)
        await bench.until(lambda: bool(running(bench, name)), f"{name} runs")  # noqa: B023 - awaited in the loop
    await bench.client.delete(resources.JOBS, "gone", NAMESPACE, propagation="Background")
    await bench.until(lambda: not pods_of(bench, "gone"), "what was between them is gone")
    assert node_of(bench, "one") != node_of(bench, "two")


def uids(bench: Bench) -> set[str]:
    return {pod.metadata.uid for name in ("one", "two") for pod in running(bench, name)}


def marked(bench: Bench) -> list[core.Pod]:
    pods = (pod for name in ("one", "two") for pod in pods_of(bench, name))
    return [
        pod
        for pod in pods
        if names.EVICT_AT in pod.metadata.annotations and not pod.finished and not pod.metadata.deletion_timestamp
    ]


@pytest.mark.core
async def test_one_of_two_jobs_moves_once_its_work_is_saved_so_that_a_whole_node_is_free(bench: Bench):
    """Not for a gang that is gone meanwhile; and long before its grace is over."""
    async with bench.controller():
        await fragment(bench, checkpoint_grace="300s")
        before = uids(bench)
        await bench.pod("gone", template="eight", priorityClassName="urgent")
        await bench.until(lambda: len(marked(bench)) == 1, "one is marked")
        await bench.delete(["gone"])
        await bench.until(lambda: not marked(bench), "the mark is taken back")
        for name in ("four", "more"):
            await bench.pod(name, template="four", terminationGracePeriodSeconds=1)
        await bench.until(lambda: bench.running(["four", "more"]), "and nothing is held any more")
        assert uids(bench) == before
        for name in ("four", "more"):
            await bench.client.delete(resources.PODS, name, NAMESPACE)
        await bench.until(lambda: bench.watchdog.held == 8, "as before")

        await bench.pod("large", template="eight", priorityClassName="urgent")
        await bench.until(lambda: len(marked(bench)) == 1, "one is marked")
        (pod,) = marked(bench)
        at = timestamps.parse(pod.metadata.annotations[names.EVICT_AT])
        mark = json.loads(pod.metadata.annotations[names.EVICTION])
        assert at - timestamps.parse(mark["asked"]) >= 299
        saved = {"metadata": {"annotations": {names.CHECKPOINTED_AT: timestamps.seconds(at - 290)}}}
        await bench.client.patch(resources.PODS, pod.metadata.name, saved, namespace=NAMESPACE)
        await bench.until(lambda: bench.running(["large"]), "the large one runs")
        await bench.until(lambda: all(running(bench, name) for name in ("one", "two")), "and so do both Jobs")
        assert node_of(bench, "one") == node_of(bench, "two")
        assert len(before & uids(bench)) == 1
        (moved,) = [name for name in ("one", "two") if not {p.metadata.uid for p in running(bench, name)} & before]
        await bench.event(moved, "Evicted: ")
        past = (bench.gangs.get(f"{NAMESPACE}/{moved}") or {})["status"]["lastEviction"]
        assert past["what"] == "moved for gang ml/large"
        assert "GPU-seconds" in past["why"]
        assert [spot["node"] for spot in past["place"]] == [node_of(bench, moved)]
        bench.check()


async def test_a_new_leader_finishes_what_was_begun(bench: Bench):
    """It takes over once the marks are written; the place is on them, and on the Gang object after them."""
    async with bench.controller():
        await fragment(bench, checkpoint_grace="3s")
        await bench.pod("large", template="eight", priorityClassName="urgent")
        await bench.until(lambda: len(marked(bench)) == 1, "one is marked")
    async with bench.controller():
        await bench.pod("thief", template="four")
        await bench.until(lambda: bench.running(["large"]), "the large one runs")
        await bench.until(lambda: all(running(bench, name) for name in ("one", "two")), "and so do both Jobs")
        assert bench.gated(["thief"])
        bench.check()


async def test_killed_after_each_write_of_a_move_the_next_leader_leaves_nothing_held(bench: Bench):
    async with bench.controller():
        await fragment(bench)
    await bench.pod("large", template="eight", priorityClassName="urgent")
    for writes in range(1, 7):
        await bench.mortal(Life(writes), lambda: bench.running(["large"]))
    async with bench.controller():
        await bench.until(lambda: bench.running(["large"]), "the large one runs")
        await bench.until(lambda: all(running(bench, name) for name in ("one", "two")), "and so do both Jobs")
        await bench.delete(["large"])
        await bench.pod("after", template="eight")
        await bench.until(lambda: bench.running(["after"]), "what the large one leaves is free")
        bench.check()


async def test_a_job_leaves_a_node_that_announces_its_end(bench: Bench):
    async with bench.controller():
        await fragment(bench)
        node = node_of(bench, "one")
        raw = await bench.client.get(resources.raw(resources.NODES), node)
        taint = {
            "key": "aws-node-termination-handler/spot-itn",
            "effect": "NoSchedule",
            "timeAdded": timestamps.seconds(4102444800.0),
        }
        patch = {"spec": {"taints": [*(raw["spec"].get("taints") or []), taint]}}
        await bench.client.patch(resources.raw(resources.NODES), node, patch)
        await bench.until(
            lambda: bool(running(bench, "one")) and node_of(bench, "one") == node_of(bench, "two"), "it runs elsewhere"
        )
        raw = bench.gangs.get(f"{NAMESPACE}/one") or {}
        assert "spot interruption" in raw["status"]["lastEviction"]["why"]
        bench.check()


async def announce(bench: Bench, node: str, **taint: str) -> None:
    """Anew, without what was announced before; `taint` empty: nothing goes."""
    raw = await bench.client.get(resources.raw(resources.NODES), node)
    others = [each for each in raw["spec"].get("taints") or [] if not each["key"].startswith("aws-")]
    patch = {"spec": {"taints": [*others, *([taint] if taint else [])]}}
    await bench.client.patch(resources.raw(resources.NODES), node, patch)


async def test_a_job_that_may_not_move_is_asked_to_save_its_work_and_no_more(bench: Bench):
    async with bench.controller():
        await fragment(bench, movable="false")
        before = uids(bench)
        node = node_of(bench, "one")
        spot = {"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}
        await announce(bench, node, **spot, timeAdded="2100-01-01T00:00:00Z")

        def asked(name: str) -> str:
            (pod,) = running(bench, name)
            return pod.metadata.annotations.get(names.CHECKPOINT_BY, "")

        await bench.until(lambda: asked("one") == "2100-01-01T00:02:00Z", "it is asked")
        await bench.event("one", "NodeGoes: node ")
        assert not asked("two")
        assert uids(bench) == before
        await announce(bench, node)
        await bench.until(lambda: not asked("one"), "and asked no more when the node stays")
        assert uids(bench) == before
