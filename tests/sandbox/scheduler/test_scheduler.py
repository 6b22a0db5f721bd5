"""What the stock scheduler decides about one pod: nodes, devices, and other people's allocations."""

import copy
from typing import Any

import pytest

from fairlead.sandbox.node_fit import pod_requests
from fairlead.sandbox.objects import results_of
from fairlead.sandbox.scheduler import claims as dra
from fairlead.sandbox.scheduler import fit, pools
from fairlead.sandbox.scheduler.cache import Cache
from fairlead.sandbox.scheduler.cycle import Outcome, Placed, Snapshot, Unschedulable, decide
from fairlead.sandbox.scheduler.devices import AllocationError
from fairlead.sandbox.scheduler.fit import NodeInfo

Obj = dict[str, Any]


def node(name: str, *, cpu: str = "8", labels: dict[str, str] | None = None, **spec: Any) -> Obj:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "10"}},
    }


def pod(*, cpu: str = "1", claims: tuple[str, ...] = (), **spec: Any) -> Obj:
    return {
        "metadata": {"name": "p", "namespace": "ml", "uid": "pod-1"},
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
            **spec,
        },
        "status": {},
    }


def device(name: str, island: int = 0, **more: Any) -> Obj:
    return {"name": name, "attributes": {"island": {"int": island}}, **more}


def slices_of(node_name: str, *devices: Obj, **pool: Any) -> Obj:
    spec: Obj = {"driver": "d", "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1} | pool}
    return {"metadata": {"name": f"s-{node_name}"}, "spec": {**spec, "nodeName": node_name, "devices": list(devices)}}


def claim(name: str = "c", *, count: int = 1, requests: list[Obj] | None = None, **more: Any) -> Obj:
    devices: Obj = {"requests": requests or [{"name": "gpu", "exactly": {"deviceClassName": "any", "count": count}}]}
    devices |= {key: more.pop(key) for key in ("constraints", "config") if key in more}
    return {"metadata": {"name": name, "namespace": "ml", "uid": name}, "spec": {"devices": devices}, "status": more}


def allocated(on: str, **status: Any) -> Obj:
    pin = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}
    results = [{"request": "gpu", "driver": "d", "pool": on, "device": "gpu-0"}]
    return {"allocation": {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [pin]}}, **status}


def selects(expression: str, candidate: pools.Candidate) -> bool:
    """The tests' own little selector language: a device name's prefix."""
    if expression == "broken":
        raise AllocationError("no such key: x")
    return candidate.key[2].startswith(expression)


def schedule(
    subject: Obj,
    *nodes: Obj,
    claims: tuple[Obj, ...] = (),
    slices: tuple[Obj, ...] = (),
    allocated: frozenset[pools.DeviceKey] = frozenset(),
    used: dict[str, dict[str, int]] | None = None,
) -> Outcome:
    infos = {each["metadata"]["name"]: NodeInfo(node=each) for each in nodes}
    for name, requests in (used or {}).items():
        infos[name].add(requests)
    by_key = {("ml", each["metadata"]["name"]): each for each in claims}
    snapshot = Snapshot(
        nodes=infos,
        slices=lambda: slices,
        claim=lambda namespace, name: by_key.get((namespace, name)),
        device_class={"any": {"metadata": {"name": "any"}, "spec": {}}}.get,
        allocated=allocated,
        selects=selects,
    )
    before = copy.deepcopy((subject, nodes, claims, slices))
    outcome = decide(subject, snapshot, pick=lambda loose: loose[0])
    assert (subject, nodes, claims, slices) == before
    return outcome


def reason(outcome: Outcome) -> str:
    assert isinstance(outcome, Unschedulable)
    return outcome.message


def where(outcome: Outcome) -> str:
    assert isinstance(outcome, Placed), outcome
    return outcome.node


def devices_of(outcome: Outcome) -> list[str]:
    assert isinstance(outcome, Placed), outcome
    return [
        str(each["device"])
        for _, allocation in outcome.claims
        if allocation
        for each in results_of({"status": {"allocation": allocation}})
    ]


