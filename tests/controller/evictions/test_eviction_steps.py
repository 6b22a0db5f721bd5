"""The next step of an eviction, from the marks on the pods; and disruption budgets. Pure."""

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.gangs.evictions import disruption, eviction_marks
from fairlead.controller.gangs.evictions.eviction_marks import Cancel, Evict, EvictionMark, Spread, Wait
from fairlead.controller.gangs.evictions.moved import Spot
from fairlead.controller.gangs.held.vacancies import short_of
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member, Stage
from fairlead.engine.types.plan import Eviction
from fairlead.engine.types.reasons import Code, Reason
from fairlead.kube import core, timestamps

NOW = 1_800_000_000.0
MARK = EvictionMark(kind="Reclaim", at=NOW + 10, whole=True, beneficiary="ml/new", why="because")


def member(name, mark=None, *, leaving=False, stage=Stage.RELEASED, labels=None, phase="Running"):
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "labels": labels or {}}
    meta["annotations"] = mark.annotations() if mark else {}
    if leaving:
        meta["deletionTimestamp"] = timestamps.seconds(NOW)
    return Member(pod=msgspec.convert({"metadata": meta, "status": {"phase": phase}}, core.Pod), stage=stage)


def gang(*members, size=2):
    marks = [mark for each in members if (mark := eviction_marks.mark_of(each.pod)) is not None]
    decisions = tuple(eviction_marks.decision(mark, [mark.spot] if mark.spot else ()) for mark in marks)
    return Gang(id=("ml", "old"), size=size, members=members, decisions=decisions)


def step(found, *, now=NOW, wanted=True, refusal=""):
    return eviction_marks.next_step(found, now=now, still_waits=lambda gang: wanted, refusal=lambda members: refusal)


def test_a_mark_says_the_same_when_it_is_read_back():
    read = eviction_marks.mark_of(member("a", MARK).pod)
    assert read == MARK
    assert str(read) == "reclaimed for gang ml/new"
    assert str(EvictionMark(kind="Replace", at=0.0, whole=False)) == "replaced"


@pytest.mark.parametrize(
    "text", ["{", '{"kind": "Reclaim"}', '{"kind": "Else", "for": "", "whole": true, "why": ""}', "[]", "[" * 100_000]
)
def test_a_pod_with_a_mark_that_cannot_be_read_is_not_evicted(text):
    pod = member("a", MARK).pod
    pod.metadata.annotations[names.EVICTION] = text
    assert eviction_marks.mark_of(pod) is None


def test_marks_spread_over_a_gang_that_is_evicted_whole_and_not_over_another():
    found = step(gang(member("a", MARK), member("b")))
    assert isinstance(found, Spread)
    assert [one.pod.metadata.name for one in found.members] == ["b"]
    some = EvictionMark(kind="Reclaim", at=NOW, whole=False, beneficiary="ml/new")
    found = step(gang(member("a", some), member("b"), member("c")))
    assert isinstance(found, Evict)
    assert [one.pod.metadata.name for one in found.members] == ["a"]


def test_no_pod_is_evicted_before_the_time_of_its_mark():
    assert step(gang(member("a", MARK), member("b", MARK))) == Wait(until=NOW + 10, mark=MARK)
    found = step(gang(member("a", MARK), member("b", MARK)), now=NOW + 10)
    assert isinstance(found, Evict)
    assert not found.partly_gone


def test_no_pod_is_evicted_before_the_notice_that_it_was_promised_is_over():
    """Marks are to the second."""
    reason = Reason(code=Code.NO_DEVICES, message="because")
    eviction = Eviction(
        kind="Reclaim", namespace="ml", name="old", uid="u", queue="q", pods=(), whole=True, reason=reason,
        beneficiary="ml/new", refusable_s=60.25,
    )  # fmt: skip
    mark = eviction_marks.mark_for(eviction, at=NOW + 30.25)
    read = eviction_marks.mark_of(member("a", mark).pod)
    assert read is not None
    assert (read.at, read.override_at) == (NOW + 31, NOW + 91)


def test_a_gang_that_is_evicted_whole_lacks_no_members():
    """Nobody replaces them: no place is held for them."""
    some = EvictionMark(kind="Reclaim", at=NOW, whole=False, beneficiary="ml/new")
    assert short_of(gang(member("a"), size=2)) == 1
    assert short_of(gang(member("a", some), size=2)) == 1
    assert short_of(gang(member("a", MARK), size=2)) == 0


def test_an_eviction_whose_beneficiary_no_longer_waits_is_cancelled_unless_pods_are_gone_already():
    assert isinstance(step(gang(member("a", MARK), member("b", MARK)), wanted=False), Cancel)
    found = step(gang(member("a", MARK, leaving=True), member("b", MARK)), now=NOW + 10, wanted=False)
    assert isinstance(found, Evict)
    assert found.partly_gone
    assert [one.pod.metadata.name for one in found.members] == ["b"]


