"""Fair share agrees with the numbers of public schedulers' own tests: one test per recorded case.

What is compared: water-filling division (`kai_division`), the same with past use (`derived_time_based`), half-life decay
(`kueue_afs_decay`) and what it is weighed to (`kueue_afs_usage`), dominant shares with borrowing (`kueue_drs`), which queue may
reclaim from whom (`kai_reclaim`), who is evicted for a newcomer (`kueue_fair_preemption`, by whole decisions on a cluster with
as many devices as there is quota, two for a CPU). Where our maths differs on purpose, `_differs` says why; the cases it names are not run.
"""

from __future__ import annotations

import json
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.engine.queues.fair_share import Claimant, divide
from fairlead.engine.queues.gangs import dominant_share
from fairlead.engine.queues.tree import Tree
from fairlead.engine.queues.usage_history import decayed, weighed
from fairlead.engine.reclaim.policy import may_reclaim
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.settings import FlavorQuota, FlavorSpec, QueueSpec
from tests.support.engine.objects import claim_spec, device_request, gang, gpu
from tests.support.engine.world import World

Case = dict[str, Any]


def _differs(case: Case) -> str | None:
    """Why we answer otherwise, on purpose."""
    inputs = case["inputs"]
    match case["kind"]:
        case "slurm_fair_tree":
            return "ranks users once for a whole accounting period; queues are ordered anew by every admission"
        case "volcano_hdrf_stated":
            return "rescales children to the least share; here a queue's share is divided among those below it"
        case "kueue_drs" if _resources_in_two_flavors(inputs):
            return "each flavor is a resource of its own: shares of different kinds of GPU are not added up"
        case "kueue_fair_preemption" if _devices(inputs["nodes"]) < sum(
            each["cpu"] * SCALE for each in inputs["admitted"]
        ):
            return "more is admitted than there is quota: here what is admitted holds devices that exist"
        case "kueue_fair_preemption" if case["source"]["case"] in _BEYOND_DESERVED:
            return "takes queues below what they deserve for one that goes beyond what it deserves"
    return None


SCALE = 2  # devices for a CPU: the least amount in the cases is half of one
_BEYOND_DESERVED = {"preempt from different queues if the result has a smaller max share"}


def _devices(nodes: Case) -> int:
    return sum(int(SCALE * node.get("quota", {}).get("default/cpu", 0)) for node in nodes.values())


def _resources_in_two_flavors(inputs: Case) -> bool:
    keys = {key for node in inputs["nodes"].values() for key in node.get("quota", {})}
    return len({key.partition("/")[2] for key in keys}) < len(keys)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    directory: Path = metafunc.config.getoption("--vectors")
    cases, different = [], 0
    for path in sorted(directory.glob("fairshare*.json")) if directory.is_dir() else ():
        for case in json.loads(path.read_text())["vectors"]:
            reason = _differs(case)
            different += reason is not None
            marks = [pytest.mark.skip(reason=f"differs on purpose: {reason}")] if reason else []
            cases.append(pytest.param(case, id=f"{path.stem}-{case['id']}", marks=marks))
    assert different * 10 <= len(cases), f"{different} of {len(cases)} cases differ: at most one in ten may"
    if not cases:
        skip = pytest.mark.skip(reason=f"no fairshare*.json in {directory}; pass --vectors DIR")
        cases = [pytest.param({}, id="absent", marks=skip)]
    metafunc.parametrize("case", cases)


def test_the_numbers_are_the_published_ones(case: Case) -> None:
    check = {
        "kai_division": _division,
        "derived_time_based": _division,
        "kai_reclaim": _reclaim,
        "kueue_afs_decay": _decay,
        "kueue_afs_usage": _usage,
        "kueue_drs": _dominant,
        "kueue_fair_preemption": _preemption,
    }.get(case["kind"])
    if check is None:
        pytest.skip(f"kind {case['kind']} is unknown here")
    check(case["inputs"], case["expected"])


def _exact(value: float) -> Fraction:
    return Fraction(str(value))


def _unbounded(value: float) -> float | None:
    return None if value == -1 else value


def _division(inputs: Case, expected: Case) -> None:
    queues = [
        Claimant(
            name=queue["name"],
            demand=queue["request"],
            deserved=_unbounded(queue["deserved"]),
            limit=_unbounded(queue["limit"]),
            weight=queue["weight"],
            priority=queue["priority"],
            usage=queue.get("usage", 0),
        )
        for queue in inputs["queues"]
    ]
    shares, left = divide(inputs["total"], queues, k=inputs["k"])
    got = {queue.name: float(share) for queue, share in zip(queues, shares, strict=True)}
    assert got == pytest.approx(expected["fair_share"])
    if "remaining" in expected:
        assert float(left) == pytest.approx(expected["remaining"])


def _decay(inputs: Case, expected: Case) -> None:
    consumed = 0.0
    for _ in range(inputs["samples"]):
        consumed = decayed(
            consumed, inputs["constant_usage"], elapsed_s=inputs["sample_s"], half_life_s=inputs["half_life_s"]
        )
    assert consumed == pytest.approx(expected["consumed"], abs=expected["tolerance"])


