"""Which gangs wait for pods of their own workload that a rollout ends only once they run, and what is said of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.api.rollouts import Generation, generation_of
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.settings import Autoscaling, FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

HOST = "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("labels", "owner", "found"),
    [
        ({"pod-template-hash": "6d4f"}, ("ReplicaSet", "llm-6d4f"), Generation("Deployment/llm", "6d4f")),
        ({"rollouts-pod-template-hash": "6d4f"}, ("ReplicaSet", "llm-6d4f"), Generation("Rollout/llm", "6d4f")),
        ({"controller-revision-hash": "a"}, ("DaemonSet", "probe"), Generation("DaemonSet/probe", "a")),
        ({"controller-revision-hash": "a"}, ("StatefulSet", "llm"), None),
        ({"pod-template-hash": "6d4f"}, ("ReplicaSet", "other"), None),
        ({"pod-template-hash": "6d4f"}, None, None),
        ({}, ("Job", "train"), None),
        (
            {"leaderworkerset.sigs.k8s.io/name": "vllm", "leaderworkerset.sigs.k8s.io/template-revision-hash": "b"},
            ("StatefulSet", "vllm"),
            Generation("LeaderWorkerSet/vllm", "b"),
        ),
        (
            {"serving.knative.dev/service": "llm", "serving.knative.dev/revision": "llm-2", "pod-template-hash": "c"},
            ("ReplicaSet", "llm-2-deployment-c"),
            Generation("Service/llm", "llm-2"),
        ),
    ],
)
def test_of_which_workload_and_generation_a_pod_is(labels: dict[str, str], owner: Any, found: Any):
    assert generation_of(labels, owner) == found


def asks(name: str, pods: int = 1, each: int = 8, **more: Any) -> GangRequest:
    return gang(name, pods, claim_spec(device_request(each)), pod={"nodeSelector": {"pool": "a"}}, **more)


def cluster(nodes: int = 1) -> World:
    made = World()
    for number in range(nodes):
        made.add_node(f"a{number}", [gpu(minor) for minor in range(8)], labels={"pool": "a"})
    made.add_node("b0", [gpu(minor) for minor in range(8)])
    return made


def reason(plan: Plan, name: str) -> Reason:
    return next(each.reason for each in plan.waiting if each.name == name)


def run(made: World, *gangs: GangRequest) -> None:
    assert made.carry_out(made.decide(*gangs), list(gangs)) == []


def test_a_pod_that_waits_for_the_one_that_it_is_to_replace_never_starts_so():
    made = cluster()
    run(made, asks("old"))
    why = reason(made.decide(replace(asks("new"), predecessors=("ml/old",))), "new")
    assert (why.code, why.could_ever_fit) == (Code.OWN_PREDECESSOR, False)
    assert "waits for the devices of ml/old, which its own rollout ends only when it is ready" in why.message
    assert "maxSurge: 0 and maxUnavailable: 1" in why.advice
    assert reason(made.decide(asks("other")), "other").code is Code.NO_DEVICES


def test_where_others_hold_devices_too_it_waits_for_these():
    made = cluster(nodes=2)
    run(made, asks("old"), asks("busy"))
    assert reason(made.decide(replace(asks("new"), predecessors=("ml/old",))), "new").code is Code.NO_DEVICES


def test_of_several_replicas_that_are_replaced_together():
    """Two old pods of 4 on one node: a new one of 4 waits; with one of 4 of somebody else there it waits for that one."""
    made = cluster()
    run(made, asks("old-0", each=4), asks("old-1", each=4))
    new = replace(asks("new", each=4), predecessors=("ml/old-0", "ml/old-1"))
    assert reason(made.decide(new), "new").code is Code.OWN_PREDECESSOR
    other = replace(asks("new", each=4), predecessors=("ml/old-0",))
    assert reason(made.decide(other), "new").code is Code.NO_DEVICES


def test_devices_are_counted_in_pods():
    """With all but its predecessor gone there are 2 devices, so none of its two pods of 4."""
    made = cluster()
    run(made, asks("old", each=6))
    new = replace(asks("new", pods=2, each=4), predecessors=("ml/old",))
    assert reason(made.decide(new), "new").code is Code.OWN_PREDECESSOR


def test_a_limit_of_its_queue_that_only_its_predecessor_uses_is_the_same():
    made = cluster(nodes=2)
    made.flavors = (FlavorSpec(name="gpu", device_selector="true"),)
    made.queues = (QueueSpec(name="serving", quotas=(FlavorQuota(flavor="gpu", limit=12),)),)
    run(made, asks("old", queue="serving"))
    waits = replace(asks("new", queue="serving"), predecessors=("ml/old",))
    why = reason(made.decide(waits), "new")
    assert (why.code, why.could_ever_fit) == (Code.OWN_PREDECESSOR, False)
    assert "the quota of ml/old" in why.message
    made.queues = (QueueSpec(name="serving", quotas=(FlavorQuota(flavor="gpu", limit=16),)),)
    run(made, asks("other", each=4, queue="serving"))
    assert reason(made.decide(waits), "new").code is Code.OVER_LIMIT


def test_nodes_on_demand_end_such_a_wait():
    made = cluster()
    made.flavors = (FlavorSpec(name="gpu", device_selector="true", autoscaling=Autoscaling(mode="Visible")),)
    run(made, asks("old"))
    plan = made.decide(replace(asks("new"), predecessors=("ml/old",)))
    assert [each.name for each in plan.demand] == ["new"]
    assert reason(plan, "new").code is Code.AWAITING_NODES
