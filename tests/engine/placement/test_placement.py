"""Gangs are placed whole, where they cost future requests least; each test is one small cluster."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, mig_gpu
from tests.support.engine.world import World, devices_of, h100_world, nodes_of

ONE = claim_spec(device_request())
MODEL = f'device.attributes["{names.DRIVER}"].productName'


def why(plan: Plan, name: str) -> Code:
    return next(entry.reason.code for entry in plan.waiting if entry.name == name)


class TestWhole:
    def test_two_gangs_of_twelve_on_sixteen_gpus_one_runs_whole_and_one_waits_whole(self):
        world = h100_world(2)
        gangs = [gang("first", 12, ONE, created=1.0), gang("second", 12, ONE, created=2.0)]
        plan = world.decide(*gangs)
        assert [entry.name for entry in plan.admissions] == ["first"]
        assert len(plan.admissions[0].assignments) == 12
        waiting = plan.waiting[0]
        assert (waiting.name, waiting.reason.code, waiting.reason.could_ever_fit) == ("second", Code.NO_DEVICES, True)
        assert waiting.reason.near_miss is not None
        assert waiting.reason.near_miss.members_placed == 4
        assert [(holder.gang, holder.devices) for holder in waiting.reason.holders] == [("ml/first", 12)]

        left = world.carry_out(plan, gangs)
        assert not world.faults()
        assert not world.decide(*left).admissions
        world.end("ml/first")
        assert [entry.name for entry in world.decide(*left).admissions] == ["second"]

    def test_a_gang_larger_than_the_cluster_never_fits(self):
        plan = h100_world(1).decide(gang("huge", 9, ONE))
        assert why(plan, "huge") is Code.NEVER_FITS
        assert plan.waiting[0].reason.could_ever_fit is False

    def test_a_gang_with_a_member_missing_waits_for_it(self):
        world = h100_world(1)
        short = gang("short", 3, ONE, topology=None)
        plan = world.decide(replace(short, size=4))
        assert why(plan, "short") is Code.GATHERING

    @pytest.mark.parametrize("seed", range(10, 20))
    def test_nodes_that_go_and_come_back_under_their_names_are_used_again(self, seed: int):
        """Seed 14: the score and the age of a node were those of the one that had its name before."""
        random, world = Random(seed), h100_world(3)
        waiting: list[GangRequest] = []
        for number in range(80):
            what = random.random()
            if what < 0.25:
                name = f"node-{random.randrange(3):05d}"
                if name in world.node_json:
                    world.drop_node(name)
                if random.random() < 0.8:
                    world.add_node(name, [gpu(minor) for minor in range(8)])
            elif what < 0.5 and world.running:
                world.end(random.choice(sorted(world.running)))
            else:
                asked = claim_spec(device_request(random.choice((1, 2, 8))))
                waiting.append(gang(f"g{number}", random.choice((1, 2, 3)), asked))
                waiting = world.carry_out(world.decide(*waiting), waiting)

    def test_eight_gpu_pods_still_fit_after_forty_one_gpu_pods(self):
        world = h100_world(10)
        small = [gang(f"small-{number:02d}", 1, ONE, created=float(number)) for number in range(40)]
        world.carry_out(world.decide(*small), small)
        plan = world.decide(*(gang(f"large-{number}", 1, claim_spec(device_request(8))) for number in range(5)))
        assert len(plan.admissions) == 5


def joined(name: str, *gangs: GangRequest) -> GangRequest:
    """One gang of all their members."""
    return replace(
        gangs[0],
        name=name,
        size=len(gangs),
        members=tuple(member for entry in gangs for member in entry.members),
        claims=tuple(claim for entry in gangs for claim in entry.claims),
    )


class TestBacktracking:
    def test_the_first_pod_gives_up_the_only_device_of_the_second(self):
        """kubernetes#138765: pod a may use either device, pod b only the first, and a is asked first."""
        world = World()
        world.add_node("node", [gpu(0, product="rare"), gpu(1, product="common")])
        either = gang("either", 1, ONE)
        rare = gang("rare", 1, claim_spec(device_request(cel=f'{MODEL} == "rare"')))
        both = joined("both", either, rare)
        plan = world.decide(both)
        assert sorted(devices_of(plan, "both")) == ["gpu-0", "gpu-1"]

    def test_a_pod_moves_to_another_node_for_the_one_that_cannot(self):
        """Greedy packs the small pod onto the node that the picky one needs whole."""
        world = World()
        world.add_node("a", [gpu(0, product="rare"), gpu(1, product="rare")])
        world.add_node("b", [gpu(0, product="common"), gpu(1, product="common"), gpu(2, product="common")])
        small = gang("small", 1, claim_spec(device_request(2)))
        picky = gang("picky", 1, claim_spec(device_request(2, cel=f'{MODEL} == "rare"')))
        both = joined("both", small, picky)
        plan = world.decide(both)
        assert nodes_of(plan, "both") == ["b", "a"]


