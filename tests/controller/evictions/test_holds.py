"""Holds on the sandbox: what is not admitted and says so, resumes, evictions that a hold asks for, over kills of the controller."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial
from typing import Any

import pytest

from fairlead.controller.gangs.admission import holds
from fairlead.controller.gangs.evictions import eviction_marks
from fairlead.controller.gangs.evictions.eviction_marks import Cancel, EvictionMark, Wait
from fairlead.engine.types.gangs import Hold
from fairlead.kube.resources import GANGS, QUEUES
from tests.controller.conftest import NAMESPACE, Bench, Life
from tests.controller.watch.test_usage_writes import running
from tests.support.sandbox import until

HOLD = {"by": "admin", "since": "2026-11-24T08:00:00Z", "reason": "the rack moves"}
SAID = "on hold by admin since 2026-11-24T08:00:00Z: the rack moves"


async def put(bench: Bench, gang: str, hold: dict[str, Any] | None) -> None:
    await bench.client.patch(GANGS, gang, {"spec": {"hold": hold}}, namespace=NAMESPACE)


def held(bench: Bench, gang: str) -> str:
    found = {each["type"]: each for each in bench.status(gang).get("conditions", ())}.get("OnHold", {})
    return str(found.get("message", "")) if found.get("status") == "True" else ""


def reason(bench: Bench, gang: str) -> str:
    return str(bench.status(gang).get("reason", ""))


def test_a_hold_that_cannot_be_read_holds_all_the_same() -> None:
    assert holds.of_object(None) is None
    assert holds.of_object({"spec": {"size": 1}}) is None
    assert holds.of_object({"spec": {"hold": {}}}) == Hold()
    assert holds.of_object({"spec": {"hold": "yes"}}) == Hold()
    odd = {"by": 3, "reason": "a\x1b[2Jb", "evict": "yes", "more": 1}
    assert holds.of_object({"spec": {"hold": odd}}) == Hold(reason="a?[2Jb")


def test_an_eviction_by_a_hold_is_cancelled_where_it_was_resumed() -> None:
    (gang,) = running().gangs.values()
    mark = EvictionMark(kind="Hold", at=100.0, whole=True)
    assert str(mark) == "stopped by a hold"
    gang.members[0].pod.metadata.annotations.update(mark.annotations())
    gang = dataclasses.replace(gang, decisions=(eviction_marks.decision(mark),))

    def step(*, on_hold: bool) -> object:
        return eviction_marks.next_step(
            gang,
            now=99.0,
            still_waits=lambda _: True,
            on_hold=lambda: on_hold,
            refusal=lambda _: "",
        )

    assert isinstance(step(on_hold=True), Wait)
    assert isinstance(step(on_hold=False), Cancel)


@pytest.mark.core
async def test_a_gang_on_hold_waits_over_a_kill_and_starts_when_it_is_resumed(bench: Bench) -> None:
    await bench.template("one", 1)
    await bench.client.create(GANGS, {"metadata": {"name": "train", "namespace": NAMESPACE}, "spec": {"size": 1}})
    await put(bench, "train", HOLD)
    pods = await bench.gang("train", 2, template="one")
    async with bench.controller():
        await bench.until(lambda: reason(bench, "train") == "OnHold", "the reason")
        status = bench.status("train")
        assert SAID[1:] in status["message"]
        assert "fairlead resume gang train -n ml" in status["message"]
        assert (held(bench, "train"), status["phase"]) == (SAID, "Waiting")
        await bench.event("train", f"OnHold: On{SAID[2:]}")
        other = await bench.gang("other", 2, template="one")
        await bench.until(lambda: bench.running(other), "the gang beside it")
        assert bench.gated(pods)
    async with bench.controller():  # another leader knows it from the object
        more = await bench.gang("more", 1, template="one")
        await bench.until(lambda: bench.running(more), "a decision of the new leader")
        assert bench.gated(pods)
        await put(bench, "train", None)
        await bench.until(lambda: bench.running(pods), "the resumed gang")
        await bench.until(lambda: held(bench, "train") == "", "no condition any more")


async def test_a_protected_hold_outlives_the_pods_and_keeps_those_that_come_again(bench: Bench) -> None:
    """Else its tenant ends it by deleting the Job, and submits the Job again under the same name."""
    await bench.template("one", 1)
    async with bench.controller():
        first = await bench.gang("train", 2, template="one")
        await bench.until(lambda: bench.running(first) and bool(bench.status("train")), "the gang, and its object")
        await put(bench, "train", {**HOLD, "protected": True})
        await bench.delete(first)
        await bench.until(lambda: "has no pods" in str(bench.status("train").get("message")), "the status without pods")
        status = bench.status("train")
        assert (status["reason"], status["members"], held(bench, "train")) == ("OnHold", 0, SAID)
    async with bench.controller():  # nor does another leader forget it
        again = await bench.gang("train", 2, template="one")
        await bench.until(lambda: bench.status("train").get("members") == 2, "the gang that came again")
        other = await bench.gang("other", 2, template="one")
        await bench.until(lambda: bench.running(other), "the gang beside it")
        assert bench.gated(again)
        await bench.delete(again)
        await bench.until(lambda: bench.status("train").get("members") == 0, "the status without pods")
        await put(bench, "train", None)
        await bench.until(lambda: bench.status("train") == {}, "the object gone with its hold")


async def test_what_runs_goes_on_and_is_evicted_where_the_hold_says_so_over_kills(bench: Bench) -> None:
    await bench.template("one", 1)
    async with bench.controller():
        pods = await bench.gang("train", 2, template="one")
        await bench.until(lambda: bench.running(pods) and bool(bench.status("train")), "the gang, and its object")
        await put(bench, "train", HOLD)
        await bench.until(lambda: held(bench, "train") == SAID, "the condition")
        assert f"{SAID}: what runs goes on" in bench.status("train")["message"]
        assert bench.running(pods)
    await put(bench, "train", {**HOLD, "evict": True})
    await bench.mortal(Life(2), lambda: False)  # one of its two pods is marked
    async with bench.controller():
        await bench.until(lambda: all(bench.get(pod) is None for pod in pods), "the eviction")


async def test_holds_act_and_show_at_once_on_a_cluster_where_nothing_else_happens(bench: Bench) -> None:
    """No pod comes, no claim changes: the hold itself wakes the decision, and the comparison that writes the status."""
    await bench.template("one", 1)
    spec = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}}
    await bench.client.create(QUEUES, {"metadata": {"name": "red"}, "spec": spec})

    async def shown() -> bool:
        status = (await bench.client.get(QUEUES, "red")).get("status") or {}
        return any(each["type"] == "OnHold" and each["status"] == "True" for each in status.get("conditions", ()))

    async with bench.controller():
        pods = await bench.gang("train", 2, template="one")
        await bench.until(lambda: bench.running(pods) and bool(bench.status("train")), "the gang, and its object")
        await asyncio.sleep(2.0)  # the last wake-up of its start is over
        await bench.client.patch(QUEUES, "red", {"spec": {"hold": HOLD}})
        await until(shown, timeout_s=10.0, what="the queue's hold in its status")
        await bench.until(
            lambda: held(bench, "train") == f"queue red is {SAID}", "the gang shows the queue's hold", 5.0
        )
        await bench.client.patch(QUEUES, "red", {"spec": {"hold": None}})
        await bench.until(lambda: held(bench, "train") == "", "the gang shows that it is over", 10.0)
        await asyncio.sleep(2.0)
        await put(bench, "train", {**HOLD, "evict": True})
        await bench.until(lambda: all(bench.get(pod) is None for pod in pods), "the eviction", 10.0)


async def test_a_queue_on_hold_holds_those_below_it_and_says_so(bench: Bench) -> None:
    await bench.template("one", 1)
    await bench.client.create(QUEUES, {"metadata": {"name": "top"}, "spec": {"hold": HOLD}})
    spec = {"parent": "top", "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}}
    await bench.client.create(QUEUES, {"metadata": {"name": "red"}, "spec": spec})
    async with bench.controller():
        pods = await bench.gang("train", 2, template="one")
        await bench.until(lambda: reason(bench, "train") == "OnHold", "the reason")
        assert held(bench, "train") == f"queue top is {SAID}"
        assert "fairlead resume queue top" in bench.status("train")["message"]

        async def said(queue: str) -> str:
            status = (await bench.client.get(QUEUES, queue)).get("status") or {}
            found = [each for each in status.get("conditions", ()) if each["type"] == "OnHold"]
            return str(found[0]["message"]) if found and found[0]["status"] == "True" else ""

        for queue in ("top", "red"):
            await until(partial(said, queue), what=queue)
            assert await said(queue) == f"queue top is {SAID}"
        await bench.client.patch(QUEUES, "top", {"spec": {"hold": None}})
        await bench.until(lambda: bench.running(pods), "the gang")
