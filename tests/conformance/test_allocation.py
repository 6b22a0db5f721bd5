"""Every allocation that a real Kubernetes judged is judged alike, through `decide`: one test per recorded case.

Allocated exactly when the record says so, and then valid by a judge that shares no code with the allocator, with the same
alternatives of `firstAvailable`. Where the record is an error, a reason is given and no failing device is used.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.controller.inventory import Inventory
from fairlead.controller.model import ClaimRequest, GangRequest, Member, PodRef, Snapshot
from fairlead.controller.nodes import NodeTable, PodNeeds
from fairlead.controller.plan import decide
from fairlead.controller.testing import faults
from fairlead.kube import core, resource


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    directory: Path = metafunc.config.getoption("--vectors")
    cases = []
    for path in sorted(directory.glob("allocation*.jsonl.gz")) if directory.is_dir() else ():
        with gzip.open(path, "rb") as lines:
            for index, line in enumerate(lines):
                cases.append(pytest.param(line, id=f"{path.name.partition('.')[0]}-{index}"))
    if not cases:
        skip = pytest.mark.skip(reason=f"no allocation*.jsonl.gz in {directory}; pass --vectors DIR")
        cases = [pytest.param(b"", id="absent", marks=skip)]
    metafunc.parametrize("line", cases)


def _held(number: int, entry: dict[str, Any], capacity: dict[str, str] | None) -> resource.ResourceClaim:
    result = {"request": "r", "driver": entry["driver"], "pool": entry["pool"], "device": entry["device"]}
    if capacity is not None:
        result |= {"shareID": f"share-{number}", "consumedCapacity": capacity}
    return msgspec.convert(
        {
            "metadata": {"name": f"held-{number}", "namespace": "other", "uid": f"held-{number}"},
            "status": {"allocation": {"devices": {"results": [result]}}},
        },
        resource.ResourceClaim,
    )


def _snapshot(case: dict[str, Any]) -> Snapshot:
    inventory = Inventory()
    inventory.set_slices(msgspec.convert(case["slices"], list[resource.ResourceSlice]))
    for number, entry in enumerate(case["allocated"]):
        inventory.set_claim(_held(number, entry, None))
    for number, entry in enumerate(case["consumed"], len(case["allocated"])):
        inventory.set_claim(_held(number, entry, entry["capacity"]))
    nodes = NodeTable()
    nodes.set_node(msgspec.convert(case["node"], core.Node))
    claims = tuple(
        ClaimRequest(
            key=claim["metadata"]["uid"],
            namespace=claim["metadata"]["namespace"],
            name=claim["metadata"]["name"],
            spec=msgspec.convert(claim["spec"], resource.ResourceClaimSpec),
        )
        for claim in case["claims"]
    )
    member = Member(
        pod=PodRef("default", "pod", "pod"),
        needs=PodNeeds.of(core.Pod()),
        claims=tuple(claim.key for claim in claims),
    )
    gang = GangRequest(namespace="default", name="pod", uid="pod", size=1, members=(member,), claims=claims)
    classes = {entry["metadata"]["name"]: msgspec.convert(entry, resource.DeviceClass) for entry in case["classes"]}
    return Snapshot(inventory=inventory, nodes=nodes, classes=classes, gangs=(gang,))


def _alternatives(results: list[dict[str, Any]]) -> set[str]:
    return {result["request"] for result in results if "/" in result["request"]}


def test_the_allocation_is_the_one_that_kubernetes_should_give(line: bytes) -> None:
    case = json.loads(line)
    expect = case["expect"]
    plan = decide(_snapshot(case), 0.0)
    if not plan.admissions:
        assert str(plan.waiting[0].reason)
        assert expect["result"] != "allocated", plan.waiting[0].reason
        return
    assert expect["result"] != "unallocatable", plan.admissions
    answers = {claim.key: claim.allocation.to_json() for claim in plan.admissions[0].claims}
    wrong = faults(
        nodes=[case["node"]],
        classes=case["classes"],
        slices=case["slices"],
        answers=[
            (claim, case["node"]["metadata"]["name"], answers[claim["metadata"]["uid"]]) for claim in case["claims"]
        ],
        allocated=case["allocated"],
        consumed=case["consumed"],
    )
    assert not wrong
    for claim, recorded in zip(case["claims"], expect.get("results", ()), strict=False):
        got = answers[claim["metadata"]["uid"]]["devices"]["results"]
        assert _alternatives(got) == _alternatives(recorded["devices"].get("results") or [])
