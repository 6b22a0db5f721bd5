"""Pods that name their pool, as every pool that scales has them: demand where a kind of node would take them, never where none would."""

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.settings import Autoscaling, FlavorQuota, FlavorSpec, NodeTemplate, QueueSpec
from fairlead.kube import core
from tests.support.engine.objects import GPU, claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

POOL = "example.com/pool"
TAINT = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}
TOLERATES = {"tolerations": [{"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"}]}
SELECTS = {"nodeSelector": {POOL: "h100"}}


def requires(*values: str) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": POOL, "operator": "In", "values": list(values)}]}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": node}}


def product(text: str) -> str:
    return f'device.attributes["{names.DRIVER}"].productName.startsWith("{text}")'


def flavor(name: str, text: str, **scaling: Any) -> FlavorSpec:
    autoscaling = Autoscaling(**{"mode": "Visible", **scaling}) if scaling != {"off": True} else None
    return FlavorSpec(name=name, device_selector=product(text), autoscaling=autoscaling)


def cluster(h100: int = 1, others: int = 4, **scaling: Any) -> World:
    """Nodes of 8 H100s in a pool of their own, and such of 8 H100s outside it."""
    made = World()
    for number in range(h100):
        labels = {POOL: "h100", "kubernetes.io/hostname": f"h{number}"}
        made.add_node(f"h{number}", [gpu(minor) for minor in range(8)], labels=labels, taints=[TAINT])
    for number in range(others):
        labels = {POOL: "shared", "kubernetes.io/hostname": f"s{number}"}
        made.add_node(f"s{number}", [gpu(minor) for minor in range(8)], labels=labels)
    made.add_node("cpu", labels={"kubernetes.io/hostname": "cpu"})
    made.flavors = (flavor("h100", "NVIDIA H100", **scaling),)
    return made


def asks(name: str, pods: int, each: int = 8, *, pod: dict[str, Any] | None = None, **more: Any) -> GangRequest:
    return gang(name, pods, claim_spec(device_request(each)), pod=pod, **more)


def why(plan: Plan, name: str) -> Reason:
    return next(each.reason for each in plan.waiting if each.name == name)


def demand(plan: Plan) -> dict[str, str]:
    return {each.name: each.flavor for each in plan.demand if each.state == "Asked"}


@pytest.mark.parametrize(
    "pod",
    [SELECTS | TOLERATES, requires("h100") | TOLERATES, requires("h100", "gone") | TOLERATES],
    ids=["selector", "affinity", "affinity of two"],
)
def test_a_gang_that_names_its_pool_lacks_devices_there_and_is_demand(pod: dict[str, Any]):
    plan = cluster().decide(asks("train", 3, pod=pod))
    assert demand(plan) == {"train": "h100"}
    reason = why(plan, "train")
    assert (reason.code, reason.could_ever_fit) == (Code.AWAITING_NODES, None)
    assert "24 wanted, 8 free on 1 node, 16 missing" in reason.message


def test_without_an_autoscaler_its_reason_is_the_devices_that_lack_in_its_pool():
    made = cluster()
    made.flavors = (flavor("h100", "NVIDIA H100", off=True),)
    reason = why(made.decide(asks("train", 3, pod=SELECTS | TOLERATES)), "train")
    assert reason.code is Code.NEVER_FITS
    assert "24 wanted, 8 free on 1 node, 16 missing" in reason.message


def test_a_pool_whose_nodes_are_full_with_what_runs_there_lacks_devices_too():
    """Those that run there use the node's cpu as well."""
    made = cluster()
    holder = asks("holder", 1, pod=SELECTS | TOLERATES, cpu="60")
    made.carry_out(made.decide(holder), [holder])
    plan = made.decide(asks("train", 2, pod=SELECTS | TOLERATES, cpu="60"))
    assert demand(plan) == {"train": "h100"}
    assert "16 wanted, 0 free on 0 nodes, 16 missing" in why(plan, "train").message


