"""What the resource quota controller counts, and that it follows limits and deletions."""

from typing import Any

import pytest

from fairlead.kube import errors, timestamps
from fairlead.kube.resources import PODS, RESOURCE_QUOTAS
from fairlead.sandbox.cluster import Cluster
from fairlead.sandbox.controllers.quota_controller import quota_status
from tests.support.sandbox import FOREVER, View, until
from tests.support.sandbox import pod as runnable

Obj = dict[str, Any]
NOW_S = 1_800_000_000.0
GPUS = "gpu.deviceclass.resource.k8s.io/devices"
EXTENDED = "requests.nvidia.com/gpu"


def pod(phase: str = "Running", gpus: int = 0, **metadata: Any) -> Obj:
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    return {"metadata": metadata, "spec": {"containers": [limits]}, "status": {"phase": phase}}


def claim(count: int = 1, device_class: str = "gpu") -> Obj:
    return {"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": device_class, "count": count}}]}}}


def deleted(ago_s: float) -> Obj:
    return {"deletionTimestamp": timestamps.seconds(NOW_S - ago_s), "deletionGracePeriodSeconds": 30}


@pytest.mark.parametrize(
    ("hard", "pods", "claims", "used"),
    [
        ({"pods": "4"}, [pod(), pod("Pending"), pod("Succeeded"), pod("Failed")], [], {"pods": "2"}),
        ({"count/pods": "4"}, [pod(), pod("Succeeded")], [], {"count/pods": "2"}),
        ({"pods": "4"}, [pod(**deleted(10)), pod(**deleted(40))], [], {"pods": "1"}),
        ({GPUS: "8"}, [], [claim(2), claim(3), claim(4, "mig")], {GPUS: "5"}),
        ({GPUS: "8"}, [pod(gpus=2)], [], {GPUS: "0"}),
        ({EXTENDED: "8"}, [pod(gpus=2), pod("Failed", gpus=3)], [claim(4, "mig")], {EXTENDED: "2"}),
        ({EXTENDED: "8"}, [pod(gpus=2)], [claim(4)], {EXTENDED: "6"}),
    ],
)
def test_what_exists_is_counted(hard: dict[str, str], pods: list[Obj], claims: list[Obj], used: dict[str, str]) -> None:
    objects = {"pods": pods, "resourceclaims.resource.k8s.io": claims}
    status = quota_status({"spec": {"hard": hard}}, objects, {"gpu": "nvidia.com/gpu"}, now_s=NOW_S)
    assert status == {"hard": hard, "used": used}


def test_a_scope_says_which_pods_are_counted_and_amounts_are_written_as_quantities() -> None:
    rule = {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}
    spec = {"hard": {"requests.cpu": "4", "pods": "9"}, "scopeSelector": {"matchExpressions": [rule]}}
    pods = [
        {"metadata": {}, "spec": {"priorityClassName": name, "containers": [{"resources": {"requests": {"cpu": cpu}}}]}}
        for name, cpu in (("", "250m"), ("low", "500m"), ("high", "3"))
    ]
    objects = {"pods": pods, "resourceclaims.resource.k8s.io": [claim()]}
    status = quota_status({"spec": spec}, objects, {}, now_s=NOW_S)
    assert status["used"] == {"requests.cpu": "750m", "pods": "2"}


async def test_a_quota_of_pods_follows_its_limit_and_what_is_deleted(stock: tuple[Cluster, View]) -> None:
    made, view = stock
    limit = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "two", "namespace": "default"}}
    await made.apply([{**limit, "spec": {"hard": {"pods": "2"}}}])

    async def status(hard: str, used: str) -> bool:
        found = await view.get(RESOURCE_QUOTAS, "two")
        return found is not None and found.get("status") == {"hard": {"pods": hard}, "used": {"pods": used}}

    await until(lambda: status("2", "0"))
    await made.apply([runnable(name, command=FOREVER) for name in ("a", "b")])
    with pytest.raises(errors.ApiError, match="exceeded quota: two, requested: pods=1, used: pods=2, limited: pods=2"):
        await made.apply([runnable("c", command=FOREVER)])
    await view.client.delete(PODS, "a", "default")
    await until(lambda: status("2", "1"))
    await made.apply([{**limit, "spec": {"hard": {"pods": "1"}}}])
    await until(lambda: status("1", "1"))
