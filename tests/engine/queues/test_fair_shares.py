"""Fair shares against a second, independent division (`reference`), on thousands of random cases; and what holds of any tree of queues.

Left out is only what cannot be divided: together queues deserve no more than there is.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairlead.engine.queues.fair_share import Claimant, QuotaError, divide
from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.policy import Rule, may_reclaim
from fairlead.engine.types.values import Amount
from tests.engine.queues.forests import Forest, forests
from tests.engine.queues.reference import exact, reference, shares_of
from tests.support.engine.examples import examples

MANY = settings(max_examples=examples(500), deadline=None)
amounts = st.integers(0, 30) | st.integers(0, 60).map(lambda n: Fraction(n, 2))


@st.composite
def siblings(draw: st.DrawFn) -> list[Claimant]:
    return [
        Claimant(
            name=f"q{number}",
            demand=draw(amounts),
            deserved=draw(st.sampled_from([Fraction(0), Fraction(0), Fraction(2), Fraction(5), Fraction(3, 2)])),
            limit=draw(st.none() | amounts),
            weight=draw(st.sampled_from([0, 1, 1, 1, 2, 0.5, 3])),
            priority=draw(st.sampled_from([0, 0, 0, 1, -1])),
            usage=draw(st.sampled_from([0, 0, 0.25, 0.5, 0.9, 1.5])),
            kept=draw(st.sampled_from([0, 0, 0, 1, 3])),
        )
        for number in range(draw(st.integers(1, 7)))
    ]


@given(pool=amounts, queues=siblings(), k=st.sampled_from([0, 1, 0.5, 3]))
@MANY
def test_division_is_the_published_one(pool: Fraction, queues: list[Claimant], k: float):
    assume(sum((min(exact(q.deserved), q.ask) for q in queues), Fraction(0)) <= pool)
    shares, _ = divide(pool, queues, k=k)
    assert dict(zip([q.name for q in queues], shares, strict=True)) == reference(exact(pool), queues, exact(k))


@given(forest=forests())
@settings(max_examples=examples(200), deadline=None)
def test_a_tree_is_divided_from_the_roots_down(forest: Forest):
    found = forest.shares()
    for flavor in forest.totals:
        asked = {name: amounts.get(flavor, 0) for name, amounts in forest.demands.items()}
        wanted = shares_of(forest.specs, asked, forest.totals[flavor], flavor, forest.k)
        assert {name: found[name, flavor] for name in wanted} == wanted


def test_surplus_goes_to_the_higher_priority_down_to_its_last_unit():
    queues = [Claimant(name=name, demand=5, priority=priority) for name, priority in (("a", 1), ("b", 1), ("c", 0))]
    assert divide(7, queues)[0] == [4, 3, 0]


def test_a_negative_number_is_refused_by_name():
    with pytest.raises(QuotaError, match="Queue q: weight -1 is negative"):
        divide(1, [Claimant(name="q", demand=1, weight=-1)])


@given(forest=forests())
@MANY
def test_no_queue_gets_more_than_asked_or_allowed_and_all_together_no_more_than_there_is(forest: Forest):
    tree = forest.tree()
    for flavor, total in forest.totals.items():
        for parent in (None, *tree.queues.values()):
            siblings = tree.roots if parent is None else parent.children
            pool = total if parent is None else parent.fair.get(flavor, 0)
            asks = {q: min((q.demand.get(flavor, 0), *q.bounds(flavor))) for q in siblings}
            shares = {q: q.fair.get(flavor, 0) for q in siblings}
            assert all(0 <= shares[q] <= asks[q] for q in siblings)
            assert sum(shares.values()) <= pool or not siblings
            guaranteed = {q: min(q.deserved(flavor), asks[q]) for q in siblings}
            if sum(guaranteed.values()) <= pool:
                assert all(shares[q] >= guaranteed[q] for q in siblings)


def spoken_for_in(queue: Queue, flavor: str) -> Amount:
    """What is not for others: its share, and what it or queues below it keep unlent beside theirs."""
    share = queue.fair.get(flavor, 0)
    idle = sum(spoken_for_in(child, flavor) - child.fair.get(flavor, 0) for child in queue.children)
    return max(share + idle, queue.kept(flavor))


@given(forest=forests())
@MANY
def test_what_is_left_is_wanted_by_no_queue_that_may_have_it(forest: Forest):
    tree = forest.tree()
    for flavor, total in forest.totals.items():
        for parent in (None, *(queue for queue in tree.queues.values() if queue.children)):
            siblings = tree.roots if parent is None else parent.children
            pool = total if parent is None else parent.fair.get(flavor, 0)
            spoken_for = sum(spoken_for_in(q, flavor) for q in siblings)
            if spoken_for < pool:
                for q in siblings:
                    if q.weight(flavor) > 0:
                        assert q.fair.get(flavor, 0) == min((q.demand.get(flavor, 0), *q.bounds(flavor)))


@given(forest=forests(), data=st.data())
@MANY
def test_a_share_taken_by_fairness_cannot_be_lost_to_the_same_victim(forest: Forest, data: st.DataObject):
    tree = forest.tree()
    flavor = data.draw(st.sampled_from(sorted(forest.totals)))
    leaves = [queue for queue in tree.queues.values() if not queue.children]
    for queue in leaves:
        queue.charge({flavor: data.draw(st.integers(0, 12))}, 0)
    taker, giver = data.draw(st.sampled_from(leaves)), data.draw(st.sampled_from(leaves))
    one = {flavor: data.draw(st.integers(1, 3))}
    verdict = may_reclaim(taker, one, giver, one)
    if verdict and verdict.rule is Rule.FAIRNESS:
        assert giver.used[flavor] - one[flavor] >= giver.deserved(flavor)
        giver.charge(one, 0, -1)
        taker.charge(one, 0)
        back = may_reclaim(giver, one, taker, one)
        assert not back or back.rule is Rule.GUARANTEE
