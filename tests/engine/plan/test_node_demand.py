"""Which waiting gangs nodes are asked for: never one that quota blocks, whole ones, within the flavor's max, and what that delays."""

from collections import defaultdict
from random import Random
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.plan.decide import Engine, decide
from fairlead.engine.types.gangs import GangRequest, Hold
from fairlead.engine.types.plan import NodeDemand, Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import Autoscaling, BudgetState, FlavorQuota, FlavorSpec, NamespaceQuota, QueueSpec
from tests.support.engine.examples import examples
from tests.support.engine.objects import GPU, claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

DEVICES = "gpu.deviceclass.resource.k8s.io/devices"
SELECTOR = f'device.driver == "{names.DRIVER}"'


def scaling(**more: Any) -> Autoscaling:
    return Autoscaling(**{"mode": "Visible", "patience_s": 1800.0, "wait_s": 600.0, **more})


def world(*nodes: int, queues: tuple[QueueSpec, ...] = (), autoscaling: Autoscaling | None = None) -> World:
    """Nodes with so many GPUs each."""
    made = World()
    for number, gpus in enumerate(nodes):
        made.add_node(f"n{number}", [gpu(minor) for minor in range(gpus)])
    made.flavors = (FlavorSpec(name="gpu", device_selector=SELECTOR, autoscaling=autoscaling or scaling()),)
    made.queues = queues
    return made


def asks(name: str, pods: int = 1, each: int = 1, **more: Any) -> GangRequest:
    return gang(name, pods, claim_spec(device_request(each)), **more)


def queue(name: str, deserved: int = 0, limit: int | None = None, **more: Any) -> QueueSpec:
    return QueueSpec(name=name, quotas=(FlavorQuota(flavor="gpu", deserved=deserved, limit=limit),), **more)


def states(plan: Plan) -> dict[str, str]:
    return {each.name: each.state for each in plan.demand}


def reason(plan: Plan, name: str) -> Any:
    return next(each.reason for each in plan.waiting if each.name == name)


def test_a_gang_that_lacks_devices_awaits_nodes_and_one_that_its_queues_limit_forbids_does_not():
    made = world(8, queues=(queue("free"), queue("limited", limit=4)))
    first = asks("first", 1, 8, queue="free")
    made.carry_out(made.decide(first), [first])
    plan = made.decide(
        asks("more", 2, 8, queue="free"), asks("much", 1, 5, queue="limited"), asks("some", 1, 4, queue="limited")
    )
    assert states(plan) == {"more": "Asked", "some": "Asked"}
    assert {each.name: each.reason.code for each in plan.waiting} == {
        "more": Code.AWAITING_NODES,
        "some": Code.AWAITING_NODES,
        "much": Code.OVER_LIMIT,
    }
    assert "Nodes are asked for since 1970-01-01T00:00:00Z" in str(reason(plan, "more"))
    more = next(each for each in plan.demand if each.name == "more")
    assert (more.mode, more.flavor, more.amounts, more.queue) == ("Visible", "gpu", (("gpu", 16),), "free")


def test_what_lacks_no_devices_is_no_demand():
    made = world(8)
    crowded = asks("crowded", 1, 1, cpu="65")
    never = asks("never", 1, 9)
    wide = asks("wide", 3, 8)
    plan = made.decide(crowded, never, wide)
    assert states(plan) == {"wide": "Asked"}
    assert reason(plan, "crowded").code is Code.NO_NODE
    assert reason(plan, "never").code is Code.NEVER_FITS
    assert reason(plan, "wide").code is Code.AWAITING_NODES
    assert (reason(plan, "wide").could_ever_fit, reason(plan, "never").could_ever_fit) == (None, False)


def test_a_flavor_that_does_not_scale_asks_for_nothing_and_changes_no_decision():
    made = world(8)
    made.flavors = (replace(made.flavors[0], autoscaling=None),)
    plan = made.decide(asks("wide", 3, 8))
    assert not plan.demand
    assert reason(plan, "wide").code is Code.NEVER_FITS


def test_the_max_counts_what_runs_and_what_is_demand():
    made = world(8, autoscaling=scaling(max=16))
    first = asks("first", 1, 8)
    made.carry_out(made.decide(first), [first])
    plan = made.decide(asks("a", 1, 8, created=1.0), asks("b", 1, 8, created=2.0))
    assert states(plan) == {"a": "Asked", "b": "AtMax"}
    assert reason(plan, "b").code is Code.NO_DEVICES
    assert "8 of flavor gpu are in use and 8 are asked for" in str(reason(plan, "b"))
    assert "spec.autoscaling.max of Flavor gpu" in str(reason(plan, "b"))


def reclaiming() -> tuple[World, GangRequest]:
    made = world(8, queues=(queue("a", deserved=8), queue("b")))
    first = asks("first", 1, 8, queue="b")
    made.carry_out(made.decide(first), [first])
    return made, asks("owner", 1, 8, queue="a")


