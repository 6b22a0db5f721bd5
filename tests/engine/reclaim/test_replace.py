"""Gangs on broken devices: which go, which may stay a while, and that neither shares nor min-runtime hold a broken one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from fairlead.api import names
from fairlead.engine.types.plan import Plan
from fairlead.engine.types.settings import QueueSpec
from fairlead.kube import resource, timestamps
from tests.support.engine.objects import claim_spec, device_request, gang, gpu, slice_of
from tests.support.engine.world import World

ONE = claim_spec(device_request())
ADDED = 1000.0


def world(*gangs: Any, gpus: int = 4) -> World:
    """A node on which these run."""
    made = World()
    made.add_node("n0", [gpu(minor) for minor in range(gpus)])
    made.queues = (QueueSpec(name="q", min_runtime_s=1e9),)
    assert made.carry_out(made.decide(*gangs), gangs) == []
    return made


def taint(made: World, *minors: int, effect: str = "NoExecute", gpus: int = 4) -> None:
    broken = {"key": "xid", "effect": effect, "timeAdded": timestamps.seconds(ADDED)}
    slices = slice_of("n0", [{**gpu(n), "taints": [broken] * (n in minors)} for n in range(gpus)])
    for body in slices:
        body["spec"]["pool"]["generation"] = 2
    made.add_slices(slices)


def gone(plan: Plan) -> dict[str, tuple[bool, int]]:
    """By gang: whether it goes whole, and how many pods."""
    assert {entry.kind for entry in plan.evictions} <= {"Replace"}
    return {entry.name: (entry.whole, len(entry.pods)) for entry in plan.evictions}


def test_a_toleration_with_seconds_holds_from_when_the_taint_was_added():
    spec = claim_spec(device_request(tolerations=[{"key": "xid", "operator": "Exists", "tolerationSeconds": 60}]))
    made = world(gang("patient", 1, spec, queue="q"), gpus=1)
    made.now = ADDED + 10
    taint(made, 0, gpus=1)
    plan = made.decide()
    assert gone(plan) == {}
    assert plan.due == ADDED + 60
    made.now = ADDED + 59.9
    assert gone(made.decide()) == {}
    made.now = ADDED + 60
    assert gone(made.decide()) == {"patient": (True, 1)}


def test_of_two_tolerations_the_shorter_counts():
    """As the cluster's own taint eviction has it."""
    tolerations = [
        {"key": "xid", "operator": "Exists", "tolerationSeconds": 600},
        {"operator": "Exists", "tolerationSeconds": 30},
    ]
    made = world(gang("patient", 1, claim_spec(device_request(tolerations=tolerations)), queue="q"), gpus=1)
    made.now = ADDED + 1
    taint(made, 0, gpus=1)
    assert made.decide().due == ADDED + 30


def test_a_pod_with_admin_access_to_a_broken_device_stays():
    watcher = gang("watcher", 1, claim_spec(device_request(4, adminAccess=True)), queue="q")
    made = world(watcher, gang("user", 1, ONE, queue="q", created=1.0))
    taint(made, 0, 1, 2, 3)
    assert gone(made.decide()) == {"user": (True, 1)}


def test_a_taint_rule_replaces_as_a_taint_does():
    made = world(gang("user", 1, ONE, queue="q"))
    rule = {
        "metadata": {"name": "r"},
        "spec": {
            "deviceSelector": {"driver": names.DRIVER, "pool": "n0", "device": "gpu-0"},
            "taint": {"key": "check", "effect": "NoExecute"},
        },
    }
    made.inventory.set_taint_rule(msgspec.convert(rule, resource.DeviceTaintRule))
    plan = made.decide()
    assert gone(plan) == {"user": (True, 1)}
    assert "has the taint check:NoExecute" in str(plan.evictions[0].reason)


@pytest.mark.parametrize(
    ("size", "broken", "wanted"),
    [
        (4, 1, (True, 4)),
        (3, 1, (False, 1)),
        (3, 2, (True, 4)),
        (2, 2, (False, 2)),
        (1, 3, (False, 3)),
        (1, 4, (True, 4)),
    ],
)
def test_members_go_one_by_one_as_long_as_enough_are_left(size: int, broken: int, wanted: tuple[bool, int]):
    made = world(replace(gang("team", 4, ONE, queue="q"), size=size))
    taint(made, *range(broken))
    assert gone(made.decide()) == {"team": wanted}


def test_members_that_leave_anyway_are_neither_left_nor_told_again():
    made = world(replace(gang("team", 4, ONE, queue="q"), size=3))
    running = made.running["ml/team"]
    first, *others = running.members
    made.running["ml/team"] = replace(running, members=(replace(first, leaving=True), *others))
    minor = int(made.inventory.claim(others[0].claims[0]).devices[0].ref.device.removeprefix("gpu-"))  # type: ignore[union-attr]
    taint(made, minor)
    assert gone(made.decide()) == {"team": (True, 3)}


def test_pods_that_share_a_broken_claim_go_together():
    made = world(replace(gang("team", 3, claim_spec(device_request(2)), queue="q", shared=True), size=1))
    taint(made, 0)
    assert gone(made.decide()) == {"team": (True, 3)}


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(4, {"team": (True, 3)}), (3, {}), (1, {})],
    ids=["whole", "one of surplus", "elastic"],
)
def test_a_gang_goes_although_the_hurt_pod_is_deleted_already(size: int, wanted: dict[str, tuple[bool, int]]):
    """The cluster's own taint eviction is faster than a decision."""
    made = world(replace(gang("team", 4, ONE, queue="q"), size=size))
    running = made.running["ml/team"]
    first, *others = running.members
    minor = int(made.inventory.claim(first.claims[0]).devices[0].ref.device.removeprefix("gpu-"))  # type: ignore[union-attr]
    made.running["ml/team"] = replace(running, members=(replace(first, leaving=True), *others))
    taint(made, minor)
    assert gone(made.decide()) == wanted
    made.running["ml/team"] = replace(running, members=(replace(first, leaving=True, done=True), *others))
    assert gone(made.decide()) == {}
