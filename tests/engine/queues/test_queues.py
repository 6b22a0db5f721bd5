"""Queues: which goes first, which limit holds, and what a Queue object that is wrong says."""

from __future__ import annotations

from fractions import Fraction

import pytest

from fairlead.api import names
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube.objects import LabelSelector
from tests.support.engine.objects import MIG, claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World, h100_world

ONE = claim_spec(device_request())
H100 = FlavorSpec(
    name="h100", device_selector=f'device.attributes["{names.DRIVER}"].productName.startsWith("NVIDIA H100")'
)
A100 = FlavorSpec(
    name="a100", device_selector=f'device.attributes["{names.DRIVER}"].productName.startsWith("NVIDIA A100")'
)


def quota(name: str, *, flavor: str = "h100", **more) -> QueueSpec:
    amounts = {key: more.pop(key) for key in ("deserved", "limit", "weight") if key in more}
    return QueueSpec(name=name, quotas=(FlavorQuota(flavor=flavor, **amounts),), **more)


def admitted(plan: Plan) -> list[str]:
    return [entry.name for entry in plan.admissions]


def codes(plan: Plan) -> dict[str, Code]:
    return {entry.name: entry.reason.code for entry in plan.waiting}


class TestOrder:
    def test_without_queues_priority_then_age_then_uid(self):
        world = h100_world(1)
        plan = world.decide(
            gang("young", 1, ONE, created=5.0),
            gang("old", 1, ONE, created=1.0),
            gang("urgent", 1, ONE, created=9.0, priority=10),
            gang("old-too", 1, ONE, created=1.0),
        )
        assert admitted(plan) == ["urgent", "old", "old-too", "young"]

    def test_the_queue_under_its_deserved_goes_first(self):
        world = h100_world(1)
        world.flavors = (H100,)
        world.queues = (quota("poor", deserved=4), quota("rich", deserved=0, priority=5))
        plan = world.decide(gang("a", 1, ONE, queue="rich", created=1.0), gang("b", 1, ONE, queue="poor", created=2.0))
        assert admitted(plan) == ["b", "a"]

    def test_above_deserved_the_lowest_share_goes_first_by_weight(self):
        world = h100_world(1)
        world.flavors = (H100,)
        world.queues = (quota("double", weight=2.0), quota("single", weight=1.0))
        gangs = [
            gang(f"{queue}-{n}", 1, ONE, queue=queue, created=float(n))
            for queue in ("double", "single")
            for n in range(8)
        ]
        plan = world.decide(*gangs)
        assert len(plan.admissions) == 8
        held = [name.partition("-")[0] for name in admitted(plan)]
        assert held.count("double") in {5, 6}

    def test_strict_fifo_holds_back_what_would_fit(self):
        world = h100_world(1)
        world.queues = (QueueSpec(name="q", ordering="StrictFIFO"),)
        plan = world.decide(gang("big", 9, ONE, queue="q", created=1.0), gang("small", 1, ONE, queue="q", created=2.0))
        assert admitted(plan) == []
        assert codes(plan)["small"] is Code.BEHIND_HEAD
        world.queues = (QueueSpec(name="q"),)
        plan = world.decide(gang("big", 9, ONE, queue="q", created=1.0), gang("small", 1, ONE, queue="q", created=2.0))
        assert admitted(plan) == ["small"]

    def test_positions_count_every_gang_that_was_considered(self):
        plan = h100_world(1).decide(
            gang("first", 8, ONE, created=1.0), gang("second", 1, ONE, created=2.0), gang("third", 1, ONE, created=3.0)
        )
        assert [(entry.name, entry.position) for entry in plan.waiting] == [("second", 2), ("third", 3)]


class TestLimits:
    def test_a_limit_blocks_with_its_numbers(self):
        world = h100_world(1)
        world.flavors = (H100,)
        world.queues = (quota("q", limit=2),)
        gangs = [gang("fits", 2, ONE, queue="q", created=1.0), gang("over", 1, ONE, queue="q", created=2.0)]
        plan = world.decide(*gangs)
        assert admitted(plan) == ["fits"]
        block = plan.waiting[0].reason.limit
        assert block is not None
        assert (block.queue, block.flavor, block.used, block.asked, block.limit) == ("q", "h100", "2", "1", "2")
        left = world.carry_out(plan, gangs)
        assert admitted(world.decide(*left)) == []

    def test_the_parents_limit_holds_for_its_children_together(self):
        world = h100_world(1)
        world.flavors = (H100,)
        world.queues = (quota("org", limit=3), QueueSpec(name="a", parent="org"), QueueSpec(name="b", parent="org"))
        plan = world.decide(gang("one", 2, ONE, queue="a", created=1.0), gang("two", 2, ONE, queue="b", created=2.0))
        assert admitted(plan) == ["one"]
        assert plan.waiting[0].reason.limit is not None
        assert plan.waiting[0].reason.limit.queue == "org"

    def test_at_the_limit_of_one_flavor_another_serves(self):
        world = World()
        world.add_node("h", [gpu(minor) for minor in range(2)])
        world.add_node("a", [gpu(minor, product="NVIDIA A100-SXM4-80GB") for minor in range(2)])
        world.flavors = (A100, H100)
        world.queues = (QueueSpec(name="q", quotas=(FlavorQuota(flavor="h100", limit=0),)),)
        plan = world.decide(gang("job", 2, ONE, queue="q"))
        assert {entry.node for entry in plan.admissions[0].assignments} == {"a"}

    def test_at_the_limit_a_cheaper_alternative_serves(self):
        world = h100_world(1)
        world.flavors = (H100,)
        world.queues = (quota("q", limit=2),)
        options = {"firstAvailable": [device_request(4, name="four"), device_request(2, name="two")]}
        plan = world.decide(gang("job", 1, claim_spec(options), queue="q"))
        assert {result.request for result in plan.admissions[0].claims[0].allocation.devices.results} == {"r0/two"}
        world.queues = (quota("q", limit=1),)
        assert codes(world.decide(gang("job", 1, claim_spec(options), queue="q")))["job"] is Code.OVER_LIMIT

    def test_more_than_the_whole_limit_says_so(self):
        world = h100_world(1)
        world.flavors = (H100,)
        world.queues = (quota("q", limit=2),)
        plan = world.decide(gang("job", 3, ONE, queue="q"))
        assert plan.waiting[0].reason.could_ever_fit is False
        assert "raise" in plan.waiting[0].reason.advice


