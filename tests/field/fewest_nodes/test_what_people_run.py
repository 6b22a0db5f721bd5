"""Workloads as people write them, on nodes of 8 GPUs that others use in part: how many nodes they get.

Each is judged as when it is written, its pods are those that its controller would make, and one decision places them.
"""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.pods import Demand, Workload
from fairlead.engine.types.settings import QueueSpec
from fairlead.kube.objects import LabelSelector
from tests.engine.placement.test_models import A100, H100, L40S
from tests.engine.placement.test_models import cluster as of_models
from tests.field.models.test_what_people_run import (
    Json,
    asked,
    job,
    leader_worker_set,
    pytorch,
    ray,
    template,
    workload,
)
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World, nodes_of

HOST, RACK = "kubernetes.io/hostname", "example.com/rack"


def nodes(**free: int) -> World:
    """Nodes of 8 GPUs, of which so many are free; racks by the node's first letter."""
    world, others = World(), list[GangRequest]()
    for name, count in free.items():
        labels = {HOST: name, RACK: name[0]}
        world.add_node(name, [gpu(minor) for minor in range(8)], labels=labels)
        if count < 8:
            pod: Json = {"nodeSelector": {HOST: name}}
            others.append(gang(f"on-{name}", 1, claim_spec(device_request(8 - count)), pod=pod))
    world.carry_out(world.decide(*others), others)
    assert len(world.running) == len(others)
    return world


def where(world: World, *found: GangRequest) -> Counter[str]:
    """How many pods are on each node; empty where one waits."""
    plan = world.decide(*found)
    return Counter() if plan.waiting else Counter(node for each in found for node in nodes_of(plan, each.name))


def got(world: World, document: Json) -> Counter[str]:
    return where(world, *asked(document))


def test_eight_of_one_gpu_are_on_one_node_though_6_and_2_fit_tighter():
    assert got(nodes(a=6, b=2, c=8), job(8, 1)) == {"c": 8}


def test_of_places_of_equal_number_the_tightest():
    assert got(nodes(a=8, b=6, c=7), job(6, 1)) == {"b": 6}
    assert got(nodes(a=8, b=8, c=6, d=5), job(12, 1)) == {"d": 5, "a": 7}
    assert got(nodes(a=8, b=4, c=4, d=3), job(8, 2)) == {"a": 4, "b": 2, "c": 2}


def test_where_pods_take_several():
    assert got(nodes(a=6, b=7, c=7, d=8), job(4, 2)) == {"d": 4}
    assert got(nodes(a=3, b=5, c=4), job(3, 2)) == {"a": 1, "c": 2}


@pytest.mark.parametrize(
    "document", [pytorch(1, 1), leader_worker_set(2, 1), ray(1, 1)], ids=["master", "leader", "ray"]
)
def test_unlike_pods_of_one_gang_are_on_one_node(document: Json):
    assert len(got(nodes(a=4, b=3, c=8), document) & Counter(a=9, b=9, c=9)) == 1


