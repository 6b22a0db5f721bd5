"""What wakes the loop, and how soon: a gang that comes is looked at in a moment, all else may wait for more of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.controller.watch.triggers import Triggers

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


def test_no_gang_at_all_wakes_nothing():
    triggers = fresh()
    triggers.gangs([])
    assert woken(triggers) == (False, False)
    triggers.gangs([ONE, OTHER])
    assert triggers.take_gangs() == {ONE, OTHER}


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
