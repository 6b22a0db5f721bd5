"""Kubelet's checkpoint of its claims, over its own restarts: `dra_manager_state`.

The API may have deleted a claim that the node still has to unprepare. A JSON file with a checksum, written beside and
renamed. As in the real kubelet it does not say that a claim *is* prepared: after a restart every claim is prepared again.
A file that cannot be read is renamed to `.corrupt`, and the state starts empty.
"""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fairlead.sandbox.kubelet.plugins import ClaimRef, PreparedDevice

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class ClaimInfo:
    """A claim on this node: the pods that use it, and the devices that each driver prepared."""

    ref: ClaimRef
    drivers: tuple[str, ...]
    pods: set[str] = field(default_factory=set)
    devices: dict[str, list[PreparedDevice]] = field(default_factory=dict)
    prepared: bool = False

    def cdi_ids(self, request: str = "") -> list[str]:
        """CDI names for one request of the claim, or for all of them."""
        return [
            cdi_id
            for devices in self.devices.values()
            for device in devices
            if not request or not device.requests or request in device.requests
            for cdi_id in device.cdi_ids
        ]


def save(path: Path, claims: Iterable[ClaimInfo]) -> None:
    entries = [
        {
            "namespace": each.ref.namespace,
            "name": each.ref.name,
            "uid": each.ref.uid,
            "drivers": list(each.drivers),
            "pods": sorted(each.pods),
            "devices": {
                driver: [
                    {"requests": d.requests, "pool": d.pool, "device": d.device, "cdi": d.cdi_ids} for d in devices
                ]
                for driver, devices in each.devices.items()
            },
        }
        for each in claims
    ]
    data = json.dumps(entries, sort_keys=True)
    body = json.dumps({"version": "v2", "data": data, "checksum": zlib.crc32(data.encode())})
    beside = path.with_suffix(".tmp")
    beside.write_text(body)
    os.replace(beside, path)  # noqa: PTH105 - the pair of write and rename reads better


def load(path: Path) -> list[ClaimInfo]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    try:
        outer = json.loads(text)
        if zlib.crc32(outer["data"].encode()) != outer["checksum"]:
            raise ValueError("the checksum does not match")
        return [_read(entry) for entry in json.loads(outer["data"])]
    except (ValueError, KeyError, TypeError) as error:
        aside = path.with_suffix(".corrupt")
        os.replace(path, aside)  # noqa: PTH105
        log.error("kubelet checkpoint %s: %s; set aside as %s", path, error, aside.name)
        return []


def _read(entry: dict[str, object]) -> ClaimInfo:
    devices = entry["devices"]
    assert isinstance(devices, dict)
    drivers, pods = entry["drivers"], entry["pods"]
    assert isinstance(drivers, list)
    assert isinstance(pods, list)
    return ClaimInfo(
        ref=ClaimRef(namespace=str(entry["namespace"]), name=str(entry["name"]), uid=str(entry["uid"])),
        drivers=tuple(drivers),
        pods=set(pods),
        devices={
            driver: [
                PreparedDevice(
                    requests=tuple(d["requests"]), pool=d["pool"], device=d["device"], cdi_ids=tuple(d["cdi"])
                )
                for d in each
            ]
            for driver, each in devices.items()
        },
    )
