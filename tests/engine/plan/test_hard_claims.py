"""Gangs of one namespace that are hard to refuse: others are decided on as ever, in a decision of bounded steps, and each has its turn."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.allocator import allocate
from fairlead.engine.allocator.steps import PART_MIN, StepAccount, StepAccounts
from fairlead.engine.plan.decide import Decision, decide
from fairlead.engine.plan.session import Memory, Session
from fairlead.engine.plan.turns import NAMESPACE_STEPS, TURN_S
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from fairlead.history.recording import canonical
from tests.support import cpu
from tests.support.decisions_claims import RandomCase
from tests.support.engine.case import snapshot_of
from tests.support.engine.hard_claims import too_many, two_nodes, uncolourable, unlike_pods
from tests.support.engine.objects import Json, claim_spec, device_request, gang, mig_gpu
from tests.support.engine.world import World

ONE = claim_spec(device_request())


def admitted(plan: Plan) -> set[str]:
    return {each.name for each in plan.admissions}


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 8, 230])
@pytest.mark.parametrize("spec", [too_many, uncolourable])
def test_another_namespaces_gang_is_admitted_in_a_decision_of_bounded_work(spec: Callable[[], Json], count: int):
    world = two_nodes()
    gangs = [*unlike_pods(count, spec()), gang("blue", 2, claim_spec(device_request(8)), namespace="blue")]
    decision = Decision(Session(world.snapshot(*gangs), 0.0, Memory()))
    with cpu.at_most(2.0):
        plan = decision.run()
    assert admitted(plan) == {"blue"}
    assert decision.session.turns_of_search.accounts.of("red").peak <= 1.1 * NAMESPACE_STEPS


def test_more_wanted_than_is_there_is_known_without_a_search():
    world = two_nodes()
    decision = Decision(Session(world.snapshot(*unlike_pods(8, too_many())), 0.0, Memory()))
    plan = decision.run()
    assert {each.reason.code for each in plan.waiting} == {Code.NEVER_FITS}
    assert decision.session.turns_of_search.accounts.of("red").peak < 100


def test_each_gang_has_its_turn_before_one_has_its_second():
    world, gangs = two_nodes(), unlike_pods(6, uncolourable())
    snapshot = replace(world.snapshot(*gangs), namespace_steps=4_000)
    seen: list[set[str]] = []
    for number in range(6):
        plan = decide(snapshot, 100.0 * number)
        assert {each.reason.code for each in plan.waiting} == {Code.SEARCH_ENDED}
        assert plan.due == 100.0 * number + TURN_S
        seen.append(set(plan.searched) - snapshot.searched)
        snapshot = replace(snapshot, searched=frozenset(plan.searched))
    assert [len(each) for each in seen] == [1, 1, 1, 1, 1, 0], "the sixth is the last: the next decision begins again"
    assert set().union(*seen) == {each.uid for each in gangs[:5]}
    assert snapshot.searched == frozenset()


def test_the_same_gang_of_another_namespace_is_searched_for_with_that_ones_steps():
    """Equal shapes are remembered together: that red's steps ended says nothing of blue's gang."""
    world, spec = two_nodes(), uncolourable()
    gangs = [*unlike_pods(1, spec), *unlike_pods(1, spec, "blue")]
    decision = Decision(Session(replace(world.snapshot(*gangs), namespace_steps=4_000), 0.0, Memory()))
    decision.run()
    used = decision.session.turns_of_search.accounts
    assert used.of("red").peak > 4_000
    assert used.of("blue").peak > 4_000


@pytest.mark.parametrize("spec", [too_many, uncolourable])
def test_a_decision_on_a_fresh_cache_is_the_same(spec: Callable[[], Json]):
    gangs = [*unlike_pods(5, spec()), gang("blue", 2, ONE, namespace="blue")]

    def decided(world: World, at: float) -> Json:
        plan = decide(replace(world.snapshot(*gangs), namespace_steps=9_000), at)
        return canonical.decision(plan) | {"due": None, "searched": plan.searched}

    known = two_nodes()
    again = [decided(known, at) for at in (0.0, 1.0, 2.0)]
    assert again[0] == again[1] == again[2] == decided(two_nodes(), 0.0)


@pytest.mark.slow
def test_counting_refuses_nothing_that_a_search_finds(monkeypatch: pytest.MonkeyPatch):
    """Random claims of every feature, counted after the first step; and never counted."""
    monkeypatch.setattr(allocate, "COUNTED_SOON", 1)
    random = Random("counted")
    for number in range(300):
        body = RandomCase(random).body()
        monkeypatch.setattr(allocate, "COUNTED_AFTER", 1)
        counted = decide(replace(snapshot_of(body), search_steps=20_000), 0.0)
        monkeypatch.setattr(allocate, "COUNTED_AFTER", 0)
        searched = decide(replace(snapshot_of(body), search_steps=20_000), 0.0)
        assert counted.admissions == searched.admissions, number


def test_what_runs_is_not_counted_against_a_claim_that_an_empty_node_could_serve(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(allocate, "COUNTED_AFTER", 1)
    world = World()
    devices, counters = mig_gpu(0)
    world.add_node("n0", devices, counters=[counters])
    profile = f'device.attributes["{names.DRIVER}"].profile'
    three, four = (
        device_request(device_class=names.MIG_CLASS, cel=f'{profile} == "{name}"') for name in ("3g.40gb", "4g.40gb")
    )
    first = [gang("first", 1, ONE)]
    assert world.carry_out(world.decide(*first), first) == []
    (waiting,) = world.decide(gang("next", 1, claim_spec(four, three))).waiting
    assert waiting.reason.code is Code.NO_DEVICES


class TestAccounts:
    def test_one_namespace_has_its_steps_and_no_more(self):
        account = StepAccount(most=5_000)
        account.spend(5_000)
        assert not account.exhausted()
        account.spend(1)
        assert account.exhausted()

    def test_a_part_is_left_to_each_when_others_have_used_up_all(self):
        accounts = StepAccounts(each=10_000, together=15_000)
        for name in ("red", "green"):
            accounts.of(name).spend(10_000)
        assert accounts.of("red").exhausted()
        blue = accounts.of("blue")
        blue.spend(PART_MIN)
        assert not blue.exhausted()
        blue.spend(1)
        assert blue.exhausted()

    def test_what_is_given_back_can_be_used_again(self):
        account = StepAccount(most=5_000)
        account.spend(5_000)
        account.spend(-100)
        account.spend(100)
        assert not account.exhausted()
        assert account.peak == 5_000


@pytest.mark.parametrize(
    ("more", "starts"), [({}, False), ({"preemptor": True}, True), ({"replaces": True}, True)], ids=str
)
def test_a_gang_that_had_its_turn_is_passed_over_but_for_one_for_which_others_were_evicted(
    more: dict[str, bool], starts: bool
):
    free = replace(gang("free", 1, ONE), **more)
    snapshot = replace(two_nodes().snapshot(free), searched=(free.uid,))
    assert admitted(decide(snapshot, 0.0)) == ({"free"} if starts else set())