def test_nothing_is_evicted_while_nodes_are_on_the_way_and_no_longer():
    made, owner = reclaiming()
    plan = made.decide(owner)
    assert not plan.evictions
    assert plan.due == 600.0
    assert "nodes are asked for, and nothing is evicted for it until 1970-01-01T00:10:00Z" in str(reason(plan, "owner"))
    asked = replace(owner, nodes_asked_since=0.0)
    made.now = 599.0
    assert not made.decide(asked).evictions
    assert Engine().decide_unexplained(made.snapshot(asked), made.now).evictions == ()
    made.now = 600.0
    late = made.decide(asked)
    assert [each.name for each in late.evictions] == ["first"]
    assert not late.demand, "it gets what is reclaimed"


def test_without_a_wait_it_evicts_at_once_and_at_its_max_too():
    for autoscaling in (scaling(wait_s=0.0), scaling(max=8)):
        made, owner = reclaiming()
        made.flavors = (replace(made.flavors[0], autoscaling=autoscaling),)
        assert [each.name for each in made.decide(owner).evictions] == ["first"]


def test_patience_ends_and_returns():
    made = world(8)
    for at, state, until in ((1799.0, "Asked", 1800.0), (1800.0, "Rests", 3600.0), (3600.0, "Asked", 5400.0)):
        made.now = at
        plan = made.decide(asks("wide", 3, 8, nodes_asked_since=0.0))
        (demand,) = plan.demand
        assert (demand.state, demand.until, demand.since) == (state, until, 0.0)
        assert plan.due == until
    made.now = 1800.0
    other = made.decide(asks("wide", 3, 8, nodes_asked_since=0.0))
    assert "No nodes came within 1800 s; they are asked for again at 1970-01-01T01:00:00Z" in str(reason(other, "wide"))
    assert "see that an autoscaler runs that serves mode Visible" in str(reason(other, "wide")), "the next step"


def test_a_pool_grows_from_zero_by_its_device_classes_and_within_the_limit():
    made = world(queues=(queue("a", limit=4),), autoscaling=scaling(device_classes=(GPU,)))
    made.add_node("cpu-only")
    plan = made.decide(asks("a", 2, 2, queue="a"), asks("b", 1, 5, queue="a"))
    assert states(plan) == {"a": "Asked"}
    assert plan.demand[0].amounts == (("gpu", 4),)
    made.flavors = (replace(made.flavors[0], autoscaling=scaling()),)
    assert not made.decide(asks("a", 2, 2, queue="a")).demand


def test_members_beyond_a_running_gangs_size_are_no_demand():
    made = world(8)
    first = asks("first", 1, 8)
    made.carry_out(made.decide(first), [first])
    surplus = replace(asks("grows", 2, 8), size=1, placed_nodes=("n0",))
    assert not made.decide(surplus).demand
    assert made.decide(replace(surplus, size=2)).demand, "short of its size"


def test_flavors_that_overlap_and_differ_in_mode_are_a_problem_with_the_next_step():
    made = world(8)
    other = replace(made.flavors[0], name="any", autoscaling=scaling(mode="Placeholder"))
    made.flavors = (*made.flavors, other)
    plan = made.decide(asks("wide", 3, 8))
    assert (plan.demand[0].flavor, plan.demand[0].mode) == ("any", "Placeholder")
    (problem,) = [each for each in plan.problems if each.reason == "AutoscalingOverlaps"]
    assert problem.name == "gpu"
    assert "set the same mode in both, or Off in one" in problem.message


def test_a_plan_that_asks_from_now_on_is_not_remembered_for_later():
    made, owner = reclaiming()
    at = {now: decide(made.snapshot(owner), now).demand[0].evicts_from for now in (0.0, 10.0)}
    assert at == {0.0: 600.0, 10.0: 610.0}
    asked = replace(owner, nodes_asked_since=0.0)
    assert {decide(made.snapshot(asked), now).demand[0].evicts_from for now in (10.0, 20.0)} == {600.0}


# -- the property -----------------------------------------------------------------------------------------------------


