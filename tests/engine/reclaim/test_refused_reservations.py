"""What a decision spends on places that it may not reserve."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.api import names
from fairlead.engine.reclaim.reservation import WaitCosts
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

NODES = 20
WHOLE = claim_spec(device_request(4))


def on(holder: str) -> dict[str, Any]:
    """A pod's spec that fits on nodes of which this queue's gangs hold all."""
    return {"nodeSelector": {"holder": holder}}


def looks(monkeypatch: pytest.MonkeyPatch, count: int, *, held: int) -> int:
    """At nodes, for what has to end there, in a decision with so many unlike gangs of two nodes that are over their queue's share.

    The queue deserves half of the nodes and holds all of `held`. They fit only on those that the other queue holds, whose gangs' end gives
    their own queue nothing back.
    """
    world = World()
    world.now = 1000.0
    holders = ["b" if number < NODES - held else "a" for number in range(NODES)]
    for number, holder in enumerate(holders):
        world.add_node(f"n{number:02}", [gpu(minor) for minor in range(4)], labels={"holder": holder})
    world.flavors = (FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"'),)
    quota = (FlavorQuota(flavor="gpu", deserved=2 * NODES),)
    world.queues = tuple(QueueSpec(name=name, quotas=quota, min_runtime_s=1e9) for name in "ab")
    running = [gang(f"r{number:02}", 1, WHOLE, queue=holder, pod=on(holder)) for number, holder in enumerate(holders)]
    assert world.carry_out(world.decide(*running), running) == []
    world.reserve_after_s = 5.0
    waiting = [gang("other", 1, WHOLE, queue="b")]
    waiting += [gang(f"w{number}", 2, WHOLE, queue="a", priority=number, pod=on("b")) for number in range(count)]
    made: list[object] = []
    look = WaitCosts.cheapest

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return look(*arguments)

    world.now += 100.0
    with monkeypatch.context() as patched:
        patched.setattr(WaitCosts, "cheapest", counted)
        plan = world.decide(*waiting)
    assert [each.queue for each in plan.reservations] == ["b"]
    assert len(plan.waiting) == len(waiting)
    return len(made)


def test_a_search_that_cannot_bring_a_gang_within_its_share_is_not_begun(monkeypatch: pytest.MonkeyPatch):
    """15 of 20 nodes are held, 10 deserved, and a gang of two nodes waits for two at most."""
    assert looks(monkeypatch, 10, held=15) == looks(monkeypatch, 1, held=15)


def test_nodes_are_looked_at_for_the_first_gang_of_a_queue_and_then_where_something_changed(
    monkeypatch: pytest.MonkeyPatch,
):
    one, ten = looks(monkeypatch, 1, held=10), looks(monkeypatch, 10, held=10)
    assert one >= NODES
    assert ten < 5 * one  # each of them is tried twice; looked at everywhere, it would be ten times as many