def test_a_taint_that_is_tolerated_is_a_pool_and_one_that_is_not_is_none():
    made = cluster(h100=1, others=0)
    plan = made.decide(asks("tolerates", 2, pod=TOLERATES), asks("does-not", 2))
    assert demand(plan) == {"tolerates": "h100"}
    reason = why(plan, "does-not")
    assert (reason.code, reason.could_ever_fit) == (Code.NO_NODE, False)
    assert "untolerated taint dedicated (1 node)" in reason.message


@pytest.mark.parametrize("pods", [1, 3])
@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({"nodeSelector": {POOL: "h1000"}}, f"node selector {POOL}=h1000"),
        (requires("h1000"), f"node affinity {POOL} In h1000"),
        (SELECTS, "untolerated taint dedicated"),
    ],
)
def test_a_label_that_no_node_has_is_never_demand_and_the_reason_names_it(pod: dict[str, Any], said: str, pods: int):
    plan = cluster().decide(asks("train", pods, pod=pod))
    assert not plan.demand
    reason = why(plan, "train")
    assert (reason.code, reason.could_ever_fit) == (Code.NO_NODE, False)
    assert said in reason.message


def test_a_label_that_no_node_has_is_the_reason_while_all_devices_are_in_use():
    made = cluster(h100=0, others=2)
    holder = asks("holder", 2)
    made.carry_out(made.decide(holder), [holder])
    reason = why(made.decide(asks("train", 1, pod={"nodeSelector": {POOL: "h1000"}})), "train")
    assert reason.code is Code.NO_NODE


def test_of_unlike_pods_the_one_that_no_node_takes_is_the_reason():
    leader, workers = asks("leader", 1, 1), asks("workers", 3, pod={"nodeSelector": {POOL: "h1000"}})
    members, claims = (*leader.members, *workers.members), (*leader.claims, *workers.claims)
    both = replace(leader, name="job", size=4, members=members, claims=claims)
    plan = cluster().decide(both)
    assert not plan.demand
    assert f"node selector {POOL}=h1000" in why(plan, "job").message


def test_another_node_of_the_kind_does_not_help_a_gang_that_names_a_node():
    plan = cluster().decide(asks("toobig", 12, 1, pod={"nodeSelector": {"kubernetes.io/hostname": "s0"}}))
    assert not plan.demand
    reason = why(plan, "toobig")
    assert (reason.code, reason.could_ever_fit) == (Code.NEVER_FITS, False)
    assert "12 wanted, 8 free on 1 node, 4 missing" in reason.message
    assert any("kubernetes.io/hostname=s0" in str(each) for each in reason.nodes)


def test_a_pool_that_is_cordoned_would_take_the_pods_on_another_node():
    made = cluster()
    made.cordon("h0", True)
    plan = made.decide(asks("train", 1, pod=SELECTS | TOLERATES))
    assert demand(plan) == {"train": "h100"}
    made.flavors = ()
    reason = why(made.decide(asks("train", 1, pod=SELECTS | TOLERATES)), "train")
    assert reason.code is Code.NODES_AWAY
    assert "8 more on such nodes" in reason.message


def test_pods_without_devices_that_fill_the_nodes_are_no_reason_to_buy_one():
    made = cluster(h100=1, others=0)
    other = gang("web", 1, None, cpu="60", pod=SELECTS | TOLERATES)
    made.carry_out(made.decide(other), [other])
    plan = made.decide(asks("train", 1, pod=SELECTS | TOLERATES, cpu="32"))
    assert not plan.demand
    assert why(plan, "train").code is Code.NODES_FULL
    assert demand(made.decide(asks("train", 2, pod=SELECTS | TOLERATES, cpu="32"))) == {"train": "h100"}


# -- pools of which no node exists ------------------------------------------------------------------------------------

B200 = NodeTemplate(
    devices=8,
    labels=((POOL, "b"),),
    taints=(core.Taint(key="dedicated", value="training", effect="NoSchedule"),),
    allocatable=(("cpu", 96_000),),
)


