"""When the next decision may start, and which gangs are being evicted for which. Pure."""

from fairlead.controller.gangs.gangs import Gang
from fairlead.controller.gangs.victims import Victims
from fairlead.controller.pacing import IDLE_MAX_S, PAUSE_MAX_S, Pacing

from .test_eviction_steps import MARK, member


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_decision_is_followed_by_a_pause_as_long_as_it_took():
    clock = Time()
    pacing = Pacing(clock)
    assert pacing.wait_s(urgent=False) == 0.0
    pacing.note(began=98.0, decide_began=98.5, ended=100.0, admitted=True)
    assert pacing.wait_s(urgent=True) == pacing.wait_s(urgent=False) == 2.0
    pacing.note(began=0.0, decide_began=0.0, ended=100.0, admitted=True)
    assert pacing.wait_s(urgent=True) == PAUSE_MAX_S


def test_after_a_decision_that_admitted_no_gang_only_an_urgent_one_comes_at_once():
    clock = Time()
    pacing = Pacing(clock)
    pacing.note(began=99.99, decide_began=99.99, ended=100.0, admitted=False)
    assert 0.0 < pacing.wait_s(urgent=True) < 0.1
    assert 0.4 < pacing.wait_s(urgent=False) <= IDLE_MAX_S
    clock.now += IDLE_MAX_S
    assert pacing.wait_s(urgent=False) == 0.0


def test_victims_follow_the_marks_on_their_pods():
    victims = Victims()
    marked = Gang(id=("ml", "old"), size=1, members=(member("a", MARK),))
    victims.update(("ml", "old"), marked)
    assert victims.of(("ml", "new")) == (("ml", "old"),)
    assert victims.of_any([("ml", "new"), ("ml", "other")]) == {("ml", "old")}
    victims.update(("ml", "old"), Gang(id=("ml", "old"), size=1, members=(member("a"),)))
    assert victims.of(("ml", "new")) == ()
    victims.update(("ml", "old"), marked)
    victims.update(("ml", "old"), None)
    assert victims.of_any([("ml", "new")]) == set()
