"""Device metadata files: what a claim's devices are, for the programs in its containers (KEP-5304).

A program reads its devices' attributes without the API: one file per claim and request, mounted read-only at the path
that Kubernetes defines. A file is a stream of JSON objects with the same content in each version of the schema, newest
first; a reader takes the first version that it supports. When disabled, nothing is written or mounted, but files are still
removed.
Source: k8s.io/dynamic-resource-allocation/api/metadata; the Kubernetes task page "Access DRA device metadata".
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.api import names
from fairlead.driver.backend.types import Mount
from fairlead.driver.common import files, trees
from fairlead.driver.prepare import nccl
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord, valid_uid
from fairlead.kube.resource import Device

VERSIONS: Final = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
CONTAINER_DIR: Final = "/var/run/kubernetes.io/dra-device-attributes"
FILE: Final = f"{names.DRIVER}-metadata.json"


class Metadata:
    """The files under one directory; `published` gives the devices in the slices, by name."""

    def __init__(self, directory: Path, *, enabled: bool, published: Callable[[], Mapping[str, Device]]) -> None:
        self._directory = directory
        self._enabled = enabled
        self._published = published

    def write(self, record: ClaimRecord) -> None:
        """Raises OSError."""
        if not self._enabled:
            return
        published = self._published()
        for request, devices in _by_request(record).items():
            files.write_in_place(self._path(record.uid, request), stream(record, devices, published))

    def write_topology(self, uid: str, content: bytes) -> None:
        """NCCL's topology file of a claim that asked for one. Raises OSError."""
        files.write_in_place(self._topology(uid), content)

    def topology_mount(self, uid: str) -> Mount:
        return Mount(host_path=str(self._topology(uid)), container_path=nccl.CONTAINER_FILE)

    def _topology(self, uid: str) -> Path:
        return self._directory / uid / "nccl-topology.xml"

    def remove(self, uid: str) -> bool:
        """Raises OSError; False when there was none."""
        path = self._directory / uid
        if not path.exists():
            return False
        if not trees.remove_tree(path):
            raise OSError(errno.ETIMEDOUT, "not removed in time", str(path))
        return True

    def uids(self) -> list[str]:
        """UIDs of the claims that have files, sorted."""
        return sorted(path.name for path in self._directory.glob("*") if valid_uid(path.name) and path.is_dir())

    def mounts(self, record: ClaimRecord, device: DeviceRecord) -> list[Mount]:
        """For a container with this device: the file of the device's request."""
        path = self._path(record.uid, device.request_name)
        if not self._enabled or not path.exists():
            return []
        return [Mount(host_path=str(path), container_path=container_path(record, device.request_name))]

    def _path(self, uid: str, request: str) -> Path:
        return self._directory / uid / f"{request}.json"


def container_path(record: ClaimRecord, request: str) -> str:
    """By the claim's name, or by the pod's name for it where it was created from a template."""
    where = f"resourceclaimtemplates/{record.pod_claim}" if record.pod_claim else f"resourceclaims/{record.name}"
    return f"{CONTAINER_DIR}/{where}/{request}/{FILE}"


def stream(record: ClaimRecord, devices: list[DeviceRecord], published: Mapping[str, Device]) -> bytes:
    """The file's content: one object in each version of the schema."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for device in devices:
        by_name.setdefault(device.request, []).append(_device(device, published.get(device.device)))
    content: dict[str, Any] = {
        "metadata": {"name": record.name, "namespace": record.namespace, "uid": record.uid, "generation": 1},
        **({"podClaimName": record.pod_claim} if record.pod_claim else {}),
        "requests": [{"name": name, "devices": found} for name, found in by_name.items()],
    }
    objects = ({"apiVersion": version, "kind": "DeviceMetadata", **content} for version in VERSIONS)
    return b"".join(msgspec.json.format(msgspec.json.encode(each)) + b"\n" for each in objects)


def _device(device: DeviceRecord, published: Device | None) -> dict[str, Any]:
    attributes = msgspec.to_builtins(published.attributes) if published is not None else {}
    if device.mig is not None and device.mig.uuid:
        # A MIG device that is created on demand has no UUID in the slices.
        attributes["uuid"] = {"string": device.mig.uuid}
    made: dict[str, Any] = {"driver": names.DRIVER, "pool": device.pool, "name": device.device}
    if attributes:
        made["attributes"] = dict(sorted(attributes.items()))
    return made


def _by_request(record: ClaimRecord) -> dict[str, list[DeviceRecord]]:
    found: dict[str, list[DeviceRecord]] = {}
    for device in record.devices:
        found.setdefault(device.request_name, []).append(device)
    return found
