"""Allocated claims, and their opaque configs, as the controller leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.kube.resource import ResourceClaim


def claim(
    uid: str,
    *devices: str | dict[str, Any],
    pool: str = "n1",
    config: Sequence[dict[str, Any]] = (),
    name: str | None = None,
    namespace: str = "ml",
    driver: str = names.DRIVER,
) -> ResourceClaim:
    """A claim allocated these devices: a device's name (request "gpu"), or a whole result."""
    results = [
        {"request": "gpu", "driver": driver, "pool": pool}
        | (device if isinstance(device, dict) else {"device": device})
        for device in devices
    ]
    return msgspec.convert(raw_claim(uid, results, config=config, name=name, namespace=namespace), ResourceClaim)


def raw_claim(
    uid: str,
    results: Sequence[dict[str, Any]],
    *,
    config: Sequence[dict[str, Any]] = (),
    name: str | None = None,
    namespace: str = "ml",
) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name or f"claim-{uid}", "namespace": namespace, "uid": uid},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": names.GPU_CLASS}}]}},
        "status": {"allocation": {"devices": {"results": list(results), "config": list(config)}}},
    }


def gpu_config(kind: str = "GpuConfig", **fields: object) -> dict[str, Any]:
    """An allocation's config for our driver, from the claim, for all requests."""
    parameters = {"apiVersion": names.CONFIG_API_VERSION, "kind": kind, **fields}
    return {"source": "FromClaim", "opaque": {"driver": names.DRIVER, "parameters": parameters}}


def time_slicing(interval: str) -> dict[str, Any]:
    return gpu_config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}})


def mps(kind: str = "GpuConfig", **limits: object) -> dict[str, Any]:
    return gpu_config(kind, sharing={"strategy": "MPS", **({"mpsConfig": limits} if limits else {})})
