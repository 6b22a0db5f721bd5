"""Which pods kubelet refuses when they arrive, and in which words."""

from typing import Any

import pytest

from fairlead.sandbox.kubelet import pod_status
from fairlead.sandbox.kubelet.pod_status import Refusal, refusal

ALLOCATABLE = {"cpu": "8", "memory": "16Gi", "pods": "3"}


def pod(cpu: str = "0", memory: str = "0") -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": memory}
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}


@pytest.mark.parametrize(
    ("asked", "others", "unseen", "want"),
    [
        (pod("8", "16Gi"), [], {}, None),
        (pod(), [pod("8"), pod()], {}, None),
        (
            pod("500m"),
            [pod("7"), pod("600m")],
            {},
            ("OutOfcpu", "Node didn't have enough resource: cpu, requested: 500, used: 7600, capacity: 8000"),
        ),
        (
            pod("1", "1Gi"),
            [pod("1", "8Gi")],
            {"memory": "7681Mi"},
            (
                "OutOfmemory",
                "Node didn't have enough resource: memory, requested: 1073741824, used: 16644046848, capacity: 17179869184",
            ),
        ),
        (
            pod("9"),
            [pod(), pod()],
            {"pods": "1"},
            ("OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"),
        ),
        (pod("0", "1Gi"), [pod("8")], {"cpu": "4"}, None),
    ],
    ids=["fills it", "asks for nothing", "cpu", "memory beside what is not seen", "pods first", "cpu is overdrawn"],
)
def test_a_pod_is_refused_for_the_first_resource_that_is_short(
    asked: dict[str, Any], others: list[dict[str, Any]], unseen: dict[str, str], want: tuple[str, str] | None
) -> None:
    found = refusal(asked, others, allocatable=ALLOCATABLE, unseen=unseen)
    assert found == (None if want is None else Refusal(*want))


def test_a_refused_pod_has_failed_with_reason_and_message_and_without_containers() -> None:
    status = pod_status.refused({"spec": {}}, Refusal("OutOfcpu", "Node is full"), now_s=0.0)
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert status["message"] == "Pod was rejected: Node is full"
    assert "containerStatuses" not in status
