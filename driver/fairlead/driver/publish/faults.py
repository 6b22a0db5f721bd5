"""What is wrong with each GPU: folded from what the hardware reports, kept until the GPU is proven well.

Exists because reports are moments and health is a state. Pure: old ledger and one look in, new ledger out.
Keeps: per GPU one fault of each kind, and a benign one never takes the place of a severe one; a severe fault ends only
by proof: the GPU answers again, or NVML, which knew what the GPU needs, says that it needs nothing any more.
Where the driver knows no recovery actions, the Xid table decides, and only a reboot ends what it decided.
"""

# No `from __future__ import annotations`: msgspec reads the annotations.

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from fairlead.api import names
from fairlead.driver.backend import xids
from fairlead.driver.backend.types import GpuStatus, Xid
from fairlead.kube.resource import DeviceTaint

Kind = Literal["gpu-lost", "recovery-action", "xid"]
# note: worth knowing. reset: no new pods until the GPU was reset. fatal: its pods have to go.
Severity = Literal["note", "reset", "fatal"]
_RANK = {"note": 0, "reset": 1, "fatal": 2}
_EFFECT = {"reset": "NoSchedule", "fatal": "NoExecute"}
_RECOVERY: dict[str, tuple[Severity, str]] = {
    "reset": ("reset", "the GPU needs a reset"),
    "drain": ("reset", "the GPU needs to be drained and reset"),
    "reboot": ("fatal", "the node needs a reboot"),
}
# NVML's recovery action may follow an Xid by moments; a note is forgotten after a while.
SETTLE_S = 30.0
NOTE_S = 600.0


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`value` is the Xid's code or the recovery action; `since_s` when it was first seen, seconds since the epoch."""

    kind: Kind
    severity: Severity
    since_s: float
    value: str = ""
    message: str = ""


Ledger = Mapping[str, tuple[Fault, ...]]


def fold(
    ledger: Ledger, watched: Iterable[GpuStatus], events: Iterable[Xid], *, now_s: float
) -> dict[str, tuple[Fault, ...]]:
    """The ledger after one look, by GPU UUID; GPUs without faults are not in it."""
    faults = {uuid: {fault.kind: fault for fault in found} for uuid, found in ledger.items()}
    for event in events:
        fault = _of_xid(event, now_s)
        if fault is not None:
            _add(faults.setdefault(event.uuid, {}), fault)
    for gpu in watched:
        _look(faults.setdefault(gpu.uuid, {}), gpu, now_s)
    return {uuid: tuple(found[kind] for kind in sorted(found)) for uuid, found in sorted(faults.items()) if found}


def _look(found: dict[Kind, Fault], gpu: GpuStatus, now_s: float) -> None:
    if gpu.responds is False:
        _add(
            found,
            Fault(kind="gpu-lost", severity="fatal", since_s=now_s, message=gpu.message or "it answers no query"),
        )
        return
    if gpu.responds is None:
        return  # nothing was learned
    found.pop("gpu-lost", None)
    if gpu.recovery_action is not None and gpu.recovery_action in _RECOVERY:
        severity, message = _RECOVERY[gpu.recovery_action]
        before = found.get("recovery-action")
        if before is None or before.value != gpu.recovery_action:
            found["recovery-action"] = Fault(
                kind="recovery-action", severity=severity, since_s=now_s, value=gpu.recovery_action, message=message
            )
        return
    if gpu.recovery_action is not None:
        found.pop("recovery-action", None)
    xid = found.get("xid")
    if xid is None:
        return
    if (xid.severity == "note" and now_s - xid.since_s >= NOTE_S) or (
        xid.severity != "note" and gpu.recovery_action is not None and now_s - xid.since_s >= SETTLE_S
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


def taints(ledger: Ledger) -> dict[str, tuple[DeviceTaint, ...]]:
    """Taints by GPU UUID; they reach its MIG devices too, since what needs a reset takes all of them along.

    The time is left to the apiserver, which stamps a taint that is new.
    """
    return {
        uuid: tuple(
            DeviceTaint(key=f"{names.DRIVER}/{fault.kind}", value=fault.value, effect=_EFFECT[fault.severity])
            for fault in found
            if fault.severity in _EFFECT
        )
        for uuid, found in ledger.items()
        if any(fault.severity in _EFFECT for fault in found)
    }


def severe(ledger: Ledger, uuid: str) -> bool:
    return any(fault.severity in _EFFECT for fault in ledger.get(uuid, ()))


def message(ledger: Ledger, uuid: str) -> str:
    """All that is known to be wrong, worst first."""
    found = sorted(ledger.get(uuid, ()), key=lambda fault: (-_RANK[fault.severity], fault.kind))
    return "; ".join(fault.message for fault in found)


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    faults: dict[str, tuple[Fault, ...]]


def encode(ledger: Ledger, *, boot_id: str) -> bytes:
    """For the file that keeps faults over a restart of the driver: it proves nothing about the GPU."""
    return msgspec.json.encode(_Kept(boot_id=boot_id, faults=dict(ledger)))


def decode(content: bytes, *, boot_id: str) -> dict[str, tuple[Fault, ...]]:
    """The faults of this boot; none when the file is of another one, or cannot be read."""
    try:
        kept = msgspec.json.decode(content, type=_Kept)
    except msgspec.DecodeError:
        return {}
    return kept.faults if kept.boot_id == boot_id else {}
