"""Gangs go where kube-scheduler takes their pods: beside the pods that run, beside one another, where their volumes are, and not where it refused them."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.engine.plan.decide import decide
from fairlead.engine.types.gangs import GangRequest, RefusedNode
from fairlead.engine.types.reasons import Code
from fairlead.engine.types.settings import QueueSpec
from fairlead.history.facts.snapshot_file import dump, load_facts
from fairlead.history.facts.state import State
from fairlead.kube import core
from fairlead.sandbox.scheduler.neighbours import Neighbours
from tests.support.engine.neighbours import (
    HOST,
    ONE,
    POD_TERMS,
    ZONE,
    Json,
    X,
    apart,
    near,
    reason,
    run,
    spread,
    term,
    world,
)
from tests.support.engine.objects import gang, gpu
from tests.support.engine.world import World, nodes_of


class TestAntiAffinity:
    def test_members_that_repel_one_another_go_to_different_hosts(self):
        plan = world().decide(gang("g", 4, ONE, labels=X, pod=apart(term(HOST))))
        assert sorted(nodes_of(plan, "g")) == ["n0", "n1", "n2", "n3"]

    def test_more_members_than_zones_wait_and_say_why(self):
        plan = world().decide(gang("g", 3, ONE, labels=X, pod=apart(term(ZONE))))
        found = reason(plan, "g")
        assert found.code is Code.NEIGHBOURS
        assert found.near_miss is not None
        assert found.near_miss.members_placed == 2
        assert [(each.need, each.nodes) for each in found.nodes] == [(f"pod anti-affinity over {ZONE}", 4)]
        assert "2 of its 3 pods would find a place" in str(found)

    def test_a_plain_pod_keeps_away_from_those_that_repel_it(self):
        where = world("ab")
        run(where, "n0", {"app": "other"}, **apart(term(ZONE)))
        assert nodes_of(where.decide(gang("g", 1, ONE, labels=X)), "g") == ["n1"]
        assert nodes_of(where.decide(gang("h", 1, ONE, labels={"app": "y"})), "h") == ["n0"]

    def test_other_namespaces_count_only_where_the_term_says_so(self):
        where = world("ab")
        run(where, "n0", X, namespace="other")
        assert nodes_of(where.decide(gang("g", 1, ONE, pod=apart(term(ZONE)))), "g") == ["n0"]
        assert nodes_of(where.decide(gang("h", 1, ONE, pod=apart(term(ZONE, namespaces=["other"])))), "h") == ["n1"]
        assert nodes_of(where.decide(gang("i", 1, ONE, pod=apart(term(ZONE, namespaceSelector={})))), "i") == ["n1"]

    def test_label_keys_take_the_pods_own_values(self):
        where = world("ab")
        run(where, "n0", {"app": "x", "version": "1"})
        mine = {"app": "x", "version": "2"}
        same = gang("g", 1, ONE, labels=mine, pod=apart(term(ZONE, matchLabelKeys=["version"])))
        other = gang("h", 1, ONE, labels=mine, pod=apart(term(ZONE, mismatchLabelKeys=["version"])))
        assert nodes_of(where.decide(same), "g") == ["n0"]
        assert nodes_of(where.decide(other), "h") == ["n1"]

    def test_a_changed_label_counts(self):
        where = world("a")
        uid = run(where, "n0", {"app": "y"})
        wanting = gang("g", 1, ONE, pod=apart(term(ZONE)))
        assert nodes_of(where.decide(wanting), "g") == ["n0"]
        body = {"metadata": {"name": uid, "namespace": "ml", "uid": uid, "labels": X}, "spec": {"nodeName": "n0"}}
        where.nodes.set_pod(msgspec.convert(body, core.Pod))
        assert reason(where.decide(wanting), "g").code is Code.NEIGHBOURS


class TestAffinity:
    def test_a_pod_goes_where_such_pods_run(self):
        where = world("ab")
        run(where, "n1", X)
        assert nodes_of(where.decide(gang("g", 2, ONE, pod=near(term(ZONE)))), "g") == ["n1", "n1"]

    def test_it_waits_where_no_such_pod_runs(self):
        found = reason(world().decide(gang("g", 1, ONE, pod=near(term(ZONE)))), "g")
        assert found.code is Code.NEIGHBOURS
        assert f"pod affinity over {ZONE} (4 nodes)" in found.message

    def test_members_that_attract_one_another_stay_in_one_zone(self):
        """The first of its kind may go anywhere; the fullest zone is too small for all of them."""
        where = world("abb", gpus=2)
        plan = where.decide(gang("g", 4, ONE, labels=X, pod=near(term(ZONE))))
        assert sorted(nodes_of(plan, "g")) == ["n1", "n1", "n2", "n2"]


class TestSpread:
    def test_members_spread_over_zones(self):
        plan = world().decide(gang("g", 4, ONE, labels=X, pod=spread(ZONE)))
        zones = [("aabb")[int(node[1:])] for node in nodes_of(plan, "g")]
        assert sorted(zones) == ["a", "a", "b", "b"]

    def test_pods_that_run_count_and_leaving_ones_do_not(self):
        where = world("ab")
        run(where, "n0", X)
        one = gang("g", 1, ONE, labels=X, pod=spread(ZONE))
        assert nodes_of(where.decide(one), "g") == ["n1"]
        where = world("ab")
        run(where, "n0", X, deleted=True)
        assert nodes_of(where.decide(one), "g") == ["n0"]

    def test_a_full_zone_keeps_the_others_from_filling(self):
        """Zone a has room for two: with a skew of one, zone b takes three."""
        where = world("ab", gpus=2)
        where.add_node("n2", [gpu(minor) for minor in range(8)], labels={HOST: "n2", ZONE: "b"})
        plan = where.decide(gang("g", 6, ONE, labels=X, pod=spread(ZONE)))
        assert reason(plan, "g").code is Code.NEIGHBOURS
        assert len(nodes_of(where.decide(gang("h", 5, ONE, labels=X, pod=spread(ZONE))), "h")) == 5

    def test_too_few_domains_count_as_empty_ones(self):
        constraint = spread(ZONE, minDomains=3)
        assert reason(world().decide(gang("g", 3, ONE, labels=X, pod=constraint)), "g").code is Code.NEIGHBOURS
        assert len(nodes_of(world("abc").decide(gang("g", 3, ONE, labels=X, pod=constraint)), "g")) == 3

    def test_by_default_domains_count_that_the_pods_affinity_takes_whatever_their_taints(self):
        where = world("ab")
        run(where, "n0", X)
        mine = {"nodeSelector": {ZONE: "a"}}
        assert nodes_of(where.decide(gang("g", 1, ONE, labels=X, pod=spread(ZONE) | mine)), "g") == ["n0"]
        everywhere = spread(ZONE, nodeAffinityPolicy="Ignore") | mine
        assert reason(where.decide(gang("h", 1, ONE, labels=X, pod=everywhere)), "h").code is Code.NEIGHBOURS
        taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
        where.add_node("n1", labels={HOST: "n1", ZONE: "b"}, taints=[taint])
        assert reason(where.decide(gang("i", 1, ONE, labels=X, pod=spread(ZONE))), "i").code is Code.NEIGHBOURS
        tolerant = spread(ZONE, nodeTaintsPolicy="Honor")
        assert nodes_of(where.decide(gang("j", 1, ONE, labels=X, pod=tolerant)), "j") == ["n0"]

    def test_a_node_without_the_label_takes_none(self):
        found = reason(world("-").decide(gang("g", 1, ONE, labels=X, pod=spread(ZONE))), "g")
        assert found.nodes[0].need == f"topology spread over {ZONE}: the node has no such label"


class TestVolumes:
    def test_a_pod_goes_where_its_volume_is(self):
        rule = core.NodeSelectorRequirement(key=ZONE, operator="In", values=("b",))
        volume = core.NodeSelector(node_selector_terms=(core.NodeSelectorTerm(match_expressions=(rule,)),))
        one = gang("g", 1, ONE)
        one = replace(one, members=tuple(replace(m, needs=replace(m.needs, volumes=(volume,))) for m in one.members))
        assert nodes_of(world("ab").decide(one), "g") == ["n1"]
        found = reason(world("aa").decide(one), "g")
        assert [(each.need, each.nodes) for each in found.nodes] == [("volumes that are elsewhere", 2)]


class TestRefusedNodes:
    REFUSED = (RefusedNode(node="n0", until=900.0, why="0/2 nodes are available"),)

    def test_a_refused_node_is_not_chosen_however_well_it_looks(self):
        assert nodes_of(world("ab").decide(gang("g", 1, ONE)), "g") == ["n0"]
        assert nodes_of(world("ab").decide(gang("g", 1, ONE, refused=self.REFUSED)), "g") == ["n1"]

    def test_where_no_other_node_would_do_the_gang_waits_and_says_until_when(self):
        found = reason(world("a").decide(gang("g", 1, ONE, refused=self.REFUSED)), "g")
        assert (found.code, found.could_ever_fit) == (Code.NODES_REFUSED, True)
        assert "such as n0 (0/2 nodes are available); not chosen again until 1970-01-01T00:15:00Z" in found.message
        assert [(each.need, each.nodes) for each in found.nodes] == [("refused by kube-scheduler", 1)]

    def test_nothing_is_evicted_for_a_place_there(self):
        where = world("a", gpus=1)
        where.queues = (QueueSpec(name="q"),)
        low = gang("low", 1, ONE, queue="q")
        where.carry_out(where.decide(low), [low])
        assert where.decide(gang("high", 1, ONE, queue="q", priority=1)).evictions
        assert not where.decide(gang("high", 1, ONE, queue="q", priority=1, refused=self.REFUSED)).evictions


@pytest.mark.parametrize("seed", range(60))
def test_kube_scheduler_takes_every_pod_that_was_placed(seed: int):
    """Its filters, as the sandbox has them, on the pods that run and those of earlier members: some order binds all."""
    random = Random(seed)
    where = world("".join(random.choice("aabbc-") for _ in range(random.randint(2, 7))), gpus=random.choice((2, 8)))
    bound: list[tuple[Json, str]] = []
    names = sorted(where.node_json)
    for _ in range(random.randint(0, 4)):
        labels, spec = {"app": random.choice("xyz")}, random.choice(POD_TERMS[:5])
        node = random.choice(names)
        uid = run(where, node, labels, **spec)
        bound.append(({"metadata": {"name": uid, "namespace": "ml", "uid": uid, "labels": labels}, "spec": spec}, node))
    gangs = []
    specs: dict[str, tuple[dict[str, str], Json]] = {}
    for number in range(random.randint(1, 4)):
        name, labels, spec = f"g{number}", {"app": random.choice("xyz")}, random.choice(POD_TERMS)
        specs[name] = (labels, spec)
        gangs.append(gang(name, random.randint(1, 5), ONE, labels=labels, pod=spec, created=float(number)))
    plan = where.decide(*gangs)
    for admission in plan.admissions:
        labels, spec = specs[admission.name]
        left = [(a.pod.name, a.node) for a in admission.assignments]
        while left:
            for entry in left:
                pod = {
                    "metadata": {"name": entry[0], "namespace": "ml", "uid": entry[0], "labels": labels},
                    "spec": spec,
                }
                cluster = [(node, [p for p, at in bound if at == n]) for n, node in sorted(where.node_json.items())]
                if Neighbours(pod, cluster, lambda _: {}).refusal(where.node_json[entry[1]]) is None:
                    bound.append((pod, entry[1]))
                    left.remove(entry)
                    break
            else:
                pytest.fail(f"{admission.name}: none of {left} is taken beside {bound}")


def repelled(where: World) -> list[str]:
    """Counted pods that stand where an anti-affinity term forbids it."""
    found = []
    pods = {uid: where.nodes.counted(uid) for uid in where.nodes.pods()}
    for uid, one in pods.items():
        for wanted in one[1].neighbours.anti_affinity if one and one[1].neighbours else ():
            for other_uid, other in pods.items():
                if other is None or one is None or other_uid == uid:
                    continue
                values = [
                    info.labels.get(wanted.topology_key) for at in (one, other) if (info := where.nodes.get(at[0]))
                ]
                if values[0] is not None and values[0] == values[1]:
                    found += [f"{uid} {other_uid}"] * wanted.pods.selects(other[2].namespace, other[2].labels)
    return found


@pytest.mark.parametrize("seed", [*range(20, 32)])
def test_day_by_day_decisions_are_those_of_a_fresh_reader_and_no_pods_that_repel_meet(seed: int):
    """With preemption: what is evicted makes room for others, and its neighbours count no more."""
    random = Random(seed)
    where = world("".join(random.choice("aabbc") for _ in range(random.randint(2, 6))), gpus=random.choice((2, 4)))
    where.queues = (QueueSpec(name="q"),)
    waiting: list[GangRequest] = []
    for step in range(6):
        for number in range(random.randint(0, 3)):
            more: dict[str, Any] = {
                "priority": random.choice((0, 0, 10)),
                "queue": "q",
                "created": 10.0 * step + number,
            }
            labels, spec = {"app": random.choice("xyz")}, random.choice(POD_TERMS)
            waiting.append(gang(f"g{step}-{number}", random.randint(1, 4), ONE, labels=labels, pod=spec, **more))
        snapshot = where.snapshot(*waiting)
        plan = where.decide(*waiting)
        facts, now = load_facts(dump(snapshot, where.now))
        state = State()
        state.apply(facts)
        assert decide(state.snapshot(), now) == plan
        waiting = where.carry_out(plan, waiting)
        waiting += where.gone() if plan.evictions else []
        assert not where.faults()
        assert not repelled(where)
        if where.running and random.random() < 0.4:
            where.end(random.choice(sorted(where.running)))
