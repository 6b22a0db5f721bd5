"""Namespaces take turns: thousands of gangs of one that change keep no other's from being looked at in the next run."""

from __future__ import annotations

from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.turns import PODS_A_RUN, Turns
from fairlead.controller.watch.triggers import Triggers
from tests.controller.watch.test_triggers import Term

BLUE = ("blue", "g")


def red(count: int) -> list[GangId]:
    return [("red", f"g{number}") for number in range(count)]


def one(gang: GangId) -> int:
    return 1


def nothing(gang: GangId) -> bool:
    return False


def test_others_are_looked_at_at_once_and_the_many_in_their_order():
    turns = Turns()
    turns.add(red(5 * PODS_A_RUN))
    turns.add([BLUE])
    first = turns.take(one, nothing)
    assert BLUE in first
    assert first - {BLUE} == set(red(PODS_A_RUN))
    runs = 1
    while turns:
        assert len(turns.take(one, nothing)) == PODS_A_RUN
        runs += 1
    assert runs == 5


def test_a_gang_of_very_many_pods_has_its_turn_and_its_namespace_pays():
    turns = Turns()
    turns.add(red(2))
    taken = [turns.take(lambda _: 3 * PODS_A_RUN, nothing) for _ in range(4)]
    assert taken == [{red(1)[0]}, set(), set(), {red(2)[1]}]


def test_it_pays_also_where_no_other_of_its_gangs_waits_meanwhile():
    turns = Turns()
    taken = []
    for _ in range(4):
        turns.add(red(1))
        taken.append(turns.take(lambda _: 3 * PODS_A_RUN, nothing))
    assert taken == [set(red(1)), set(), set(), set(red(1))]


def test_a_run_asks_of_no_gang_that_waits_since_an_earlier_one():
    turns = Turns()
    gangs = red(5 * PODS_A_RUN)
    turns.add(gangs)
    turns.take(one, nothing)
    turns.add([BLUE, gangs[-1]])
    asked: list[GangId] = []

    def first(gang: GangId) -> bool:
        asked.append(gang)
        return True

    assert turns.take(one, first) == {*gangs[PODS_A_RUN : 2 * PODS_A_RUN], BLUE, gangs[-1]}
    assert asked == [gangs[-1]]


def test_what_holds_devices_or_was_written_waits_for_no_turn():
    triggers = Triggers()
    gangs = red(PODS_A_RUN + 3)
    triggers.begin(Term(holding={gangs[-1]}))
    triggers.gangs(gangs)
    triggers.gang(gangs[-2], first=True)
    taken = triggers.take_gangs(one)
    assert taken == {*gangs[:PODS_A_RUN], gangs[-1], gangs[-2]}
    triggers.looked()
    triggers.rest()
    assert triggers.wake.is_set(), "the others are looked at in the next run"
    assert triggers.take_gangs() == {gangs[-3]}
