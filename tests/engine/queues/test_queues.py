"""Queues: which goes first, which limit holds, and what a Queue object that is wrong says."""

from __future__ import annotations

import pytest

from fairlead.api import names
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube.objects import LabelSelector
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
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
    def test_positions_count_every_gang_that_was_considered(self):
        plan = h100_world(1).decide(
            gang("first", 8, ONE, created=1.0), gang("second", 1, ONE, created=2.0), gang("third", 1, ONE, created=3.0)
        )
        assert [(entry.name, entry.position) for entry in plan.waiting] == [("second", 2), ("third", 3)]


class TestLimits:
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