# -- nodes ---------------------------------------------------------------------------------------------------------

TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
PIN = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}


def required(*terms: Obj) -> Obj:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


@pytest.mark.parametrize(
    ("subject", "where_", "want"),
    [
        (pod(), node("n1"), []),
        (pod(), node("n1", unschedulable=True), [fit.UNSCHEDULABLE]),
        (pod(), node("n1", taints=[TAINT]), [fit.TAINTED]),
        (pod(tolerations=[{"key": "gpu", "operator": "Exists"}]), node("n1", taints=[TAINT]), []),
        (pod(tolerations=[{"operator": "Exists"}]), node("n1", taints=[TAINT], unschedulable=True), []),
        (pod(tolerations=[{"key": "gpu", "value": "no"}]), node("n1", taints=[TAINT]), [fit.TAINTED]),
        (pod(nodeSelector={"rack": "a"}), node("n1"), [fit.NO_AFFINITY]),
        (pod(nodeSelector={"rack": "a"}), node("n1", labels={"rack": "a"}), []),
        (pod(affinity=required(PIN)), node("n1"), [fit.NO_AFFINITY]),
        (pod(affinity=required(PIN)), node("n2"), []),
        (pod(affinity=required({}, PIN)), node("n1"), [fit.NO_AFFINITY]),
        (pod(cpu="9"), node("n1"), ["Insufficient cpu"]),
        (pod(cpu="7900m"), node("n1"), []),
    ],
)
def test_a_node_refuses_a_pod_for_the_reason_that_kubernetes_gives(subject: Obj, where_: Obj, want: list[str]) -> None:
    assert fit.refusals(subject, pod_requests(subject), NodeInfo(node=where_)) == want


def test_init_containers_count_by_the_largest_and_sidecars_always() -> None:
    subject = pod(cpu="2")
    subject["spec"]["initContainers"] = [
        {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"resources": {"requests": {"cpu": "5"}}},
    ]
    assert pod_requests(subject)["cpu"] == 6000


def test_the_emptiest_node_wins_and_the_name_breaks_the_tie() -> None:
    assert where(schedule(pod(), node("b"), node("a"))) == "a"
    assert where(schedule(pod(), node("b"), node("a"), used={"a": {"cpu": 4000}})) == "b"


@pytest.mark.parametrize(("priority", "fits"), [(-1, False), (0, False), (1, True)])
def test_room_is_kept_for_a_nominated_pod_that_is_gated_but_not_from_a_higher_priority(
    priority: int, fits: bool
) -> None:
    """As kube-scheduler 1.36.2 does."""
    waits = pod(cpu="6", schedulingGates=[{"name": "g"}])
    waits["metadata"]["uid"] = "waits"
    waits["status"] = {"nominatedNodeName": "n1", "phase": "Pending"}
    cache = Cache()
    cache.set_node(node("n1"))
    cache.set_pod(waits)
    subject = pod(cpu="4", priority=priority)
    assert (fit.refusals(subject, pod_requests(subject), cache.nodes["n1"]) == []) == fits
    assert fit.refusals(waits, pod_requests(waits), cache.nodes["n1"]) == [], "not from itself"
    cache.assume(waits, "n1")
    assert fit.refusals(pod(cpu="2"), {"cpu": 2000}, cache.nodes["n1"]) == [], "one that is being bound counts once"
    cache.forget(waits)
    cache.set_pod({**waits, "status": {"phase": "Pending"}})
    assert fit.refusals(subject, pod_requests(subject), cache.nodes["n1"]) == []


# -- devices -------------------------------------------------------------------------------------------------------


def test_devices_are_allocated_first_fit_in_the_order_of_the_slice() -> None:
    gpus = slices_of("n1", device("gpu-0"), device("gpu-1"), device("gpu-2"))
    outcome = schedule(
        pod(claims=("c",)),
        node("n1"),
        claims=(claim(count=2),),
        slices=(gpus,),
        allocated=frozenset({("d", "n1", "gpu-0")}),
    )
    assert devices_of(outcome) == ["gpu-1", "gpu-2"]
    assert isinstance(outcome, Placed)
    allocation = outcome.claims[0][1]
    assert allocation is not None
    assert allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["n1"]


