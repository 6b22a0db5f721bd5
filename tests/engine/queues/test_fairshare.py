"""Fair shares: never more than asked, nothing idle that a queue asks for, more weight never less."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.engine.queues.fair_share import Claimant, QuotaError, divide, divide_tree
from fairlead.engine.queues.tree import Tree
from fairlead.engine.queues.usage_history import decayed
from fairlead.engine.types.settings import FlavorQuota, QueueSpec

claimants = st.lists(
    st.builds(
        Claimant,
        name=st.just("q"),
        demand=st.integers(0, 50),
        deserved=st.integers(0, 20),
        limit=st.none() | st.integers(0, 30),
        weight=st.integers(0, 5),
        priority=st.integers(0, 2),
    ),
    min_size=1,
    max_size=6,
)


@given(pool=st.integers(0, 100), queues=claimants)
def test_shares_cover_deserved_never_exceed_what_is_asked_and_leave_nothing_idle(pool: int, queues: list[Claimant]):
    shares, left = divide(pool, queues)
    for queue, share in zip(queues, shares, strict=True):
        assert min(queue.ask, Fraction(queue.deserved or 0)) <= share <= queue.ask
    guaranteed = sum(min(queue.ask, Fraction(queue.deserved or 0)) for queue in queues)
    assert sum(shares) <= max(pool, guaranteed)
    assert left == max(Fraction(0), pool - sum(shares))
    if left:
        assert all(share == queue.ask for queue, share in zip(queues, shares, strict=True) if queue.weight)
    assert divide(pool, queues) == (shares, left)


@given(pool=st.integers(0, 100), queues=claimants, place=st.integers(0, 5), more=st.integers(1, 5))
def test_more_weight_never_means_less_beyond_a_unit_of_rounding(
    pool: int, queues: list[Claimant], place: int, more: int
):
    place %= len(queues)
    before, _ = divide(pool, queues)
    queues[place] = replace(queues[place], weight=queues[place].weight + more)
    after, _ = divide(pool, queues)
    assert after[place] >= before[place] - 1


def test_surplus_goes_to_the_higher_priority_down_to_its_last_unit():
    queues = [Claimant(name=name, demand=5, priority=priority) for name, priority in (("a", 1), ("b", 1), ("c", 0))]
    assert divide(7, queues)[0] == [4, 3, 0]


def test_a_negative_number_is_refused_by_name():
    with pytest.raises(QuotaError, match="Queue q: weight -1 is negative"):
        divide(1, [Claimant(name="q", demand=1, weight=-1)])


def test_a_childs_share_is_a_part_of_its_parents():
    def spec(name: str, parent: str | None, deserved: int) -> QueueSpec:
        return QueueSpec(name=name, parent=parent, quotas=(FlavorQuota(flavor="gpu", deserved=deserved),))

    tree = Tree([spec("org", None, 4), spec("other", None, 4), spec("a", "org", 3), spec("b", "org", 1)])
    for name, demand in (("org", 20), ("other", 20), ("a", 10), ("b", 10)):
        tree.queues[name].demand["gpu"] = demand
    divide_tree(tree, {"gpu": 12})
    assert {name: queue.fair["gpu"] for name, queue in tree.queues.items()} == {"org": 6, "other": 6, "a": 4, "b": 2}


def test_half_of_the_past_is_forgotten_in_a_half_life():
    assert decayed(8.0, 0.0, elapsed_s=60, half_life_s=60) == 4.0
    assert decayed(8.0, 2.0, elapsed_s=0, half_life_s=60) == 8.0
    assert decayed(8.0, 2.0, elapsed_s=-5, half_life_s=60) == 8.0
    assert decayed(8.0, 2.0, elapsed_s=1, half_life_s=0) == 2.0
