"""One model for one gang: each test is one small cluster with GPUs of several products."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import ClaimRequest, GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from fairlead.kube import resource
from fairlead.kube.objects import LabelSelector
from tests.support.engine.objects import MIG, claim_spec, device_request, gang, gpu, mig_gpu, slice_of
from tests.support.engine.world import World, nodes_of, relocation

H100, A100, L40S = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA L40S"
PRODUCT = f'device.attributes["{names.DRIVER}"].productName'
RACK = "example.com/rack"


def cluster(**nodes: tuple[str, int]) -> World:
    """Each node's product, and how many GPUs of it."""
    world = World()
    for name, (product, count) in nodes.items():
        world.add_node(name, [gpu(minor, product=product) for minor in range(count)])
    return world


def job(pods: int, gpus: int, name: str = "job", **more: Any) -> GangRequest:
    return gang(name, pods, claim_spec(device_request(gpus)), **more)


def together(*gangs: GangRequest, groups: tuple[str, ...] = ()) -> GangRequest:
    """One gang of the pods of several, each with the worker group of its place."""
    named = groups or ("",) * len(gangs)
    members = tuple(replace(m, worker_group=g) for each, g in zip(gangs, named, strict=True) for m in each.members)
    claims = tuple(claim for each in gangs for claim in each.claims)
    return replace(gangs[0], name="job", uid="uid-job", size=len(members), members=members, claims=claims)


def product_of(world: World, admission: Any) -> dict[str, list[str]]:
    """By pod, the products that it got, with the profile of parts."""
    found: dict[str, list[str]] = {}
    for claim in admission.claims:
        for ref in claim.devices:
            device = world.inventory.device(ref)
            assert device is not None
            texts = (device.attribute(f"{names.DRIVER}/{name}") for name in ("productName", "profile"))
            model = " ".join(str(each.string) for each in texts if each is not None)
            found.setdefault(claim.reserved_for[0].name, []).append(model)
    return found


def models(world: World, plan: Plan, name: str = "job") -> set[str]:
    (admission,) = (each for each in plan.admissions if each.name == name)
    return {model for found in product_of(world, admission).values() for model in found}


def reason(plan: Plan) -> Reason:
    (waiting,) = plan.waiting
    return waiting.reason


class TestOneModel:
    def test_and_else_the_tighter_one(self):
        world = cluster(a=(A100, 8), h1=(H100, 8), h2=(H100, 8), l=(L40S, 5))
        assert models(world, world.decide(job(2, 4))) == {A100}
        spread = QueueSpec(name="q", strategy="spread", namespace_selector=LabelSelector())
        world.queues = (spread,)
        assert models(world, world.decide(job(2, 4))) == {H100}

    def test_one_pod_with_several_devices_on_a_mixed_node(self):
        world = World()
        world.add_node("n", [gpu(n, product=(A100, H100)[n % 2]) for n in range(8)])
        assert len(models(world, world.decide(job(1, 4)))) == 1
        assert reason(world.decide(job(1, 6))).code is Code.NEVER_FITS
        assert models(world, world.decide(job(1, 6, models="any"))) == {A100, H100}

    def test_all_devices_of_a_node_are_of_one_model_or_not_wanted(self):
        world = World()
        world.add_node("mixed", [gpu(n, product=(A100, H100)[n % 2]) for n in range(8)])
        world.add_node("pure", [gpu(n, product=H100) for n in range(4)])
        every = gang("job", 1, claim_spec({"deviceClassName": names.GPU_CLASS, "allocationMode": "All"}))
        assert nodes_of(world.decide(every), "job") == ["pure"]

    def test_a_queue_and_those_above_it_say_otherwise(self):
        world = cluster(a=(A100, 8), h=(H100, 8))
        top = QueueSpec(name="top", models="any")
        world.queues = (top, QueueSpec(name="q", parent="top", namespace_selector=LabelSelector()))
        assert models(world, world.decide(job(4, 4))) == {A100, H100}
        assert not world.decide(job(4, 4, models="same")).admissions
        world.queues = (top, replace(world.queues[1], models="same"))
        assert not world.decide(job(4, 4)).admissions
        assert models(world, world.decide(job(4, 4, models="any"))) == {A100, H100}

    def test_a_level_of_the_topology_before_all_others(self):
        world = World()
        for name, (product, rack) in {"a1": (A100, "r1"), "a2": (A100, "r2"), "h1": (H100, "r3"), "h2": (H100, "r3"), "b1": (H100, "r1")}.items():  # fmt: skip
            world.add_node(name, [gpu(n, product=product) for n in range(8)], labels={RACK: rack})
        plan = world.decide(job(4, 4, topology=f"preferred:{RACK}"))
        assert set(nodes_of(plan, "job")) == {"h1", "h2"}

    def test_ranks_stay_on_the_model_of_their_worker_group(self):
        world = cluster(a=(A100, 2), h=(H100, 4))
        first, second = job(2, 2, "x"), job(2, 1, "y")
        both = together(first, second, groups=("x", "y"))
        ranked = replace(both, members=tuple(replace(m, rank=3 - n) for n, m in enumerate(both.members)))
        (admission,) = world.decide(ranked).admissions
        got = product_of(world, admission)
        assert {tuple(got[f"x-{n}"]) for n in range(2)} == {(H100, H100)}
        assert {tuple(got[f"y-{n}"]) for n in range(2)} == {(A100,)}


