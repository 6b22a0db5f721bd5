"""The place that is held for a gang that moves: written, read back, bound to, and kept in the tables."""

from __future__ import annotations

import json

import pytest

from fairlead.api import names
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark, mark_of
from fairlead.controller.gangs.evictions.moved import Held, Spot, read_spot, to_its_place, unpinned
from fairlead.controller.gangs.evictions.past_evictions import PastEviction, past_eviction
from fairlead.controller.gangs.release import release_patch
from fairlead.engine.types.values import DeviceRef
from fairlead.kube import core, nulls
from tests.support.engine.objects import claim_spec, device_request, gang

SPOT = Spot("n1", (DeviceRef("gpu.fairlead.dev", "a/b", "gpu-0"),), (("cpu", 1000), ("pods", 1000)))


def pod(**spec: object) -> core.Pod:
    metadata = {"name": "p", "namespace": "ml", "uid": "u", "resourceVersion": "1"}
    gates = {"schedulingGates": [{"name": names.ADMISSION_GATE}]}
    return nulls.convert({"metadata": metadata, "spec": {"containers": [], **gates, **spec}}, core.Pod)


def test_a_spot_is_read_back() -> None:
    assert read_spot(json.loads(json.dumps(SPOT.to_json()))) == SPOT


@pytest.mark.parametrize("device", ["", "gpu-0", "driver/gpu-0", "//"])
def test_a_device_that_is_none_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match="is no device"):
        read_spot({"node": "n", "devices": [device]})


def test_a_mark_keeps_place_and_request() -> None:
    mark = EvictionMark(kind="Move", at=60.0, whole=True, beneficiary="ml/x", why="y", asked=30.0, spot=SPOT)
    marked = nulls.convert(
        {"metadata": {"name": "p", "annotations": mark.annotations()}, "spec": {"containers": []}}, core.Pod
    )
    assert mark_of(marked) == mark


def test_the_record_of_an_eviction_keeps_the_place() -> None:
    past = PastEviction(
        at=1.0, queue="q", queued_since=0.0, mark="moved", why="", until=9.0, place=(SPOT,), held_until=5.0, maker="Job"
    )
    assert past_eviction({"status": past.status()}, 1.0) == past


TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}, {}]}


@pytest.mark.parametrize("required", [None, TERMS])
def test_what_a_pod_asked_for_before_it_was_pinned(required: dict[str, object] | None) -> None:
    """By the very patch that pins it."""
    affinity = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    before = pod(**(affinity if required else {}))
    raw: dict[str, object] = {"spec": {"affinity": {"nodeAffinity": dict(affinity["affinity"]["nodeAffinity"])}}}
    for operation in release_patch(before, "n7"):
        if operation["op"] != "add":
            continue
        path, value = operation["path"].split("/")[1:], operation["value"]
        at: object = raw
        if path[-1] == "affinity":
            raw["spec"] = {"affinity": value}
            continue
        for key in path[:-1]:
            at = at[int(key)] if isinstance(at, list) else at[key]  # type: ignore[index]
        at[path[-1]] = value  # type: ignore[index]
    pinned = pod(**raw["spec"])  # type: ignore[arg-type]
    assert pinned.spec.affinity is not None
    assert pinned.spec.affinity.node_affinity is not None
    wanted = before.spec.affinity.node_affinity.required if before.spec.affinity else None  # type: ignore[union-attr]
    assert unpinned(pinned.spec.affinity.node_affinity.required, "n7") == wanted


def test_a_request_is_bound_to_its_place_and_goes_first() -> None:
    bound = to_its_place(gang("g", 2, claim_spec(device_request(1))), Held(("ml", "g"), (Spot("n2", ()), SPOT), 5.0))
    assert bound.replaces
    assert bound.kept == SPOT.devices
    for member in bound.members:
        assert member.needs.affinity is not None
        (term,) = member.needs.affinity.node_selector_terms
        assert term.match_fields[0].values == ("n1", "n2")


def test_what_stands_for_a_place_in_the_tables() -> None:
    held = Held(("ml", "g"), (SPOT, Spot("n2", ())), 5.0)
    assert held.nodes == ("n1", "n2")
    (claim,) = held.claims
    assert claim.devices[0].ref == SPOT.devices[0]
    assert claim.counted == 1
    assert [(uid, node) for uid, node, _ in held.pods] == [("move/ml/g/0", "n1"), ("move/ml/g/1", "n2")]
