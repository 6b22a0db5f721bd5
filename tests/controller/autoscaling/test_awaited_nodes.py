"""What is remembered of demand for nodes: since when, how long scale-ups took; and the steps of a ProvisioningRequest."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.api.flavor import FlavorAutoscaling
from fairlead.controller.autoscaling import provisioning
from fairlead.controller.autoscaling.awaited import SAMPLES_MAX, AwaitedNodes
from fairlead.controller.autoscaling.provisioning import ATTEMPTS_MAX, Seen, next_step, seen, wanted
from fairlead.controller.autoscaling.shapes import NoShapeError
from fairlead.controller.book.book import Book
from fairlead.controller.book.shown import NODES_CONDITION
from fairlead.controller.gangs.conditions import holds_since
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.engine.types.plan import Admission, FlavorTotal, NodeDemand, Plan, Waiting
from fairlead.engine.types.reasons import Code, Reason
from tests.controller.autoscaling.test_autoscaler_contracts import DEMAND, gang, gated_pod
from tests.support.engine.objects import claim_spec, device_request
from tests.support.engine.objects import gang as request

TRAIN: GangId = ("ml", "train")
OBJECT: dict[str, Any] = {"metadata": {"name": "train", "namespace": "ml", "uid": "gang-uid"}}
SCALING = FlavorAutoscaling(mode="ProvisioningRequest", extended_resource="nvidia.com/gpu")
ASKS = request("train", 1, claim_spec(device_request(8)))


def plan(demand: NodeDemand | None, *, devices: int = 8, admitted: bool = False) -> Plan:
    reason = Reason(code=Code.AWAITING_NODES, message="")
    waits = Waiting(namespace="ml", name="train", uid="u", queue="research", position=1, reason=reason)
    starts = Admission(namespace="ml", name="train", uid="u", queue="research", assignments=(), claims=())
    return Plan(
        demand=() if demand is None else (demand,),
        waiting=() if admitted else (waits,),
        admissions=(starts,) if admitted else (),
        flavors=(FlavorTotal(flavor="h100", devices=devices, total=devices, allocated=0),),
    )


def awaited(recorded: float | None = None, remembered: tuple[float, ...] = ()) -> AwaitedNodes:
    return AwaitedNodes(Book(), lambda _: recorded, lambda _: remembered, lambda flavor, took_s: None)


def asked(since: float) -> NodeDemand:
    return replace(DEMAND, since=since, until=since + 1800.0, evicts_from=since + 600.0)


def test_a_request_gets_since_when_nodes_are_asked_for_and_stays_the_same_object():
    known = awaited()
    assert known.lift([ASKS], scales=True) == [ASKS]
    assert known.decided(plan(asked(100.0)), {TRAIN}, 100.0) == {TRAIN}
    (lifted,) = known.lift([ASKS], scales=True)
    assert lifted.nodes_asked_since == 100.0
    assert known.lift([ASKS], scales=True)[0] is lifted
    assert known.decided(plan(asked(100.0)), {TRAIN}, 101.0) == set()
    assert known.lift([ASKS], scales=False) == [ASKS]


def since(raw: dict[str, Any] | None) -> float | None:
    return holds_since(raw, NODES_CONDITION)


def test_a_new_leader_goes_on_from_what_the_gang_says():
    condition = {"type": "AwaitingNodes", "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z"}
    assert since({"status": {"conditions": [condition]}}) == 100.0
    assert since({"status": {"conditions": [condition | {"status": "False"}]}}) is None
    assert since({"status": {"conditions": [condition | {"lastTransitionTime": "soon"}]}}) is None
    assert since(None) is None
    known = awaited(recorded=100.0)
    assert known.lift([ASKS], scales=True)[0].nodes_asked_since == 100.0
    known.decided(plan(None), {TRAIN}, 200.0)
    assert known.lift([ASKS], scales=True)[0].nodes_asked_since is None, (
        "it is no demand any more, whatever its status still says"
    )


def test_a_gang_that_is_no_part_of_a_decision_keeps_its_demand_and_one_that_left_does_not():
    known = awaited()
    known.decided(plan(asked(100.0)), {TRAIN}, 100.0)
    elsewhere = Plan()
    known.decided(elsewhere, {TRAIN}, 110.0)
    assert known.of(TRAIN, 110.0) is not None
    assert known.decided(elsewhere, set(), 120.0) == {TRAIN}
    assert known.of(TRAIN, 120.0) is None


def test_a_scale_up_is_counted_when_the_flavor_has_more_devices_than_before_and_only_then():
    known = awaited(remembered=(240.0, 260.0))
    known.decided(plan(asked(100.0)), {TRAIN}, 100.0)
    found = known.of(TRAIN, 200.0)
    assert found is not None
    assert found.expected == 350.0
    assert found.text == "nodes are expected by 1970-01-01T00:05:50Z: the median of 2 scale-ups of flavor h100 is 250 s"
    late = known.of(TRAIN, 351.0)
    assert late is not None
    assert late.text.startswith("nodes take longer than usual")
    known.decided(plan(None, admitted=True), set(), 400.0)
    assert list(known.took["h100"]) == [240.0, 260.0], "it started on what others gave back"
    known.decided(plan(asked(500.0)), {TRAIN}, 500.0)
    known.decided(plan(None, devices=16, admitted=True), set(), 1400.0)
    assert list(known.took["h100"]) == [240.0, 260.0, 900.0]


def test_only_the_latest_scale_ups_are_kept():
    known = awaited(remembered=tuple(float(each) for each in range(40)))
    known.decided(plan(asked(100.0)), {TRAIN}, 100.0)
    assert known.took["h100"] == tuple(float(each) for each in range(40 - SAMPLES_MAX, 40))


# -- ProvisioningRequests ---------------------------------------------------------------------------------------------

WANT = wanted(gang(gated_pod("a"), gated_pod("b")), OBJECT, SCALING)


def found(state: provisioning.State, attempt: int = 1, *, at: float = 0.0, name: str = "") -> Seen:
    about: Any = {"uid": "u", "gang": WANT.gang, "message": "Failed: full"}
    return Seen(name=name or WANT.name(attempt), attempt=attempt, state=state, at=at, **about)


@pytest.mark.parametrize(
    ("there", "now", "create", "deleted", "note"),
    [
        ([], 0.0, 1, [], "is being made"),
        ([found("Pending")], 0.0, None, [], "--enable-provisioning-requests"),
        ([found("Accepted")], 0.0, None, [], "is accepted"),
        ([found("Provisioned")], 0.0, None, [], "is provisioned"),
        ([found("Failed", at=100.0)], 159.0, None, [], "asked again at 1970-01-01T00:02:40Z"),
        ([found("Failed", at=100.0)], 160.0, 2, [WANT.name(1)], "it is asked again"),
        ([found("Failed", 2, at=100.0)], 219.0, None, [], "asked again at 1970-01-01T00:03:40Z"),
        ([found("Failed", 1, at=100.0), found("Pending", 2)], 200.0, None, [WANT.name(1)], "not accepted"),
        ([found("Failed", ATTEMPTS_MAX, at=100.0)], 1e6, None, [], "the last until the flavor's patience starts again"),
        ([found("Accepted", name="of-another-shape-1")], 0.0, 1, ["of-another-shape-1"], "is being made"),
    ],
)
def test_each_state_of_a_request_has_its_step(
    there: list[Seen], now: float, create: int | None, deleted: list[str], note: str
):
    step = next_step(WANT, there, now)
    assert (step.create, [each.name for each in step.delete]) == (create, deleted)
    assert note in step.note


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ("", "Pending"),
        ("Accepted", "Accepted"),
        ("Accepted Provisioned", "Provisioned"),
        ("Accepted Failed", "Failed"),
        ("Accepted Provisioned BookingExpired", "Failed"),
        ("Accepted Provisioned CapacityRevoked", "Failed"),
    ],
)
def test_the_conditions_of_autoscaling_x_k8s_io_are_read(conditions: str, state: str):
    held = [{"type": each, "status": "True", "reason": "R", "message": "m"} for each in conditions.split()]
    read = seen({**WANT.request(3), "status": {"conditions": held}})
    assert (read.state, read.attempt, read.gang, read.name) == (state, 3, "ml/train", WANT.name(3))


def test_the_same_gang_makes_the_same_objects_and_another_shape_others():
    again = wanted(gang(gated_pod("a"), gated_pod("b")), OBJECT, SCALING)
    assert again == WANT
    assert wanted(gang(gated_pod("a")), OBJECT, SCALING).base != WANT.base
    assert WANT.request(1)["spec"]["podSets"] == [{"podTemplateRef": {"name": f"{WANT.base}-1-0"}, "count": 2}]
    assert [each["metadata"]["name"] for each in WANT.templates(1)] == [f"{WANT.base}-1-0"]
    queued = SCALING.model_copy(update={"provisioning_class": "queued-provisioning.gke.io"})
    assert "parameters" not in wanted(gang(gated_pod("a")), OBJECT, queued).request(1)["spec"]
    assert WANT.request(1)["metadata"]["annotations"] == {names.AWAITING_NODES: "ml/train", names.ATTEMPT: "1"}


def test_a_request_for_all_devices_of_a_node_cannot_be_told_and_the_error_says_what_to_do():
    made = gang(gated_pod("a"))
    claim = made.members[0].claims[0]
    ask = claim.spec.devices.requests[0]
    assert ask.exactly is not None

    every = msgspec.structs.replace(ask, exactly=msgspec.structs.replace(ask.exactly, allocation_mode="All"))
    spec = msgspec.structs.replace(claim.spec, devices=msgspec.structs.replace(claim.spec.devices, requests=(every,)))
    other = replace(made, members=(replace(made.members[0], claims=(replace(claim, spec=spec),)),))
    with pytest.raises(NoShapeError, match=r"write ExactCount with a count, or use spec\.autoscaling\.mode Visible"):
        wanted(other, OBJECT, SCALING)


def test_pods_of_too_many_kinds_cannot_be_told():
    pods = []
    for number in range(provisioning.POD_SETS_MAX + 1):
        pod = gated_pod(f"p{number}")
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(number + 1)
        pods.append(pod)
    with pytest.raises(NoShapeError, match="are of 33 kinds, a ProvisioningRequest takes 32"):
        wanted(gang(*pods), OBJECT, SCALING)
