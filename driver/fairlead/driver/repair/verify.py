"""What is wrong with a GPU after its reset, beside what it was before. Pure.

A reading that the hardware does not give is neither for nor against it; a GPU that does not answer is not well. Counts of
ECC errors stay over a reset: only new ones count.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.driver.backend import xids
from fairlead.driver.backend.types import Gpu, GpuCondition, Inventory, Telemetry, ThrottleReason
from fairlead.driver.publish.faults import Fault
from fairlead.driver.repair.state import Member

# Clocks held down by the hardware itself: heat, or a power supply that asks for it.
_THROTTLES: tuple[ThrottleReason, ...] = ("thermal_hw", "power_brake", "hw_slowdown")


def problems(
    member: Member,
    *,
    inventory: Inventory,
    condition: GpuCondition | None,
    telemetry: Telemetry | None,
    new_xids: Iterable[str],
    faults: Iterable[Fault],
) -> list[str]:
    """In words, the most telling first; empty when the GPU is well.

    `condition` and `telemetry` are the GPU's, read after the reset; `new_xids` the codes of
    those since; `faults` those that the driver knows of.
    """
    gpu = inventory.gpu(member.uuid)
    if gpu is None or condition is None:
        return ["it does not answer"]
    found = [
        each.message for each in faults if each.kind in {"gpu-lost", "recovery-action"} or each.severity == "fatal"
    ]
    found += _xids(new_xids)
    found += _memory(member, gpu, condition)
    found += _links(member, gpu, condition)
    found += _mig(member, gpu)
    if telemetry is not None:
        found += [f"its clocks are held down: {reason}" for reason in _THROTTLES if telemetry.throttled.get(reason)]
        if telemetry.sm_clock_hz == 0 or telemetry.memory_clock_hz == 0:
            found.append("a clock stands still")
    return found


def _xids(new: Iterable[str]) -> list[str]:
    severe = [code for code in sorted(new) if not code.isdigit() or _is_severe(int(code))]
    return [f"since the reset it has reported {_described(code)}" for code in severe]


def _is_severe(code: int) -> bool:
    return xids.classify(code) not in {"application", "informational"}


def _described(code: str) -> str:
    return xids.describe(int(code)) if code.isdigit() else "more Xids than are told apart"


def _memory(member: Member, gpu: Gpu, condition: GpuCondition) -> list[str]:
    found = []
    rows = condition.remapped_rows
    if rows is not None and rows.failed:
        found.append("a row of its memory could not be replaced: exchange the GPU")
    if rows is not None and rows.pending:
        found.append("a row of its memory still waits to be replaced")
    before, now = member.ecc_uncorrected, condition.ecc_uncorrected
    if before is not None and now is not None and now > before:
        found.append(f"{now - before} new uncorrected ECC errors")
    if member.memory_bytes and gpu.memory_bytes and gpu.memory_bytes < 0.99 * member.memory_bytes:
        found.append(f"it has {gpu.memory_bytes >> 20} MiB of memory, and had {member.memory_bytes >> 20}")
    return found


def _links(member: Member, gpu: Gpu, condition: GpuCondition) -> list[str]:
    if gpu.mig_enabled or not member.links:  # MIG mode switches NVLink off
        return []
    up = condition.nvlink_active_links
    if up is not None and up < member.links:
        return [f"{up} of {member.links} NVLinks are up"]
    return []


def _mig(member: Member, gpu: Gpu) -> list[str]:
    found = []
    now = {(mig.profile.id, mig.start) for mig in gpu.mig_devices}
    names = {profile.id: profile.name for profile in gpu.mig_profiles}
    missing = [
        f"{names.get(profile, profile)}@{start}" for profile, start in member.layout if (profile, start) not in now
    ]
    if missing:
        found.append(f"these of its MIG devices are not there again: {', '.join(missing)}")
    if member.mig_enabled is not None and gpu.mig_enabled is not None and member.mig_enabled != gpu.mig_enabled:
        found.append(
            f"MIG mode is {'on' if gpu.mig_enabled else 'off'}, and was {'on' if member.mig_enabled else 'off'}"
        )
    return found
