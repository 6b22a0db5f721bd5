"""What holds for any cluster and any gangs: DESIGN's invariants of the core, tried on random ones.

A failure prints hypothesis' own reproduction. The judge of validity shares no code with the allocator.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.engine.types.values import PodRef
from tests.support.engine.examples import examples
from tests.support.engine.objects import MIG, claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World

DRIVER = names.DRIVER
ISLAND = f"{DRIVER}/nvlinkDomain"
MODEL = f'device.attributes["{DRIVER}"].productName'
PROFILE = f'device.attributes["{DRIVER}"].profile'

RELAXED = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def devices(draw: st.DrawFn, minor: int) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if draw(st.integers(0, 4)) == 0:
        more["taints"] = [{"key": "xid", "effect": draw(st.sampled_from(["NoSchedule", "NoExecute"]))}]
    if draw(st.integers(0, 3)) == 0:
        more["allowMultipleAllocations"] = True
    return gpu(
        minor,
        product=draw(st.sampled_from(["x", "y"])),
        island=draw(st.sampled_from([None, 0, 1])),
        memory=draw(st.sampled_from(["40Gi", "80Gi"])),
        **more,
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World()
    for number in range(draw(st.integers(1, 3))):
        labels = {"rack": str(draw(st.integers(0, 1)))}
        if draw(st.integers(0, 2)) == 0:
            parts = [mig_gpu(minor) for minor in range(draw(st.integers(1, 2)))]
            every = [device for part, _ in parts for device in part]
            world.add_node(f"node-{number}", every, counters=[entry for _, entry in parts], labels=labels)
        else:
            every = [draw(devices(minor)) for minor in range(draw(st.integers(0, 5)))]
            world.add_node(f"node-{number}", every, labels=labels, allocatable={"cpu": str(draw(st.integers(2, 8)))})
    if draw(st.booleans()):
        roaming = [draw(devices(minor)) for minor in range(draw(st.integers(1, 2)))]
        pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "allNodes": True, "pool": pool, "devices": roaming}
        world.add_slices([{"metadata": {"name": "net"}, "spec": spec}])
    return world


@st.composite
def device_requests(draw: st.DrawFn, *, every: bool = True) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        more["tolerations"] = [{"key": "xid", "operator": "Exists"}]
    if draw(st.integers(0, 3)) == 0:
        more["capacity"] = {"requests": {"memory": draw(st.sampled_from(["20Gi", "60Gi"]))}}
    if draw(st.integers(0, 3)) == 0:
        profile = draw(st.sampled_from(["1g.10gb", "3g.40gb"]))
        return device_request(draw(st.integers(1, 2)), device_class=MIG, cel=f'{PROFILE} == "{profile}"', **more)
    cel = draw(st.sampled_from(["", f'{MODEL} == "x"', f'{MODEL} != "x"']))
    wanted = device_request(draw(st.integers(1, 3)), cel=cel, **more)
    if every and draw(st.integers(0, 7)) == 0:
        del wanted["count"]
        wanted["allocationMode"] = "All"
    return wanted


@st.composite
def specs(draw: st.DrawFn, *, every: bool = True) -> dict[str, Any]:
    requests = []
    for _ in range(draw(st.integers(1, 2))):
        if draw(st.integers(0, 3)) == 0:
            options = [{"name": f"s{place}", **draw(device_requests(every=every))} for place in range(2)]
            requests.append({"firstAvailable": options})
        else:
            requests.append(draw(device_requests(every=every)))
    constraints = draw(st.sampled_from([[], [], [{"matchAttribute": ISLAND}], [{"distinctAttribute": ISLAND}]]))
    return claim_spec(*requests, constraints=constraints)


@st.composite
def gangs(draw: st.DrawFn, *, every: bool = True) -> list[GangRequest]:
    return [
        gang(
            f"g{number}",
            draw(st.integers(1, 3)),
            draw(specs(every=every)),
            shared=draw(st.integers(0, 4)) == 0,
            created=float(draw(st.integers(0, 2))),
            priority=draw(st.integers(0, 1)),
            queue=draw(st.sampled_from(["a", "b"])),
            topology=draw(st.sampled_from([None, None, "required:rack", "preferred:rack"])),
        )
        for number in range(draw(st.integers(1, 4)))
    ]


def with_queues(world: World, limit: int | None) -> World:
    world.flavors = (FlavorSpec(name="any", device_selector="true"),)
    world.queues = (
        QueueSpec(name="a", quotas=(FlavorQuota(flavor="any", deserved=2, limit=limit),)),
        QueueSpec(name="b"),
    )
    return world


@RELAXED
@given(world=worlds(), waiting=gangs(), limit=st.sampled_from([None, 2]))
def test_a_decision_is_valid_whole_repeatable_and_final(world: World, waiting: list[GangRequest], limit: int | None):
    with_queues(world, limit)
    before = _state(world)
    plan = world.decide(*waiting)
    assert _state(world) == before, "the snapshot was changed"
    assert world.afresh().decide(*waiting) == plan, "the same snapshot gave another plan"

    by_id = {entry.id: entry for entry in waiting}
    assert {entry.id for entry in plan.admissions} | {entry.id for entry in plan.waiting} == set(by_id)
    assert len(plan.admissions) + len(plan.waiting) == len(waiting)
    for admission in plan.admissions:
        wanted = by_id[admission.id]
        assert [entry.pod for entry in admission.assignments] == [member.pod for member in wanted.members]
        assert {claim.key for claim in admission.claims} == {claim.key for claim in wanted.claims}
        if wanted.topology == "required:rack":
            racks = {world.node_json[entry.node]["metadata"]["labels"]["rack"] for entry in admission.assignments}
            assert len(racks) == 1
    for entry in plan.waiting:
        assert str(entry.reason)
        assert entry.reason.message
    used = {use.name: {flavor.flavor: flavor.used for flavor in use.flavors} for use in plan.queues}
    assert limit is None or used["a"].get("any", 0) <= limit

    left = world.carry_out(plan, waiting)
    assert not world.faults()
    # What others take of shared devices is no longer part of "all", and under a limit an alternative that can't be had any
    # more may leave room for a cheaper one.
    if not any(_asks_for_all(entry) or (limit is not None and _has_choice(entry)) for entry in left):
        assert not world.decide(*left).admissions, "the next decision gave what this one did not"


@RELAXED
@given(world=worlds(), rounds=st.lists(gangs(), min_size=2, max_size=4), data=st.data())
def test_what_is_kept_between_decisions_never_changes_a_plan(world: World, rounds: list[Any], data: st.DataObject):
    """The same tables fed for hours and a controller that has just started decide alike, whatever happened between."""
    for number, waiting in enumerate(rounds):
        plan = world.decide(*waiting)
        assert world.afresh().decide(*waiting) == plan
        renamed = [replace(entry, name=f"{entry.name}-{number}", uid=f"{entry.uid}-{number}") for entry in waiting]
        unique = [_with_own_claims(entry, number) for entry in renamed]
        world.carry_out(world.decide(*unique), unique)
        match data.draw(st.integers(0, 4)):
            case 0 if world.running:
                world.end(data.draw(st.sampled_from(sorted(world.running))))
            case 1 if world.node_json:
                world.drop_node(data.draw(st.sampled_from(sorted(world.node_json))))
            case 2:
                world.add_node(f"new-{number}", [gpu(0, product="x"), gpu(1)], labels={"rack": "0"})
            case 3 if world.node_json:
                name = data.draw(st.sampled_from(sorted(world.node_json)))
                body = world.node_json[name]
                world.add_node(name, labels={"rack": "1"}, allocatable=body["status"]["allocatable"])
            case _:
                pass


def _with_own_claims(entry: GangRequest, number: int) -> GangRequest:
    names_of = {claim.key: f"{claim.key}-{number}" for claim in entry.claims}
    return replace(
        entry,
        claims=tuple(replace(claim, key=names_of[claim.key], name=names_of[claim.key]) for claim in entry.claims),
        members=tuple(
            replace(
                member,
                pod=PodRef(member.pod.namespace, member.pod.name, f"{entry.uid}-{place}"),
                claims=tuple(names_of[key] for key in member.claims),
            )
            for place, member in enumerate(entry.members)
        ),
    )


@RELAXED
@given(world=worlds(), waiting=gangs(every=False))
def test_what_fits_alone_still_fits_when_a_node_is_added(world: World, waiting: list[GangRequest]):
    first = waiting[0]
    fitted = bool(world.decide(first).admissions)
    world.add_node("node-9", [gpu(0, product="x"), gpu(1, product="y")], labels={"rack": "9"})
    if fitted:
        assert world.decide(first).admissions


@RELAXED
@given(world=worlds(), waiting=gangs(), seed=st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(world: World, waiting: list[GangRequest], seed: Any):
    plan = world.decide(*waiting)
    other = World()
    nodes, slices, shuffled = list(world.node_json.items()), list(world.slice_json.values()), list(waiting)
    for heard in (nodes, slices, shuffled):
        seed.shuffle(heard)
    for name, body in nodes:
        other.add_node(name, labels=body["metadata"]["labels"], allocatable=body["status"]["allocatable"])
    other.add_slices(slices)
    again = other.decide(*shuffled)
    assert again.admissions == plan.admissions


@RELAXED
@given(world=worlds(), count=st.integers(1, 6), others=st.integers(0, 4))
def test_the_fast_path_and_the_full_search_agree(world: World, count: int, others: int):
    """The same request, once plain and once with a constraint that every device satisfies, which needs the search."""
    fillers = [gang(f"filler-{number}", 1, claim_spec(device_request())) for number in range(others)]
    world.carry_out(world.decide(*fillers), fillers)
    plain = claim_spec(device_request(count, cel=f'{MODEL} == "x"'))
    searched = claim_spec(
        device_request(count, cel=f'{MODEL} == "x"'), constraints=[{"matchAttribute": f"{DRIVER}/type"}]
    )
    fast = world.decide(gang("job", 1, plain))
    full = world.decide(gang("job", 1, searched))
    assert bool(fast.admissions) == bool(full.admissions)


def _has_choice(entry: GangRequest) -> bool:
    return any(request.first_available for claim in entry.claims for request in claim.spec.devices.requests)


def _asks_for_all(entry: GangRequest) -> bool:
    asked = [
        each.allocation_mode
        for claim in entry.claims
        for request in claim.spec.devices.requests
        for each in (request.exactly, *request.first_available)
        if each is not None
    ]
    return "All" in asked


def _state(world: World) -> object:
    """All that a decision could have changed, were it careless."""
    pools = [
        (
            pool.id,
            [
                (device.name, None if device.use is None else dict(device.use.claims))
                for device in pool.devices.values()
            ],
            list(pool.used),
        )
        for pool in world.inventory.pools()
    ]
    nodes = [(node.name, dict(node.used), dict(node.ports)) for node in world.nodes.all()]
    return (world.inventory.version, pools, nodes, world.node_json, world.slice_json)
