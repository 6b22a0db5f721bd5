"""Each wait names its cause; what a reason says is what the cluster shows."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.plan.decide import decide
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code, Reason, Rejection
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, slice_of
from tests.support.engine.world import World, h100_world

ONE = claim_spec(device_request())
MODEL = f'device.attributes["{names.DRIVER}"].productName'


def reason(plan: Plan) -> Reason:
    assert not plan.admissions
    return plan.waiting[0].reason


def removed(why: Reason, request: int = 0) -> dict[Rejection, int]:
    return dict(why.requests[request].removed)


def test_an_unknown_class_is_named_with_the_known_ones():
    why = reason(h100_world(1).decide(gang("job", 1, claim_spec(device_request(device_class="gpu.exmaple.com")))))
    assert why.code is Code.INVALID
    assert "ResourceClaim ml/job-0-gpu: spec.devices.requests[0].exactly.deviceClassName" in str(why)
    assert names.GPU_CLASS in str(why)


def test_a_selector_that_does_not_compile_is_shown_with_its_place():
    why = reason(h100_world(1).decide(gang("job", 1, claim_spec(device_request(cel="device.foo == 1")))))
    assert why.code is Code.INVALID
    assert "selectors[0].cel.expression" in str(why)


def test_a_selector_error_is_kept_apart_from_a_no():
    no = reason(h100_world(1).decide(gang("job", 1, claim_spec(device_request(cel=f'{MODEL} == "H200"')))))
    assert no.code is Code.NEVER_FITS
    assert removed(no) == {Rejection.SELECTOR: 8}
    error = reason(
        h100_world(1).decide(
            gang("job", 1, claim_spec(device_request(cel=f'device.attributes["{names.DRIVER}"].nix == 1')))
        )
    )
    assert error.code is Code.SELECTOR_ERROR
    assert "no such key: nix" in str(error)


def test_each_filter_counts_what_it_removed():
    world = World()
    taints = [{"key": "xid", "value": "79", "effect": "NoSchedule"}]
    world.add_node("a", [gpu(0), gpu(1, taints=taints), gpu(2, product="other"), gpu(3)])
    world.add_node("b", [gpu(0)], unschedulable=True)
    holder = gang("holder", 1, ONE)
    world.carry_out(world.decide(holder), [holder])
    why = reason(world.decide(gang("job", 1, claim_spec(device_request(2, cel=f'{MODEL} != "other"')))))
    assert removed(why) == {Rejection.SELECTOR: 1, Rejection.TAINT: 1, Rejection.NODE: 1, Rejection.IN_USE: 1}
    assert why.requests[0].devices == 5
    assert why.requests[0].per_node_best == 1
    assert "xid=79" in str(why)
    assert why.near_miss is not None
    assert why.near_miss.members_wanted == 1


def test_all_waits_for_a_pool_that_is_not_whole():
    world = World()
    world.add_node("node", [gpu(0)])
    part = slice_of("node", [gpu(1)], driver="nic.example.com")
    part[0]["spec"]["pool"]["resourceSliceCount"] = 2
    world.add_slices(part)
    why = reason(
        world.decide(gang("job", 1, claim_spec({"deviceClassName": names.GPU_CLASS, "allocationMode": "All"})))
    )
    assert why.code is Code.POOL_INCOMPLETE
    assert "nic.example.com/node" in str(why)


def test_a_search_that_runs_out_of_steps_never_says_impossible():
    world = World()
    world.add_node("node", [gpu(minor, island=minor % 2) for minor in range(12)])
    constraints = [{"matchAttribute": f"{names.DRIVER}/nvlinkDomain"}]
    snapshot = world.snapshot(gang("job", 1, claim_spec(device_request(3), device_request(3), constraints=constraints)))
    why = reason(decide(replace(snapshot, search_steps=3), 0.0))
    assert why.code is Code.SEARCH_ENDED
    assert why.could_ever_fit is None
    assert "may exist" in str(why)
    assert decide(snapshot, 0.0).admissions


def test_gangs_of_the_same_decision_are_holders_too():
    plan = h100_world(1).decide(gang("a", 6, ONE, created=1.0), gang("b", 6, ONE, created=2.0))
    assert [(holder.gang, holder.devices) for holder in plan.waiting[0].reason.holders] == [("ml/a", 6)]


def test_what_runs_on_nodes_that_the_pod_rules_out_holds_nothing_for_it():
    world = World()
    for node, team in (("a", "red"), ("b", "blue")):
        world.add_node(node, [gpu(minor) for minor in range(4)], labels={"team": team})
    for name, team in (("red", "red"), ("blue", "blue")):
        holder = gang(name, 3, ONE, pod={"nodeSelector": {"team": team}})
        world.carry_out(world.decide(holder), [holder])
    job = gang("job", 1, claim_spec(device_request(2)), pod={"nodeSelector": {"team": "red"}})
    why = reason(world.decide(job))
    assert [(holder.gang, holder.devices) for holder in why.holders] == [("ml/red", 3)]
    both = reason(world.decide(gang("job", 1, claim_spec(device_request(2)))))
    assert [(holder.gang, holder.devices) for holder in both.holders] == [("ml/blue", 3), ("ml/red", 3)]


def test_of_several_alternatives_that_is_named_which_comes_nearest():
    world = World()
    world.add_node("a", [gpu(minor) for minor in range(8)])
    world.add_node("b", [gpu(minor, product="L4") for minor in range(2)])
    holder = gang("holder", 6, claim_spec(device_request(cel=f'{MODEL} != "L4"')))
    world.carry_out(world.decide(holder), [holder])
    options = [
        device_request(4, cel=f'{MODEL} == "H200"', name="h200"),
        device_request(4, cel=f'{MODEL} == "L4"', name="l4"),
        device_request(4, cel=f'{MODEL} != "L4"', name="h100"),
    ]
    why = reason(world.decide(gang("job", 1, claim_spec({"firstAvailable": options}))))
    assert why.code is Code.NO_DEVICES
    assert why.message == (
        "not enough free devices for its pod, 4 devices: request r0/h100 (the nearest of 3 alternatives) wants 4 on one node, the best "
        "node has 2 free"
    )
    assert [holder.gang for holder in why.holders] == ["ml/holder"]
    never = reason(world.decide(gang("job", 1, claim_spec({"firstAvailable": options[:2]}))))
    assert (
        "request r0/l4 (the nearest of 2 alternatives) wants 4 on one node, the best node has 2 free" in never.message
    )


def test_a_cluster_without_nodes_is_a_reason():
    why = reason(World().decide(gang("job", 1, ONE)))
    assert why.code in {Code.NO_NODE, Code.NEVER_FITS}
    assert str(why)


def test_the_sentence_names_how_many_devices_are_missing():
    plan = h100_world(2).decide(gang("a", 12, ONE, created=1.0), gang("b", 12, ONE, created=2.0))
    assert plan.waiting[0].reason.message == (
        "not enough free devices for its 12 pods, 1 device each: 12 wanted, 4 free on 1 node, 8 missing"
    )


def test_a_claim_that_two_gangs_share_is_allocated_once():
    world = h100_world(1)
    first, second = (gang(name, 1, ONE, created=created) for name, created in (("first", 1.0), ("second", 2.0)))
    claims = first.claims
    second = replace(
        second, claims=claims, members=tuple(replace(one, claims=first.members[0].claims) for one in second.members)
    )
    plan = world.decide(first, second)
    assert [entry.name for entry in plan.admissions] == ["first"]
    assert plan.waiting[0].reason.code is Code.CLAIM_BEING_ALLOCATED


def test_the_closest_node_does_not_depend_on_what_was_tried_for_others():
    """Once for each claim the allocator finds that neither node has two alike; a gang that asks for the same later is told so, too."""
    world = World()
    for name in ("a", "b"):
        world.add_node(name, [gpu(0, product=f"{name}-x"), gpu(1, product=f"{name}-y")])
    alike = claim_spec(device_request(2), constraints=[{"matchAttribute": f"{names.DRIVER}/productName"}])
    gangs = [gang(f"job-{size}", size, alike) for size in (1, 2, 3)]
    together = {each.id: each.reason.near_miss for each in world.decide(*gangs).waiting}
    alone = {each.id: world.afresh().decide(each).waiting[0].reason.near_miss for each in gangs}
    assert together == alone
    assert {near.node for near in together.values() if near is not None} == {"a"}
    assert {each.id: each.reason.near_miss for each in world.decide(*gangs).waiting} == together
