"""Fair shares against a second, independent division (`reference`), on thousands of random cases.

Left out is only what cannot be divided: together queues deserve no more than there is.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairlead.engine.queues.fair_share import Claimant, QuotaError, divide
from tests.engine.queues.forests import Forest, forests
from tests.engine.queues.reference import exact, level, reference, shares_of
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


@given(pool=st.integers(0, 120), queues=siblings())
@MANY
def test_division_is_the_level_of_water_but_for_two_units(pool: int, queues: list[Claimant]):
    """Whole units cost no queue more than two of them, however many bands and rounds there are."""
    assume(sum((min(exact(q.deserved), q.ask) for q in queues), Fraction(0)) <= pool)
    shares, _ = divide(pool, queues)
    wanted = level(Fraction(pool), queues)
    for queue, share in zip(queues, shares, strict=True):
        assert abs(share - wanted[queue.name]) < 2, (queue.name, share, wanted[queue.name])


@given(queues=siblings())
@MANY
def test_division_of_much_is_the_level_of_water_to_a_thousandth(queues: list[Claimant]):
    many = [
        replace(q, **{f: getattr(q, f) and getattr(q, f) * 4000 for f in ("demand", "deserved", "limit", "kept")})
        for q in queues
    ]
    pool = sum(q.ask for q in many) * Fraction(2, 3)
    assume(pool and sum((min(exact(q.deserved), q.ask) for q in many), Fraction(0)) <= pool)
    shares, _ = divide(pool, many)
    wanted = level(pool, many)
    for queue, share in zip(many, shares, strict=True):
        assert abs(share - wanted[queue.name]) <= pool / 1000


@pytest.mark.slow
@given(forest=forests())
@MANY
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