def test_a_pod_whose_claims_fit_nowhere_waits() -> None:
    gpus = slices_of("n1", device("gpu-0"))
    outcome = schedule(pod(claims=("c",)), node("n1"), claims=(claim(count=2),), slices=(gpus,))
    assert reason(outcome) == "0/1 nodes are available: 1 cannot allocate all claims."


def test_match_attribute_backtracks_to_an_island_that_is_large_enough() -> None:
    gpus = slices_of("n1", device("gpu-0", 0), device("gpu-1", 1), device("gpu-2", 1))
    wanted = claim(count=2, constraints=[{"requests": ["gpu"], "matchAttribute": "d/island"}])
    assert devices_of(schedule(pod(claims=("c",)), node("n1"), claims=(wanted,), slices=(gpus,))) == ["gpu-1", "gpu-2"]


def test_first_available_falls_back_in_order() -> None:
    alternatives = [
        {"name": "big", "deviceClassName": "any", "selectors": [{"cel": {"expression": "h200"}}]},
        {"name": "small", "deviceClassName": "any", "selectors": [{"cel": {"expression": "gpu"}}]},
    ]
    wanted = claim(requests=[{"name": "main", "firstAvailable": alternatives}])
    outcome = schedule(pod(claims=("c",)), node("n1"), claims=(wanted,), slices=(slices_of("n1", device("gpu-0")),))
    assert isinstance(outcome, Placed)
    assert results_of({"status": {"allocation": outcome.claims[0][1]}})[0]["request"] == "main/small"


def test_all_takes_every_match_or_none() -> None:
    wanted = claim(requests=[{"name": "gpu", "exactly": {"deviceClassName": "any", "allocationMode": "All"}}])
    gpus = slices_of("n1", device("gpu-0"), device("gpu-1"))
    args: Any = {"claims": (wanted,), "slices": (gpus,)}
    assert devices_of(schedule(pod(claims=("c",)), node("n1"), **args)) == ["gpu-0", "gpu-1"]
    outcome = schedule(pod(claims=("c",)), node("n1"), **args, allocated=frozenset({("d", "n1", "gpu-0")}))
    assert "cannot allocate" in reason(outcome)


def test_a_tainted_device_needs_a_toleration() -> None:
    gpus = slices_of("n1", device("gpu-0", taints=[TAINT]))
    assert "cannot allocate" in reason(schedule(pod(claims=("c",)), node("n1"), claims=(claim(),), slices=(gpus,)))
    exactly = {"deviceClassName": "any", "tolerations": [{"key": "gpu", "operator": "Exists"}]}
    wanted = claim(requests=[{"name": "gpu", "exactly": exactly}])
    assert devices_of(schedule(pod(claims=("c",)), node("n1"), claims=(wanted,), slices=(gpus,))) == ["gpu-0"]


