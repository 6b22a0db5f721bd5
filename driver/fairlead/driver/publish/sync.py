"""Which ResourceSlices to delete, update and create, from those that are desired and those that exist. Pure.

Matches kubelet's Go helper, on which the scheduler's view of a pool rests: all slices of one generation, their number
in each, names that sort in publishing order.
Keeps: without a change nothing is written; one changed slice is updated in place, without a new generation; any other
change is a new generation: updates, then creations, then obsolete slices are deleted, which no reader counts any more (deleted
first, as the helper does, they could leave a complete pool of what is left). A taint keeps its timeAdded. **Devices that consume counters are written into a generation that is incomplete, so that nothing is allocated from it**:
such a slice is never updated in place, and the first slice, which has none of them, is written last, after it was seen that the
others are stored with their counters. Where a stored generation leaves no higher one, written with a stolen token, all slices are
deleted, that one last, and the pool begins again at 1.
Example: desired are three slices, three exist in generation 4, and the second differs: one update, generation 4. If the
third did not exist: two updates and one creation, generation 5. If the second held MIG placements: all three are updated, the first last.
Source: k8s.io/dynamic-resource-allocation/resourceslice/resourceslicecontroller.go, syncPool.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from fairlead.api import names
from fairlead.driver.publish.slices import SliceBody
from fairlead.kube import releases
from fairlead.kube.quantity import Quantity
from fairlead.kube.resource import ResourceSliceSpec

Raw = dict[str, Any]

GENERATION_MAX = 2**63 - 1
"""The apiserver's int64."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The driver's pool of one node: named as the node, its slices owned by the Node."""

    node_name: str
    node_uid: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One call to the apiserver. `index` is the slice's place among those desired; a deletion has none."""

    verb: Literal["delete", "update", "create"]
    object: Raw
    index: int | None = None


# By index: what was sent, and what the apiserver stored instead. They count as equal, or would be written forever.
Accepted = Mapping[int, tuple[Raw, Raw]]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """An annotation that is to be removed if it still has this value, and whatever it has with None."""

    value: str | None = None


# By key. Other annotations are left alone.
Annotations = Mapping[str, str | Gone]


def plan(
    pool: Pool,
    desired: Sequence[SliceBody],
    existing: Iterable[Raw],
    accepted: Accepted | None = None,
    annotations: Annotations | None = None,
    above: int = 0,
) -> list[Write]:
    """The writes that turn `existing` (raw, of this driver and node, any generation) into `desired`, in order.

    `annotations` are those of the first slice. `above` is the generation of a write whose outcome is not known: a new one is above it.
    """
    noted = annotations or {}
    bodies = [to_json(body) for body in desired]
    stored = list(existing)
    current, obsolete = _match(pool, len(bodies), stored)
    generation = max(map(_generation, stored), default=0)
    stale = [index for index, slice_ in current.items() if _generation(slice_) != generation]
    changed = [
        index
        for index, slice_ in current.items()
        if index in stale
        or not _equal(bodies[index], body_in(slice_["spec"]), (accepted or {}).get(index))
        or slice_["spec"]["pool"].get("resourceSliceCount") != len(bodies)
        or (index == 0 and not _has_annotations(slice_, noted))
    ]
    missing = [index for index in range(len(bodies)) if index not in current]
    deletions = [Write(verb="delete", object=slice_) for slice_ in obsolete]
    if not changed and not missing:
        return deletions
    writes: list[Write] = []
    in_place = len(changed) == 1 and not (missing or obsolete or stale) and not overlapping(bodies[changed[0]])
    if not in_place:
        # Above every generation that readers may have seen, also in slices that are being deleted.
        generation = max(generation, above) + 1
        if generation > GENERATION_MAX:
            return _begun_anew(pool, bodies, stored, noted)
        changed = sorted(current)
    for index in changed:
        slice_ = copy.deepcopy(current[index])
        slice_["spec"] = _spec(pool, bodies, index, generation, before=current[index]["spec"])
        if index == 0:
            _annotate(slice_, noted)
        writes.append(Write(verb="update", object=slice_, index=index))
    writes += [_creation(pool, bodies, index, generation, noted) for index in missing]
    if any(overlapping(body) for body in bodies):
        writes.sort(key=lambda write: write.index == 0)
    return writes + deletions


def _begun_anew(pool: Pool, bodies: Sequence[Raw], stored: Iterable[Raw], noted: Annotations) -> list[Write]:
    """The highest generation is deleted last: until then readers see that one, and never a mixture."""
    writes = [
        Write(verb="delete", object=slice_)
        for slice_ in sorted(stored, key=lambda s: (_generation(s), str(s["metadata"].get("name", ""))))
    ]
    creations = [_creation(pool, bodies, index, 1, noted) for index in range(len(bodies))]
    if any(overlapping(body) for body in bodies):
        creations.sort(key=lambda write: write.index == 0)
    return writes + creations


def _creation(pool: Pool, bodies: Sequence[Raw], index: int, generation: int, noted: Annotations) -> Write:
    made = _new(pool, bodies, index, generation)
    if index == 0:
        _annotate(made, noted)
    return Write(verb="create", object=made, index=index)


def overlapping(body: Raw) -> bool:
    """Whether devices of this slice are exclusive only by their counters."""
    return any(device.get("consumesCounters") for device in body.get("devices", ()))


def annotations_of(pool: Pool, existing: Iterable[Raw]) -> Mapping[str, str]:
    """The annotations of the first slice, the newest of them; none where there is no such slice."""
    stored = [each for each in existing if each["metadata"].get("name")]
    current, _ = _match(pool, 1 + max((_index(each) or 0 for each in stored), default=0), stored)
    found: Mapping[str, str] = current[0]["metadata"].get("annotations") or {} if 0 in current else {}
    return found