class TestWhatItBinds:
    def test_requests_with_other_selectors_choose_by_themselves(self):
        world = cluster(h=(H100, 8), l=(L40S, 4))
        leader = gang("lead", 1, claim_spec(device_request(1, cel=f'{PRODUCT} == "{L40S}"')))
        workers = gang("work", 2, claim_spec(device_request(4, cel=f'{PRODUCT} == "{H100}"')))
        assert models(world, world.decide(together(leader, workers))) == {H100, L40S}

    def test_worker_groups_choose_by_themselves(self):
        gangs, groups = (job(2, 4, "x"), job(2, 2, "y")), ("x", "y")
        world = cluster(a=(A100, 4), h=(H100, 8))
        assert models(world, world.decide(together(*gangs, groups=groups))) == {A100, H100}
        assert not world.decide(together(*gangs, groups=("", ""))).admissions

    def test_first_available_in_its_order_and_never_mixed(self):
        def wanting(pods: int) -> GangRequest:
            subs = [
                {"name": f"s{n}", **device_request(2, cel=f'{PRODUCT} == "{each}"')}
                for n, each in enumerate((L40S, H100))
            ]
            return gang("job", pods, claim_spec({"firstAvailable": subs}))

        world = cluster(h1=(H100, 8), h2=(H100, 8), l=(L40S, 4))
        assert models(world, world.decide(wanting(2))) == {L40S}
        assert models(world, world.decide(wanting(3))) == {H100}
        assert not world.decide(wanting(9)).admissions

    def test_devices_without_a_product_beside_gpus(self):
        world = World()
        world.add_class("nic", {"selectors": [{"cel": {"expression": 'device.driver == "nic.example.com"'}}]})
        for name, product, speed in (("a", A100, "100"), ("h", H100, "400"), ("i", H100, "100")):
            world.add_node(name, [gpu(n, product=product) for n in range(4)])
            nic = {"name": "nic-0", "attributes": {"productName": {"string": f"nic {speed}"}}}
            world.add_slices(slice_of(f"{name}-nic", [nic], driver="nic.example.com"))
            for body in world.slice_json.values():
                body["spec"]["nodeName"] = body["spec"]["nodeName"].removesuffix("-nic")
            world.inventory.set_slices(msgspec.convert(list(world.slice_json.values()), list[resource.ResourceSlice]))
        pair = gang("job", 2, claim_spec(device_request(4), device_request(1, device_class="nic")))
        assert set(nodes_of(world.decide(pair), "job")) == {"h", "i"}

    def test_of_mig_devices_one_profile_of_one_product(self):
        world = World()
        for name, product in (("a", A100), ("h", H100)):
            devices, counters = mig_gpu(0, product=product)
            world.add_node(name, devices, counters=[counters])
        found = models(world, world.decide(gang("job", 6, claim_spec(device_request(device_class=MIG)))))
        assert found in ({f"{A100} 1g.10gb"}, {f"{H100} 1g.10gb"})
        assert not world.decide(gang("job", 8, claim_spec(device_request(device_class=MIG)))).admissions

    def test_a_claim_whose_products_must_be_distinct(self):
        distinct = claim_spec(
            device_request(), device_request(), constraints=[{"distinctAttribute": f"{names.DRIVER}/productName"}]
        )
        world = World()
        world.add_node("n", [gpu(n, product=(A100, H100)[n % 2]) for n in range(4)])
        assert models(world, world.decide(gang("job", 2, distinct))) == {A100, H100}


