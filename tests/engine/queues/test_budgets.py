"""Budgets of queues in a decision: what stops while one is exhausted, what it frees for others, and when it is decided again."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.explain.explainer import explanation
from fairlead.engine.placement.search.fewest_nodes import FewestNodes
from fairlead.engine.plan.decide import decide
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import BudgetState, FlavorQuota, FlavorSpec, QueueSpec
from fairlead.history.recording.canonical import reason
from tests.support.decisions_clusters import KINDS, Life
from tests.support.engine.examples import examples
from tests.support.engine.objects import MIG, claim_spec, device_request, gang, mig_gpu
from tests.support.engine.world import World, h100_world

ONE = claim_spec(device_request())
GPU = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"')
RENEWS = 1000.0
OnExhausted = Literal["warn", "noBorrow", "stop"]


def budget(on_exhausted: OnExhausted = "stop", spent: int | None = 10, **more: Any) -> BudgetState:
    return BudgetState(on_exhausted=on_exhausted, limit=10, spent=spent, **{"renews_at": RENEWS, **more})


def queue(name: str, *, deserved: int = 4, **more: Any) -> QueueSpec:
    return QueueSpec(name=name, quotas=(FlavorQuota(flavor="gpu", deserved=deserved),), **more)


def world(*queues: QueueSpec, nodes: int = 1) -> World:
    made = h100_world(nodes)
    made.flavors, made.queues = (GPU,), queues
    return made


def job(name: str, count: int, queue: str, **more: Any) -> GangRequest:
    """A gang of pods with one device each."""
    return gang(name, count, ONE, queue=queue, **more)


def admitted(plan: Plan) -> list[str]:
    return [each.name for each in plan.admissions]


def codes(plan: Plan) -> dict[str, str]:
    return {each.name: each.reason.code.value for each in plan.waiting}


def test_nothing_starts_in_a_queue_whose_exhausted_budget_stops_it_and_others_get_its_share() -> None:
    made = world(queue("a", budget=budget()), queue("b"))
    plan = made.decide(job("mine", 1, "a"), job("theirs", 8, "b"))
    assert (admitted(plan), codes(plan)) == (["theirs"], {"mine": "BudgetExhausted"})
    (waiting,) = plan.waiting
    assert str(waiting.reason) == (
        "The budget of queue a is exhausted, and no gang is admitted until it renews: 10 of 10 GPU-hours are spent; it renews at "
        "1970-01-01T00:16:40Z. Wait until it renews, or raise spec.budget.gpuHours of Queue a."
    )
    assert reason(waiting.reason)["budget"] == ["a", "10", "10", RENEWS]
    assert "couldEverFit" not in explanation(waiting.reason)
    assert {use.name: use.flavors[0].fair_share for use in plan.queues} == {"a": 0, "b": 8}, "no demand that counts"
    assert plan.due == RENEWS


@pytest.mark.parametrize("spent", [None, 9])
def test_a_budget_that_is_not_exhausted_or_not_known_stops_nothing(spent: int | None) -> None:
    plan = world(queue("a", budget=budget(spent=spent))).decide(job("mine", 1, "a"))
    assert (admitted(plan), plan.due) == (["mine"], None)


def test_a_budget_that_warns_stops_nothing() -> None:
    plan = world(queue("a", budget=budget("warn"))).decide(job("mine", 6, "a"))
    assert (admitted(plan), plan.due) == (["mine"], None)


@pytest.mark.parametrize("on_exhausted", ["stop", "noBorrow"])
def test_the_budget_of_a_queue_holds_for_those_below_it(on_exhausted: OnExhausted) -> None:
    top = QueueSpec(name="top", budget=budget(on_exhausted))
    made = world(top, queue("a", parent="top", deserved=2), queue("other"))
    plan = made.decide(job("mine", 3, "a"))
    assert codes(plan) == {"mine": "BudgetExhausted"}
    assert "budget of queue top is exhausted" in str(plan.waiting[0].reason)


def test_a_member_that_replaces_another_is_admitted_and_a_gang_does_not_grow() -> None:
    made = world(queue("a"))
    first = job("mine", 2, "a")
    made.carry_out(made.decide(first), [first])
    made.queues = (queue("a", budget=budget()),)
    grown = replace(job("more", 1, "a"), placed_nodes=("n0",))
    again = replace(job("again", 1, "a"), placed_nodes=("n0",), replaces=True)
    plan = made.decide(grown, again)
    assert (admitted(plan), codes(plan)) == (["again"], {"more": "BudgetExhausted"})


def test_it_is_exhausted_when_that_was_predicted_and_decided_again_then_and_when_it_renews() -> None:
    made = world(queue("a", budget=budget(spent=9, exhausts_at=50.0)))
    known = made.snapshot(job("mine", 1, "a"), job("large", 9, "a"))
    before, then, after = (decide(known, now) for now in (49.9, 50.0, RENEWS))
    assert (admitted(before), before.due) == (["mine"], 50.0)
    assert (codes(then), then.due) == ({"mine": "BudgetExhausted", "large": "BudgetExhausted"}, RENEWS)
    assert "10 of 10 GPU-hours" in str(then.waiting[0].reason), (
        "what was spent when it was predicted is not what is spent"
    )
    assert (admitted(after), after.due) == (["mine"], None)
    assert admitted(decide(known, 49.9)) == ["mine"], "a clock that goes back"


def test_a_prediction_beyond_the_period_says_nothing() -> None:
    assert budget(spent=9, exhausts_at=RENEWS + 1).changes_at(0.0) is None


def test_a_queue_that_may_not_borrow_gets_what_it_deserves() -> None:
    made = world(queue("a", budget=budget("noBorrow")), queue("b"))
    jobs = [job(f"j{number}", 1, "a", created=float(number)) for number in range(6)]
    plan = made.decide(*jobs)
    assert admitted(plan) == ["j0", "j1", "j2", "j3"]
    assert codes(plan) == {"j4": "BudgetExhausted", "j5": "BudgetExhausted"}
    text = str(plan.waiting[0].reason)
    assert "no more is admitted than the queue deserves of flavor gpu: 10 of 10 GPU-hours are spent" in text
    assert "queue a: flavor gpu: 4 used + 1 asked > limit 4" in text
    assert {use.name: (use.flavors[0].fair_share, use.flavors[0].limit) for use in plan.queues}["a"] == (4, 4)
    assert plan.due == RENEWS
    assert len(admitted(decide(made.snapshot(*jobs), RENEWS))) == 6


def test_a_flavor_without_quota_gives_a_queue_that_may_not_borrow_nothing() -> None:
    plan = world(QueueSpec(name="a", budget=budget("noBorrow"))).decide(job("mine", 1, "a"))
    assert codes(plan) == {"mine": "BudgetExhausted"}
    assert plan.waiting[0].reason.could_ever_fit is None


def test_a_limit_below_what_is_deserved_is_named_as_the_limit() -> None:
    quota = FlavorQuota(flavor="gpu", deserved=2, limit=2)
    plan = world(QueueSpec(name="a", quotas=(quota,), budget=budget("noBorrow"))).decide(job("mine", 3, "a"))
    assert codes(plan) == {"mine": Code.OVER_LIMIT.value}


@pytest.mark.parametrize("exhausted", [False, True])
def test_what_it_has_borrowed_is_reclaimed_as_ever(exhausted: bool) -> None:
    made = world(queue("a", deserved=2), queue("b", deserved=0))
    jobs = [job(f"j{number}", 1, "a", created=float(number)) for number in range(8)]
    made.carry_out(made.decide(*jobs), jobs)
    made.queues = (queue("a", deserved=2, budget=budget("noBorrow") if exhausted else None), made.queues[1])
    plan = made.decide(*(job(f"k{number}", 1, "b", created=9.0 + number) for number in range(3)))
    assert [each.queue for each in plan.evictions] == ["a", "a", "a"]
    shares = {use.name: use.flavors[0].fair_share for use in plan.queues}
    assert shares["a"] == (2 if exhausted else 5)


def test_within_the_queue_a_gang_of_higher_priority_evicts_one_while_it_may_not_borrow() -> None:
    made = world(queue("a", deserved=2))
    low = job("low", 2, "a")
    made.carry_out(made.decide(low), [low])
    made.queues = (queue("a", deserved=2, budget=budget("noBorrow")),)
    plan = made.decide(job("high", 2, "a", priority=5))
    assert [each.name for each in plan.evictions] == ["low"]


def test_a_stopped_queue_evicts_nothing_and_reserves_nothing() -> None:
    made = world(queue("a"), queue("b", deserved=0))
    theirs = [job(f"j{number}", 1, "b", created=float(number)) for number in range(8)]
    made.carry_out(made.decide(*theirs), theirs)
    made.now = 900.0  # long enough for a reservation
    mine = job("mine", 4, "a", created=0.0)
    assert len(made.decide(mine).evictions) == 4
    made.queues = (queue("a", budget=budget()), queue("b", deserved=0))
    plan = made.decide(mine)
    assert (plan.evictions, plan.reservations, codes(plan)) == ((), (), {"mine": "BudgetExhausted"})


def test_a_plan_says_how_many_whole_gpus_a_queue_holds_where_there_are_budgets() -> None:
    made = World()
    devices, counters = mig_gpu(0)
    made.add_node("n0", devices, counters=[counters])
    made.queues = (QueueSpec(name="top", budget=budget(spent=0)), QueueSpec(name="a", parent="top"))
    slice_ = claim_spec(
        device_request(device_class=MIG, cel=f'device.attributes["{names.DRIVER}"].profile == "2g.20gb"')
    )
    first, second = gang("one", 1, slice_, queue="a"), gang("two", 1, slice_, queue="a")
    plan = made.decide(first)
    assert {use.name: use.gpus for use in plan.queues} == {"a": Fraction(2, 7), "top": Fraction(2, 7)}
    made.carry_out(plan, [first])
    assert {use.name: use.gpus for use in made.decide(second).queues} == {"a": Fraction(4, 7), "top": Fraction(4, 7)}
    made.queues = (QueueSpec(name="top"), QueueSpec(name="a", parent="top"))
    assert {use.gpus for use in made.decide(second).queues} == {0}


def test_devices_that_no_flavor_takes_are_not_counted() -> None:
    made = world(queue("a", budget=budget(spent=0)))
    made.flavors = (GPU, FlavorSpec(name="none", device_selector="false"))
    assert made.decide(job("mine", 2, "a")).queues[0].gpus == 2
    made.flavors = (FlavorSpec(name="none", device_selector="false"),)
    assert made.decide(job("mine", 2, "a")).queues[0].gpus == 0


@pytest.mark.slow
@pytest.mark.property
def test_random_clusters_with_budgets_decide_as_afresh_and_keep_to_them() -> None:
    """A decision on kept tables is that on new ones, at any time; nothing starts where a budget stops it."""
    assert sum(live_with_budgets(seed) for seed in range(examples(12, least=12))) > 20


def test_a_plan_that_is_kept_is_no_answer_once_a_gang_that_is_over_a_share_has_waited_for_its_reservation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 23: nothing changed but the time, and the plan named no time at which a reservation was due. With places by the tightest fit
    alone: with others this life does not come to that reservation.
    """
    monkeypatch.setattr(FewestNodes, "fewer", lambda self, placed, *args, **more: placed)
    live_with_budgets(23)


