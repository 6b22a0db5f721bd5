"""What a gang's members ask for, by device class, until they have it."""

import msgspec
import pytest

from fairlead.api.gang import GangStatus
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.membership.members import Member, PodClaim, Stage
from fairlead.controller.report.asked import KINDS_MAX, asked
from fairlead.controller.report.gang_status import gang_status
from fairlead.kube import resource
from tests.controller.gang_views import NOW, gated_with, pod, released_with


def exactly(kind="gpu", **more):
    return {"name": "r", "exactly": {"deviceClassName": kind, **more}}


EITHER = {
    "name": "r",
    "firstAvailable": [{"name": "a", "deviceClassName": "gpu", "count": 2}, {"name": "b", "deviceClassName": "mig"}],
}


def member(name, *claims):
    """`claims`: a key and requests each."""
    found = tuple(
        PodClaim(name=f"c{number}", key=key, spec=msgspec.convert({"devices": {"requests": requests}}, resource.ResourceClaimSpec))
        for number, (key, *requests) in enumerate(claims)
    )  # fmt: skip
    return Member(pod=pod(name, gang="g"), stage=Stage.GATED, claims=found)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([member("a", ("a", exactly(count=4))), member("b", ("b", exactly(count=4)))], ["8 × gpu"]),
        ([member("a", ("one", exactly(count=4))), member("b", ("one", exactly(count=4)))], ["4 × gpu"]),
        ([member("a", ("a", exactly(), exactly("nic", count=2)))], ["1 × gpu", "2 × nic"]),
        ([member("a", ("a", exactly()), ("b", exactly(count=2)))], ["3 × gpu"]),
        ([member("a", ("a", exactly(allocationMode="All")))], ["all × gpu"]),
        ([member("a", ("a", EITHER))], ["2 × gpu"]),
        ([member("a", ("a", exactly(), exactly(adminAccess=True)))], ["1 × gpu"]),
        ([member("a")], []),
    ],
    ids=["members", "a shared claim", "two classes", "two claims", "all", "alternatives", "admin access", "none"],
)
def test_devices_are_counted_by_class(members, expected):
    assert asked(members) == expected


def test_no_more_classes_are_listed_than_a_status_may_have():
    found = asked([member("a", ("a", *(exactly(f"class-{number:02}") for number in range(20))))])
    assert len(found) == KINDS_MAX
    GangStatus.model_validate({"asks": found})


def test_a_gang_says_it_until_it_has_its_devices():
    waits = gang_status(gated_with(), SchedulingState(), before={}, created=NOW - 60, now=NOW)
    assert waits["asks"] == ["3 × gpu"]
    runs = gang_status(released_with(3, 0, size=3, age_s=0), SchedulingState(), before=waits, created=NOW - 60, now=NOW)
    assert "asks" not in runs
