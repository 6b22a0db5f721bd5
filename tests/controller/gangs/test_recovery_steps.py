"""The recovery step of a gang whose admission was interrupted. Pure."""

import pytest
from msgspec import convert
from msgspec.structs import replace

from fairlead.api import names
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.gangs.admission.recovery import tried_at
from fairlead.controller.gangs.build import build_gang
from fairlead.controller.report.gang_phase import summarize
from fairlead.kube import core, timestamps
from tests.controller.gang_views import NOW, Objects, claim, gated_with, pod, released_with, step, view


@pytest.mark.parametrize(
    ("written", "node", "kind", "of"),
    [
        ((), "n1", None, []),
        ((0, 2), "n1", recovery.Undo, ["p0", "p2"]),
        ((0, 1, 2), "n1", recovery.Complete, ["p0", "p1", "p2"]),
        ((0, 1, 2), "n9", recovery.Undo, ["p0", "p1", "p2"]),
    ],
    ids=["nothing is written", "in part", "whole", "whole, on a node that is gone"],
)
def test_what_was_written_is_completed_or_undone(written, node, kind, of):
    found = step(gated_with(*written, node=node))
    assert (found and type(found)) == kind
    assert names_of(found) == of


def names_of(found):
    """Of the pods that the step is about."""
    members = [] if found is None else [each[0] if isinstance(each, tuple) else each for each in found.members]
    return [each.pod.metadata.name for each in members]


def test_a_gang_released_in_part_is_completed():
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"]) for n in range(3)]
    pods = [pod(f"p{n}", gang="g", size=3, claim=f"c{n}", gated=n > 0) for n in range(3)]
    found = step(view(*pods, objects=Objects(held)))
    assert isinstance(found, recovery.Complete)
    assert names_of(found) == ["p1", "p2"]


def test_a_gang_released_in_part_whose_rest_cannot_be_released_is_rolled_back_after_the_timeout():
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"], age_s=100) for n in range(3)]
    pods = [pod(f"p{n}", gang="g", size=3, claim=f"c{n}", gated=n > 0, node="" if n else "n1") for n in range(3)]
    found = step(view(*pods, objects=Objects(held)))
    assert isinstance(found, recovery.RollBack)
    assert names_of(found) == ["p0"]


def test_a_gang_whose_members_do_not_bind_in_time_is_rolled_back_whole():
    assert step(released_with(2, 1, size=3, age_s=59)) is None
    found = step(released_with(2, 1, size=3, age_s=61))
    assert isinstance(found, recovery.RollBack)
    assert len(found.members) == 3
    assert "1 of its pods (p2) did not bind" in found.why
    assert recovery.next_deadline(released_with(2, 1, size=3, age_s=10), 60, {}) == NOW + 50 + recovery.STAMP_S


def deleted(found):
    """The same claim, which somebody deletes: its finalizer keeps it."""
    return replace(found, metadata=replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))


def test_a_released_gang_with_a_claim_that_is_being_deleted_is_rolled_back_at_once():
    """kube-scheduler never tries such a pod, so that no timeout would begin."""
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"]) for n in range(3)]
    held[2] = deleted(held[2])
    pods = [pod(f"p{n}", gang="g", size=3, claim=f"c{n}", gated=False) for n in range(3)]
    found = step(view(*pods, objects=Objects(held)))
    assert isinstance(found, recovery.RollBack)
    assert len(found.members) == 3
    assert "c2 of pod p2 is being deleted" in found.why
    assert found.nodes == ()


def test_a_bound_pod_keeps_a_claim_that_is_being_deleted():
    held = [deleted(claim("c0", "p0", node="n1", reserved=["p0"]))]
    assert step(view(pod("p0", gang="g", size=1, claim="c0", gated=False, node="n1"), objects=Objects(held))) is None


def test_members_with_a_claim_that_is_being_deleted_are_not_released():
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"]) for n in range(3)]
    held[1] = deleted(held[1])
    pods = [pod(f"p{n}", gang="g", size=3, claim=f"c{n}", gated=True) for n in range(3)]
    found = step(view(*pods, objects=Objects(held)))
    assert isinstance(found, recovery.Undo)
    assert names_of(found) == ["p1"]
    assert [each.claim.metadata.name for each in found.members[0].claims if each.claim] == ["c1"]


def untried(gang_of):
    """The same gang, of which kube-scheduler has not tried the unbound pods since their release."""
    gated = core.PodCondition(type="PodScheduled", status="False", reason="SchedulingGated")
    pods = [
        m.pod if m.bound else replace(m.pod, status=replace(m.pod.status, conditions=(gated,))) for m in gang_of.members
    ]
    held = [each.claim for member in gang_of.members for each in member.claims]
    return view(*pods, objects=Objects(held))


def test_time_in_which_the_scheduler_has_not_tried_a_pod_does_not_count():
    tried = released_with(2, 1, size=3, age_s=601)
    away = untried(tried)
    since = tried_at(away, {}, NOW)
    assert step(away, tried=since) is None
    assert recovery.next_deadline(away, 60, since) is None
    since = tried_at(tried, since, NOW)  # the scheduler is back, and could not bind it
    assert step(tried, tried=since) is None
    assert recovery.next_deadline(tried, 60, since) == NOW + 60
    since = tried_at(tried, since, NOW + 59)
    assert recovery.next_deadline(tried, 60, since) == NOW + 60
    assert isinstance(step(tried, tried=dict.fromkeys(since, NOW - 60)), recovery.RollBack)
    assert not tried_at(released_with(3, 0, size=3, age_s=601), since, NOW)
    assert isinstance(
        step(tried, tried=tried_at(tried, {}, NOW)), recovery.RollBack
    )  # another leader: by the allocation


