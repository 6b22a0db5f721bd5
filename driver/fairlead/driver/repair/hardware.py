"""What a repair does to the hardware: read a GPU before, reset, restore. Blocks.

Each part may be done again after a kill: a reset of a GPU that no claim holds harms nothing, and only what is missing is
restored.
"""

from __future__ import annotations

import msgspec

from fairlead.driver.backend.interface import Backend, BackendError
from fairlead.driver.backend.types import Gpu, Inventory
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
