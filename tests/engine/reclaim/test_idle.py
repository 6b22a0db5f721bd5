"""Idle gangs in a decision: what their queue says follows, when, and what keeps it from following."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.api.bounds import Bound, Bounds
from fairlead.engine.plan.decide import decide
from fairlead.engine.types.gangs import GangRequest, IdleSpan
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import DisruptionBudget, FlavorQuota, FlavorSpec, IdlePolicy, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang
from tests.support.engine.world import World, h100_world

ONE = claim_spec(device_request())
GPU = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"')
Then = Literal["nothing", "warn", "suspendBorrowing", "evict"]
SPAN = IdleSpan(since=0.0, known_until=7200.0, noticed=3600.0)
ACTS = 4200.0  # with the policy below


def policy(then: Then = "evict", *, for_s: float = 3600.0, grace_s: float = 600.0) -> IdlePolicy:
    return IdlePolicy(for_s=for_s, grace_s=grace_s, then=then)


def queue(name: str, *, deserved: int = 4, **more: Any) -> QueueSpec:
    return QueueSpec(name=name, quotas=(FlavorQuota(flavor="gpu", deserved=deserved),), **more)


def job(name: str, count: int = 1, queue: str = "a", **more: Any) -> GangRequest:
    return gang(name, count, ONE, queue=queue, **more)


def world(*queues: QueueSpec, running: tuple[GangRequest, ...], idle: dict[str, IdleSpan]) -> World:
    made = h100_world(1)
    made.flavors, made.queues = (GPU,), queues
    made.carry_out(made.decide(*running), running)
    for name, span in idle.items():
        made.running[f"ml/{name}"] = replace(made.running[f"ml/{name}"], idle=span)
    return made


def at(made: World, now: float, *gangs: GangRequest) -> Plan:
    return decide(made.snapshot(*gangs), now)


def gone(plan: Plan) -> list[str]:
    return [each.name for each in plan.evictions]


def test_an_idle_gang_is_evicted_whole_when_its_grace_is_over() -> None:
    made = world(queue("a", idle=policy()), running=(job("busy"), job("lazy", 2)), idle={"lazy": SPAN})
    before = at(made, ACTS - 1)
    assert (before.evictions, before.due) == ((), ACTS)
    (eviction,) = at(made, ACTS).evictions
    assert (eviction.kind, eviction.name, eviction.queue, eviction.beneficiary) == ("Idle", "lazy", "a", "")
    assert (eviction.whole, len(eviction.pods), eviction.reason.code) == (True, 2, Code.IDLE)
    assert eviction.reason.message == (
        "all its devices are idle since 1970-01-01T00:00:00Z; it was notified at 1970-01-01T01:00:00Z"
    )
    made.carry_out(at(made, ACTS), ())
    assert at(made, ACTS + 1).evictions == (), "its pods are leaving"


@pytest.mark.parametrize(
    ("span", "now"),
    [
        (None, ACTS),
        (replace(SPAN, noticed=None), ACTS),
        (replace(SPAN, known_until=ACTS), ACTS),
        (replace(SPAN, noticed=3700.0), ACTS),
        (replace(SPAN, since=601.0), ACTS),
    ],
    ids=["busy", "not told", "samples too old", "told later", "not idle for long enough"],
)
def test_what_keeps_a_gang(span: IdleSpan | None, now: float) -> None:
    made = world(queue("a", idle=policy()), running=(job("lazy"),), idle={} if span is None else {"lazy": span})
    assert at(made, now).evictions == ()


@pytest.mark.parametrize("then", ["nothing", "warn", "suspendBorrowing"])
def test_only_evict_evicts(then: Then) -> None:
    made = world(queue("a", idle=policy(then)), running=(job("lazy"),), idle={"lazy": SPAN})
    plan = at(made, ACTS)
    assert (plan.evictions, plan.due) == ((), None)


def test_a_queue_has_the_policy_of_the_one_above_unless_it_has_its_own() -> None:
    top = queue("top", deserved=8, idle=policy())
    below = (queue("a", parent="top"), queue("b", parent="top", idle=policy("nothing")))
    running = (job("lazy", queue="a"), job("also", queue="b"))
    made = world(top, *below, running=running, idle={"lazy": SPAN, "also": SPAN})
    assert gone(at(made, ACTS)) == ["lazy"]


def test_a_pod_disruption_budget_keeps_whole_gangs_as_long_as_it_has_nothing_left() -> None:
    made = world(queue("a", idle=policy()), running=(job("one", 2), job("two", 2)), idle={"one": SPAN, "two": SPAN})
    for name in ("one", "two"):
        known = made.running[f"ml/{name}"]
        members = tuple(replace(member, guarded_by=("safe",)) for member in known.members)
        made.running[f"ml/{name}"] = replace(known, members=members)

    def with_allowed(allowed: int) -> list[str]:
        made.budgets = (DisruptionBudget(namespace="ml", name="safe", allowed=allowed),)
        return gone(at(made, ACTS))

    assert [with_allowed(allowed) for allowed in (0, 1, 2, 3, 4)] == [[], [], ["one"], ["one"], ["one", "two"]]


def test_it_gets_notice_for_a_checkpoint_up_to_its_bound() -> None:
    bounds = Bounds(checkpoint_grace=Bound(60.0, "Queue a"))
    made = world(queue("a", idle=policy(), bounds=bounds), running=(job("lazy"),), idle={"lazy": SPAN})
    made.running["ml/lazy"] = replace(made.running["ml/lazy"], checkpoint_grace_s=300.0)
    (eviction,) = at(made, ACTS).evictions
    assert eviction.checkpoint_grace_s == 60.0


def test_what_an_idle_gang_holds_is_held_for_nobody_and_comes_free_for_who_is_next() -> None:
    made = world(queue("a", idle=policy()), queue("b"), running=(job("lazy", 8),), idle={"lazy": SPAN})
    plan = at(made, ACTS, job("next", 2, "b"))
    assert (gone(plan), [each.reason.code for each in plan.waiting]) == (["lazy"], [Code.COMING_FREE])


def full(then: Then | None, **lazy: Any) -> World:
    """Queue a deserves 4 and holds all 8: `lazy`, the oldest, and three others of two devices each."""
    idle = None if then is None else policy(then)
    running = (
        job("lazy", 2, created=0.0, **lazy),
        *(job(f"job{number}", 2, created=1.0 + number) for number in range(3)),
    )
    return world(queue("a", idle=idle), queue("b"), running=running, idle={"lazy": SPAN})


@pytest.mark.parametrize(
    ("then", "now", "victim"),
    [
        (None, ACTS, "job2"),
        ("warn", ACTS, "job2"),
        ("suspendBorrowing", ACTS - 1, "job2"),
        ("suspendBorrowing", ACTS, "lazy"),
    ],
)
def test_a_suspended_gang_is_the_first_to_go_for_others(then: Then | None, now: float, victim: str) -> None:
    assert gone(at(full(then), now, job("theirs", 2, "b"))) == [victim]


def test_a_suspended_gang_goes_though_its_priority_is_higher_and_its_min_runtime_lasts() -> None:
    made = full("suspendBorrowing", priority=9)
    for name, known in made.running.items():
        long = Bounds(min_runtime=Bound(1e6, "test"))
        made.running[name] = replace(known, min_runtime_s=1e5, bounds=long)
    made.queues = tuple(replace(each, bounds=Bounds(min_runtime=Bound(1e6, "test"))) for each in made.queues)
    assert gone(at(made, ACTS - 1, job("theirs", 2, "b"))) == []
    assert gone(at(made, ACTS, job("theirs", 2, "b"))) == ["lazy"]


def test_a_suspended_gang_within_what_its_queue_deserves_stays() -> None:
    made = world(
        queue("a", idle=policy("suspendBorrowing")), queue("b"), running=(job("lazy", 4),), idle={"lazy": SPAN}
    )
    plan = at(made, ACTS, job("theirs", 5, "b"))
    assert (plan.evictions, plan.admissions) == ((), ())