class TestOtherNeeds:
    @pytest.mark.parametrize(
        ("node", "pod", "code"),
        [
            ({"allocatable": {"cpu": "1"}}, {}, Code.NO_NODE),
            ({"unschedulable": True}, {}, Code.NODES_AWAY),
            ({"taints": [{"key": "maint", "effect": "NoSchedule"}]}, {}, Code.NO_NODE),
            ({}, {"nodeSelector": {"zone": "b"}}, Code.NO_NODE),
            ({"allocatable": {"pods": "0"}}, {}, Code.NO_NODE),
        ],
    )
    def test_a_free_gpu_on_a_node_that_does_not_take_the_pod_is_no_use(self, node, pod, code):
        world = World()
        world.add_node("node", [gpu(0)], **node)
        plan = world.decide(gang("job", 1, ONE, cpu="2", pod=pod))
        assert why(plan, "job") is code
        assert plan.waiting[0].reason.nodes

    def test_two_pods_with_one_host_port_need_two_nodes(self):
        world = h100_world(2)
        pod = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
        assert len(set(nodes_of(world.decide(gang("job", 2, ONE, pod=pod)), "job"))) == 2
        assert not world.decide(gang("job", 3, ONE, pod=pod)).admissions


class TestScores:
    def test_without_a_constraint_a_pair_gets_the_tightest_island(self):
        world = World()
        world.add_node("node", [gpu(0, island=0), gpu(1, island=1), gpu(2, island=1), gpu(3, island=2)])
        assert devices_of(world.decide(gang("job", 1, claim_spec(device_request(2)))), "job") == ["gpu-1", "gpu-2"]

    def test_four_of_eight_gpus_share_a_numa_node(self):
        world = World()
        world.add_node("node", [gpu(minor, island=0) for minor in range(8)])
        world.carry_out(world.decide(one := gang("one", 1, ONE)), [one])
        assert devices_of(world.decide(gang("job", 1, claim_spec(device_request(4)))), "job") == [
            f"gpu-{n}" for n in (4, 5, 6, 7)
        ]

    @pytest.mark.parametrize("publish", ["--dynamic-mig", "--shared-gpus"])
    def test_whole_gpus_that_could_be_cut_or_shared_are_chosen_by_island_and_numa_node_too(self, publish: str):
        world = World()
        where = [(0, 0), (1, 0), (1, 1), (1, 1), (2, 0)]  # island, NUMA node
        devices, counters = [], []
        for minor, (island, numa) in enumerate(where):
            if publish == "--dynamic-mig":
                of_gpu, counter_set = mig_gpu(minor)
                counters.append(counter_set)
            else:
                of_gpu = [gpu(minor, allowMultipleAllocations=True)]
            of_gpu[0]["attributes"] |= {"nvlinkDomain": {"int": island}, names.NUMA_NODE: {"int": numa}}
            devices += of_gpu
        world.add_node("node", devices, counters=counters)
        jobs = [gang("pair", 1, claim_spec(device_request(2)), created=1.0), gang("one", 1, ONE, created=2.0)]
        plan = world.decide(*jobs)
        assert devices_of(plan, "pair") == ["gpu-2", "gpu-3"]
        assert devices_of(plan, "one") == ["gpu-0"]

    def test_pack_fills_a_node_and_spread_takes_the_emptiest(self):
        world = h100_world(3)
        world.carry_out(world.decide(one := gang("one", 1, ONE)), [one])
        used = world.answers["one-0-gpu"][1]
        assert nodes_of(world.decide(gang("two", 1, ONE)), "two") == [used]
        world.queues = (QueueSpec(name="q", strategy="spread"),)
        assert nodes_of(world.decide(gang("two", 1, ONE, queue="q")), "two") != [used]

    def test_nodes_on_which_the_gang_failed_come_last(self):
        world = h100_world(2)
        first = nodes_of(world.decide(gang("job", 1, ONE)), "job")
        second = nodes_of(world.decide(gang("job", 1, ONE, avoid=tuple(first))), "job")
        assert second and second != first
        every = ("node-00000", "node-00001")
        assert world.decide(gang("job", 1, ONE, avoid=every)).admissions


