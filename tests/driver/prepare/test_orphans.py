"""Which records are orphans: their claim no longer has the devices that its containers may still use."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.driver.prepare.orphans import is_orphan
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord
from fairlead.kube.resource import ResourceClaim


def record(*, admin: bool = False) -> ClaimRecord:
    device = DeviceRecord(request="gpu", pool="n1", device="gpu-0", gpu_uuid="GPU-0", minor=0, admin=admin)
    return ClaimRecord(uid="u1", namespace="ml", name="train", state="prepared", devices=(device,))


def claim(uid: str, *devices: str) -> ResourceClaim:
    results = [{"request": "gpu", "driver": "gpu.fairlead.dev", "pool": "n1", "device": each} for each in devices]
    body: dict[str, Any] = {
        "metadata": {"namespace": "ml", "name": "train", "uid": uid},
        "spec": {"devices": {}},
        "status": {"allocation": {"devices": {"results": results}}} if devices else {},
    }
    return msgspec.convert(body, ResourceClaim)


@pytest.mark.parametrize(
    ("found", "orphan"),
    [
        (None, True),
        (claim("u1", "gpu-0"), False),
        (claim("u1", "gpu-0", "gpu-1"), False),
        (claim("u1", "gpu-1"), True),
        (claim("u1"), True),
        (claim("u2", "gpu-0"), True),
    ],
    ids=["gone", "as it was", "with more", "of another device", "freed", "made anew under its name"],
)
def test_a_record_is_an_orphan_unless_its_claim_has_all_its_devices(found: ResourceClaim | None, orphan: bool) -> None:
    assert is_orphan(record(), found) is orphan


def test_what_is_only_looked_at_makes_no_orphan() -> None:
    assert not is_orphan(record(admin=True), claim("u1", "gpu-1"))