def _has_annotations(slice_: Raw, wanted: Annotations) -> bool:
    found = slice_["metadata"].get("annotations") or {}
    return all(
        key not in found or value.value not in {None, found[key]}
        if isinstance(value, Gone)
        else found.get(key) == value
        for key, value in wanted.items()
    )


def _annotate(slice_: Raw, wanted: Annotations) -> None:
    kept = dict(slice_["metadata"].get("annotations") or {})
    for key, value in wanted.items():
        if not isinstance(value, Gone):
            kept[key] = value
        elif value.value in {None, kept.get(key)}:
            kept.pop(key, None)
    slice_["metadata"].pop("annotations", None)
    if kept:
        slice_["metadata"]["annotations"] = kept


_KNOWN = frozenset(field.encode_name for field in msgspec.structs.fields(ResourceSliceSpec))
"""Fields of a slice's spec that this version writes, or leaves out on purpose; others are kept."""


def to_json(body: SliceBody) -> Raw:
    """A slice's devices and counters as JSON of the API."""
    parts = {"devices": body.devices, "sharedCounters": body.shared_counters}
    return {key: msgspec.json.decode(msgspec.json.encode(part)) for key, part in parts.items() if part}


def body_in(spec: Mapping[str, Any]) -> Raw:
    """The part of a stored slice's spec that corresponds to a desired body."""
    return {key: spec[key] for key in ("devices", "sharedCounters") if spec.get(key)}


def _match(pool: Pool, count: int, existing: Iterable[Raw]) -> tuple[dict[int, Raw], list[Raw]]:
    """The newest slice for each index, by that in their name; and those that are obsolete."""
    current: dict[int, Raw] = {}
    obsolete: list[Raw] = []
    for slice_ in sorted(existing, key=lambda s: (-_generation(s), s["metadata"].get("name", ""))):
        if slice_["metadata"].get("deletionTimestamp"):
            if slice_["metadata"].get("finalizers"):
                obsolete.append(slice_)  # they are not the driver's, and nothing else would take them off
            continue
        index = _index(slice_)
        known = index is not None and index < count and index not in current
        mine = slice_["spec"]["pool"].get("name") == pool.node_name and slice_["spec"].get("nodeName") == pool.node_name
        if index is not None and known and mine:
            current[index] = slice_
        else:
            obsolete.append(slice_)
    return current, sorted(obsolete, key=lambda s: str(s["metadata"].get("name", "")))


def _generation(slice_: Raw) -> int:
    return int(slice_["spec"]["pool"].get("generation", 0))


def _index(slice_: Raw) -> int | None:
    prefix = re.match(rf"([0-9a-f]{{5,}})-{re.escape(names.DRIVER)}-", slice_["metadata"].get("name", ""))
    return int(prefix[1], 16) if prefix else None


def _new(pool: Pool, bodies: Sequence[Raw], index: int, generation: int) -> Raw:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            # The index comes first, in hexadecimal of fixed width: the scheduler searches a pool in the order of names.
            "generateName": f"{index:05x}-{names.DRIVER}-{pool.node_name}-",
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
        _keep_taint_times(body, before)
    stored = before or {}
    later = {name: value for name, value in stored.items() if name not in _KNOWN}
    return {
        **later,
        "driver": names.DRIVER,
        "pool": {
            **stored.get("pool", {}),
            "name": pool.node_name,
            "generation": generation,
            "resourceSliceCount": len(bodies),
        },
        "nodeName": pool.node_name,
        **body,
    }


def _keep_taint_times(body: Raw, before: Mapping[str, Any]) -> None:
    """The apiserver sets timeAdded of a taint that has none; one that existed before keeps its time."""
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


def _equal(desired: Raw, stored: Raw, accepted: tuple[Raw, Raw] | None) -> bool:
    wanted, found = normalized(desired, times_of=stored), normalized(stored)
    return wanted == found or (accepted is not None and (normalized(desired), found) == accepted)


def normalized(body: Raw, *, times_of: Raw | None = None) -> Raw:
    """The body in the form that is compared: quantities canonical, empty fields removed.

    Taints of `body` without a time get that of the same taint in `times_of`.
    """
    made = copy.deepcopy(body)
    if times_of is not None:
        _keep_taint_times(made, times_of)
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


def lost_paths(sent: Raw, stored: Raw) -> list[tuple[str, ...]]:
    """Paths of what was sent and is not stored, or otherwise; `[]` ends the name of a list. Sorted."""
    lost: set[tuple[str, ...]] = set()

    def walk(one: Any, other: Any, path: tuple[str, ...]) -> None:
        if isinstance(one, dict) and isinstance(other, dict):
            for key, item in one.items():
                if key in other:
                    walk(item, other[key], (*path, key))
                else:
                    lost.add((*path, key))
        elif isinstance(one, list) and isinstance(other, list):
            listed = (*path[:-1], f"{path[-1]}[]")
            for item, twin in zip(one, other, strict=False):
                walk(item, twin, listed)
            if len(one) != len(other):
                lost.add(listed)
        elif one != other:
            lost.add(path)

    walk(normalized(sent, times_of=stored), normalized(stored), ())
    return sorted(lost)


def dropped_fields(sent: Raw, stored: Raw) -> list[str]:
    """The fields that the apiserver did not store as sent, each with the feature gate that may be off; sorted."""
    return [
        ".".join(path) + (f" (feature gate {gate})" if (gate := releases.gate_of(path[-1])) else "")
        for path in lost_paths(sent, stored)
    ]
