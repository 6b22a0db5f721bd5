"""What can never start has no time anywhere: not in the forecast, nor in what-if, nor in Gang status beside an older forecast."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.controller.book.shown import ShownForecast
from fairlead.controller.report.forecasts import forecast_text
from fairlead.engine.explain.explainer import explanation
from fairlead.engine.forecast.forecast import GangForecast, forecast
from fairlead.engine.forecast.pending_window import at_pace
from fairlead.engine.forecast.run_times import RunTimes
from fairlead.engine.forecast.what_if import Change, compare
from fairlead.engine.plan.decide import decide
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, NamespaceQuota, QueueSpec
from fairlead.kube import timestamps
from fairlead.ui.model import gangs as lines
from tests.support.decisions_clusters import KINDS, Life
from tests.support.engine.examples import examples
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World
from tests.support.forecast.clusters import left_with

ONE = claim_spec(device_request())
NO_RUNS = RunTimes(())
HOST = "kubernetes.io/hostname"
GPU = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"')


def cluster(*, busy: bool = False) -> World:
    """Three nodes of 8; the last is tainted."""
    world = World()
    for name in ("h1", "h2"):
        world.add_node(name, [gpu(minor) for minor in range(8)], labels={HOST: name})
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    world.add_node("h3", [gpu(minor) for minor in range(8)], labels={HOST: "h3", "kept": "yes"}, taints=[taint])
    if busy:
        runs = gang("runs", 1, claim_spec(device_request(8)))
        assert world.carry_out(world.decide(runs), [runs]) == []
    world.now = 100.0
    return world


def on(key: str, value: str) -> dict[str, Any]:
    return {"pod": {"nodeSelector": {key: value}}}


NEVER = {
    "node selector gpu-pool=not-existing": gang("typo", 1, ONE, **on("gpu-pool", "not-existing")),
    "of 12 members would fit now": gang("toobig", 12, ONE, **on(HOST, "h1")),
    "untolerated taint team": gang("tainted", 1, ONE, **on("kept", "yes")),
    "wants 12: ": gang("twelve", 1, claim_spec(device_request(12))),
    "cpu": gang("cpu", 1, ONE, cpu="100"),
}


def times(world: World, *waiting: GangRequest) -> dict[str, tuple[float | None, float | None]]:
    """Of each gang, in all that forecasts: its times, and whether it says that it never starts."""
    snapshot = world.snapshot(*waiting)
    found = forecast(snapshot, world.now, NO_RUNS, seed=1, samples=8).gangs
    added = gang("added", 1, ONE, created=world.now)
    future = compare(world.snapshot(*waiting), world.now, Change(submit=(added,)), NO_RUNS, horizon_s=86_400.0).before
    for each in waiting:
        said, start = found[each.id], future.starts[each.id]
        assert bool(start.never) == said.never
        assert said.never or (start.p50_s is None) == (said.p50 is None)
    return {gang_id: (said.p50, said.p90) for gang_id, said in found.items()}


@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("text", NEVER)
def test_no_time_where_waiting_does_not_help_and_the_reason_names_why(text: str, busy: bool):
    world, request = cluster(busy=busy), NEVER[text]
    (waiting,) = world.decide(request).waiting
    assert explanation(waiting.reason)["couldEverFit"] is False
    assert text in str(waiting.reason)
    assert times(world, request) == {request.id: (None, None)}
    found = forecast(world.snapshot(request), world.now, NO_RUNS, seed=1).gangs[request.id]
    assert (found.never, found.because) == (True, f"cannot run: {waiting.reason.message}")


def test_more_than_the_whole_limit_of_its_queue_or_of_a_resource_quota():
    world = cluster(busy=True)
    world.flavors = (GPU,)
    world.queues = (QueueSpec(name="q", quotas=(FlavorQuota(flavor="gpu", deserved=4, limit=6),)),)
    over = gang("over", 7, ONE, queue="q")
    assert times(world, over) == {over.id: (None, None)}
    quota = NamespaceQuota(namespace="ml", name="few", resource="claims", limit=2, used=1)
    charged = gang("charged", 3, ONE, quota_charge=(("claims", 3),))
    snapshot = replace(cluster(busy=True).snapshot(charged), namespace_quotas=(quota,))
    assert forecast(snapshot, 100.0, NO_RUNS, seed=1).gangs[charged.id].never


def test_a_schedule_that_raises_the_limit_later_makes_it_no_never():
    world = cluster(busy=True)
    world.flavors = (GPU,)
    quota = (FlavorQuota(flavor="gpu", deserved=4, limit=6),)
    world.queues = (QueueSpec(name="q", quotas=quota, quotas_change_at=5000.0),)
    (waiting,) = world.decide(gang("over", 7, ONE, queue="q")).waiting
    assert (waiting.reason.code, waiting.reason.never) == (Code.OVER_LIMIT, False)
    assert "couldEverFit" not in explanation(waiting.reason)


def test_what_waits_in_a_strict_line_behind_a_gang_that_never_starts():
    world = cluster(busy=True)
    world.queues = (QueueSpec(name="q", ordering="StrictFIFO"),)
    head = gang("head", 1, ONE, queue="q", created=1.0, **on("gpu-pool", "not-existing"))
    behind = gang("behind", 1, ONE, queue="q", created=2.0)
    assert times(world, head, behind) == {head.id: (None, None), behind.id: (None, None)}
    reason = next(each.reason for each in world.decide(head, behind).waiting if each.name == "behind")
    assert "its head ml/head can never start" in reason.message
    assert "delete it" in reason.advice


def test_a_gang_that_never_starts_says_so_behind_the_head_too():
    world = cluster(busy=True)
    world.queues = (QueueSpec(name="q", ordering="StrictFIFO"),)
    head = gang("head", 1, claim_spec(device_request(8)), queue="q", created=1.0, **on(HOST, "h1"))
    never = gang("never", 1, ONE, queue="q", created=2.0, **on("gpu-pool", "not-existing"))
    reason = next(each.reason for each in world.decide(head, never).waiting if each.name == "never")
    assert (reason.code, reason.could_ever_fit) == (Code.BEHIND_HEAD, False)
    assert times(world, head, never)[never.id] == (None, None)


def test_a_node_that_is_not_ready_may_come_back_so_nothing_is_said_for_good_and_no_time_either():
    world = cluster()
    world.cordon("h2", True)
    request = gang("large", 2, claim_spec(device_request(8)))
    (waiting,) = world.decide(request).waiting
    assert explanation(waiting.reason).get("couldEverFit") is None
    assert waiting.reason.code is Code.NODES_AWAY
    back = "wait until 1 node that is not ready, cordoned or tainted for a time (h2) takes pods again"
    assert waiting.reason.advice == back, "one sentence, with the node's name"
    assert times(world, request) == {request.id: (None, None)}
    typo = gang("typo", 1, ONE, **on("gpu-pool", "not-existing"))
    (waiting,) = world.decide(typo).waiting
    assert waiting.reason.could_ever_fit is False, "that node would not take it either"
    huge = gang("huge", 3, claim_spec(device_request(8)))
    (waiting,) = world.decide(huge).waiting
    assert (waiting.reason.code, waiting.reason.could_ever_fit) == (Code.NEVER_FITS, None)
    assert waiting.reason.advice == f"add nodes or devices that match, or ask for less; or {back}"


def test_an_older_forecast_in_gang_status_yields_to_a_newer_reason():
    before = GangForecast(200.0, 300.0, "32 samples")
    shown = ShownForecast(before, 100.0, before, 100.0)
    reason = Reason(code=Code.NO_NODE, message="no node takes its pod", could_ever_fit=False)
    status = shown.status(left_with(reason))
    assert status == {"asOf": "1970-01-01T00:01:40Z", "because": "cannot run: no node takes its pod", "never": True}
    assert forecast_text(status) == "forecast: it cannot run: no node takes its pod"
    assert lines.forecast({"phase": "Waiting", "forecast": status}, now=100.0) == "never"
    held = Reason(code=Code.ON_HOLD, message="on hold by ann")
    assert shown.status(left_with(held)).keys() == {"asOf", "because"}
    assert shown.status(left_with(Reason(code=Code.NO_DEVICES, message="full")))["p50"] == timestamps.seconds(200.0)


def test_beyond_the_budget_nothing_starts_at_the_pace_of_a_queue_where_nothing_runs():
    waits = gang("waits", 1, ONE)
    found = at_pace(
        [waits], now=0.0, until=1e9, queue_of=lambda _: "q", devices_of=lambda _: 1, run_s_of=lambda _: 1.0, running={}
    )
    assert found == {}


def test_devices_that_claims_outside_any_gang_hold_come_free_at_no_known_time():
    """No run ends that would free them: "now" was what-if's answer with no device left."""
    world = cluster(busy=True)
    world.cordon("h2", True)
    world.running.clear()
    waits = gang("waits", 1, ONE)
    assert times(world, waits) == {waits.id: (None, None)}


