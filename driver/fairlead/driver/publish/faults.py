"""The faults of each GPU: folded from statuses and Xids, kept until the GPU is proven healthy. Pure.

Keeps: per GPU at most one fault of each kind; a milder one never replaces a more severe one; a severe one ends only by
proof: the GPU responds again, or NVML, which reports recovery actions, asks for none any more. Where NVIDIA's driver
does not report recovery actions, the Xid table decides, and only a reboot of the node ends the fault.
Example: Xid 48 needs a reset, and the GPU gets the taint xid=48:NoSchedule. Moments later NVML reports the recovery
action "reset", and recovery-action=reset:NoSchedule joins it. After the reset NVML reports "none": the second fault
ends with that poll, the first as soon as it is `RECOVERY_ACTION_LAG_S` old.
The health of each published device, for kubelet's health stream, follows from the same faults as its taints.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from fairlead.api import names
from fairlead.driver.backend import xids
from fairlead.driver.backend.types import GpuStatus, Xid
from fairlead.kube.resource import Device, DeviceTaint

Kind = Literal["gpu-lost", "recovery-action", "xid"]
# note: no taint. reset: no new pods until the GPU was reset. fatal: its pods are evicted.
Severity = Literal["note", "reset", "fatal"]
_RANK = {"note": 0, "reset": 1, "fatal": 2}
_EFFECT = {"reset": "NoSchedule", "fatal": "NoExecute"}
_ACTIONS: dict[str, tuple[Severity, str]] = {
    "reset": ("reset", "the GPU needs a reset"),
    "drain": ("reset", "the GPU needs to be drained and reset"),
    "reboot": ("fatal", "the node needs a reboot"),
}
# NVML's recovery action may follow its Xid by moments: until then "none" proves nothing.
RECOVERY_ACTION_LAG_S = 30.0
NOTE_S = 600.0


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`value` is the Xid's code or the recovery action; `since_s` the first report, in seconds since the epoch."""

    kind: Kind
    severity: Severity
    since_s: float
    value: str = ""
    message: str = ""


# By GPU UUID.
Faults = Mapping[str, tuple[Fault, ...]]


def fold(
    faults: Faults, statuses: Iterable[GpuStatus], events: Iterable[Xid], *, now_s: float
) -> dict[str, tuple[Fault, ...]]:
    """The faults after one poll. A GPU without faults is not in the result."""
    by_kind = {uuid: {fault.kind: fault for fault in found} for uuid, found in faults.items()}
    for event in events:
        fault = _of_xid(event, now_s)
        if fault is not None:
            _add(by_kind.setdefault(event.uuid, {}), fault)
    for status in statuses:
        _apply_status(by_kind.setdefault(status.uuid, {}), status, now_s)
    return {uuid: tuple(found[kind] for kind in sorted(found)) for uuid, found in sorted(by_kind.items()) if found}


def healed(faults: Faults, uuids: Collection[str]) -> dict[str, tuple[Fault, ...]]:
    """The faults without those that a reset cures, of GPUs that were reset and found well: this, too, is a proof."""
    return {
        uuid: kept
        for uuid, found in faults.items()
        if (kept := tuple(each for each in found if uuid not in uuids or each.severity == "fatal"))
    }


def _apply_status(found: dict[Kind, Fault], status: GpuStatus, now_s: float) -> None:
    if status.responds is False:
        _add(
            found,
            Fault(kind="gpu-lost", severity="fatal", since_s=now_s, message=status.message or "it answers no query"),
        )
        return
    if status.responds is None:
        return  # neither a fault nor a proof
    found.pop("gpu-lost", None)
    if status.recovery_action is not None and status.recovery_action in _ACTIONS:
        severity, message = _ACTIONS[status.recovery_action]
        before = found.get("recovery-action")
        if before is None or before.value != status.recovery_action:
            found["recovery-action"] = Fault(
                kind="recovery-action", severity=severity, since_s=now_s, value=status.recovery_action, message=message
            )
        return
    if status.recovery_action is not None:
        found.pop("recovery-action", None)
    xid = found.get("xid")
    if xid is None:
        return
    if (xid.severity == "note" and now_s - xid.since_s >= NOTE_S) or (
        xid.severity != "note" and status.recovery_action is not None and now_s - xid.since_s >= RECOVERY_ACTION_LAG_S
    ):
        del found["xid"]