def test_a_replacement_has_no_beneficiary_and_is_not_cancelled():
    mark = EvictionMark(kind="Replace", at=NOW, whole=True)
    assert isinstance(step(gang(member("a", mark), member("b", mark)), wanted=False), Evict)


def test_a_budget_is_waited_for_and_then_given_up():
    whole = gang(member("a", MARK), member("b", MARK))
    found = step(whole, now=NOW + 10, refusal="no")
    assert (found.until, found.refused) == (NOW + 10 + eviction_marks.RETRY_S, "no")
    found = step(whole, now=NOW + 10 + eviction_marks.REFUSAL_TIMEOUT_S, refusal="no")
    assert isinstance(found, Cancel)
    assert found.refused
    torn = gang(member("a", MARK, leaving=True), member("b", MARK))
    assert isinstance(
        step(torn, now=NOW + 10, refusal="no"), Evict
    )  # it runs no more as it is: each is tried by itself


# -- budgets ---------------------------------------------------------------------------------------------------------


def budget(allowed, *, selector=None, generation=1, observed=1):
    return disruption.read_budget(
        {
            "metadata": {"name": "b", "namespace": "ml", "generation": generation},
            "spec": {"selector": selector} if selector is not None else {},
            "status": {"disruptionsAllowed": allowed, "observedGeneration": observed},
        }
    )


def test_a_budget_counts_running_pods_that_it_selects():
    app = {"matchLabels": {"app": "x"}}
    pods = [member(name, labels={"app": "x"}).pod for name in "ab"]
    assert disruption.refusal(pods, [budget(2, selector=app)]) == ""
    assert disruption.refusal(pods, [budget(1, selector=app)]) == (
        "PodDisruptionBudget ml/b allows 1 of the 2 evictions that this needs"
    )
    pending = member("c", labels={"app": "x"}, phase="Pending").pod
    assert disruption.refusal([pods[0], pending], [budget(1, selector=app)]) == ""
    assert disruption.refusal(pods, [budget(0, selector={"matchLabels": {"app": "y"}})]) == ""


def test_an_empty_selector_selects_all_pods_and_a_missing_one_none():
    pod = member("a").pod
    assert disruption.budgets_of(pod, [budget(1, selector={})]) == ("b",)
    assert disruption.budgets_of(pod, [budget(1)]) == ()


def test_a_status_that_lags_allows_nothing():
    assert budget(5, selector={}, generation=2).allowed == 0
    assert budget(5, selector={"matchLabels": 3}).allowed == 0


def test_a_queues_evictions_count_within_the_window():
    spec = {"disruptionBudget": {"evictions": 2, "window": "1h"}}
    times = [timestamps.micro(NOW - age) for age in (4000, 3000, 10)]
    assert disruption.evictions_left(spec, times, now=NOW) == 0
    assert disruption.evictions_left(spec, times[:2], now=NOW) == 1
    assert disruption.evictions_left({}, times, now=NOW) is None
    assert disruption.evictions_left(spec, ["nonsense"], now=NOW) == 2
    assert disruption.next_refill(spec, times, now=NOW) == pytest.approx(NOW + 600)


MOVE = EvictionMark(kind="Move", at=NOW + 10, whole=True, beneficiary="ml/new", asked=NOW, spot=Spot("n1", ()))


def saved(name, mark, at):
    found = member(name, mark)
    found.pod.metadata.annotations[names.CHECKPOINTED_AT] = timestamps.seconds(at)
    return found


def test_pods_that_have_all_saved_their_work_since_they_were_asked_go_at_once():
    assert isinstance(step(gang(saved("a", MOVE, NOW), member("b", MOVE))), Wait)
    assert isinstance(step(gang(saved("a", MOVE, NOW), saved("b", MOVE, NOW - 1))), Wait)
    assert isinstance(step(gang(saved("a", MOVE, NOW), saved("b", MOVE, NOW + 1))), Evict)
    unasked = EvictionMark(kind="Reclaim", at=NOW + 10, whole=True, beneficiary="ml/new")
    assert isinstance(step(gang(saved("a", unasked, NOW), saved("b", unasked, NOW))), Wait)


def test_a_move_of_which_a_place_is_held_for_some_pods_only_is_called_off():
    found = step(gang(member("a", MOVE), member("b")))
    assert isinstance(found, Cancel)
    assert [one.pod.metadata.name for one in found.members] == ["a"]
    found = step(gang(member("a", MOVE, leaving=True), member("b", MOVE), member("c"), size=3))
    assert isinstance(found, Spread)
    assert found.mark.spot is None


def test_a_move_away_from_a_node_is_called_off_when_the_node_stays():
    mark = EvictionMark(kind="Move", at=NOW + 10, whole=True)
    both = gang(member("a", mark), member("b", mark))

    def found(goes):
        return eviction_marks.next_step(
            both, now=NOW, still_waits=lambda gang: True, node_goes=lambda: goes, refusal=lambda members: ""
        )

    assert isinstance(found(False), Cancel)
    assert isinstance(found(True), Wait)
