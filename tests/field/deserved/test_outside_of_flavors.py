"""A borrower gives back what it borrowed, whatever its queue runs besides on devices that the owner did not ask for."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fairlead.engine.types.settings import FlavorSpec
from tests.field.deserved.clusters import (
    H100,
    L40S,
    admit,
    all_gpus,
    cluster,
    held,
    job,
    model,
    queue,
    settled,
)
from tests.support.engine.objects import claim_spec, device_request, gang

NODES = {"h0": [H100] * 8, "h1": [H100] * 8, "l0": [L40S] * 4}
OUTSIDE: dict[str, tuple[FlavorSpec, ...]] = {
    "no flavor": (),
    "another flavor": (model(L40S),),
    "memory of its model": (model(L40S, "Capacity"),),
    "shares of all models": (all_gpus("share", "Share"),),
    "devices of all models": (all_gpus("all", "Devices"),),
    "memory of all models": (all_gpus("memory", "Capacity"),),
}


@pytest.mark.parametrize("flavors", OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.parametrize("created", [0.0, 50.0], ids=["older", "younger"])
def test_a_pod_on_another_model_keeps_nothing_that_its_queue_borrowed(flavors, created):
    world = cluster(NODES, (model(H100), *flavors), (queue("language", h100=8), queue("vision", h100=8)))
    admit(
        world,
        job("borrower", 4, H100, "language", gpus=4, created=10.0),
        job("other", 1, L40S, "language", created=created),
    )
    world.now = 60.0
    _, waiting = settled(world, [job("owner", 8, H100, "vision", created=60.0)])
    assert held(world, H100, "vision") == 8
    assert [each.name for each in waiting] == ["borrower"]
    assert "ml/other" in world.running


@pytest.mark.parametrize("flavors", [(), (model(L40S),)], ids=["uncounted", "counted"])
def test_an_owner_that_takes_any_model_takes_back_what_its_queue_deserves_of_one(flavors):
    """Asked for by `nvidia.com/gpu`, or by a claim of the class alone: on L40Ss the gang would cost nothing, and they are full."""
    world = cluster(NODES, (model(H100), *flavors), (queue("language", h100=8), queue("vision", h100=8)))
    admit(world, job("borrower", 4, H100, "language", gpus=4), job("other", 4, L40S, "language"))
    world.now = 60.0
    owner = gang("owner", 8, claim_spec(device_request()), queue="vision", created=60.0)
    _, waiting = settled(world, [owner])
    assert held(world, H100, "vision") == 8
    assert [each.name for each in waiting] == ["borrower"]


def test_it_takes_back_no_more_than_that():
    world = cluster(NODES, (model(H100),), (queue("language", h100=8), queue("vision", h100=8)))
    admit(world, job("borrower", 16, H100, "language"), job("other", 4, L40S, "language"))
    world.now = 60.0
    owners = [gang(f"owner{n}", 1, claim_spec(device_request()), queue="vision", created=60.0 + n) for n in range(10)]
    world.running = {name: replace(each, size=8) for name, each in world.running.items()}
    _, waiting = settled(world, owners)
    assert held(world, H100, "vision") == 8
    assert {each.name for each in waiting} == {"owner8", "owner9"}


def test_a_gang_that_waits_for_another_model_does_not_have_the_place_that_its_queue_may_reserve():
    world = cluster(NODES, (model(H100),), (queue("language", h100=8), queue("vision", h100=8)))
    admit(world, job("small", 8, H100, "language"), job("more", 8, H100, "vision"), job("other", 4, L40S, "language"))
    world.reserve_after_s = 600.0
    world.now = 700.0
    plan = world.decide(
        job("l40s", 2, L40S, "vision", created=1.0), job("large", 1, H100, "vision", gpus=8, created=2.0)
    )
    assert {each.name for each in plan.reservations} == {"l40s", "large"}