class TestWhatRuns:
    def joining(self, world: World, running: GangRequest, pods: int = 1, gpus: int = 2) -> GangRequest:
        """A member that joins `running`, which holds what was written of its claims."""
        held = tuple(
            (
                "",
                ClaimRequest(
                    key=key, namespace="ml", name=key,
                    spec=msgspec.convert(body["spec"], resource.ResourceClaimSpec),
                    allocation=msgspec.convert(allocation, resource.AllocationResult),
                ),
            )
            for key, (body, _, allocation) in world.answers.items()
        )  # fmt: skip
        more = job(pods, gpus, "more")
        return replace(more, name=running.name, placed_nodes=("h",) * len(held), placed_claims=held)

    def running(self, world: World) -> GangRequest:
        wanted = gang("job", 2, claim_spec(device_request(2)), pod={"nodeSelector": {"kind": "h"}})
        world.carry_out(world.decide(wanted), [wanted])
        return wanted

    def world(self, h100s: int) -> World:
        world = World()
        world.add_node("h", [gpu(n, product=H100) for n in range(h100s)], labels={"kind": "h"})
        world.add_node("a", [gpu(n, product=A100) for n in range(2)])
        return world

    def test_decides_for_a_member_that_joins(self):
        world = self.world(8)
        member = self.joining(world, self.running(world))
        assert models(world, world.decide(member)) == {H100}
        assert models(world, world.decide(replace(member, placed_claims=(), placed_nodes=()))) == {A100}

    def test_which_waits_where_none_of_that_model_is_free(self):
        world = self.world(4)
        member = self.joining(world, self.running(world))
        found = reason(world.decide(member))
        assert found.code is Code.NO_DEVICES
        assert f"2 of that of its other members wanted: {H100} has 0 free" in found.message
        assert models(world, world.decide(replace(member, models="any"))) == {A100}

    def test_a_place_for_a_gang_that_moves_is_of_its_model(self):
        world = self.world(4)
        world.add_node("h2", [gpu(n, product=H100) for n in range(4)], labels={"kind": "h"})
        world.add_node("a2", [gpu(n, product=A100) for n in range(2)])
        wanted = self.running(world)
        held = self.joining(world, wanted).placed_claims
        moved = replace(relocation(replace(wanted, members=job(2, 2).members)), placed_claims=held)
        moved = replace(moved, uid="uid-new", name="new")
        assert models(world, world.decide(moved), "new") == {H100}


class TestReasons:
    def test_what_never_fits_says_what_each_model_has(self):
        found = reason(cluster(a=(A100, 12), h=(H100, 8)).decide(job(8, 2)))
        assert (found.code, found.could_ever_fit) == (Code.NEVER_FITS, False)
        assert f"16 of one model wanted: {A100} has 12, {H100} has 8" in found.message
        assert "fairlead.dev/models: any" in found.advice

    def test_what_fits_later_says_what_each_has_free(self):
        world = cluster(a=(A100, 12), h=(H100, 8), i=(H100, 8))
        first = gang("first", 1, claim_spec(device_request(8, cel=f'{PRODUCT} == "{H100}"')))
        world.carry_out(world.decide(first), [first])
        found = reason(world.decide(job(8, 2)))
        assert (found.code, found.could_ever_fit) == (Code.NO_DEVICES, True)
        assert f"16 of one model wanted: {A100} has 12 free, {H100} has 8 free" in found.message

    def test_slices_that_were_counted_for_one_gang_are_free_for_the_next(self):
        world = World()
        for minor, product in enumerate((A100, H100)):
            parts, counters = mig_gpu(minor, product=product)
            world.add_node(f"n{minor}", parts, counters=[counters])
        profile = f'device.attributes["{names.DRIVER}"].profile == "1g.10gb"'
        for number, product in enumerate((A100, H100)):
            one = device_request(device_class=MIG, cel=f'{profile} && {PRODUCT} == "{product}"')
            runs = gang(f"runs-{number}", 1, claim_spec(one))
            world.carry_out(world.decide(runs), [runs])
        seven = claim_spec(device_request(device_class=MIG, cel=profile))
        plan = world.decide(*(gang(name, 7, seven) for name in ("first", "next")))
        assert len(plan.waiting) == 2
        for each in plan.waiting:
            assert f"7 of one model wanted: {A100} 1g.10gb has 6 free, {H100} 1g.10gb has 6 free" in each.reason.message

    def test_free_devices_that_are_not_together_where_pods_need_them(self):
        found = reason(cluster(a=(A100, 3), b=(A100, 3), c=(A100, 3), d=(A100, 3), h=(H100, 8)).decide(job(6, 2)))
        assert f"{A100} has 12, but together for 4 of its 6 pods" in found.message

    @pytest.mark.parametrize(("pods", "ever"), [(2, True), (4, True), (6, False)])
    def test_could_ever_fit_counts_one_model(self, pods: int, ever: bool):
        world = cluster(a=(A100, 8), h1=(H100, 8), h2=(H100, 8))
        everything = job(3, 8, "first", models="any")
        world.carry_out(world.decide(everything), [everything])
        assert reason(world.decide(job(pods, 4))).could_ever_fit is ever


def test_room_is_made_on_one_model():
    world = cluster(a=(A100, 8), h=(H100, 8))
    flavor = FlavorSpec(name="gpu", device_selector=f'device.driver == "{names.DRIVER}"')
    quota = FlavorQuota(flavor="gpu", deserved=8)
    world.flavors = (flavor,)
    world.queues = (
        QueueSpec(name="own", quotas=(quota,)),
        QueueSpec(name="other", quotas=(replace(quota, deserved=0),)),
    )
    smalls = [job(1, 4, f"small-{n}", queue="other", created=float(n)) for n in range(4)]
    world.carry_out(world.decide(*smalls), smalls)
    plan = world.decide(job(2, 4, queue="own", created=10.0))
    left = {running.id for running in world.running.values()} - {each.id for each in plan.evictions}
    held = {running.members[0].node for running in world.running.values() if running.id in left}
    assert len(plan.evictions) == 2
    assert len(held) == 1, "all of one model goes"
