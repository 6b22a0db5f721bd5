"""`fairlead check readiness`: each item passes where what it asks for is there, fails where it is not, and says what cannot be seen."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli.health.readiness import checklist
from fairlead.cli.health.readiness.checklist import GroupKey
from fairlead.cli.health.readiness.model import KINDS, OPTIONAL, Answer
from fairlead.cli.health.seen import Listed, Seen
from tests.support import health
from tests.support.health import NOW
from tests.support.ready_cluster import ready, seen

from .readiness_cases import CASES, FAIL, UNKNOWN, Case

BY_HAND = {
    "fabric", "udev", "driver-updates", "storage-bandwidth", "streaming", "smoke", "all-reduce", "load-test", "interruption",
    "scale-up",
}  # fmt: skip
"""Items that no cluster can answer."""


def answers(found: Seen) -> dict[str, Answer]:
    return {item.key: answer for _, item, answer in checklist.answers(found)}


def test_the_checklist_has_nine_groups_and_every_point_of_it_once() -> None:
    assert [group.key for group in checklist.GROUPS] == [key.value for key in GroupKey]
    assert [len(group.items) for group in checklist.GROUPS] == [7, 6, 5, 5, 6, 4, 5, 5, 6]
    keys = [item.key for group in checklist.GROUPS for item in group.items]
    assert len(set(keys)) == len(keys) == 49
    assert all(item.title and item.fix for group in checklist.GROUPS for item in group.items)


def test_where_all_is_there_each_item_passes_but_those_that_no_api_shows() -> None:
    found = answers(seen(ready()))
    assert {key: answer.why for key, answer in found.items() if answer.status == FAIL} == {}
    assert {key for key, answer in found.items() if answer.status == UNKNOWN} == BY_HAND


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.item}-{case.said[:20]}")
def test_what_is_missing_is_seen(case: Case) -> None:
    answer = answers(seen(health.changed(ready(), case.change), **case.facts))[case.item]
    assert (answer.status, case.said in answer.why) == (case.status, True), answer


def test_each_item_that_can_fail_is_seen_to_fail() -> None:
    always_open = BY_HAND | {"tekton", "argo-cd", "mig-isolation", "object-storage", "reservations", "training"}
    keys = {item.key for group in checklist.GROUPS for item in group.items}
    assert keys - always_open == {case.item for case in CASES if case.status == FAIL}


def test_a_missing_right_is_named_and_fails_nothing() -> None:
    for kind in ready():
        found = seen(ready())
        gap = f"you may not list {kind}"
        refused = answers(dataclasses.replace(found, lists={**found.lists, kind: Listed(gap=gap)}))
        failing = {key: answer.why for key, answer in refused.items() if answer.status == FAIL}
        assert failing == {}, kind
    nothing = answers(Seen(now=NOW, groups_gap="you may not get /apis"))
    assert {answer.status for answer in nothing.values()} == {UNKNOWN}
    assert nothing["pipelines"].why == "you may not get /apis"
    assert nothing["taints"].why == "nodes were not read"


# -- odd objects ---------------------------------------------------------------------------------------------------------

_READY = ready()
_READ = {str(each) for each in (*KINDS, *OPTIONAL)} - {"customresourcedefinitions.apiextensions.k8s.io"}
_PLACES = [each for each in health.places(_READY) if each[0] in _READ]


@given(st.lists(st.tuples(st.sampled_from(_PLACES), health.ODD), min_size=1, max_size=4))
def test_odd_values_anywhere_do_not_stop_it(changes: list[tuple[tuple[str, int, tuple[Any, ...]], Any]]) -> None:
    for key, answer in answers(seen(health.with_odd_values(_READY, changes))).items():
        assert answer.why.isprintable(), key


def test_whatever_is_no_object_at_all_is_passed_over() -> None:
    assert len(answers(seen({key: list(health.NO_OBJECTS) for key in _READY}))) == 49