class TestTopology:
    def test_a_device_attribute_may_stand_for_the_label(self):
        """The nodes of an NVL72 rack have one clique, and no label need say so."""
        world = World()
        for number in range(4):
            devices = [gpu(minor) for minor in range(4)]
            for device in devices:
                device["attributes"]["nvlinkClique"] = {"string": f"cluster.{number // 2}"}
            world.add_node(f"node-{number}", devices)
        filler = gang("filler", 1, claim_spec(device_request(1)))
        world.carry_out(world.decide(filler), [filler])
        topology = f"required:{names.DRIVER}/nvlinkClique"
        plan = world.decide(gang("job", 2, claim_spec(device_request(4)), topology=topology))
        assert sorted(nodes_of(plan, "job")) == ["node-2", "node-3"]
        assert not world.decide(gang("job", 3, claim_spec(device_request(4)), topology=topology)).admissions


class TestSharedClaims:
    def test_pods_that_share_a_claim_land_on_its_node_and_are_all_reserved(self):
        world = h100_world(2)
        plan = world.decide(gang("job", 3, claim_spec(device_request(2)), shared=True))
        assert len(set(nodes_of(plan, "job"))) == 1
        claim = plan.admissions[0].claims[0]
        assert len(claim.reserved_for) == 3
        assert len(claim.allocation.devices.results) == 2

    def test_pods_that_share_a_network_device_may_run_on_the_nodes_that_reach_it(self):
        world = World()
        for number in range(3):
            world.add_node(f"node-{number}", labels={"fabric": "a" if number else "b"}, allocatable={"cpu": "1"})
        term = {"matchExpressions": [{"key": "fabric", "operator": "In", "values": ["a"]}]}
        pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
        spec = {
            "driver": names.DRIVER,
            "pool": pool,
            "devices": [gpu(0)],
            "nodeSelector": {"nodeSelectorTerms": [term]},
        }
        world.add_slices([{"metadata": {"name": "net"}, "spec": spec}])
        job = gang("job", 2, ONE, shared=True)
        plan = world.decide(job)
        assert sorted(nodes_of(plan, "job")) == ["node-1", "node-2"]
        assert len(plan.admissions[0].claims[0].reserved_for) == 2
        assert not world.decide(gang("more", 3, ONE, shared=True)).admissions
        world.carry_out(plan, [job])
        assert not world.faults()

    def test_a_member_of_an_allocated_claim_goes_where_the_claim_is(self):
        world = h100_world(3)
        job = gang("job", 1, claim_spec(device_request(2)))
        plan = world.decide(job)
        given = plan.admissions[0].claims[0].allocation
        later = replace(job, claims=(replace(job.claims[0], allocation=given),))
        again = world.decide(later)
        assert nodes_of(again, "job") == nodes_of(plan, "job")
        assert again.admissions[0].claims[0].already_allocated
        assert again.admissions[0].claims[0].allocation == plan.admissions[0].claims[0].allocation