def _over(asked: dict[str, int], limits: dict[str, int | None]) -> list[str]:
    return [name for name, count in asked.items() if (most := limits.get(name)) is not None and count > most]


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60), deadline=None)
def test_demand_is_never_shown_for_a_gang_that_quota_blocks(seed: int):
    """Whatever runs and waits: what runs and all demand together stay within every limit, quota and max, and of queues that are on hold or
    have spent their budget nothing is demand. Counted from the plan alone."""
    dice = Random(seed)
    leaves = {f"q{number}": dice.choice(["left", "right"]) for number in range(3)}
    limits: dict[str, int | None] = {}  # what each may hold at most, by whichever of its bounds
    queues: list[QueueSpec] = []
    stopped: set[str] = set()
    for name in (*leaves, "left", "right"):
        limit = dice.choice([None, *range(0, 25, 4)])
        deserved = min(dice.randrange(9), 9 if limit is None else limit)
        borrows = dice.choice([None, None, 0, 4, 12])
        spent = None if dice.random() < 0.7 else BudgetState(
            on_exhausted=dice.choice(["warn", "noBorrow", "stop"]), limit=8, spent=dice.choice([4, 8, None]), renews_at=1e9
        )  # fmt: skip
        over = spent is not None and spent.spent == 8
        bounds = [limit, None if borrows is None else deserved + borrows]
        bounds.append(deserved if over and spent is not None and spent.on_exhausted == "noBorrow" else None)
        limits[name] = min((each for each in bounds if each is not None), default=None)
        hold = Hold(by="admin") if dice.random() < 0.1 else None
        if hold is not None or (over and spent is not None and spent.on_exhausted == "stop"):
            stopped.add(name)
        bounded = FlavorQuota(flavor="gpu", deserved=deserved, limit=limit, borrowing_limit=borrows)
        ordering: Literal["BestEffortFIFO", "StrictFIFO"] = dice.choice(["BestEffortFIFO", "StrictFIFO"])
        queues.append(
            QueueSpec(name=name, parent=leaves.get(name), quotas=(bounded,), ordering=ordering, budget=spent, hold=hold)
        )
    most = dice.choice([None, 8, 16, 30])
    from_zero = dice.random() < 0.3
    made = world(
        *([] if from_zero else [dice.choice([4, 8]) for _ in range(dice.randrange(1, 4))]),
        queues=tuple(queues),
        autoscaling=scaling(max=most, wait_s=dice.choice([0.0, 600.0]), device_classes=(GPU,)),
    )
    made.add_node("cpu-only")
    quota = NamespaceQuota(namespace="ml", name="q", resource=DEVICES, limit=dice.randrange(40), used=0)
    quotas = dice.choice([(), (quota,)])
    queue_of: dict[str, str] = {}
    size_of: dict[str, int] = {}
    waiting: list[GangRequest] = []
    for round_ in range(3):
        made.now = 700.0 * round_
        for number in range(dice.randrange(1, 6)):
            pods, each, name = dice.randrange(1, 4), dice.choice([1, 2, 4, 8]), f"g{round_}-{number}"
            queue_of[f"ml/{name}"], size_of[f"ml/{name}"] = dice.choice(list(leaves)), pods * each
            waiting.append(
                asks(name, pods, each, queue=queue_of[f"ml/{name}"], priority=dice.randrange(2), created=made.now,
                     quota_charge=((DEVICES, pods * each),))
            )  # fmt: skip
        used = sum(size_of[each] for each in made.running)
        limited = tuple(replace(each, used=used) for each in quotas)
        plan = decide(replace(made.snapshot(*waiting), namespace_quotas=limited), made.now)
        asked = [each for each in plan.demand if each.state == "Asked"]
        _check(plan, asked, queue_of, size_of, limits, leaves, made, most, limited)
        assert not {name for each in asked for name in (each.queue, leaves[each.queue])} & stopped
        since = {each.id: each.since for each in plan.demand if each.since is not None}
        waiting = [replace(each, nodes_asked_since=since.get(each.id)) for each in made.carry_out(plan, waiting)]


def _check(
    plan: Plan, asked: list[NodeDemand], queue_of: dict[str, str], size_of: dict[str, int],
    limits: dict[str, int | None], leaves: dict[str, str], made: World, most: int | None,
    quotas: tuple[NamespaceQuota, ...],
) -> None:  # fmt: skip
    held = {*made.running, *(each.id for each in plan.admissions)}
    waiting = {each.id: each.reason for each in plan.waiting}
    by_queue: defaultdict[str, int] = defaultdict(int)
    for gang_id in (*held, *(each.id for each in asked)):
        for name in (queue_of[gang_id], leaves[queue_of[gang_id]]):
            by_queue[name] += size_of[gang_id]
    if asked:
        assert not {queue_of[each.id] for each in asked} & set(_over(by_queue, limits))
        assert not {leaves[queue_of[each.id]] for each in asked} & set(_over(by_queue, limits))
    total = sum(size_of[gang_id] for gang_id in held) + sum(size_of[each.id] for each in asked)
    if asked and most is not None:
        assert total <= most
    for quota in quotas if asked else ():
        assert total <= quota.limit
    for each in asked:
        assert waiting[each.id].code is Code.AWAITING_NODES
        assert dict(each.amounts) == {"gpu": size_of[each.id]}, "whole gangs"
        assert waiting[each.id].limit is None
    blocked = {
        gang_id for gang_id, why in waiting.items() if why.code in {Code.OVER_LIMIT, Code.OVER_QUOTA, Code.BEHIND_HEAD}
    }
    assert not blocked & {each.id for each in asked}


@pytest.mark.parametrize("strict", [False, True])
def test_behind_the_head_of_a_strict_queue_nothing_is_demand(strict: bool):
    ordering = "StrictFIFO" if strict else "BestEffortFIFO"
    made = world(4, queues=(queue("a", ordering=ordering),))
    plan = made.decide(asks("first", 2, 4, queue="a", created=1.0), asks("second", 2, 4, queue="a", created=2.0))
    assert states(plan) == ({"first": "Asked"} if strict else {"first": "Asked", "second": "Asked"})
