"""One CDI spec per claim: what a container runtime adds to a container that uses the claim.

Exists because kubelet passes only names (`k8s.gpu.fairlead.dev/claim=<uid>-gpu-0`) and the runtime looks them up in a
directory. `build` is pure; `Store` keeps the files. No hook and no vendor tool runs: device nodes, mounts and
environment are all there is. Runtimes cache by name, so each name holds the claim's UID and is never used again.
The spec also carries the claim's record in an annotation: the checkpoint's spare copy.
Source: Container Device Interface SPEC.md, 0.6.0, the first version with annotations.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from fairlead.api import names
from fairlead.driver.backend.types import DeviceNode
from fairlead.driver.common import files
from fairlead.driver.prepare.libraries import Mount
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord, valid_uid

VERSION: Final = "0.6.0"
KIND: Final = f"k8s.{names.DRIVER}/claim"
RECORD: Final = f"{names.API_GROUP}/record"
BOOT_ID: Final = f"{names.API_GROUP}/boot-id"
_PREFIX: Final = f"k8s.{names.DRIVER}-claim_"


def device_id(uid: str, device: DeviceRecord) -> str:
    """The fully qualified name that kubelet passes on."""
    return f"{KIND}={uid}-{device.cdi_name}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one device adds to a container. `uuid` says who it is."""

    uuid: str = ""
    nodes: tuple[DeviceNode, ...] = ()
    env: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()


def build(
    record: ClaimRecord,
    *,
    boot_id: str,
    parts: Mapping[str, Part],
    control: Iterable[DeviceNode] = (),
    mounts: Iterable[Mount] = (),
) -> dict[str, Any]:
    """The spec as plain JSON. `parts` are by the device's name in CDI; `control` and `mounts` are added for any of them.

    NVIDIA_VISIBLE_DEVICES=void keeps a legacy NVIDIA runtime from adding every GPU on its own. Each device also says in
    the environment that it is here, so that a container can be checked: FAIRLEAD_DEVICE_GPU_0=<uuid>.
    """
    common: dict[str, Any] = {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}
    if control_nodes := [_node(node) for node in control]:
        common["deviceNodes"] = control_nodes
    if binds := [_mount(mount) for mount in mounts]:
        common["mounts"] = binds
    return {
        "cdiVersion": VERSION,
        "kind": KIND,
        "annotations": {BOOT_ID: boot_id, RECORD: msgspec.json.encode(record).decode()},
        "devices": [
            {
                "name": f"{record.uid}-{device.cdi_name}",
                "containerEdits": _edits(device, parts[device.cdi_name]),
            }
            # Two results may look on at one device (admin access): one CDI device serves both.
            for device in {device.cdi_name: device for device in record.devices}.values()
        ],
        "containerEdits": common,
    }


def _edits(device: DeviceRecord, part: Part) -> dict[str, Any]:
    edits: dict[str, Any] = {
        "env": [f"{environment_name(device.device)}={part.uuid}", *part.env],
        "deviceNodes": [_node(node) for node in part.nodes],
    }
    if part.mounts:
        edits["mounts"] = [_mount(mount) for mount in part.mounts]
    return edits


def environment_name(device: str) -> str:
    return "FAIRLEAD_DEVICE_" + device.upper().replace("-", "_")


def _node(node: DeviceNode) -> dict[str, Any]:
    made: dict[str, Any] = {"path": node.path}
    if node.host_path is not None and node.host_path != node.path:
        made["hostPath"] = node.host_path
    if node.major is not None:
        made |= {"type": "c", "major": node.major, "minor": node.minor or 0}
    if node.mode is not None:
        made["fileMode"] = node.mode
    return made | {"permissions": "rw"}


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "hostPath": mount.host_path,
        "containerPath": mount.container_path,
        "options": ["ro" if mount.read_only else "rw", "nosuid", "nodev", "rbind", "rprivate"],
    }


class Store:
    """The claim specs in the runtime's CDI directory. Touches only files of our own kind."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self) -> None:
        """Make the directory, and clear away what a dying process half wrote. Raises OSError."""
        self._directory.mkdir(parents=True, exist_ok=True)
        files.remove_temporaries(self._directory, _PREFIX)

    def path(self, uid: str) -> Path:
        return self._directory / f"{_PREFIX}{uid}.json"

    def exists(self, uid: str) -> bool:
        return self.path(uid).is_file()

    def write(self, uid: str, spec: Mapping[str, Any]) -> None:
        """Raises OSError; then the directory is as it was. Not durable: no spec outlives a boot (usually in memory)."""
        files.write(self.path(uid), msgspec.json.format(msgspec.json.encode(spec), indent=1), mode=0o644, durable=False)

    def remove(self, uid: str) -> bool:
        """Raises OSError; False when there was none."""
        return files.remove(self.path(uid), durable=False)

    def uids(self) -> list[str]:
        """UIDs of the claims that have a spec here, sorted."""
        return sorted(path.name[len(_PREFIX) : -len(".json")] for path in self._directory.glob(f"{_PREFIX}*.json"))

    def record(self, uid: str, *, boot_id: str) -> ClaimRecord | None:
        """The record that the spec carries; None when it carries none that can be read, or one of another boot."""
        try:
            annotations = json.loads(self.path(uid).read_bytes())["annotations"]
            if annotations[BOOT_ID] != boot_id:
                return None
            record = msgspec.json.decode(annotations[RECORD], type=ClaimRecord)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return record if record.uid == uid and valid_uid(uid) else None
