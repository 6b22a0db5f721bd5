"""Finds out by slices what an apiserver keeps: what to create as a dry run, and how to read what was stored. Pure.

The dry run also says which layout counters have to have.
Example: an apiserver of 1.34 with DRAPartitionableDevices answers the combined trial with all of it; one of 1.35 answers 422, and
takes the split one; either without the gate answers the combined one without its counters.
Source: dropDisabledFields in pkg/registry/resource/resourceslice/strategy.go, 1.34 to 1.37.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from fairlead.api import names
from fairlead.api.withheld import GROUPS, Group
from fairlead.driver.publish import sync
from fairlead.driver.publish.kept import ALL, NEEDS, Kept, Layout

Raw = dict[str, Any]
_GROUP_OF: Final[Mapping[str, Group]] = {
    path.rpartition(".")[2]: group
    for group, need in NEEDS.items()
    for kind, path in need.fields
    if kind == "ResourceSlice"
}


def lost(sent: Raw, stored: Raw) -> frozenset[Group]:
    """The groups of which the stored body lacks a field that was sent, or has it changed.

    A device that is missing loses all groups that it had.
    """
    paths = sync.lost_paths(sent, stored)
    found = {group for path in paths for name in path if (group := _GROUP_OF.get(name.rstrip("[]"))) is not None}
    if any(path[0] == "devices[]" and len(path) == 1 for path in paths):
        found |= {group for group in GROUPS if _uses(sent, group)}
    return frozenset(found)


def _uses(body: Raw, group: Group) -> bool:
    devices: list[Raw] = body.get("devices", [])
    match group:
        case "counters":
            return bool(body.get("sharedCounters")) or any(device.get("consumesCounters") for device in devices)
        case "taints":
            return any(device.get("taints") for device in devices)
        case "shares":
            return any(device.get("allowMultipleAllocations") for device in devices)


# -- trials ------------------------------------------------------------------------------------------------------------

_UNIT = {"counters": {"unit": {"value": "1"}}}


def trial(node: str, wanted: Collection[Group], layout: Layout) -> list[Raw]:
    """The slices to create as a dry run, each with some of the groups; devices are of no pool that anything reads."""
    devices: list[Raw] = [{"name": "trial-whole"}]
    if "taints" in wanted:
        devices[0]["taints"] = [{"key": f"{names.DRIVER}/trial", "effect": "NoSchedule"}]
    if "shares" in wanted:
        policy = {"default": "1Mi", "validRange": {"min": "1Mi", "max": "2Mi", "step": "1Mi"}}
        capacity = {"memory": {"value": "2Mi", "requestPolicy": policy}}
        devices.append({"name": "trial-shared", "capacity": capacity, "allowMultipleAllocations": True})
    counters: Raw = {}
    if "counters" in wanted:
        devices.append({"name": "trial-part", "consumesCounters": [{"counterSet": "trial", **_UNIT}]})
        counters = {"sharedCounters": [{"name": "trial", **_UNIT}]}
    bodies = [counters, {"devices": devices}] if counters and layout == "split" else [{**counters, "devices": devices}]
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"generateName": f"trial-{names.DRIVER}-"},
            "spec": {
                "driver": names.DRIVER,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": len(bodies)},
                **body,
            },
        }
        for body in bodies
    ]


def answered(layout: Layout, slices: Sequence[Raw], answers: Sequence[Raw]) -> Kept:
    """What the apiserver keeps, by its answers to a trial of this layout."""
    found: set[Group] = set()
    for sent, answer in zip(slices, answers, strict=True):
        found |= lost(sync.body_in(sent["spec"]), sync.body_in(answer.get("spec") or {}))
    return dataclasses.replace(ALL, counters=layout).without(found)