@pytest.mark.property
def test_in_random_clusters_what_could_never_fit_has_no_time_and_no_other_verdict_differs():
    seen = 0
    for seed in range(examples(24, least=12)):
        random = Random(f"never {seed}")
        life = Life(KINDS[seed % len(KINDS)], random)
        for _ in range(5):
            life.step()
            life.waiting = [life.current(each) for each in life.waiting]
        snapshot = life.world.snapshot(*life.waiting)
        reasons = {each.id: each.reason for each in decide(snapshot, life.world.now).waiting}
        found = forecast(snapshot, life.world.now, NO_RUNS, seed=seed, samples=2).gangs
        for gang_id, reason in reasons.items():
            said = found[gang_id]
            if explanation(reason).get("couldEverFit") is False:
                seen += 1
                assert (said.p50, said.p90, said.never) == (None, None, True), f"seed {seed}"
            assert said.never == reason.never or "cannot be computed" in said.because, f"seed {seed}"
            assert said.p50 is None or reason.due is None or said.p50 >= reason.due, f"seed {seed}"
            assert said == said.within(left_with(reason)), f"seed {seed}"
    assert seen > 10


@pytest.mark.parametrize(
    ("now", "text"),
    [(50.0, "in 50s (p90 2m)"), (100.0, "by now (p90 100s)"), (150.0, "by now (p90 50s)"), (201.0, "overdue")],
)
def test_a_time_that_is_over_is_not_shown_as_a_start_in_no_seconds(now: float, text: str):
    status = {"p50": timestamps.seconds(100.0), "p90": timestamps.seconds(200.0)}
    assert lines.forecast({"phase": "Waiting", "forecast": status}, now=now) == text