class TestCharges:
    def test_a_mig_device_costs_its_share_of_the_gpu(self):
        world = World()
        devices, counters = mig_gpu(0)
        world.add_node("node", devices, counters=[counters])
        world.flavors = (FlavorSpec(name="a100", device_selector=A100.device_selector, measure="Share"),)
        world.queues = (quota("q", flavor="a100", limit=Fraction(1, 2)),)
        small = claim_spec(
            device_request(device_class=MIG, cel=f'device.attributes["{names.DRIVER}"].profile == "3g.40gb"')
        )
        gangs = [gang(f"job-{number}", 1, small, queue="q", created=float(number)) for number in range(2)]
        plan = world.decide(*gangs)
        assert admitted(plan) == ["job-0"]
        use = plan.queues[0].flavors[0]
        assert use.used == Fraction(1, 2)
        assert use.demand == 1

    def test_capacity_counts_bytes(self):
        world = h100_world(1)
        world.flavors = (
            FlavorSpec(name="mem", device_selector=H100.device_selector, measure="Capacity", capacity_name="memory"),
        )
        world.queues = (quota("q", flavor="mem", limit=200 * 2**30),)
        plan = world.decide(gang("two", 2, ONE, queue="q", created=1.0), gang("one", 1, ONE, queue="q", created=2.0))
        assert admitted(plan) == ["two"]
        assert plan.queues[0].flavors[0].used == 160 * 2**30

    def test_a_claim_that_pods_share_is_charged_once_and_admin_access_is_free(self):
        world = h100_world(1)
        world.flavors = (H100,)
        world.queues = (quota("q", limit=1),)
        shared = gang("shared", 3, ONE, shared=True, queue="q", created=1.0)
        admin = gang("admin", 1, claim_spec(device_request(adminAccess=True)), queue="q", created=2.0)
        plan = world.decide(shared, admin)
        assert admitted(plan) == ["shared", "admin"]
        assert plan.queues[0].flavors[0].used == 1

    def test_fair_share_is_divided_by_weight_and_reported(self):
        world = h100_world(1)
        world.flavors = (H100,)
        world.queues = (quota("a", weight=3.0), quota("b", weight=1.0))
        plan = world.decide(gang("x", 8, ONE, queue="a", created=1.0), gang("y", 8, ONE, queue="b", created=2.0))
        assert {use.name: use.flavors[0].fair_share for use in plan.queues} == {"a": 6, "b": 2}


class TestQueueObjects:
    def test_an_unknown_queue_says_what_to_do(self):
        world = h100_world(1)
        world.queues = (QueueSpec(name="real"),)
        plan = world.decide(gang("job", 1, ONE, queue="typo"))
        assert codes(plan)["job"] is Code.UNKNOWN_QUEUE
        assert "real" in str(plan.waiting[0].reason)

    def test_a_queue_with_children_takes_no_gangs(self):
        world = h100_world(1)
        world.queues = (QueueSpec(name="org"), QueueSpec(name="team", parent="org"))
        plan = world.decide(gang("job", 1, ONE, queue="org"))
        assert codes(plan)["job"] is Code.QUEUE_NOT_LEAF
        assert "team" in plan.waiting[0].reason.advice

    def test_the_namespace_chooses_the_queue(self):
        world = h100_world(1)
        selector = LabelSelector(match_labels={"team": "ml"})
        world.queues = (QueueSpec(name="ml", namespace_selector=selector), QueueSpec(name="other"))
        mine = gang("mine", 1, ONE, namespace_labels={"team": "ml"})
        theirs = gang("theirs", 1, ONE, namespace_labels={"team": "web"})
        rude = gang("rude", 1, ONE, namespace_labels={"team": "web"}, queue="ml")
        plan = world.decide(mine, theirs, rude)
        assert [(entry.name, entry.queue) for entry in plan.admissions] == [("mine", "ml")]
        assert codes(plan) == {"theirs": Code.UNKNOWN_QUEUE, "rude": Code.QUEUE_NOT_FOR_NAMESPACE}

    @pytest.mark.parametrize(
        ("queues", "words"),
        [
            ((QueueSpec(name="a", parent="b"), QueueSpec(name="b", parent="a")), "cycle"),
            ((QueueSpec(name="a", parent="ghost"),), "there is no Queue 'ghost'"),
        ],
    )
    def test_a_broken_tree_is_reported_and_goes_on(self, queues, words):
        world = h100_world(1)
        world.queues = queues
        plan = world.decide(gang("job", 1, ONE, queue="a"))
        assert any(words in str(problem) for problem in plan.problems)
        assert len(plan.admissions) + len(plan.waiting) == 1

    def test_a_flavor_that_does_not_compile_charges_nothing_and_is_reported(self):
        world = h100_world(1)
        world.flavors = (FlavorSpec(name="bad", device_selector="device.nonsense"),)
        world.queues = (quota("q", flavor="bad", limit=0),)
        plan = world.decide(gang("job", 1, ONE, queue="q"))
        assert admitted(plan) == ["job"]
        assert any("Flavor bad" in str(problem) for problem in plan.problems)
