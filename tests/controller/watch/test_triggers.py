"""What wakes the loop, and how soon; and how namespaces take turns, so that thousands of gangs that change keep no other's waiting."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.watch.triggers import PODS_A_RUN, Triggers, Turns

ONE, OTHER = ("ml", "one"), ("ml", "other")


def woken(triggers: Triggers) -> tuple[bool, bool]:
    return triggers.wake.is_set(), triggers.soon.is_set()


def fresh() -> Triggers:
    triggers = Triggers()
    triggers.decided()
    triggers.looked()
    return triggers


def test_what_a_gang_waits_for_wakes_the_loop_soon():
    triggers = fresh()
    triggers.gang(ONE)
    triggers.decide()
    assert woken(triggers) == (True, False)
    triggers.gang(OTHER, soon=True)
    assert woken(triggers) == (True, True)
    triggers.looked()
    assert woken(triggers) == (False, False)
    triggers.decide(urgent=True)
    assert woken(triggers) == (True, True)


def test_what_was_asked_for_while_the_loop_ran_does_not_wake_it_again():
    triggers = fresh()
    triggers.decide(urgent=True)
    triggers.decided()
    triggers.rest()
    assert woken(triggers) == (False, False)
    triggers.gang(ONE, soon=True)
    triggers.rest()
    assert woken(triggers) == (True, True)


@dataclass
class Term:
    """Implements `triggers.Attention`."""

    puts_off: set[GangId] = field(default_factory=set)
    holding: set[GangId] = field(default_factory=set)

    def put_off(self, gang_id: GangId) -> bool:
        return gang_id in self.puts_off

    def holds(self, gang_id: GangId) -> bool:
        return gang_id in self.holding


def test_what_one_leader_put_off_is_looked_at_when_it_ends():
    """Else the next one takes the gang for what it was before its pod was released, and takes its devices back."""
    triggers = fresh()
    triggers.begin(Term(puts_off={ONE}))
    triggers.gangs([ONE, OTHER])
    assert triggers.take_gangs() == {OTHER}
    triggers.end()
    assert woken(triggers) == (True, False)
    assert triggers.take_gangs() == {ONE}
    triggers.gang(ONE)
    assert triggers.take_gangs() == {ONE}


def test_what_was_put_off_and_looked_at_since_is_not_looked_at_again():
    triggers = fresh()
    term = Term(puts_off={ONE})
    triggers.begin(term)
    triggers.gang(ONE)
    term.puts_off.clear()
    triggers.gang(ONE)
    assert triggers.take_gangs() == {ONE}
    triggers.end()
    assert triggers.take_gangs() == set()


# -- turns --------------------------------------------------------------------------------------------------------

BLUE = ("blue", "g")


def red(count: int) -> list[GangId]:
    return [("red", f"g{number}") for number in range(count)]


one = lambda _: 1  # noqa: E731
nothing = lambda _: False  # noqa: E731


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
