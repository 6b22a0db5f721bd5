"""The CDI spec of a claim: what the container runtime adds to a container that uses the claim. Pure.

kubelet passes names (`k8s.gpu.fairlead.dev/claim=<uid>-gpu-0`), which the runtime looks up in the specs. A spec holds
device nodes, mounts and environment; no hook and no vendor tool runs. Runtimes cache by name, so each name holds the
claim's UID and is never reused. An annotation holds the claim's record: the spare copy of the checkpoint.
Source: Container Device Interface SPEC.md, 0.6.0, the first version with annotations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from fairlead.api import names
from fairlead.driver.backend.types import DeviceNode, Mount
from fairlead.driver.prepare.records import ClaimRecord, DeviceRecord

VERSION: Final = "0.6.0"
KIND: Final = f"k8s.{names.DRIVER}/claim"
RECORD: Final = f"{names.API_GROUP}/record"
BOOT_ID: Final = f"{names.API_GROUP}/boot-id"


def device_id(uid: str, device: DeviceRecord) -> str:
    """The fully qualified name that kubelet passes to the runtime."""
    return f"{KIND}={uid}-{device.cdi_name}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEdits:
    """What one device adds to a container; `uuid` is that of the GPU or MIG device."""

    uuid: str = ""
    nodes: tuple[DeviceNode, ...] = ()
    env: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()


def build(
    record: ClaimRecord,
    *,
    boot_id: str,
    edits: Mapping[str, DeviceEdits],
    control: Iterable[DeviceNode] = (),
    mounts: Iterable[Mount] = (),
) -> dict[str, Any]:
    """The spec as plain JSON. `edits` are by the device's name in CDI; `control` and `mounts` come with any of them.

    NVIDIA_VISIBLE_DEVICES=void keeps a legacy NVIDIA runtime from adding every GPU. Each device sets a variable, by
    which a container can be checked: FAIRLEAD_DEVICE_GPU_0=<uuid>.
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
                "containerEdits": _container_edits(device, edits[device.cdi_name]),
            }
            # Two results may have one device with admin access: one CDI device serves both.
            for device in {device.cdi_name: device for device in record.devices}.values()
        ],
        "containerEdits": common,
    }


def _container_edits(device: DeviceRecord, edits: DeviceEdits) -> dict[str, Any]:
    found: dict[str, Any] = {
        "env": [f"{environment_name(device.device)}={edits.uuid}", *edits.env],
        "deviceNodes": [_node(node) for node in edits.nodes],
    }
    if edits.mounts:
        found["mounts"] = [_mount(mount) for mount in edits.mounts]
    return found


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
