"""Phase and status of a gang. Pure."""

import msgspec

from fairlead.api.gang import GangStatus
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.membership.members import Stage
from fairlead.controller.report import gang_phase
from fairlead.controller.report import gang_status as status
from fairlead.engine.types.plan import Reservation
from fairlead.kube import core
from tests.controller.gang_views import NOW, Objects, claim, gated_with, pod, released_with, view


def phase(gang, **state):
    return gang_phase.summarize(gang, SchedulingState(**state)).phase


def test_phases_follow_the_members():
    assert phase(view(pod("a", gang="g", size=2))) == "Gathering"
    assert phase(gated_with()) == "Waiting"
    assert phase(gated_with(0), admitting=True) == "Admitted"
    assert phase(released_with(1, 2, size=3, age_s=0)) == "Admitted"
    running = [pod(f"p{n}", gang="g", size=2, gated=False, node="n1", phase="Running", claim=f"c{n}") for n in range(2)]
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"]) for n in range(2)]
    assert phase(view(*running, objects=Objects(held))) == "Running"
    ended = [pod(f"p{n}", gang="g", size=2, gated=False, phase="Succeeded") for n in range(2)]
    assert phase(view(*ended)) == "Finished"
    assert phase(view(ended[0], pod("p1", gang="g", size=2, gated=False, phase="Failed"))) == "Failed"
    assert view(*ended).at(Stage.SUCCEEDED) == view(*ended).members


def refused(**waiting):
    """Two of three members run; of the third kubelet says why it does not."""
    pods = [
        pod(f"p{n}", gang="g", size=3, gated=False, node="n1", phase="Running" if n else "Pending", claim=f"c{n}")
        for n in range(3)
    ]
    state = core.ContainerState(waiting=core.ContainerStateWaiting(**waiting))
    said = msgspec.structs.replace(pods[0].status, container_statuses=(core.ContainerStatus(name="main", state=state),))
    pods[0] = msgspec.structs.replace(pods[0], status=said)
    held = [claim(f"c{n}", f"p{n}", node="n1", reserved=[f"p{n}"]) for n in range(3)]
    return gang_phase.summarize(view(*pods, objects=Objects(held)), SchedulingState())


def test_what_kubelet_does_not_start_is_the_reason():
    found = refused(reason="ErrImagePull", message="not found")
    assert (found.phase, found.reason) == ("Admitted", "StartRefused")
    assert "2 of 3 members run; p0 on n1 does not start: container main: ErrImagePull: not found" in found.message
    assert refused(reason="ContainerCreating").reason == "Starting"


def test_a_status_that_says_the_same_is_the_same():
    gang = gated_with()
    first = status.gang_status(gang, SchedulingState(), before={}, created=NOW - 60, now=NOW)
    second = status.gang_status(gang, SchedulingState(), before=first, created=NOW - 60, now=NOW + 30)
    assert second == first
    given = status.gang_status(released_with(3, 0, size=3, age_s=0), SchedulingState(), before=first, created=NOW - 60, now=NOW)  # fmt: skip
    assert (given["phase"], given["waitSeconds"], given["nodes"]) == ("Admitted", 60.0, ["n1"])
    by_type = {condition["type"]: condition["status"] for condition in given["conditions"]}
    assert by_type == {"Admitted": "True", "Running": "False"}


def test_the_nodes_that_are_kept_free_for_a_gang_are_listed_while_they_are():
    nodes = tuple(f"n{number}" for number in range(20))
    kept = Reservation(namespace="ml", name="g", uid="u", queue="q", nodes=nodes, kind="Blocked")
    first = status.gang_status(gated_with(), SchedulingState(reservation=kept), before={}, created=NOW - 60, now=NOW)
    assert first["reservedNodes"] == list(nodes)
    GangStatus.model_validate(first)
    later = status.gang_status(gated_with(), SchedulingState(), before=first, created=NOW - 60, now=NOW)
    assert "reservedNodes" not in later
