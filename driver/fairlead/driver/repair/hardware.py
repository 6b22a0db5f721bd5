"""What a repair does to the hardware: read a GPU before, reset, restore; and what is wrong with it afterwards. Blocks.

Each part may be done again after a kill: a reset of a GPU that no claim holds harms nothing, and only what is missing is
restored. A GPU is verified beside what it was before: a reading that the hardware does not give is neither for nor against it; a GPU that
does not answer is not well. Counts of ECC errors stay over a reset: only new ones count.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fairlead.driver.backend import xids
from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.types import Gpu, GpuCondition, Inventory, Telemetry, ThrottleReason
from fairlead.driver.publish.faults import Fault
from fairlead.driver.repair.state import Member


def members_of(gpus: tuple[Gpu, ...], inventory: Inventory) -> tuple[Member, ...]:
    """What the GPUs are before anything is done, as far as the last poll knows; also of a GPU that does not answer now."""
    return tuple(
        Member(
            uuid=gpu.uuid,
            minor=gpu.minor,
            mig_enabled=gpu.mig_enabled,
            layout=tuple((mig.profile.id, mig.start) for mig in gpu.mig_devices),
            memory_bytes=gpu.memory_bytes,
            links=_links(gpu, inventory),
        )
        for gpu in gpus
    )


def _links(gpu: Gpu, inventory: Inventory) -> int | None:
    """The NVLinks that should be up: as many as its like on the node have, for its own may be down already."""
    alike = [each.nvlink.links for each in inventory.gpus if each.nvlink and each.product_name == gpu.product_name]
    return max(alike, default=None)


def clients(backend: Backend, member: Member) -> list[str]:
    """The processes on the GPU, in words; none of a GPU that does not answer."""
    try:
        return [f"{process} on gpu-{member.minor}" for process in backend.processes(member.uuid)]
    except BackendError:
        return []


def kept(backend: Backend, member: Member) -> Member:
    """The member with its MIG devices and settings as they are right before the first reset, and its errors before this one."""
    ecc = next((each.ecc_uncorrected for each in backend.conditions() if each.uuid == member.uuid), None)
    member = msgspec.structs.replace(member, ecc_uncorrected=ecc)
    if member.kept:
        return member
    try:
        layout = tuple((mig.profile.id, mig.start) for mig in backend.mig_devices(member.uuid))
        mode, mig_mode = backend.compute_mode(member.uuid), backend.mig_mode(member.uuid)
    except BackendError:  # it does not answer: what was known of it has to do
        return msgspec.structs.replace(member, kept=True)
    return msgspec.structs.replace(member, kept=True, layout=layout, compute_mode=mode, mig_mode=mig_mode)


def restore(backend: Backend, member: Member) -> None:
    """MIG mode and compute mode as before, and the MIG devices that are missing. Raises BackendError."""
    if member.mig_mode is not None and backend.mig_mode(member.uuid) not in {None, member.mig_mode}:
        backend.set_mig_mode(member.uuid, member.mig_mode)
    if member.layout:
        there = {(mig.profile.id, mig.start) for mig in backend.mig_devices(member.uuid)}
        for profile_id, start in member.layout:
            if (profile_id, start) not in there:
                backend.create_mig(member.uuid, profile_id, start)
    mode = member.compute_mode
    if mode is not None and backend.compute_mode(member.uuid) not in {None, mode}:
        backend.set_compute_mode(member.uuid, mode)


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
    found += _link_problems(member, gpu, condition)
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


def _link_problems(member: Member, gpu: Gpu, condition: GpuCondition) -> list[str]:
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
