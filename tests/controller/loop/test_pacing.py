"""When the next decision may start, when gangs are looked at and tried again, and which are being evicted for which. Pure."""

from random import Random

from fairlead.controller import reconcile
from fairlead.controller.book.book import Book
from fairlead.controller.commit.evictor import Victims, may_evict
from fairlead.controller.commit.gang_tasks import BACKOFF, GangBackoffs
from fairlead.controller.cycle import IDLE_MAX_S, PAUSE_MAX_S, Pacing
from fairlead.controller.gangs.evictions.eviction_marks import decision
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.reconcile import Deadlines
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Waiting
from fairlead.engine.types.reasons import Code, Reason
from tests.controller.evictions.test_eviction_steps import MARK, member


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


def test_a_gang_whose_admission_fails_again_and_again_is_tried_ever_more_seldom():
    backoffs, gang_id = GangBackoffs(Book(), Random(1)), ("ml", "g")
    waits = []
    for now in range(0, 10_000, 1000):
        backoffs.note_failure(gang_id, "refused", now=float(now))
        waits.append(backoffs.get(gang_id).until - now)
        assert backoffs.expire(now + 999.0, {gang_id}) == [gang_id]
    least = [min(BACKOFF.max_s, BACKOFF.base_s * 2.0**failures) for failures in range(10)]
    assert all(wait <= found <= wait * (1 + BACKOFF.jitter) for wait, found in zip(least, waits, strict=True))


def test_victims_follow_the_marks_on_their_pods():
    victims = Victims(Book())
    marked = Gang(id=("ml", "old"), size=1, members=(member("a", MARK),), decisions=(decision(MARK),))
    victims.update(("ml", "old"), marked)
    assert victims.of_any([("ml", "new"), ("ml", "other")]) == {("ml", "old")}
    victims.update(("ml", "old"), Gang(id=("ml", "old"), size=1, members=(member("a"),)))
    assert victims.of_any([("ml", "new")]) == set()
    victims.update(("ml", "old"), marked)
    victims.update(("ml", "old"), None)
    assert victims.of_any([("ml", "new")]) == set()


def waits(queue: str | None, priority: int, *, fits: bool | None = True, preempts: bool = True) -> bool:
    """Whether its answer depends on an admission in queue a with priority 1."""
    reason = Reason(code=Code.NO_DEVICES, message="", advice="", could_ever_fit=fits)
    waiting = Waiting(namespace="ml", name="w", uid="w", queue=queue, position=1, reason=reason)
    request = GangRequest(
        namespace="ml", name="w", uid="w", size=1, members=(), priority=priority, preempts=preempts, queue=queue
    )
    return may_evict(waiting, request, {"a": 1})


def test_only_a_gang_that_could_evict_what_is_being_admitted_awaits_its_end():
    assert waits("a", 2)
    assert not waits("a", 1)
    assert waits("b", 0), "its queue may reclaim"
    assert not waits("b", 0, fits=False)
    assert not waits("b", 2, preempts=False)
    assert not waits(None, 2)


def test_what_is_due_is_what_a_dict_of_all_would_say(monkeypatch):
    monkeypatch.setattr(reconcile, "OUTDATED_MAX", 20)
    random, found = Random(1), Deadlines(Book())
    known: dict[tuple[str, str], float] = {}
    for now in range(2000):
        gang_id = ("ml", f"g{random.randrange(40)}")
        match random.randrange(4):
            case 0:
                found.drop(gang_id)
                known.pop(gang_id, None)
            case 1:
                due = sorted(each for each, at in known.items() if at <= now)
                assert sorted(found.take_due(now)) == due
                for each in due:
                    del known[each]
            case _:
                at = now + random.randrange(1, 200)
                found.set(gang_id, at)
                known[gang_id] = min(at, known.get(gang_id, at))
        assert found.next() == min(known.values(), default=None)


def test_outdated_entries_do_not_pile_up():
    found = Deadlines(Book())
    for at in range(10_000):
        found.drop(("ml", "a"))
        found.set(("ml", "a"), at)
    assert len(found._heap) <= reconcile.OUTDATED_MAX + 2