def _usage(inputs: Case, expected: Case) -> None:
    """A resource's weight multiplies what is used, a queue's divides it: one weight per flavor here."""
    flavors = inputs["consumed"].keys() | inputs["penalty"].keys()
    worth = {flavor: inputs["resource_weights"].get(flavor, 1.0) for flavor in flavors}
    weights = {flavor: inputs["queue_weight"] / worth[flavor] if worth[flavor] else float("inf") for flavor in flavors}
    got = weighed(inputs["consumed"], inputs["penalty"], weights)
    assert got == pytest.approx(float(expected["usage"]))


def _reclaim(inputs: Case, expected: Case) -> None:
    tree = Tree(
        [
            QueueSpec(
                name=name,
                parent=queue["parent"] or None,
                quotas=(FlavorQuota(flavor="gpu", deserved=_exact(queue["deserved"])),),
            )
            for name, queue in inputs["queues"].items()
        ]
    )
    for name, queue in inputs["queues"].items():
        tree.queues[name].used["gpu"] = _exact(queue["allocated"])
        tree.queues[name].fair["gpu"] = _exact(queue["fair_share"])
    reclaimer = tree.queues[inputs["reclaimer"]["queue"]]
    asked = {"gpu": _exact(inputs["reclaimer"]["request"])}
    left = [
        (tree.queues[name], {"gpu": _exact(amount)})
        for name, amounts in inputs["victims"].items()
        for amount in amounts
    ]
    while (legal := next((each for each in left if may_reclaim(reclaimer, asked, *each)), None)) is not None:
        left.remove(legal)
        legal[0].charge(legal[1], 0, -1)
    assert (not left) is expected["reclaimable"], [str(may_reclaim(reclaimer, asked, *each)) for each in left]


def _dominant(inputs: Case, expected: Case) -> None:
    nodes = inputs["nodes"]
    children: dict[str, list[str]] = {}
    for name, node in nodes.items():
        children.setdefault(node.get("parent", ""), []).append(name)

    def deserved(name: str, flavor: str) -> Fraction:
        """There a cohort's own quota comes on top of what the queues below it have; here it is all of it."""
        below = sum((deserved(child, flavor) for child in children.get(name, ())), Fraction(0))
        return _exact(nodes[name].get("quota", {}).get(flavor, 0)) + below

    flavors = sorted({flavor for node in nodes.values() for flavor in node.get("quota", {})})
    specs = []
    for name, node in nodes.items():
        quotas = tuple(
            FlavorQuota(
                flavor=flavor,
                deserved=deserved(name, flavor),
                weight=node.get("weight", 1.0),
                borrowing_limit=node.get("borrow", {}).get(flavor),
                lending_limit=node.get("lend", {}).get(flavor),
            )
            for flavor in flavors
        )
        specs.append(QueueSpec(name=name, parent=node.get("parent"), quotas=quotas))
    tree = Tree(specs)
    tree.begin({flavor: sum(deserved(root.name, flavor) for root in tree.roots) for flavor in flavors})
    for amounts in (inputs["usage_of_cq"], inputs["adding"]):
        tree.queues["cq"].charge({flavor: _exact(value) for flavor, value in amounts.items()}, 0)
    for name, wanted in expected.items():
        share, flavor = dominant_share(tree.queues[name], tree, {})
        got = share if share == float("inf") else ceil(share * 1000 - 1e-9)  # there in thousandths, rounded up
        assert (got, flavor.partition("/")[2]) == (float(wanted["share"]), wanted["resource"]), name


_KINDS = {"InClusterQueue": "Preempt", "InCohortReclamation": "Reclaim", "InCohortFairSharing": "Reclaim"}


def _preemption(inputs: Case, expected: Case) -> None:
    nodes = inputs["nodes"]
    children: dict[str, list[str]] = {}
    for name, node in nodes.items():
        children.setdefault(node.get("parent", ""), []).append(name)

    def deserved(name: str) -> int:
        return _devices({name: nodes[name]}) + sum(deserved(child) for child in children.get(name, ()))

    def job(entry: Case, created: float) -> GangRequest:
        asked = claim_spec(device_request(int(SCALE * entry["cpu"])))
        name = entry["name"].replace("_", "-")
        return gang(name, 1, asked, cpu="10m", queue=entry["cq"], priority=entry["priority"], created=created)

    world = World()
    world.add_node("node", [gpu(minor) for minor in range(_devices(nodes))])
    world.flavors = (FlavorSpec(name="cpu", device_selector=f'device.driver == "{names.DRIVER}"'),)
    admitted = [job(entry, 0.0) for entry in inputs["admitted"]]
    assert not world.carry_out(world.decide(*admitted), admitted)
    world.queues = tuple(
        QueueSpec(
            name=name,
            parent=node.get("parent"),
            preemption=node.get("preemption", {}).get("within", "Never"),
            quotas=(FlavorQuota(flavor="cpu", deserved=deserved(name), weight=node.get("weight", 1.0)),),
        )
        for name, node in nodes.items()
    )
    plan = world.decide(job(inputs["incoming"], 1000.0))
    got = {eviction.name: eviction.kind for eviction in plan.evictions}
    assert got == {name.replace("_", "-"): _KINDS[why] for name, why in expected["preempted"].items()}
