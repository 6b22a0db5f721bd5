"""From the slices that should be there and those that are: which to delete, update and create.

Exists to decide what publisher.py does, without doing it. Matches kubelet's Go helper, because the scheduler's view of
a pool hangs on it: all slices of one generation, their number in each, names that sort in publishing order.
Keeps: nothing changes, nothing is written; one slice changes in place without a new generation; anything more is a new
generation, obsolete slices deleted first, then updates, then creations. A taint's timeAdded is kept while the taint is.
Source: k8s.io/dynamic-resource-allocation/resourceslice/resourceslicecontroller.go, syncPool.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from fairlead.driver.publish.slices import SliceBody
from fairlead.kube.quantity import Quantity

Raw = dict[str, Any]

# What an apiserver silently drops when one of its feature gates is off.
_GATES = {
    "taints": "DRADeviceTaints",
    "sharedCounters": "DRAPartitionableDevices",
    "consumesCounters": "DRAPartitionableDevices",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "requestPolicy": "DRAConsumableCapacity",
    "bindingConditions": "DRADeviceBindingConditions",
    "ints": "DRAListTypeAttributes",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Whose slices: one pool per node, named as the node, owned by it."""

    driver: str
    name: str
    node_name: str
    node_uid: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One call to make. `index` is the slice's place among those desired; deletions have none."""

    verb: Literal["delete", "update", "create"]
    object: Raw
    index: int | None = None


# By index: what was sent, and what the apiserver made of it. It is taken as equal, or we would write for ever.
Adopted = Mapping[int, tuple[Raw, Raw]]


def plan(
    pool: Pool, desired: Sequence[SliceBody], existing: Iterable[Raw], adopted: Adopted | None = None
) -> list[Write]:
    """The writes that turn `existing` (raw, of this driver and node, any generation) into `desired`, in order."""
    bodies = [body_of(body) for body in desired]
    stored = list(existing)
    current, obsolete = _match(pool, len(bodies), stored)
    generation = max((slice_["spec"]["pool"].get("generation", 0) for slice_ in current.values()), default=0)
    changed = [
        index
        for index, slice_ in current.items()
        if not _equal(bodies[index], content(slice_["spec"]), (adopted or {}).get(index))
        or slice_["spec"]["pool"].get("resourceSliceCount") != len(bodies)
    ]
    missing = [index for index in range(len(bodies)) if index not in current]
    writes = [Write(verb="delete", object=slice_) for slice_ in obsolete]
    if not changed and not missing:
        return writes
    in_place = len(changed) == 1 and not missing and not obsolete
    if not in_place:
        # Above all that readers may have seen, what is being deleted included.
        generation = max((slice_["spec"]["pool"].get("generation", 0) for slice_ in stored), default=0) + 1
        changed = sorted(current)
    for index in changed:
        slice_ = copy.deepcopy(current[index])
        slice_["spec"] = _spec(pool, bodies, index, generation, before=current[index]["spec"])
        writes.append(Write(verb="update", object=slice_, index=index))
    writes += [Write(verb="create", object=_new(pool, bodies, index, generation), index=index) for index in missing]
    return writes


def body_of(body: SliceBody) -> Raw:
    """A slice's devices and counters as the API's JSON."""
    made: Raw = {}
    if body.devices:
        made["devices"] = msgspec.to_builtins(body.devices)
    if body.shared_counters:
        made["sharedCounters"] = msgspec.to_builtins(body.shared_counters)
    listed: Raw = _lists(made)
    return listed


def content(spec: Mapping[str, Any]) -> Raw:
    """What of a stored slice compares with a desired one."""
    return {key: spec[key] for key in ("devices", "sharedCounters") if spec.get(key)}


def _match(pool: Pool, count: int, existing: Iterable[Raw]) -> tuple[dict[int, Raw], list[Raw]]:
    """Stored slices by the index in their name, newest generation first; and those that have no place."""
    mine: dict[int, Raw] = {}
    obsolete: list[Raw] = []
    ordered = sorted(existing, key=lambda s: (-s["spec"]["pool"].get("generation", 0), s["metadata"].get("name", "")))
    newest = ordered[0]["spec"]["pool"].get("generation", 0) if ordered else 0
    for slice_ in ordered:
        if slice_["metadata"].get("deletionTimestamp"):
            continue
        index = _index(pool, slice_)
        known = index is not None and index < count and index not in mine
        current = (
            slice_["spec"]["pool"].get("name") == pool.name
            and slice_["spec"]["pool"].get("generation", 0) == newest
            and slice_["spec"].get("nodeName") == pool.node_name
        )
        if index is not None and known and current:
            mine[index] = slice_
        else:
            obsolete.append(slice_)
    return mine, sorted(obsolete, key=lambda s: str(s["metadata"].get("name", "")))


