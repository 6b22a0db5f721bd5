"""What announces that a node goes, and by when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.engine.inventory.node_table import NodeTable
from fairlead.engine.inventory.nodes import NodeNotice, notice_of
from fairlead.engine.types.pods import PodNeeds
from fairlead.kube import core


def node(**more: Any) -> core.Node:
    body = {"metadata": {"name": "n", "annotations": more.pop("annotations", {})}}
    conditions = more.pop("conditions", [])
    return msgspec.convert({**body, "spec": more, "status": {"conditions": conditions}}, core.Node)


def taint(key: str, **more: str) -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": "NoSchedule", **more}]}


@pytest.mark.parametrize(
    "key",
    [
        "aws-node-termination-handler/scheduled-maintenance",
        "karpenter.sh/disrupted",
        "cloud.google.com/impending-node-termination",
        "remediator.kubernetes.azure.com/unschedulable",
        "medik8s.io/drain",
        "weave.works/kured-node-reboot",
        "ToBeDeletedByClusterAutoscaler",
    ],
)
def test_taints_of_clouds_and_tools(key: str) -> None:
    found = notice_of(node(**taint(key)))
    assert found is not None
    assert found.source == key
    assert found.by is None


def test_a_spot_interruption_has_two_minutes() -> None:
    key = "aws-node-termination-handler/spot-itn"
    found = notice_of(node(**taint(key, timeAdded="1970-01-01T00:01:00Z")))
    assert found == NodeNotice(source=key, what="spot interruption", by=180.0)
    assert notice_of(node(**taint(key))) == NodeNotice(source=key, what="spot interruption")


def test_conditions_and_annotations() -> None:
    def condition(status: str, reason: str, message: str = "") -> core.Node:
        said = {"type": "VMEventScheduled", "status": status, "reason": reason, "message": message}
        return node(conditions=[said])

    assert notice_of(condition("True", "PreemptScheduled")) is not None
    assert notice_of(condition("False", "NoVMEventScheduled")) is None
    assert notice_of(condition("True", "FreezeScheduled")) is None, "a pause of seconds"
    assert notice_of(condition("True", "VMEventScheduled", "Freeze Scheduled: 10:00")) is None
    assert notice_of(condition("True", "VMEventScheduled", "Preempt Scheduled: 10:00")) is not None
    assert notice_of(node(annotations={"weave.works/kured-reboot-in-progress": "2026-11-21T01:50:31Z"})) is not None


def test_of_several_the_one_with_the_first_deadline_counts() -> None:
    both = [
        {"key": "karpenter.sh/disrupted"},
        {"key": "aws-node-termination-handler/spot-itn", "timeAdded": "1970-01-01T00:00:00Z"},
    ]
    found = notice_of(node(taints=both))
    assert found is not None
    assert found.by == 120.0


def test_other_taints_are_no_notice() -> None:
    assert notice_of(node(**taint("nvidia.com/gpu"))) is None
    assert notice_of(node(unschedulable=True)) is None


def test_the_table_knows_the_nodes_that_go_and_they_take_nothing() -> None:
    table = NodeTable()
    table.set_node(node())
    assert not table.noticed
    table.set_node(node(annotations={"weave.works/kured-reboot-in-progress": ""}))
    assert list(table.noticed) == ["n"]
    info = table.get("n")
    assert info is not None
    assert info.refuses(PodNeeds()) == "goes soon: reboot by Kured"
    table.set_node(node())
    assert not table.noticed
    table.set_node(node(**taint("medik8s.io/drain")))
    table.drop_node("n")
    assert not table.noticed
