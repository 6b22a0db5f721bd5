"""Which GPUs are reset together with one. Pure.

A GPU alone, unless NVLinks join it to others without a switch between them, or it is older than Ampere: then all that
its links reach, directly or over others, for a link is trained by both ends at once.
Source: nvidia-smi(1), --gpu-reset: from Ampere on GPUs with NVLink connections can be reset one by one where a Fabric
Manager, or from Hopper on the hardware, takes care of the switches; otherwise all that are connected, in one command.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.driver.backend.types import Gpu

_AMPERE = 8


def of(gpus: Iterable[Gpu], gpu: Gpu) -> tuple[Gpu, ...]:
    """The GPUs to reset with `gpu`, itself included, sorted by minor. GPUs whose links are off, as in MIG mode, are alone."""
    by_minor = {each.minor: each for each in gpus} | {gpu.minor: gpu}
    if _alone(gpu):
        return (gpu,)
    found, left = {gpu.minor}, [gpu.minor]
    while left:
        nvlink = by_minor[left.pop()].nvlink
        new = {peer for peer in (nvlink.peers if nvlink else ()) if peer in by_minor} - found
        found |= new
        left += sorted(new)
    return tuple(by_minor[minor] for minor in sorted(found))


def _alone(gpu: Gpu) -> bool:
    if gpu.nvlink is None or not gpu.nvlink.peers:
        return True
    major = (gpu.cuda_compute_capability or "0").partition(".")[0]
    return gpu.nvlink.switched and major.isdigit() and int(major) >= _AMPERE
