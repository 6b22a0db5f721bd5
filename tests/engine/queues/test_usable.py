"""What shares are divided from: what is broken and free does not count, what is in use does while it may stay."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.engine.types.settings import FlavorSpec, QueueSpec
from fairlead.kube import core, resource
from tests.support.engine.objects import MIG, claim_spec, device_request, gang, gpu, mig_gpu, slice_of
from tests.support.engine.world import World

ONE = claim_spec(device_request())
SHARE = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"', measure="Share")


def world(*devices: dict[str, Any], counters: list[dict[str, Any]] | None = None) -> World:
    made = World()
    made.add_node("n0", devices, counters=counters or [])
    made.flavors, made.queues = (SHARE,), (QueueSpec(name="a"), QueueSpec(name="b"))
    return made


def shares(made: World) -> tuple[object, object]:
    """Of two queues that both want all."""
    plan = made.decide(*(gang(f"{name}-all", 1, claim_spec(device_request(4)), queue=name) for name in "ab"))
    found = {use.name: use.flavors[0].fair_share for use in plan.queues if use.flavors}
    return found.get("a", 0), found.get("b", 0)


def total(made: World) -> object:
    """What a queue that asks for more than there is may have, and what the flavor says that there is."""
    wants = [gang(f"w{number}", 1, ONE, queue="a") for number in range(9)]
    plan = made.decide(*wants)
    used = {use.name: use.flavors[0].fair_share for use in plan.queues if use.flavors}
    assert plan.flavors[0].total == 4
    return used.get("a", 0)


def four(**broken: str) -> World:
    """Four GPUs; those named have a taint of this effect."""
    devices = [gpu(minor) for minor in range(4)]
    for name, effect in broken.items():
        devices[int(name[1:])]["taints"] = [{"key": "xid", "effect": effect}]
    return world(*devices)


def test_a_device_under_a_taint_rule_is_in_no_share_until_the_rule_goes():
    made = four()
    rule = {
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"driver": names.DRIVER, "pool": "n0", "device": "gpu-0"},
            "taint": {"key": "check", "effect": "NoSchedule"},
        },
    }
    made.inventory.set_taint_rule(msgspec.convert(rule, resource.DeviceTaintRule))
    assert total(made) == 3
    made.inventory.drop_taint_rule("r")
    assert total(made) == 4


@pytest.mark.parametrize("status", [{"conditions": [{"type": "Ready", "status": "False"}]}, None])
def test_free_devices_of_a_node_that_is_not_ready_or_gone_are_in_no_share(status: dict[str, Any] | None):
    made = four()
    made.queues = (QueueSpec(name="a"),)
    plan = made.decide(held := gang("held", 1, ONE, queue="a"))
    made.carry_out(plan, [held])
    if status is None:
        made.nodes.drop_node("n0")
    else:
        body = made.node_json["n0"]
        body = {**body, "status": {**body["status"], **status}}
        made.nodes.set_node(msgspec.convert(body, core.Node))
    assert made.decide().flavors[0].total == 4
    made.add_node("n1", [gpu(minor) for minor in range(2)])
    made.queues = (QueueSpec(name="a"), QueueSpec(name="b"))
    assert shares_of_six(made) == (2, 1)


def shares_of_six(made: World) -> tuple[object, object]:
    """Two free GPUs on a sound node and one in use on a lost one: three to divide, the odd one to the first."""
    wants = [gang(f"{name}{number}", 1, ONE, queue=name) for name in "ab" for number in range(3)]
    plan = made.decide(*wants)
    found = {use.name: use.flavors[0].fair_share for use in plan.queues}
    return found["a"], found["b"]


def test_of_a_broken_gpu_that_is_cut_only_the_slice_in_use_counts():
    devices, counters = mig_gpu(0)
    made = world(*devices, gpu(1), counters=[counters])
    small = claim_spec(
        device_request(device_class=MIG, cel=f'device.attributes["{names.DRIVER}"].profile == "1g.10gb"')
    )
    wants = [gang("small", 1, small, queue="a")]
    made.carry_out(made.decide(*wants), wants)
    for entry in devices:
        entry["taints"] = [{"key": "xid", "effect": "NoSchedule"}]
    slices = slice_of("n0", [*devices, gpu(1)], counters=[counters])
    for body in slices:
        body["spec"]["pool"]["generation"] = 2
    made.add_slices(slices)
    whole = [gang(f"{name}{n}", 1, ONE, queue=name) for name in "ab" for n in range(3)]
    made.queues = (QueueSpec(name="a"), QueueSpec(name="b"))
    plan = made.decide(*whole)
    found = {use.name: use.flavors[0].fair_share for use in plan.queues if use.flavors}
    assert plan.flavors[0].total == 2
    assert sum(found.values(), Fraction(0)) == 1 + Fraction(1, 7)


@pytest.mark.parametrize(("tolerated", "counts"), [(("xid",), False), (("xid", "fabric"), True)])
def test_a_device_whose_holder_one_of_its_taints_evicts_is_in_no_share(tolerated: tuple[str, ...], counts: bool):
    devices = [gpu(minor) for minor in range(2)]
    made = world(*devices)
    made.queues = (QueueSpec(name="a"),)
    tolerations = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in tolerated]
    held = gang("held", 1, claim_spec(device_request(tolerations=tolerations)), queue="a")
    made.carry_out(made.decide(held), [held])
    devices[0]["taints"] = [{"key": key, "effect": "NoExecute"} for key in ("xid", "fabric")]
    slices = slice_of("n0", devices)
    for body in slices:
        body["spec"]["pool"]["generation"] = 2
    made.add_slices(slices)
    wants = [gang(f"w{number}", 1, ONE, queue="a") for number in range(3)]
    (use,) = (each.flavors[0] for each in made.decide(*wants).queues)
    assert use.fair_share == 1 + counts


def test_a_flavor_that_takes_other_devices_from_now_on_has_their_total():
    made = world(*(gpu(minor) for minor in range(3)))
    assert made.decide().flavors[0].total == 3
    made.flavors = (FlavorSpec(name="gpu", device_selector="false", measure="Share"),)
    assert made.decide().flavors[0].total == 0
