"""Drivers write often how busy devices are: that wakes no gang and asks for no decision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.watch.caches import Caches
from fairlead.kube.core import Pod
from fairlead.kube.device_usage import DeviceUsage
from fairlead.kube.resource import DeviceClass, ResourceClaim

USAGE = DeviceUsage(state="Idle", since_s=0, sampled_at_s=60)


def pod(*, gated: bool) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"namespace": "ml", "name": "p", "uid": "p", "resourceVersion": "1"},
            "spec": {
                "nodeName": "" if gated else "n1",
                "schedulingGates": [{"name": names.ADMISSION_GATE}] if gated else [],
                "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}],
            },
            "status": {"phase": "Pending" if gated else "Running"},
        },
        Pod,
    )


def claim(version: int, data: Any = None, **changes: Any) -> ResourceClaim:
    result = {"request": "gpu", "driver": names.DRIVER, "pool": "n1", "device": "gpu-0"}
    entries = [] if data is None else [{"driver": names.DRIVER, "pool": "n1", "device": "gpu-0", "data": data}]
    metadata = {"namespace": "ml", "name": "c", "uid": "c", "resourceVersion": str(version)}
    return msgspec.convert(
        {
            "metadata": metadata | changes.get("metadata", {}),
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS}}]}},
            "status": {
                "allocation": changes.get("allocation", {"devices": {"results": [result]}}),
                "reservedFor": changes.get("reserved", [{"resource": "pods", "name": "p", "uid": "p"}]),
                "devices": entries,
            },
        },
        ResourceClaim,
    )


def running(*, gated: bool = False) -> Caches:
    source: Any = None
    caches = Caches(source, (names.DRIVER,))
    selector = {"cel": {"expression": f"device.driver == '{names.DRIVER}'"}}
    caches.device_classes.note(
        msgspec.convert({"metadata": {"name": names.GPU_CLASS}, "spec": {"selectors": [selector]}}, DeviceClass)
    )
    caches.claims.note(claim(1))
    caches.pods.note(pod(gated=gated))
    caches.refresh()
    caches.triggers.decided()
    caches.triggers.looked()
    return caches


def asked(caches: Caches) -> tuple[bool, bool, int]:
    """A decision is due, the loop is woken, gangs to look at."""
    return caches.triggers.decision, caches.triggers.wake.is_set(), len(caches.triggers.take_gangs())


@pytest.mark.parametrize("data", [USAGE.to_json(), {"kind": "Poem"}, [1], "text"])
def test_a_write_of_usage_asks_for_nothing(data: Any) -> None:
    caches = running()
    for version in range(2, 200):
        caches.claims.note(claim(version, {"write": version} if version % 2 else data))
    assert asked(caches) == (False, False, 0)
    assert caches.claims.all()[0].metadata.resource_version == "199", "the cache has it"


@pytest.mark.parametrize(
    "changes",
    [
        {"allocation": None, "reserved": []},
        {"reserved": []},
        {"metadata": {"deletionTimestamp": "2027-01-01T00:00:00Z"}},
        {"metadata": {"annotations": {"a": "b"}}},
    ],
)
def test_what_changes_beside_usage_is_looked_at(changes: dict[str, Any]) -> None:
    caches = running()
    caches.claims.note(claim(2, USAGE.to_json(), **changes))
    assert asked(caches)[1:] == (True, 1)


def test_a_gang_that_is_being_admitted_sees_the_newest_claim() -> None:
    """It writes the claim with its resourceVersion: an older one would be refused."""
    caches = running(gated=True)
    caches.claims.note(claim(2, USAGE.to_json()))
    decision, woken, gangs = asked(caches)
    assert (decision, woken, gangs) == (False, True, 1)


def test_where_a_queue_says_what_follows_for_idle_gangs_a_write_of_usage_is_looked_at() -> None:
    caches = running()
    caches.queues.note({"metadata": {"name": "red", "resourceVersion": "1"}, "spec": {"idle": {"then": "warn"}}})
    asked(caches)
    caches.triggers.decided()
    caches.triggers.looked()
    caches.claims.note(claim(2, USAGE.to_json()))
    decision, _, gangs = asked(caches)
    assert (decision, gangs) == (False, 1)
    caches.queues.note({"metadata": {"name": "red", "resourceVersion": "2"}, "spec": {}})
    assert asked(caches)[2] == 1, "that it is idle counts no more"