def test_counters_are_never_overdrawn() -> None:
    uses: dict[str, Any] = {"consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]}
    shared = slices_of("n1", resourceSliceCount=2)
    del shared["spec"]["devices"]
    shared["metadata"]["name"] = "s-counters"
    shared["spec"]["sharedCounters"] = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    cut = slices_of("n1", *(device(f"mig-{i}", **uses) for i in range(3)), resourceSliceCount=2)
    args: Any = {"slices": (shared, cut), "claims": (claim(count=2),)}
    assert devices_of(schedule(pod(claims=("c",)), node("n1"), **args)) == ["mig-0", "mig-1"]
    outcome = schedule(pod(claims=("c",)), node("n1"), **args, allocated=frozenset({("d", "n1", "mig-2")}))
    assert "cannot allocate" in reason(outcome)


def test_an_incomplete_pool_offers_nothing() -> None:
    gpus = slices_of("n1", device("gpu-0"), resourceSliceCount=2)
    assert "cannot allocate" in reason(schedule(pod(claims=("c",)), node("n1"), claims=(claim(),), slices=(gpus,)))


def test_a_selector_that_fails_stops_the_pod_as_a_whole() -> None:
    exactly = {"deviceClassName": "any", "selectors": [{"cel": {"expression": "broken"}}]}
    wanted = claim(requests=[{"name": "gpu", "exactly": exactly}])
    outcome = schedule(pod(claims=("c",)), node("n1"), claims=(wanted,), slices=(slices_of("n1", device("gpu-0")),))
    assert isinstance(outcome, Unschedulable)
    assert (outcome.reason, "no such key: x" in outcome.message) == ("SchedulerError", True)


def test_class_and_claim_configuration_reach_the_allocation() -> None:
    opaque = {"opaque": {"driver": "d", "parameters": {"a": 1}}}
    wanted = claim(config=[opaque])
    outcome = schedule(pod(claims=("c",)), node("n1"), claims=(wanted,), slices=(slices_of("n1", device("gpu-0")),))
    assert isinstance(outcome, Placed)
    allocation = outcome.claims[0][1]
    assert allocation is not None
    assert allocation["devices"]["config"] == [{"source": "FromClaim", **opaque}]


# -- claims allocated by another writer --------------------------------------------------------------------------------

MINE = {"resource": "pods", "name": "p", "uid": "pod-1"}
FOREIGN = {"apiGroup": "gang.example.com", "resource": "gangs", "name": "g", "uid": "g"}


def test_an_allocated_claim_leads_its_pod_to_the_node() -> None:
    outcome = schedule(pod(claims=("c",)), node("n1"), node("n2"), claims=(claim(**allocated("n2")),))
    assert where(outcome) == "n2"


def test_a_claim_reserved_for_the_pod_is_not_written_again() -> None:
    """But it is one of those whose reservation goes when the pod is not bound."""
    mine = claim(**allocated("n1", reservedFor=[MINE]))
    outcome = schedule(pod(claims=("c",)), node("n1"), claims=(mine,))
    assert outcome == Placed(node="n1", claims=((mine, None),))
    assert dra.bound(mine, pod(claims=("c",)), allocation=None, now="2026-01-01T00:00:00Z") is None


@pytest.mark.parametrize(
    ("consumers", "thrown_away"), [((), True), ((MINE,), True), ((FOREIGN,), False), ((MINE, FOREIGN), False)]
)
def test_an_allocation_is_thrown_away_when_its_node_has_no_room(consumers: tuple[Obj, ...], thrown_away: bool) -> None:
    theirs = claim(**allocated("n2", reservedFor=list(consumers)))
    outcome = schedule(pod(cpu="4", claims=("c",)), node("n1"), node("n2", cpu="1"), claims=(theirs,))
    assert isinstance(outcome, Unschedulable)
    assert (outcome.deallocate is not None) is thrown_away
    assert "1 resourceclaim not available on the node" in outcome.message
    assert dra.deallocated(theirs) == {}


def test_a_pinned_pod_keeps_its_allocation_because_no_other_node_asks_about_it() -> None:
    theirs = claim(**allocated("n2", reservedFor=[MINE]))
    subject = pod(cpu="4", claims=("c",), affinity=required(PIN))
    outcome = schedule(subject, node("n1"), node("n2", cpu="1"), claims=(theirs,))
    assert isinstance(outcome, Unschedulable)
    assert outcome.deallocate is None


def test_binding_reserves_and_dates_the_allocation() -> None:
    status = dra.bound(claim(), pod(), allocation={"devices": {}}, now="2026-01-01T00:00:00Z")
    assert status is not None
    assert status["allocation"]["allocationTimestamp"] == "2026-01-01T00:00:00Z"
    assert status["reservedFor"] == [MINE]


def test_a_foreign_allocation_without_a_timestamp_is_changed_which_the_apiserver_refuses() -> None:
    theirs = claim(**allocated("n1"))
    status = dra.bound(theirs, pod(), allocation=None, now="2026-01-01T00:00:00Z")
    assert status is not None and status["allocation"] != theirs["status"]["allocation"]
    assert dra.bound(claim(**allocated("n1", reservedFor=[MINE])), pod(), allocation=None, now="x") is None