def test_of_a_gang_that_is_tried_twice_in_a_decision_the_same_claim_is_named() -> None:
    """Seed 34: how often it was tried depended on what was remembered, and its first claim was named the second time."""
    assert live_with_budgets(34) > 0


def live_with_budgets(seed: int) -> int:
    """How many gangs waited for a budget."""
    random = Random(f"budgets {seed}")
    kinds = [kind for kind in KINDS if kind.features.queues]
    life, seen = Life(kinds[seed % len(kinds)], random), 0
    for _ in range(8):
        life.step()
        life.waiting = [life.current(each) for each in life.waiting]
        made, gangs, plain = life.world, tuple(life.waiting), life.world.queues
        made.queues = tuple(replace(each, budget=drawn(random, made.now)) for each in plain)
        for now in sorted(made.now + random.choice((0.0, 1.0, 5.0, 20.0)) for _ in range(3)):
            plan = decide(made.snapshot(*gangs), now)
            assert plan == decide(made.afresh().snapshot(*gangs), now), f"seed {seed}"
            assert plan.due is None or plan.due > now
            for admission in plan.admissions:
                request = next(each for each in gangs if each.id == admission.id)
                assert request.replaces or not any(stops(each, now) for each in path(made, admission.queue))
            seen += sum(each.reason.code is Code.BUDGET_EXHAUSTED for each in plan.waiting)
        made.queues = plain
    return seen


def path(made: World, name: str | None) -> Iterator[QueueSpec]:
    by_name = {each.name: each for each in made.queues}
    seen = set[str]()
    while name in by_name and name not in seen:
        seen.add(name)
        yield by_name[name]
        name = by_name[name].parent


def stops(spec: QueueSpec, now: float) -> bool:
    return spec.budget is not None and spec.budget.on_exhausted == "stop" and spec.budget.exhausted(now)


def drawn(random: Random, now: float) -> BudgetState | None:
    if random.random() < 0.5:
        return None
    return BudgetState(
        on_exhausted=random.choice(("warn", "noBorrow", "noBorrow", "stop")),
        limit=10,
        spent=random.choice((None, 3, 10, Fraction(21, 2))),
        renews_at=now + random.choice((2.0, 30.0)),
        exhausts_at=random.choice((None, now + 1.0, now + 5.0)),
    )
