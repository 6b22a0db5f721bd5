"""Since when claims are allocated where the apiserver keeps no allocationTimestamp (1.34), and what follows for gangs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.gangs.admission.recovery import tried_at
from fairlead.controller.gangs.admission.requests import GangRecord
from fairlead.controller.gangs.claims.allocations import allocated_at, allocation_times, known_allocation_time
from fairlead.controller.gangs.held.running import RunningContext, running_gang
from fairlead.controller.watch.allocated_claims import Held
from fairlead.kube import core, resource, timestamps
from tests.controller.gang_views import NOW, Objects, claim, pod, step, view

HOUR = 3600.0


def stamp(seconds_ago: float) -> str:
    return timestamps.seconds(NOW - seconds_ago)


def dropped(made: resource.ResourceClaim) -> resource.ResourceClaim:
    """As an apiserver of 1.34 stores it."""
    allocation = made.status.allocation
    assert allocation is not None
    return replace(made, status=replace(made.status, allocation=replace(allocation, allocation_timestamp=None)))


def untimed(number: int, *, created_ago: float, **more: Any) -> resource.ResourceClaim:
    name = f"p{number}"
    made = claim(f"c{number}", name, node="n1", reserved=[name], creationTimestamp=stamp(created_ago), **more)
    return dropped(made)


def released(number: int, *, ago: float | None, node: str = "", started_ago: float | None = None) -> core.Pod:
    made: core.Pod = pod(f"p{number}", gang="g", size=2, claim=f"c{number}", gated=False, node=node)
    if ago is not None:
        marks = {**made.metadata.annotations, names.RELEASED_AT: stamp(ago)}
        made = replace(made, metadata=replace(made.metadata, annotations=marks))
    if started_ago is not None:
        made = replace(made, status=replace(made.status, start_time=stamp(started_ago)))
    return made


def test_the_time_of_the_allocation_counts_where_it_was_kept():
    made = claim("c0", "p0", node="n1", age_s=30, creationTimestamp=stamp(HOUR))
    assert allocated_at(made, [released(0, ago=10)]) == NOW - 30


def test_a_claim_that_an_admission_made_was_allocated_when_it_was_created():
    made = untimed(0, created_ago=50, ours=True)
    assert known_allocation_time(made, [released(0, ago=5)]) == NOW - 50


def test_a_claim_made_so_that_autoscalers_see_it_was_not():
    made = untimed(0, created_ago=HOUR, ours=True)
    marks = {**made.metadata.annotations, names.AWAITING_NODES: "ml/g"}
    made = replace(made, metadata=replace(made.metadata, annotations=marks))
    assert known_allocation_time(made, []) is None
    assert known_allocation_time(made, [released(0, ago=5)]) == NOW - 5


def test_otherwise_the_release_of_the_first_pod_counts():
    made = untimed(0, created_ago=HOUR)
    assert known_allocation_time(made, [released(0, ago=20), released(1, ago=40)]) == NOW - 40


@pytest.mark.parametrize(
    ("written_ago", "counts_ago"),
    [(-100 * HOUR, 30.0), (10 * HOUR, HOUR), (40.0, 40.0)],
    ids=["in the future", "before the claim", "between"],
)
def test_what_a_pod_says_lies_between_the_creation_of_the_claim_and_its_own_start(
    written_ago: float, counts_ago: float
):
    made = untimed(0, created_ago=HOUR)
    assert known_allocation_time(made, [released(0, ago=written_ago, started_ago=30)]) == NOW - counts_ago


def test_what_is_no_time_does_not_count():
    bad = released(0, ago=1)
    bad = replace(bad, metadata=replace(bad.metadata, annotations={names.RELEASED_AT: "yesterday"}))
    made = untimed(0, created_ago=HOUR)
    assert known_allocation_time(made, [bad]) is None
    assert allocated_at(made, [bad]) == NOW - HOUR


def test_members_of_a_gang_have_the_times_of_their_own_claims():
    held = [untimed(0, created_ago=HOUR), untimed(1, created_ago=HOUR)]
    gang = view(released(0, ago=100), released(1, ago=20), objects=Objects(held))
    assert dict(allocation_times(gang.members)) == {"uid-c0": NOW - 100, "uid-c1": NOW - 20}


def test_a_running_gang_has_run_since_its_release_and_not_since_1970():
    held = [untimed(number, created_ago=HOUR) for number in range(2)]
    gang = view(*(released(number, ago=10, node="n1") for number in range(2)), objects=Objects(held))
    running = running_gang(gang, GangRecord(), {}, RunningContext())
    assert running is not None
    assert running.started == NOW - 10
    assert [member.started for member in running.members] == [NOW - 10] * 2


# ------------------------------------------------------------------------------------------------------- late or not


def unbound(*, ago: float | None):
    """Two released pods whose first try failed: kube-scheduler had not seen the allocation yet."""
    held = [untimed(number, created_ago=HOUR) for number in range(2)]
    tried = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "got allocated elsewhere"}
    ]
    pods = [
        replace(one, status=replace(one.status, conditions=tuple(core.PodCondition(**each) for each in tried)))
        for one in (released(number, ago=ago) for number in range(2))
    ]
    return view(*pods, objects=Objects(held))


def test_a_failed_try_is_no_verdict_before_the_time_is_over():
    assert step(unbound(ago=0.2)) is None
    assert step(unbound(ago=59)) is None


def test_where_no_object_says_when_the_time_begins_with_the_first_look():
    gang = unbound(ago=None)
    first = tried_at(gang, {}, NOW - 59)
    assert recovery.next_step(gang, now=NOW, timeout_s=60, tried=first, node_exists=lambda _: True) is None
    later = tried_at(gang, first, NOW + 2)
    assert isinstance(
        recovery.next_step(gang, now=NOW + 2, timeout_s=60, tried=later, node_exists=lambda _: True), recovery.RollBack
    )


# ---------------------------------------------------------------------------------------------------------- the ledger


def test_the_ledger_is_told_of_a_claim_once_its_time_is_known_and_that_time_stays():
    made = untimed(0, created_ago=HOUR)
    gated = pod("p0", gang="g", size=2, claim="c0")
    held = Held(made, {"uid-p0": gated})
    assert not held.timed()
    held.pods["uid-p0"] = released(0, ago=5)
    assert held.timed()
    held.pods.clear()
    assert held.allocated_at == NOW - 5


def test_a_claim_that_no_admission_gave_is_told_with_its_creation():
    held = Held(untimed(0, created_ago=HOUR), {"uid-p0": released(0, ago=None)})
    assert held.timed()
    assert held.allocated_at == NOW - HOUR
