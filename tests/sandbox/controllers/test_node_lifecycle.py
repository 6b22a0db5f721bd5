"""When a node counts as gone, what that does to it, and when its pods must leave."""

from typing import Any

import pytest

from fairlead.kube import timestamps
from fairlead.sandbox.controllers import node_lifecycle

Obj = dict[str, Any]
NOW_S = 1_800_000_000.0
NOW = timestamps.seconds(NOW_S)


def lease(renewed_s: float) -> Obj:
    return {"spec": {"renewTime": timestamps.micro(renewed_s)}}


def node(ready: str | None = "True", *taints: Obj) -> Obj:
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": "t0"}] if ready else []
    return {"metadata": {"name": "n"}, "spec": {"taints": list(taints)}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("found", "want"), [(None, False), (lease(NOW_S - 1), False), (lease(NOW_S - 9), True), ({"spec": {}}, False)]
)
def test_a_node_is_unreachable_when_its_lease_is_older_than_the_grace(found: Obj | None, want: bool) -> None:
    assert node_lifecycle.is_unreachable(found, now_s=NOW_S, grace_s=8.0) is want


def keys(taints: list[Obj]) -> set[tuple[str, str]]:
    return {(each["key"], each["effect"]) for each in taints}


USERS: Obj = {"key": "gpu", "effect": "NoSchedule"}
UNREACHABLE = {("node.kubernetes.io/unreachable", "NoSchedule"), ("node.kubernetes.io/unreachable", "NoExecute")}


def test_a_silent_node_is_tainted_and_an_operators_taint_stays() -> None:
    taints = node_lifecycle.wanted_taints(node("True", USERS), unreachable=True, now=NOW)
    assert keys(taints) == UNREACHABLE | {("gpu", "NoSchedule")}
    assert {each.get("timeAdded") for each in taints if each["key"] != "gpu"} == {NOW}


def test_a_taint_keeps_its_time_and_goes_when_the_node_is_back() -> None:
    taints = node_lifecycle.wanted_taints(node(), unreachable=True, now="then")
    again = node_lifecycle.wanted_taints(node("Unknown", *taints), unreachable=True, now=NOW)
    assert again == taints
    assert node_lifecycle.wanted_taints(node("True", *taints), unreachable=False, now=NOW) == []


def test_all_conditions_of_a_silent_node_are_unknown() -> None:
    (ready,) = node_lifecycle.unknown_conditions(node(), now=NOW)
    assert (ready["status"], ready["reason"], ready["lastTransitionTime"]) == ("Unknown", "NodeStatusUnknown", NOW)
    (still,) = node_lifecycle.unknown_conditions(node("Unknown"), now=NOW)
    assert still["lastTransitionTime"] == "t0"


TAINT: Obj = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": NOW}


def pod(*tolerations: Obj) -> Obj:
    return {"metadata": {"name": "p"}, "spec": {"tolerations": list(tolerations)}}


@pytest.mark.parametrize(
    ("subject", "taints", "want"),
    [
        (pod(), [], None),
        (pod(), [USERS], None),
        (pod(), [TAINT], NOW_S),
        (pod({"key": TAINT["key"], "operator": "Exists", "tolerationSeconds": 300}), [TAINT], NOW_S + 3),
        (pod({"key": TAINT["key"], "operator": "Exists", "tolerationSeconds": 1}), [TAINT], NOW_S + 1),
        (pod({"operator": "Exists"}), [TAINT], None),
    ],
)
def test_a_pod_leaves_when_its_patience_or_ours_is_over(subject: Obj, taints: list[Obj], want: float | None) -> None:
    assert node_lifecycle.eviction_due_s(subject, taints, eviction_s=3.0) == want
