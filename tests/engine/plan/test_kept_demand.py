"""What a waiting gang counts for is kept from one decision to the next, and as of the nodes of now."""

from __future__ import annotations

import msgspec

from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube import core
from fairlead.kube.objects import LabelSelector
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World


def test_demand_follows_nodes_that_go_and_come_while_their_slices_stay():
    """Found by the campaign, seed 51015: the demand of a gang was that of nodes that were gone, until a slice changed."""
    world = World()
    world.flavors = (FlavorSpec(name="h100", device_selector="true"),)
    world.queues = (
        QueueSpec(name="team", namespace_selector=LabelSelector(), quotas=(FlavorQuota(flavor="h100", deserved=8),)),
    )
    world.add_node("n1", [gpu(minor) for minor in range(4)])
    waits = gang("waits", 1, claim_spec(device_request(count=8)))

    def demand() -> object:
        plan = world.decide(waits)
        assert plan == world.afresh().decide(waits)
        (use,) = plan.queues[0].flavors
        return use.demand

    assert demand() == 8
    node = world.node_json.pop("n1")
    world.nodes.drop_node("n1")
    assert demand() == 0
    world.node_json["n1"] = node
    world.nodes.set_node(msgspec.convert(node, core.Node))
    assert demand() == 8
