"""Holds in a decision: what is not admitted and says so, what runs on, and what goes where a hold says so."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.forecast.forecast import forecast
from fairlead.engine.forecast.run_times import RunTimes
from fairlead.engine.forecast.what_if import Change, compare
from fairlead.engine.plan.decide import decide
from fairlead.engine.queues.tree import Tree
from fairlead.engine.reclaim.protection import movable
from fairlead.engine.types.gangs import GangRequest, Hold
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import DisruptionBudget, FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world

ONE = claim_spec(device_request())
GPU = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"')
HOLD = Hold(by="alice", since="2026-11-24T08:00:00Z", reason="the rack is being moved")
EVICT = replace(HOLD, evict=True)


def queue(name: str, **more: Any) -> QueueSpec:
    return QueueSpec(name=name, quotas=(FlavorQuota(flavor="gpu", deserved=4),), **more)


def job(name: str, count: int = 1, queue: str = "a", **more: Any) -> GangRequest:
    return gang(name, count, ONE, queue=queue, **more)


def world(*queues: QueueSpec, running: tuple[GangRequest, ...] = ()) -> World:
    made = h100_world(1)
    made.flavors, made.queues = (GPU,), tuple(replace(each, hold=None) for each in queues)
    if running:
        made.carry_out(made.decide(*running), running)
    made.queues = queues
    return made


def at(made: World, *gangs: GangRequest, now: float = 100.0) -> Plan:
    return decide(made.snapshot(*gangs), now)


def started(plan: Plan) -> list[str]:
    return sorted(each.name for each in plan.admissions)


def test_a_gang_on_hold_is_not_admitted_and_says_by_whom_since_when_and_why() -> None:
    plan = at(world(queue("a")), job("held", hold=HOLD), job("free"))
    assert started(plan) == ["free"]
    (waiting,) = plan.waiting
    assert (waiting.name, waiting.reason.code) == ("held", Code.ON_HOLD)
    assert waiting.reason.message == "on hold by alice since 2026-11-24T08:00:00Z: the rack is being moved"
    assert "fairlead resume gang held -n ml" in waiting.reason.advice


def test_a_queue_on_hold_admits_nothing_nor_do_those_below_it() -> None:
    queues = (QueueSpec(name="top", hold=HOLD), queue("a", parent="top"), queue("b"))
    plan = at(world(*queues), job("below"), job("beside", queue="b"))
    assert started(plan) == ["beside"]
    (waiting,) = plan.waiting
    assert waiting.reason.message.startswith("queue top is on hold by alice")
    assert "fairlead resume queue top" in waiting.reason.advice


def test_a_hold_of_which_nothing_is_known_holds_all_the_same() -> None:
    (waiting,) = at(world(queue("a")), job("held", hold=Hold())).waiting
    assert waiting.reason.message == "on hold"


def test_a_gang_on_hold_stops_no_gang_behind_it_and_takes_no_share() -> None:
    made = world(replace(queue("a"), ordering="StrictFIFO"), queue("b"))
    held = job("held", 8, created=1.0, hold=HOLD)
    plan = at(made, held, job("next", 4, created=2.0), job("other", 4, queue="b"))
    assert started(plan) == ["next", "other"]
    (use,) = [each for each in plan.queues if each.name == "a"]
    (flavor,) = use.flavors
    assert (use.waiting, flavor.demand) == (1, 4), "what waits on hold is shown as waiting, and is no demand"


def test_nothing_is_evicted_for_a_gang_on_hold() -> None:
    running = job("lent", 8, queue="b")
    made = world(queue("a"), queue("b"), running=(running,))
    assert at(made, job("wants", 4)).evictions != ()
    assert at(made, job("wants", 4, hold=HOLD)).evictions == ()


@pytest.mark.parametrize("of_gang", [True, False])
def test_what_runs_goes_on_unless_the_hold_evicts(of_gang: bool) -> None:
    def held_by(hold: Hold) -> Plan:
        made = world(queue("a", hold=None if of_gang else hold), running=(job("one", 2), job("two")))
        if of_gang:
            made.running["ml/one"] = replace(made.running["ml/one"], hold=hold)
        return at(made)

    assert held_by(HOLD).evictions == ()
    plan = held_by(EVICT)
    assert [each.name for each in plan.evictions] == (["one"] if of_gang else ["one", "two"])
    first = plan.evictions[0]
    assert (first.kind, first.whole, len(first.pods), first.beneficiary) == ("Hold", True, 2, "")
    assert first.reason.code is Code.ON_HOLD
    assert "alice" in first.reason.message


def test_an_eviction_by_a_hold_respects_budgets_and_is_not_decided_twice() -> None:
    made = world(queue("a", hold=EVICT), running=(job("one", 2),))
    one = made.running["ml/one"]
    guarded = tuple(replace(member, guarded_by=("pdb",)) for member in one.members)
    made.running["ml/one"] = replace(one, members=guarded)

    def with_budget(allowed: int) -> Plan:
        budget = DisruptionBudget(namespace="ml", name="pdb", allowed=allowed)
        return decide(replace(made.snapshot(), budgets=(budget,)), 100.0)

    assert with_budget(1).evictions == ()
    plan = with_budget(2)
    assert len(plan.evictions) == 1
    made.carry_out(plan, ())
    assert at(made).evictions == (), "its pods are leaving"


def test_a_member_that_replaces_another_is_admitted_and_surplus_is_not() -> None:
    made = world(queue("a"))
    joining = replace(job("grows", hold=HOLD), placed_nodes=("h100-0",))
    assert started(at(made, replace(joining, replaces=True))) == ["grows"]
    assert started(at(made, joining)) == []


def test_a_gang_on_hold_is_not_moved() -> None:
    made = world(queue("a", movable=True), running=(job("one"),))
    one = replace(made.running["ml/one"], relocation=job("one"))
    assert movable(one, Tree(made.queues).queues["a"])
    assert not movable(replace(one, hold=HOLD), Tree(made.queues).queues["a"])
    assert not movable(one, Tree((queue("a", movable=True, hold=HOLD),)).queues["a"])


def test_forecasts_say_so_and_do_not_count_on_it() -> None:
    made = world(queue("a"), running=(job("full", 8),))
    held = job("held", 8, created=1.0, hold=HOLD)
    behind = job("behind", 8, created=2.0)
    found = forecast(made.snapshot(held, behind), 100.0, RunTimes(()), seed=1, samples=4, horizon_s=1e6)
    alone = forecast(made.snapshot(behind), 100.0, RunTimes(()), seed=1, samples=4, horizon_s=1e6)
    assert (found.gangs["ml/held"].p50, found.gangs["ml/held"].never) == (None, False)
    assert "on hold by alice" in found.gangs["ml/held"].because
    assert found.gangs["ml/behind"].p50 == alone.gangs["ml/behind"].p50 is not None


@pytest.mark.parametrize("quick", [False, True])
def test_what_if_shows_it_on_hold_and_what_resuming_its_queue_does(quick: bool) -> None:
    made = world(queue("a", hold=HOLD))
    change = Change(queues={"a": queue("a")})
    times = RunTimes(())
    found = compare(made.snapshot(job("held")), 100.0, change, times, horizon_s=3600.0, quick=quick)
    before, after = found.before.starts["ml/held"], found.after.starts["ml/held"]
    assert (before.p50_s, before.never, "by alice" in before.on_hold) == (None, "", True)
    assert (after.p50_s, after.on_hold) == (0.0, "")