@pytest.mark.parametrize(
    ("pod", "each", "cpu", "asked"),
    [
        ({"nodeSelector": {POOL: "b"}} | TOLERATES, 8, "64", True),
        (requires("b") | TOLERATES, 4, "1", True),
        ({"nodeSelector": {POOL: "b"}}, 8, "1", False),
        ({"nodeSelector": {POOL: "bb"}} | TOLERATES, 8, "1", False),
        ({"nodeSelector": {POOL: "b"}} | TOLERATES, 9, "1", False),
        ({"nodeSelector": {POOL: "b"}} | TOLERATES, 8, "100", False),
    ],
    ids=["selector", "affinity", "not tolerated", "mistyped", "too many devices", "too much cpu"],
)
@pytest.mark.parametrize("devices", [True, False], ids=["beside others of the flavor", "from zero"])
def test_a_template_describes_a_pool_without_nodes(
    pod: dict[str, Any], each: int, cpu: str, asked: bool, devices: bool
):
    made = cluster(h100=0, others=2 if devices else 0, templates=(B200,), device_classes=(GPU,))
    plan = made.decide(asks("train", 2, each, pod=pod, cpu=cpu))
    assert demand(plan) == ({"train": "h100"} if asked else {})
    assert (why(plan, "train").could_ever_fit is False) == (not asked)


def test_labels_that_a_flavor_asks_for_and_the_pods_rule_out_make_no_demand():
    made = cluster(mode="Placeholder", node_selector=((POOL, "h100"),))
    plan = made.decide(
        asks("theirs", 3, pod=SELECTS | TOLERATES), asks("other", 9, pod={"nodeSelector": {POOL: "shared"}})
    )
    assert demand(plan) == {"theirs": "h100"}


# -- claims by class alone --------------------------------------------------------------------------------------------


def two_pools(*scaling: str, limit: int | None = None) -> World:
    made = World()
    made.add_node("h0", [gpu(minor) for minor in range(8)], labels={POOL: "h100"})
    made.add_node("l0", [gpu(minor, product="NVIDIA L40S") for minor in range(8)], labels={POOL: "l40s"})
    made.flavors = tuple(
        flavor(name, text, **({} if name in scaling else {"off": True}))
        for name, text in (("h100", "NVIDIA H100"), ("l40s", "NVIDIA L40S"))
    )
    quotas = tuple(FlavorQuota(flavor=name, limit=limit if name == "h100" else None) for name in ("h100", "l40s"))
    made.queues = (QueueSpec(name="q", quotas=quotas),)
    return made


def test_a_claim_by_class_alone_is_demand_of_the_flavor_whose_nodes_would_serve_it():
    for scaling in ("h100", "l40s"):
        plan = two_pools(scaling).decide(asks("any", 2, queue="q"))
        assert demand(plan) == {"any": scaling}
        assert plan.demand[0].amounts == ((scaling, 16),)


def test_its_node_selector_says_which_nodes_would():
    made = two_pools("h100", "l40s")
    for pool in ("h100", "l40s"):
        assert demand(made.decide(asks("any", 2, queue="q", pod={"nodeSelector": {POOL: pool}}))) == {"any": pool}
    assert not two_pools("h100").decide(asks("any", 2, queue="q", pod={"nodeSelector": {POOL: "l40s"}})).demand


def test_of_two_that_would_it_follows_the_one_that_its_queue_may_have():
    assert demand(two_pools("h100", "l40s").decide(asks("any", 2, queue="q"))) == {"any": "h100"}
    assert demand(two_pools("h100", "l40s", limit=8).decide(asks("any", 2, queue="q"))) == {"any": "l40s"}


def test_a_claim_that_selects_another_model_is_no_demand_of_a_flavor_without_devices():
    made = two_pools("h100")
    made.flavors = (*made.flavors, flavor("b200", "NVIDIA B200", device_classes=(GPU,)))
    selects = gang("l40s", 2, claim_spec(device_request(8, cel=product("NVIDIA L40S"))), queue="q")
    assert not made.decide(selects).demand
    unknown = gang("b200", 2, claim_spec(device_request(8, cel=product("NVIDIA B200"))), queue="q")
    assert demand(made.decide(unknown)) == {"b200": "b200"}
