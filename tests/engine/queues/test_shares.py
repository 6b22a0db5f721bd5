"""Shares over random trees, and what bounds them: borrowing, lending, past use. Who may reclaim follows from them."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from fairlead.api import names
from fairlead.engine.queues.fair_share import divide_tree
from fairlead.engine.queues.tree import Tree
from fairlead.engine.reclaim.policy import Rule, may_reclaim
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World, h100_world

ONE = claim_spec(device_request())
GPU = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"')


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Departments with teams; every queue asks for something."""
    specs: list[QueueSpec] = []
    for letter in "abc"[: draw(st.integers(1, 3))]:
        teams = draw(st.integers(0, 3))
        deserved = [draw(st.integers(0, 6)) for _ in range(teams)] or [draw(st.integers(0, 12))]
        for number, (name, parent, amount) in enumerate(
            [(letter, None, sum(deserved))] + [(f"{letter}{n}", letter, deserved[n]) for n in range(teams)]
        ):
            specs.append(
                QueueSpec(
                    name=name,
                    parent=parent,
                    priority=draw(st.integers(0, 1)) if number else 0,
                    past_usage={"gpu": draw(st.sampled_from([0.0, 0.1, 0.4]))},
                    quotas=(
                        FlavorQuota(
                            flavor="gpu",
                            deserved=amount,
                            weight=draw(st.sampled_from([0.0, 1.0, 2.5])),
                            borrowing_limit=draw(st.sampled_from([None, None, 3])),
                            lending_limit=draw(st.sampled_from([None, None, 2])),
                        ),
                    ),
                )
            )
    tree = Tree(specs)
    tree.begin({"gpu": draw(st.integers(1, 40))})
    for queue in tree.queues.values():
        if not queue.children:
            for step in queue.path():
                step.demand["gpu"] = step.demand.get("gpu", 0) + draw(st.integers(0, 15)) * (step is queue)
    for queue in tree.queues.values():
        if queue.children:
            queue.demand["gpu"] = sum(child.demand["gpu"] for child in queue.children)
    return tree


@given(trees(), st.sampled_from([0.0, 1.0]))
def test_shares_cover_what_is_deserved_stay_within_bounds_and_are_parts_of_the_parents(tree: Tree, k: float):
    total = tree.totals["gpu"]
    divide_tree(tree, tree.totals, k=k)
    first = {name: queue.fair.get("gpu", 0) for name, queue in tree.queues.items()}
    for queue in tree.queues.values():
        share, ask_ = queue.fair.get("gpu", 0), min((queue.demand["gpu"], *queue.bounds("gpu")))
        assert share <= ask_
        if queue.parent is None:
            assert share >= min(queue.deserved("gpu"), ask_)
        guaranteed = sum(min(child.deserved("gpu"), child.demand["gpu"]) for child in queue.children)
        assert sum(child.fair.get("gpu", 0) for child in queue.children) <= max(share, guaranteed)
    kept = sum(
        max(min(queue.deserved("gpu"), queue.demand["gpu"]), queue.kept("gpu"), queue.fair.get("gpu", 0))
        for queue in tree.roots
    )
    guaranteed = sum(max(min(queue.deserved("gpu"), queue.demand["gpu"]), queue.kept("gpu")) for queue in tree.roots)
    assert kept <= max(total, guaranteed)
    divide_tree(tree, tree.totals, k=k)
    assert first == {name: queue.fair.get("gpu", 0) for name, queue in tree.queues.items()}


@given(trees(), st.data())
def test_a_share_taken_by_fairness_cannot_be_lost_to_the_same_victim(tree: Tree, data: st.DataObject):
    divide_tree(tree, tree.totals)
    leaves = [queue for queue in tree.queues.values() if not queue.children]
    for queue in leaves:
        queue.charge({"gpu": data.draw(st.integers(0, 12))}, 0)
    taker, giver = data.draw(st.sampled_from(leaves)), data.draw(st.sampled_from(leaves))
    one = {"gpu": data.draw(st.integers(1, 3))}
    verdict = may_reclaim(taker, one, giver, one)
    if verdict and verdict.rule is Rule.FAIRNESS:
        assert giver.used["gpu"] - one["gpu"] >= giver.deserved("gpu")
        giver.charge(one, 0, -1)
        taker.charge(one, 0)
        back = may_reclaim(giver, one, taker, one)
        assert not back or back.rule is Rule.GUARANTEE