def _index(pool: Pool, slice_: Raw) -> int | None:
    prefix = re.match(rf"([0-9a-f]{{5,}})-{re.escape(pool.driver)}-", slice_["metadata"].get("name", ""))
    return int(prefix[1], 16) if prefix else None


def _new(pool: Pool, bodies: Sequence[Raw], index: int, generation: int) -> Raw:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            # The index leads, in hexadecimal of fixed width, so that names sort as the pool is meant to be searched.
            "generateName": f"{index:05x}-{pool.driver}-{pool.node_name}-",
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": pool.node_name,
                    "uid": pool.node_uid,
                    "controller": True,
                }
            ],
        },
        "spec": _spec(pool, bodies, index, generation, before=None),
    }


def _spec(pool: Pool, bodies: Sequence[Raw], index: int, generation: int, *, before: Mapping[str, Any] | None) -> Raw:
    body = copy.deepcopy(bodies[index])
    if before is not None:
        _keep_times(body, before)
    return {
        "driver": pool.driver,
        "pool": {"name": pool.name, "generation": generation, "resourceSliceCount": len(bodies)},
        "nodeName": pool.node_name,
        **body,
    }


def _keep_times(body: Raw, before: Mapping[str, Any]) -> None:
    """The apiserver stamps a taint without timeAdded anew; one that was there before keeps its time."""
    since = {
        (device["name"], taint["key"], taint.get("value", ""), taint["effect"]): taint["timeAdded"]
        for device in before.get("devices", [])
        for taint in device.get("taints", [])
        if taint.get("timeAdded")
    }
    for device in body.get("devices", []):
        for taint in device.get("taints", []):
            known = since.get((device["name"], taint["key"], taint.get("value", ""), taint["effect"]))
            if known is not None and not taint.get("timeAdded"):
                taint["timeAdded"] = known


# -- comparing -------------------------------------------------------------------------------------------------------


def _equal(desired: Raw, stored: Raw, adopted: tuple[Raw, Raw] | None) -> bool:
    wanted, there = normal(desired, timed=stored), normal(stored)
    return wanted == there or (adopted is not None and (normal(desired), there) == adopted)


def normal(body: Raw, *, timed: Raw | None = None) -> Raw:
    """The body in the form in which equal means the same: quantities canonical, empty fields gone.

    Taints of `body` without a time take that of the same taint in `timed`.
    """
    made = copy.deepcopy(body)
    if timed is not None:
        _keep_times(made, timed)
    cleaned = _clean(made)
    assert isinstance(cleaned, dict)
    return cleaned


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        cleaned = {key: _clean(item) for key, item in value.items()}
        if "value" in cleaned and isinstance(cleaned["value"], str | int) and "effect" not in cleaned:
            cleaned["value"] = str(Quantity.of(cleaned["value"]))
        return {key: item for key, item in cleaned.items() if item not in (None, "", [], {})}
    if isinstance(value, list):
        return [_clean(item) for item in value]
    return value


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_lists(item) for item in value]
    return value


def dropped(sent: Raw, stored: Raw) -> list[str]:
    """What of `sent` the apiserver did not keep, as field paths with the feature gate that likely is off; sorted."""
    lost: set[str] = set()

    def walk(one: Any, other: Any, path: str) -> None:
        if isinstance(one, dict) and isinstance(other, dict):
            for key, item in one.items():
                if key in other:
                    walk(item, other[key], f"{path}.{key}")
                else:
                    gate = f" (feature gate {_GATES[key]})" if key in _GATES else ""
                    lost.add(f"{path}.{key}{gate}".lstrip("."))
        elif isinstance(one, list) and isinstance(other, list):
            for item, twin in zip(one, other, strict=False):
                walk(item, twin, f"{path}[]")
            if len(one) != len(other):
                lost.add(f"{path}[] ({len(one)} sent, {len(other)} kept)".lstrip("."))
        elif one != other:
            lost.add(f"{path} (changed)".lstrip("."))

    walk(normal(sent, timed=stored), normal(stored), "")
    return sorted(lost)
