"""What a running gang's devices have in common is told by request, from its pods, its claims and the published devices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.engine.inventory.inventory import Inventory
from fairlead.kube.resource import ResourceClaim, ResourceSlice
from fairlead.ui.model.aligned import aligned_lines
from tests.support.engine.objects import gpu, slice_of

RAIL = f"{names.DRIVER}/rail"


def pod(name: str, align: str | None = None) -> Any:
    annotations = {} if align is None else {names.ALIGN: align}
    return {"metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "annotations": annotations}}


def claim(of: str, *devices: str, node: str, request: str = "gpu", **more: Any) -> ResourceClaim:
    results = [{"request": request, "driver": names.DRIVER, "pool": node, "device": each, **more} for each in devices]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": of, "uid": f"uid-{of}"}],
    }
    return msgspec.convert({"metadata": {"name": of, "namespace": "ml"}, "status": status}, ResourceClaim)


def inventory() -> Inventory:
    """Two nodes with four GPUs, on rails 8 to 11."""
    made = Inventory()
    for node in ("n1", "n2"):
        devices = [gpu(number) for number in range(4)]
        for number, each in enumerate(devices):
            each["attributes"] = each["attributes"] | {"rail": {"int": 8 + number}}
        bodies = slice_of(node, devices)
        made.set_slices(
            msgspec.convert(each, ResourceSlice) for each in (bodies if isinstance(bodies, list) else [bodies])
        )
    return made


SAME = [claim("a", "gpu-2", "gpu-1", node="n1"), claim("b", "gpu-1", "gpu-2", node="n2")]


@pytest.mark.parametrize(
    ("align", "claims", "expected"),
    [
        (RAIL, SAME, [f"{RAIL} of request gpu: 9, 10 in each of 2 pods"]),
        (
            f"{RAIL}=distinct",
            [claim("a", "gpu-0", node="n1"), claim("b", "gpu-3", node="n1", request="gpu/h100")],
            [f"{RAIL} of request gpu: 8 in a; 11 in b"],
        ),
        (names.ORDINAL, SAME, [f"{names.ORDINAL} of request gpu: 1, 2 in each of 2 pods"]),
        (f"{RAIL} of nic", SAME, []),
        (f"{names.DRIVER}/other", SAME, [f"{names.DRIVER}/other of request gpu: none, none in each of 2 pods"]),
        (RAIL, [claim("a", "gone", node="n9"), claim("b", "gpu-0", node="n1", adminAccess=True)], [f"{RAIL} of request gpu: none in a"]),
        ("no attribute", SAME, []),
        (None, SAME, []),
    ],
    ids=["same", "distinct", "ordinal", "another request", "no such attribute", "not published", "unreadable", "not aligned"],
)  # fmt: skip
def test_values_are_told_by_request(align: str | None, claims: list[ResourceClaim], expected: list[str]) -> None:
    assert list(aligned_lines([pod("a", align), pod("b", align)], claims, inventory())) == expected


def test_of_many_pods_that_differ_some_are_told() -> None:
    pods = [pod(f"p{number:02}", f"{RAIL}=distinct") for number in range(12)]
    claims = [claim(f"p{number:02}", f"gpu-{number % 4}", node="n1") for number in range(12)]
    (told,) = aligned_lines(pods, claims, inventory())
    assert told.endswith("11 in p07; and 4 more pods")