def quota(name: str, **amounts: int) -> QueueSpec:
    return QueueSpec(name=name, quotas=(FlavorQuota(flavor="gpu", **amounts),))


def world(*queues: QueueSpec) -> World:
    made = h100_world(1)
    made.flavors, made.queues = (GPU,), queues
    return made


def test_what_a_queue_keeps_unlent_stays_free_for_it():
    made = world(quota("owner", deserved=6, lending_limit=2), quota("guest"))
    guests = [gang(f"g{number}", 1, ONE, queue="guest", created=float(number)) for number in range(6)]
    plan = made.decide(*guests)
    assert len(plan.admissions) == 4
    reasons = {entry.reason.code for entry in plan.waiting}
    assert reasons == {Code.OVER_LIMIT}
    assert "keep what they deserve" in str(plan.waiting[0].reason)
    assert {use.name: use.flavors[0].fair_share for use in plan.queues}["guest"] == 4
    left = made.carry_out(plan, guests)
    plan = made.decide(*left, gang("mine", 4, ONE, queue="owner", created=9.0))
    assert [entry.name for entry in plan.admissions] == ["mine"]


def test_a_borrowing_limit_bounds_share_and_use():
    made = world(quota("small", deserved=2, borrowing_limit=1), quota("other"))
    jobs = [gang(f"j{number}", 1, ONE, queue="small", created=float(number)) for number in range(6)]
    plan = made.decide(*jobs)
    assert len(plan.admissions) == 3
    assert "borrowingLimit of queue small" in str(plan.waiting[0].reason)
    assert {use.name: use.flavors[0].fair_share for use in plan.queues if use.flavors}["small"] == 3


def test_a_queue_that_used_more_in_the_past_gets_less_of_what_is_left():
    past = [QueueSpec(name=name, past_usage={"gpu": used}) for name, used in (("a", 0.75), ("b", 0.25))]
    made = world(*past)
    jobs = [gang(f"{name}{n}", 1, ONE, queue=name, created=float(n)) for name in "ab" for n in range(8)]
    plan = made.decide(*jobs)
    shares = {use.name: use.flavors[0].fair_share for use in plan.queues}
    assert shares == {"a": 2, "b": 6}
    held = [entry.queue for entry in plan.admissions]
    assert (held.count("a"), held.count("b")) == (2, 6)


def test_a_gang_that_waits_counts_for_the_cheapest_that_it_could_get():
    either = claim_spec({"firstAvailable": [device_request(8, name="eight"), device_request(2, name="two")]})
    every = claim_spec({"deviceClassName": names.GPU_CLASS, "allocationMode": "All"})
    made = world(quota("q", limit=1), quota("other"))
    made.add_node("small", [gpu(minor) for minor in range(4)])
    for spec, least in ((either, 2), (every, 4)):
        plan = made.decide(gang("job", 1, spec, queue="q"))
        assert [entry.reason.code for entry in plan.waiting] == [Code.OVER_LIMIT]
        assert {use.name: use.flavors[0].demand for use in plan.queues if use.flavors}["q"] == least


def test_weights_of_halves_are_exact():
    tree = Tree([QueueSpec(name=n, quotas=(FlavorQuota(flavor="g", deserved=Fraction(1, 2)),)) for n in "ab"])
    tree.begin({"g": 1})
    for queue in tree.queues.values():
        queue.demand["g"] = Fraction(1, 2)
    divide_tree(tree, tree.totals)
    assert [queue.fair["g"] for queue in tree.roots] == [Fraction(1, 2), Fraction(1, 2)]
