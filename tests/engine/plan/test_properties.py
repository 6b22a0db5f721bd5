"""What holds for any cluster and any gangs: DESIGN's invariants of the core, tried on random ones.

A failure prints hypothesis' own reproduction. The judge of validity shares no code with the allocator.
"""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.engine.types.values import PodRef
from tests.support.decisions_draws import DRIVER, MODEL, Draws, Features
from tests.support.engine.examples import examples
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

Cluster = tuple[World, list[list[GangRequest]]]
RELAXED = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def clusters(draw: st.DrawFn, *, plain: bool = False) -> tuple[World, list[list[GangRequest]]]:
    """One to three nodes, and some rounds of gangs. `plain`: of one request without `All` each."""
    random = draw(st.randoms(use_true_random=False))
    draws, world = Draws(random, Features(mig=True, shared=True, taints=True, claims=not plain)), World()
    for number in range(random.randint(1, 3)):
        draws.add_node(world, f"node-{number}")
    draws.add_roaming(world)
    with_queues(world, None)
    return world, [[draws.gang(world) for _ in range(random.randint(1, 4))] for _ in range(random.randint(2, 4))]


def with_queues(world: World, limit: int | None) -> World:
    world.flavors = (FlavorSpec(name="any", device_selector="true"),)
    world.queues = (
        QueueSpec(name="a", quotas=(FlavorQuota(flavor="any", deserved=2, limit=limit),)),
        QueueSpec(name="b"),
    )
    return world


@RELAXED
@given(cluster=clusters(), limit=st.sampled_from([None, 2]))
def test_a_decision_is_valid_whole_repeatable_and_final(cluster: Cluster, limit: int | None):
    world, (waiting, *_) = cluster
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
    # more may leave room for a cheaper one. Devices that this decision makes may be what admin access waits for: it is due again at once.
    if plan.due != world.now and not any(
        _asks_for_all(entry) or (limit is not None and _has_choice(entry)) for entry in left
    ):
        assert not world.decide(*left).admissions, "the next decision gave what this one did not"


@RELAXED
@given(cluster=clusters(), data=st.data())
def test_what_is_kept_between_decisions_never_changes_a_plan(cluster: Cluster, data: st.DataObject):
    """The same tables fed for hours and a controller that has just started decide alike, whatever happened between."""
    world, rounds = cluster
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
@given(cluster=clusters(plain=True))
def test_what_fits_alone_still_fits_when_a_node_is_added(cluster: Cluster):
    world, ((first, *_), *_) = cluster
    fitted = bool(world.decide(first).admissions)
    world.add_node("node-9", [gpu(0, product="x"), gpu(1, product="y")], labels={"rack": "9"})
    if fitted:
        assert world.decide(first).admissions


@RELAXED
@given(cluster=clusters(), seed=st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(cluster: Cluster, seed: Random):
    world, (waiting, *_) = cluster
    plan = world.decide(*waiting)
    other = with_queues(World(), None)
    nodes, slices, shuffled = list(world.node_json.items()), list(world.slice_json.values()), list(waiting)
    for heard in (nodes, slices, shuffled):
        seed.shuffle(heard)
    for name, body in nodes:
        other.add_node(
            name, labels=body["metadata"]["labels"], allocatable=body["status"]["allocatable"], **body["spec"]
        )
    other.add_slices(slices)
    again = other.decide(*shuffled)
    assert again.admissions == plan.admissions


@RELAXED
@given(cluster=clusters(), count=st.integers(1, 6), others=st.integers(0, 4))
def test_the_fast_path_and_the_full_search_agree(cluster: Cluster, count: int, others: int):
    """The same request, once plain and once with a constraint that every device satisfies, which needs the search."""
    world, _ = cluster
    world.queues = ()
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