def _of_xid(event: Xid, now_s: float) -> Fault | None:
    kind = xids.classify(event.code)
    if kind in {"application", "informational"}:
        return None
    severity: Severity = {"recoverable": "note", "needs-reset": "reset", "fatal": "fatal"}[kind]  # type: ignore[assignment]
    return Fault(
        kind="xid",
        severity=severity,
        since_s=now_s,
        value=str(event.code),
        message=f"{xids.describe(event.code)}: {kind}",
    )


def _add(found: dict[Kind, Fault], fault: Fault) -> None:
    before = found.get(fault.kind)
    if before is None or _RANK[fault.severity] > _RANK[before.severity]:
        found[fault.kind] = fault


def taints(faults: Faults) -> dict[str, tuple[DeviceTaint, ...]]:
    """Taints by GPU UUID, for the GPU and its MIG devices: a reset ends all of them.

    timeAdded is left to the apiserver, which sets it on a taint that is new.
    """
    return {
        uuid: tuple(
            DeviceTaint(key=f"{names.DRIVER}/{fault.kind}", value=fault.value, effect=_EFFECT[fault.severity])
            for fault in found
            if fault.severity in _EFFECT
        )
        for uuid, found in faults.items()
        if any(fault.severity in _EFFECT for fault in found)
    }


def is_severe(faults: Faults, uuid: str) -> bool:
    """Whether a fault of the GPU taints it."""
    return any(fault.severity in _EFFECT for fault in faults.get(uuid, ()))


def describe(faults: Faults, uuid: str) -> str:
    """All faults of the GPU in words, the most severe first; empty without any."""
    found = sorted(faults.get(uuid, ()), key=lambda fault: (-_RANK[fault.severity], fault.kind))
    return "; ".join(fault.message for fault in found)


class _SavedFaults(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    faults: dict[str, tuple[Fault, ...]]


def encode(faults: Faults, *, boot_id: str) -> bytes:
    """The content of the file that keeps faults over a restart of the driver, which proves no GPU healthy."""
    return msgspec.json.encode(_SavedFaults(boot_id=boot_id, faults=dict(faults)))


def decode(content: bytes, *, boot_id: str) -> dict[str, tuple[Fault, ...]]:
    """The faults of this boot; none when the content is of another boot or cannot be read."""
    try:
        saved = msgspec.json.decode(content, type=_SavedFaults)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return saved.faults if saved.boot_id == boot_id else {}


HealthState = Literal["healthy", "unhealthy", "unknown"]

MESSAGE_MAX = 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHealth:
    """One published device. `updated_s` is the time of the poll, in seconds since the epoch."""

    pool: str
    device: str
    state: HealthState
    updated_s: float
    message: str = ""


def device_health(
    devices: Iterable[Device],
    statuses: Iterable[GpuStatus],
    faults: Faults,
    *,
    unhealthy: Mapping[str, str],
    pool: str,
    now_s: float,
) -> tuple[DeviceHealth, ...]:
    """The health of each published device: that of its GPU, and its own (`unhealthy`, message by name).

    Unknown where the GPU's status is not known.
    """
    by_uuid = {status.uuid: status for status in statuses}
    found = []
    for device in devices:
        attribute = device.attributes.get("parentUUID") or device.attributes.get("uuid")
        uuid = attribute.string if attribute is not None and attribute.string else ""
        status = by_uuid.get(uuid)
        if is_severe(faults, uuid) or device.name in unhealthy:
            state: HealthState = "unhealthy"
        else:
            state = "healthy" if status is not None and status.responds else "unknown"
        text = describe(faults, uuid) or unhealthy.get(device.name, "") or (status.message if status else "")
        found.append(
            DeviceHealth(pool=pool, device=device.name, state=state, updated_s=now_s, message=text[:MESSAGE_MAX])
        )
    return tuple(found)
