"""What holds of fair shares in any tree, however deep, in several flavors at once; and how far whole units bend it.

Where a property is bent by whole units, the bound here is what `docs/fair-share.md` promises: a unit for each level of the tree.
"""

from __future__ import annotations

import dataclasses
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.engine.queues.tree import Queue
from fairlead.engine.reclaim.policy import Rule, may_reclaim
from fairlead.engine.types.settings import FlavorQuota, QueueSpec
from fairlead.engine.types.values import Amount
from tests.engine.queues.forests import Forest, forests
from tests.support.engine.examples import examples

MANY = settings(max_examples=examples(150), deadline=None)


def changed(spec: QueueSpec, flavor: str, **more: object) -> QueueSpec:
    """With another quota of one flavor."""
    known = {quota.flavor: quota for quota in spec.quotas}
    known[flavor] = replace(known.get(flavor, FlavorQuota(flavor=flavor)), **more)
    return replace(spec, quotas=tuple(known.values()))


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


@given(forest=forests(), seed=st.integers(0, 1000))
@MANY
def test_the_order_in_which_queues_and_flavors_are_listed_does_not_matter(forest: Forest, seed: int):
    dice = Random(seed)
    specs, flavors = list(forest.specs), list(forest.totals)
    dice.shuffle(specs)
    dice.shuffle(flavors)
    turned = [replace(spec, quotas=tuple(dice.sample(spec.quotas, len(spec.quotas)))) for spec in specs]
    other = dataclasses.replace(
        forest, specs=tuple(turned), totals={flavor: forest.totals[flavor] for flavor in flavors}
    )
    assert other.shares() == forest.shares()


@given(forest=forests())
@MANY
def test_flavors_do_not_touch_one_another(forest: Forest):
    found = forest.shares()
    for flavor, total in forest.totals.items():
        alone = dataclasses.replace(forest, totals={flavor: total})
        assert {key: share for key, share in found.items() if key[1] == flavor} == alone.shares()


@given(forest=forests(), data=st.data())
@MANY
def test_a_queue_that_asks_for_nothing_changes_nothing(forest: Forest, data: st.DataObject):
    """Whatever it deserves, unless it keeps some of that unlent or its parent deserves the more for it."""
    before = forest.shares()
    nothing = dict.fromkeys(forest.totals, 0)
    parents = [None, *(spec.name for spec in forest.specs if spec.name not in forest.leaves)]
    parent = data.draw(st.sampled_from(parents))
    own = {quota.flavor for quota in forest.spec(parent).quotas} if parent else set(forest.totals)
    quotas = tuple(
        FlavorQuota(
            flavor=flavor,
            deserved=data.draw(st.integers(0, 9)) if parent is None else 0,
            weight=data.draw(st.sampled_from([0.0, 1.0, 50.0])),
        )
        for flavor in forest.totals
        if flavor in own
    )
    idle = QueueSpec(name="idle", parent=parent, priority=9, quotas=quotas, past_usage={"h100": 0.7})
    other = dataclasses.replace(forest, specs=(*forest.specs, idle), demands={**forest.demands, "idle": nothing})
    after = other.shares()
    assert {key: share for key, share in after.items() if key[0] != "idle"} == before


@given(forest=forests(), data=st.data())
@MANY
def test_more_weight_is_never_less_share_but_for_whole_units(forest: Forest, data: st.DataObject):
    name = data.draw(st.sampled_from([spec.name for spec in forest.specs]))
    flavor = data.draw(st.sampled_from(sorted(forest.totals)))
    spec = forest.spec(name)
    weight = next((quota.weight for quota in spec.quotas if quota.flavor == flavor), 1.0)
    assume(any(quota.flavor == flavor for quota in spec.quotas))
    other = forest.with_spec(changed(spec, flavor, weight=weight + data.draw(st.sampled_from([0.5, 1.0, 7.0]))))
    assert other.shares()[name, flavor] >= forest.shares()[name, flavor] - 1


@given(forest=forests(), data=st.data())
@MANY
def test_more_past_use_is_never_more_share_but_for_whole_units(forest: Forest, data: st.DataObject):
    name = data.draw(st.sampled_from([spec.name for spec in forest.specs]))
    flavor = data.draw(st.sampled_from(sorted(forest.totals)))
    spec = forest.spec(name)
    past = dict(spec.past_usage)
    past[flavor] = past.get(flavor, 0.0) + data.draw(st.sampled_from([0.1, 0.3, 1.0]))
    other = dataclasses.replace(forest.with_spec(replace(spec, past_usage=past)), k=1.0)
    assert other.shares()[name, flavor] <= dataclasses.replace(forest, k=1.0).shares()[name, flavor] + 1


@given(forest=forests(k=(0.0,)), data=st.data())
@MANY
def test_a_queue_that_asks_for_more_takes_it_from_others_and_gives_them_nothing(forest: Forest, data: st.DataObject):
    name = data.draw(st.sampled_from(forest.leaves))
    flavor = data.draw(st.sampled_from(sorted(forest.totals)))
    before = forest.shares()
    more = forest.demands[name][flavor] + data.draw(st.integers(1, 9))
    after = forest.with_demand(name, flavor, more).shares()
    for (queue, which), share in after.items():
        if not forest.within(name, queue):
            assert share <= before[queue, which] + forest.depth(queue) * (which == flavor)
    assert after[name, flavor] >= before[name, flavor] - forest.depth(name)


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