def with_scheduler(gang_of, name):
    """The same gang, whose unbound pods name that scheduler."""
    pods = [replace(m.pod, spec=replace(m.pod.spec, scheduler_name=name)) for m in gang_of.members]
    return view(*pods, objects=Objects([each.claim for member in gang_of.members for each in member.claims]))


def test_a_pod_that_names_a_scheduler_which_never_tries_it_does_not_hold_its_devices_for_ever():
    fresh, old = (with_scheduler(untried(released_with(2, 1, size=3, age_s=age)), "nobody") for age in (599, 601))
    tried = tried_at(fresh, {}, NOW)
    assert step(fresh, tried=tried, timeout_s=120) is None
    assert recovery.next_deadline(fresh, 120, tried) == NOW + 1, "it is looked at again"
    found = recovery.next_step(old, now=NOW, timeout_s=120, tried=tried_at(old, {}, NOW), node_exists=lambda _: True)
    assert isinstance(found, recovery.RollBack)
    assert len(found.members) == 3
    assert found.nodes == (), "no node is at fault"
    assert "(p2) name scheduler 'nobody', which has not tried them within 600 s: start it, or remove" in found.why
    same = with_scheduler(released_with(2, 1, size=3, age_s=100), "mine")
    before = tried_at(with_scheduler(untried(released_with(2, 1, size=3, age_s=99)), "mine"), {}, NOW - 1)
    assert tried_at(same, before, NOW) == {"uid-p2": NOW}, "once it is tried, the usual time counts"
    default = with_scheduler(untried(released_with(2, 1, size=3, age_s=6000)), names.DEFAULT_SCHEDULER)
    assert step(default, tried=tried_at(default, {}, NOW)) is None


def test_a_gang_says_that_the_scheduler_does_not_try_its_pods():
    assert recovery.untried(untried(released_with(0, 3, size=3, age_s=10)), NOW) == (0, NOW + 5 + recovery.STAMP_S)
    away = untried(released_with(0, 3, size=3, age_s=16))
    assert recovery.untried(away, NOW) == (3, None)
    said = summarize(away, SchedulingState(untried=3)).message
    assert "devices are given; 0 of 3 members run; kube-scheduler has not tried 3 of its pods: see that it runs" in said
    assert recovery.untried(released_with(0, 3, size=3, age_s=16), NOW) == (0, None)


def test_a_surplus_member_that_does_not_bind_is_evicted_alone():
    found = step(released_with(3, 1, size=3, age_s=61))
    assert isinstance(found, recovery.RollBack)
    assert names_of(found) == ["p3"]


def test_a_member_that_replaces_another_and_does_not_bind_is_evicted_alone():
    """Its claims were allocated after the others had started; those of members admitted together never are."""
    for started_s, alone in ((600, True), (30, False)):
        held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"], age_s=61 if n == 2 else 700) for n in range(3)]
        pods = [
            pod(f"p{n}", gang="g", size=3, claim=f"c{n}", gated=False, node="n1" if n < 2 else "") for n in range(3)
        ]
        start = timestamps.seconds(NOW - started_s)
        pods = [replace(each, status=replace(each.status, start_time=start)) for each in pods]
        found = step(view(*pods, objects=Objects(held)))
        assert isinstance(found, recovery.RollBack)
        assert names_of(found) == (["p2"] if alone else ["p0", "p1", "p2"])


def test_a_bound_gang_needs_nothing():
    gang = released_with(3, 0, size=3, age_s=10_000)
    assert step(gang) is None
    assert recovery.next_deadline(gang, 60, {}) is None


def test_only_allocations_without_reservation_and_user_are_orphaned():
    free = claim("free", None, node="n1")
    held = claim("held", None, node="n1", reserved=["x"])
    used = claim("used", None, node="n1")
    found = recovery.orphaned_allocations(
        [free, held, used, claim("empty", None)], drivers=(names.DRIVER,), used=lambda c: c.metadata.name == "used"
    )
    assert found == [free]
    assert recovery.orphaned_allocations([free], drivers=("other",), used=lambda _: False) == []


# ------------------------------------------------------------------------------------- a bind that failed takes the reservation


def pinned(number: int, to: str, **more):
    pin = {"key": "metadata.name", "operator": "In", "values": [to]}
    required = {"nodeSelectorTerms": [{"matchFields": [pin]}]}
    affinity = convert({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}, core.Affinity)
    made = pod(f"p{number}", gang="g", size=2, claim=f"c{number}", gated=False, **more)
    return replace(made, spec=replace(made.spec, affinity=affinity))


def test_a_released_pod_stays_a_member_while_kube_scheduler_has_taken_its_reservation_away():
    """Between two tries to bind it the claim is allocated and reserved for no pod."""
    held = [claim(f"c{n}", f"p{n}", node="n1", age_s=100) for n in range(2)]
    gang = view(pinned(0, "n1"), pinned(1, "n1"), objects=Objects(held))
    assert [member.fully_reserved for member in gang.members] == [True, True]
    assert isinstance(step(gang), recovery.RollBack)
    assert recovery.next_deadline(gang, 200, {}) == NOW + 100 + recovery.STAMP_S


def test_a_pod_that_is_pinned_to_another_node_than_its_claim_holds_nothing():
    held = [claim(f"c{n}", f"p{n}", node="n1", age_s=100) for n in range(2)]
    found = build_gang(("ml", "g"), [pinned(0, "n2"), pinned(1, "n2")], Objects(held))
    assert found is None or not found.members


def test_a_bound_pod_without_a_reservation_holds_nothing():
    held = [claim(f"c{n}", f"p{n}", node="n1", age_s=100) for n in range(2)]
    found = build_gang(("ml", "g"), [pinned(n, "n1", node="n1") for n in range(2)], Objects(held))
    assert found is None or not found.members