def test_a_launcher_without_devices_does_not_count():
    launcher: Json = {"replicas": 1, "template": template(0)}
    launcher["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    replicas = {"Launcher": launcher, "Worker": {"replicas": 4, "template": template(2)}}
    document = workload("MPIJob", "kubeflow.org/v2beta1", {"mpiReplicaSpecs": replicas})
    (wanted,) = asked(document)
    plan = nodes(a=6, b=2, c=8).decide(wanted)
    on = {each.pod.name: each.node for each in plan.admissions[0].assignments}
    assert {node for name, node in on.items() if "launcher" not in name} == {"c"}


def test_pods_that_ask_for_cpu_that_a_node_has_not():
    """The node with 8 GPUs has 64 cores: 4 of the pods."""
    document = job(6, 1)
    document["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "16"}
    assert sorted(got(nodes(a=6, b=2, c=8), document).values()) == [2, 4]


class TestWhatSaysOtherwise:
    def test_a_queue_that_spreads(self):
        world = nodes(a=8, b=8, c=8, d=8)
        world.queues = (QueueSpec(name="q", strategy="spread", namespace_selector=LabelSelector()),)
        assert len(got(world, job(4, 1))) == 4

    def test_pods_that_keep_apart(self):
        term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": HOST}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        document = job(3, 1, affinity=apart)
        document["spec"]["template"]["metadata"]["labels"] = {"app": "x"}
        assert got(nodes(a=6, b=2, c=8), document) == {"a": 1, "b": 1, "c": 1}

    def test_pods_spread_over_racks(self):
        rule = {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "DoNotSchedule"}
        document = job(4, 1, topologySpreadConstraints=[{**rule, "labelSelector": {"matchLabels": {"app": "x"}}}])
        document["spec"]["template"]["metadata"]["labels"] = {"app": "x"}
        found = got(nodes(a1=1, a2=2, b1=8), document)
        assert found["b1"] == 2 == found["a1"] + found["a2"]

    def test_preferred_nodes_come_first(self):
        term = {"weight": 1, "preference": {"matchExpressions": [{"key": RACK, "operator": "In", "values": ["a"]}]}}
        near = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
        assert got(nodes(a1=6, a2=2, b=8), job(8, 1, affinity=near)) == {"a1": 6, "a2": 2}
        assert got(nodes(a1=3, a2=2, a3=5, b=8), job(5, 1, affinity=near)) == {"a3": 5}
        assert got(nodes(a1=2, b1=4, b2=2, b3=6), job(8, 1, affinity=near)) == {"a1": 2, "b3": 6}

    def test_nodes_where_it_failed_come_last(self):
        (wanted,) = asked(job(8, 1))
        assert where(nodes(a=6, b=2, c=8), replace(wanted, avoid=("c",))) == {"a": 6, "b": 2}

    def test_a_level_of_its_topology(self):
        document = job(8, 1, {names.TOPOLOGY: f"required:{RACK}"})
        assert got(nodes(a1=6, a2=2, b1=7, c1=4, c2=3, c3=1), document) == {"a1": 6, "a2": 2}
        assert got(nodes(a1=3, a2=2, a3=5, b1=4, b2=4), job(5, 1, {names.TOPOLOGY: f"preferred:{RACK}"})) != {"a3": 5}

    def test_the_first_alternative(self):
        cel = [f'device.attributes["{names.DRIVER}"].productName == "{each}"' for each in (A100, H100)]
        either = claim_spec(
            {"firstAvailable": [{"name": f"s{n}", **device_request(cel=each)} for n, each in enumerate(cel)]}
        )
        wanted = gang("job", 4, either)
        assert where(of_models(a1=(A100, 3), a2=(A100, 1), h=(H100, 8)), wanted) == {"a1": 3, "a2": 1}


class TestModels:
    def test_the_model_that_takes_it_on_one_node(self):
        assert got(of_models(a1=(A100, 6), a2=(A100, 2), h=(H100, 8), l=(L40S, 4)), job(8, 1)) == {"h": 8}

    def test_fewer_nodes_of_two_models_are_none(self):
        assert got(of_models(a=(A100, 4), h1=(H100, 4), h2=(H100, 2), h3=(H100, 2)), job(8, 1)) == {
            "h1": 4,
            "h2": 2,
            "h3": 2,
        }
        anyone = got(of_models(a=(A100, 4), h1=(H100, 4), h2=(H100, 2), h3=(H100, 2)), job(8, 1, {names.MODELS: "any"}))
        assert anyone == {"a": 4, "h1": 4}


class TestSubgroups:
    def subgroups(self, pods: int, size: int, level: str) -> Json:
        return job(pods, 1, {names.SUBGROUP_SIZE: str(size), names.SUBGROUP_TOPOLOGY: level})

    def test_several_are_on_one_node(self):
        world = nodes(a=4, b=4, c=8)
        assert got(world, self.subgroups(8, 4, f"required:{HOST}")) == {"c": 8}
        assert got(world, self.subgroups(8, 4, f"required:{RACK}")) == {"c": 8}

    def test_none_is_parted(self):
        assert got(nodes(a=7, b=5, c=3), self.subgroups(9, 3, f"required:{HOST}")) == {"a": 6, "c": 3}


class TestMembersThatJoin:
    def joining(self, world: World, pods: int) -> GangRequest:
        """One that asks for one GPU each, beside members on `c`."""
        first = gang("job", 2, claim_spec(device_request(1)), pod={"nodeSelector": {HOST: "c"}})
        world.carry_out(world.decide(first), [first])
        wanted = gang("more", pods, claim_spec(device_request(1)))
        return replace(wanted, name="job", size=2 + pods, placed_nodes=("c", "c"))

    def test_go_where_it_runs(self):
        world = nodes(a=1, b=3, c=6)
        assert where(world, self.joining(world, 1)) == {"c": 1}

    def test_and_beside_that_on_the_fewest_nodes(self):
        world = nodes(a=1, b=3, c=4, d=8)
        assert where(world, self.joining(world, 5)) == {"c": 2, "b": 3}


def test_what_is_scarce_is_taken_where_that_makes_fewer_nodes():
    """Of usual requests one in nine asks for eight GPUs, and one node is left that has them."""
    one, eight = (asked(job(1, n))[0] for n in (1, 8))
    demands = tuple(
        Demand(each.claims[0].spec, each.members[0].needs, count) for each, count in ((one, 800), (eight, 100))
    )
    world = nodes(a=6, b=2, c=8)
    world.workload = Workload(demands, pods=900, once=0, cpu=0)
    assert got(world, job(1, 1)) == {"b": 1}
    assert got(world, job(8, 1)) == {"c": 8}


def test_a_second_gang_is_placed_beside_the_first():
    both = [gang(name, 8, claim_spec(device_request(1))) for name in ("first", "second")]
    plan = nodes(a=6, b=2, c=8, d=8).decide(*both)
    assert [set(nodes_of(plan, each.name)) for each in both] == [{"c"}, {"d"}]
