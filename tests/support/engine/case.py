"""One recorded or made-up allocation, as JSON, made into what `decide` takes.

A case has `node`, `classes`, `slices`, the `claims` of one pod, and what is held already: whole devices (`allocated`) and parts
of shared ones (`consumed`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PendingMember
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.values import PodRef
from fairlead.kube import core, resource


def snapshot_of(case: dict[str, Any]) -> Snapshot:
    """One pod with all the case's claims, on its one node."""
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
    member = PendingMember(
        pod=PodRef("default", "pod", "pod"),
        needs=PodNeeds.of(core.Pod()),
        claims=tuple(claim.key for claim in claims),
    )
    gang = GangRequest(
        namespace="default", name="pod", uid="pod", size=1, members=(member,), claims=claims, models="any"
    )  # what the allocator does, which knows no rule about models
    classes = {entry["metadata"]["name"]: msgspec.convert(entry, resource.DeviceClass) for entry in case["classes"]}
    return Snapshot(inventory=inventory, nodes=nodes, classes=classes, gangs=(gang,))


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
