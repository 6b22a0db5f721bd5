"""What `kubectl get` prints for objects in each state."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.sandbox.apiserver.tables import table_of

NOW = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)


def container(**state: Any) -> dict[str, Any]:
    return {"name": "c", **state}


@pytest.mark.parametrize(
    ("pod", "shown"),
    [
        ({"status": {"phase": "Pending"}}, ["0/1", "Pending", "0"]),
        (
            {"status": {"phase": "Running", "containerStatuses": [container(ready=True, state={"running": {}})]}},
            ["1/1", "Running", "0"],
        ),
        (
            {
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        container(
                            restartCount=3,
                            state={"waiting": {"reason": "CrashLoopBackOff"}},
                            lastState={"terminated": {"finishedAt": "2026-11-20T11:58:00Z"}},
                        )
                    ],
                }
            },
            ["0/1", "CrashLoopBackOff", "3 (2m ago)"],
        ),
        (
            {"status": {"phase": "Failed", "containerStatuses": [container(state={"terminated": {"exitCode": 2}})]}},
            ["0/1", "ExitCode:2", "0"],
        ),
        (
            {
                "status": {
                    "phase": "Succeeded",
                    "containerStatuses": [container(state={"terminated": {"reason": "Completed"}})],
                }
            },
            ["0/1", "Completed", "0"],
        ),
        ({"metadata": {"deletionTimestamp": "2026-11-20T12:00:00Z"}, "status": {}}, ["0/1", "Terminating", "0"]),
        (
            {
                "spec": {"containers": [{}], "initContainers": [{"name": "i"}]},
                "status": {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]},
            },
            ["0/1", "Init:0/1", "0"],
        ),
    ],
)
def test_a_pods_status_is_its_containers_worst(pod: dict[str, Any], shown: list[str]) -> None:
    cells = table_of("V1Pod").cells({"spec": {"containers": [{}]}, **pod}, NOW)
    assert cells[1:4] == shown


def test_claims_say_how_far_they_are() -> None:
    def state(status: dict[str, Any], **meta: Any) -> Any:
        return table_of("ResourceV1ResourceClaim").cells({"metadata": meta, "status": status}, NOW)[1]

    assert state({}) == "pending"
    assert state({"allocation": {"devices": {}}}) == "allocated"
    assert state({"allocation": {"devices": {}}, "reservedFor": [{}]}) == "allocated,reserved"
    assert state({"allocation": {"devices": {}}}, deletionTimestamp="x") == "deleted,allocated"


def test_events_read_both_apis() -> None:
    old = {
        "involvedObject": {"kind": "Pod", "name": "p"},
        "message": "m ",
        "lastTimestamp": "2026-11-20T11:59:00Z",
        "count": 2,
    }
    new = {"regarding": {"kind": "Pod", "name": "p"}, "note": "m", "eventTime": "2026-11-20T11:59:00.000000Z"}
    for event in (old, new):
        cells = table_of("CoreV1Event").cells({"type": "Normal", "reason": "R", **event}, NOW)
        assert cells[:4] == ["60s", "Normal", "R", "pod/p"]
        assert cells[6] == "m"
