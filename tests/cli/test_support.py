"""Which lines of the table of releases hold on a cluster: what was seen of it comes before what its release says."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fairlead.api import withheld
from fairlead.cli.health.doctor.diagnosis import diagnose, gaps, structured
from fairlead.cli.health.seen import Seen, SliceTrial
from fairlead.cli.health.support import SERVED_GROUPS, Line, less, lines
from fairlead.kube.releases import NEEDS, NEWEST_TRIED, TRIED, need
from tests.support import health

NOTHING: dict[str, Any] = {"groups": None, "gates": {}, "gates_gap": "you may not get /metrics"}


def on(release: str, **more: Any) -> Seen:
    return health.seen(health.healthy(), **{**NOTHING, "release": release, **more})


def line(seen: Seen, key: str) -> Line:
    return next(each for each in lines(seen) if each.need.key == key)


@pytest.mark.parametrize("minor", TRIED)
def test_where_nothing_is_visible_the_release_answers_and_says_that_it_does(minor: tuple[int, int]) -> None:
    found = lines(on(f"v{TRIED[minor]}"))
    assert [each.need for each in found] == list(NEEDS)
    for each in found:
        assert each.there is each.need.holds(minor)
        assert TRIED[minor] in each.known
    taints = line(on(f"v{TRIED[minor]}"), "device-taints")
    assert "is not visible (you may not get /metrics)" in taints.known


def test_gates_come_before_slices_and_slices_before_the_release() -> None:
    dropped = SliceTrial(kept={"device-taints": False})
    assert line(on("v1.36.2", slice_trial=dropped), "device-taints").known == (
        "a slice created with dryRun came back without it (DRADeviceTaints is off)"
    )
    kept = SliceTrial(kept={"device-taints": True})
    assert line(on("v1.34.9", slice_trial=kept), "device-taints").there is True
    gated = on("v1.34.9", slice_trial=dropped, gates={"DRADeviceTaints": True})
    assert line(gated, "device-taints").known == "DRADeviceTaints is on, by the apiserver's metrics"


def test_where_no_slice_may_be_tried_drivers_say_what_they_found_to_be_dropped() -> None:
    lists = health.healthy()
    slices = lists["resourceslices.resource.k8s.io"]
    slices[0]["metadata"]["annotations"] = {withheld.DROPPED: "counters,taints,others"}
    slices[1]["metadata"]["annotations"] = {withheld.DROPPED: ["taints"]}
    seen = health.seen(lists, **NOTHING)
    assert [each.need.key for each in less(seen)] == ["partitionable-devices", "device-taints"]
    assert line(seen, "device-taints").known == f"found to be dropped by the driver of {health.NODES[0]}"


def test_a_kind_is_there_where_discovery_lists_it_whatever_its_gate() -> None:
    assert SERVED_GROUPS == ("resource.k8s.io", "scheduling.k8s.io")
    groups = {"resource.k8s.io": ("v1", "v1beta2")}
    without = {"resource.k8s.io/v1": frozenset({"resourceslices"}), "resource.k8s.io/v1beta2": frozenset[str]()}
    seen = on("v1.36.2", groups=groups, discovered=without, gates={"DRADeviceTaintRules": True})
    assert (line(seen, "device-taint-rules").there, line(seen, "pod-groups").there) == (False, False)
    listed = without | {"resource.k8s.io/v1beta2": frozenset({"devicetaintrules"})}
    found = line(dataclasses.replace(seen, discovered=listed, gates={}), "device-taint-rules")
    assert (found.there, found.known) == (True, "discovery lists them in resource.k8s.io/v1beta2")


def test_a_group_that_does_not_answer_does_not_say_that_a_kind_is_absent() -> None:
    seen = on("v1.37.0", groups={"resource.k8s.io": ("v1",)}, discovered={})
    assert line(seen, "device-taint-rules").there is True
    assert "by default" in line(seen, "device-taint-rules").known
    assert "by default" in line(dataclasses.replace(seen, groups=None), "pod-groups").known


def test_one_claim_with_the_time_of_its_allocation_says_that_it_is_kept() -> None:
    lists = health.healthy()
    claims = lists["resourceclaims.resource.k8s.io"]
    claims += [health.claim("old", allocated_by="x"), health.claim("new", allocated_by="x")]
    assert line(health.seen(lists, release="v1.34.9"), "allocation-time").known == "Kubernetes v1.34.9 drops it"
    claims[-1]["status"]["allocation"]["allocationTimestamp"] = "2027-01-15T08:00:00Z"
    found = line(health.seen(lists, release="v1.34.9"), "allocation-time")
    assert found.there is True
    assert found.known.startswith("1 of ")


def test_only_what_the_newest_release_has_as_it_comes_is_missed() -> None:
    assert less(on("v1.36.2")) == []
    assert {each.need.key for each in less(on("v1.35.6"))} == {
        each.key for each in NEEDS if each.holds(NEWEST_TRIED) and not each.holds((1, 35))
    }
    assert not need("pod-groups").holds(NEWEST_TRIED)


def test_of_an_unknown_release_and_of_one_before_the_table_nothing_is_said() -> None:
    assert {each.there for each in lines(on(""))} == {None}
    assert lines(on("v1.33.4")) == ()
    assert [each.code for each in diagnose(on("v1.33.4"))] == ["NoResourceAPI"]
    assert diagnose(on("", gates_gap="")) == []


def test_a_trial_that_could_not_be_made_is_named_among_what_was_not_looked_at() -> None:
    assert "you may not create slices" in gaps(on("v1.34.9", slice_trial=SliceTrial(gap="you may not create slices")))


def test_the_next_step_names_only_gates_that_the_release_has() -> None:
    (note,) = diagnose(on("v1.34.9"))
    assert note.code == "NotOnThisCluster"
    assert "DRADeviceTaints" in note.next_step
    assert "GranularStatusAuthorization" not in note.next_step


def test_json_has_every_line_with_how_it_is_known() -> None:
    listed = structured(on("v1.34.9"), [])["needs"]
    assert [each["key"] for each in listed] == [each.key for each in NEEDS]
    assert all(each["known"] and each["without"] and "`" not in each["what"] for each in listed)
