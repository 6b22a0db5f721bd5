"""What instruments would read on a simulated GPU under a load. Pure.

Plausible, not measured: with a load, power, temperature, clocks, activity and NVLink's bytes move together, as they do
under training, and throttling takes half the clock. Without a load a GPU is idle. Limits and highest clocks are those of
the product, from NVIDIA's data sheets; a product that is not listed has none, as hardware that does not tell.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

from fairlead.driver.backend.simulated.fault_file import Load, MemoryErrors
from fairlead.driver.backend.types import (
    THROTTLE_REASONS,
    Gpu,
    GpuCondition,
    MigDevice,
    RemappedRows,
    Telemetry,
    ThrottleReason,
)

_MHZ = 1_000_000
_IDLE_W, _IDLE_C, _IDLE_MHZ = 60.0, 30.0, 345.0
_FULL_C, _HOT_C = 75.0, 90.0
# Of what a GPU could do, a training job does this much while a kernel runs all the time.
_SM, _TENSOR, _DRAM, _POWER = 0.85, 0.5, 0.4, 0.95
_LINK_BYTES_PER_S = 5e9  # of the 25e9 of a link, in each direction


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    power_limit_w: float
    sm_mhz: float
    memory_mhz: float


# By a part of the product's name; the first that fits.
_PRODUCTS = (
    ("GB200", _Product(power_limit_w=1200, sm_mhz=2062, memory_mhz=3996)),
    ("B200", _Product(power_limit_w=1000, sm_mhz=1965, memory_mhz=3996)),
    ("H200", _Product(power_limit_w=700, sm_mhz=1980, memory_mhz=3201)),
    ("H100", _Product(power_limit_w=700, sm_mhz=1980, memory_mhz=2619)),
    ("A100 80GB PCIe", _Product(power_limit_w=300, sm_mhz=1410, memory_mhz=1512)),
    ("A100-SXM4-80GB", _Product(power_limit_w=400, sm_mhz=1410, memory_mhz=1593)),
    ("A100", _Product(power_limit_w=400, sm_mhz=1410, memory_mhz=1215)),
    ("A30", _Product(power_limit_w=165, sm_mhz=1440, memory_mhz=1215)),
    ("L40S", _Product(power_limit_w=350, sm_mhz=2520, memory_mhz=9001)),
    ("T4", _Product(power_limit_w=70, sm_mhz=1590, memory_mhz=5001)),
)
_WITH_ACTIVITY = frozenset({"Hopper", "Blackwell", "Rubin"})
_WITHOUT_REMAPPING = frozenset({"Volta", "Turing"})


def of_gpu(
    gpu: Gpu,
    load: Load,
    on_migs: Iterable[tuple[MigDevice, Load]],
    throttled: Collection[ThrottleReason],
    nvlink_bytes: int,
) -> Telemetry:
    """`load` is on the GPU as a whole, `on_migs` on its MIG devices."""
    in_migs = list(on_migs)
    busy = min(1.0, _busy(load) + sum(_busy(each) * _share(gpu, mig) for mig, each in in_migs))
    product = _product(gpu)
    sm_mhz = None if product is None else product.sm_mhz if busy else _IDLE_MHZ
    if sm_mhz is not None and throttled:
        sm_mhz = min(sm_mhz, max(_IDLE_MHZ, sm_mhz / 2))
    drawn_w = 0.0 if product is None else max(0.0, product.power_limit_w - _IDLE_W) * _POWER * busy
    hot = {"thermal_hw", "thermal_sw"} & set(throttled)
    sm, tensor, dram = _activity(gpu, busy)
    used = load.memory_used_bytes + sum(each.memory_used_bytes for _, each in in_migs)
    return Telemetry(
        uuid=gpu.uuid,
        utilization_percent=None if gpu.mig_enabled else load.utilization_percent,
        memory_used_bytes=used,
        memory_free_bytes=_free(used, gpu.memory_bytes),
        memory_reserved_bytes=0,
        power_w=_IDLE_W + drawn_w * (0.6 if throttled else 1.0),
        temperature_c=_HOT_C if hot else _IDLE_C + (_FULL_C - _IDLE_C) * busy,
        nvlink_sent_bytes=nvlink_bytes if gpu.nvlink else None,
        nvlink_received_bytes=nvlink_bytes if gpu.nvlink else None,
        sm_clock_hz=None if sm_mhz is None else sm_mhz * _MHZ,
        memory_clock_hz=None if product is None else product.memory_mhz * _MHZ,
        sm_active_ratio=sm,
        tensor_active_ratio=tensor,
        dram_active_ratio=dram,
        throttled={reason: reason in throttled for reason in THROTTLE_REASONS},
    )


def of_mig(gpu: Gpu, mig: MigDevice, load: Load) -> Telemetry:
    sm, tensor, dram = _activity(gpu, _busy(load))
    return Telemetry(
        uuid=mig.uuid,
        memory_used_bytes=load.memory_used_bytes,
        memory_free_bytes=_free(load.memory_used_bytes, mig.profile.memory_bytes),
        memory_reserved_bytes=0,
        sm_active_ratio=sm,
        tensor_active_ratio=tensor,
        dram_active_ratio=dram,
    )


def shared(read: Telemetry, shares: Mapping[str, int]) -> Telemetry:
    """Memory in use divided among the shares by their sizes (bytes, by claim)."""
    used, total = read.memory_used_bytes, sum(shares.values())
    if used is None or not total:
        return read
    return dataclasses.replace(
        read, memory_by_claim={uid: min(size, used * size // total) for uid, size in shares.items()}
    )


def condition(gpu: Gpu, errors: MemoryErrors) -> GpuCondition:
    """Each uncorrected error takes one row out of use."""
    product = _product(gpu)
    rows = RemappedRows(corrected=0, uncorrected=errors.uncorrected, pending=errors.pending, failed=False)
    return GpuCondition(
        uuid=gpu.uuid,
        power_limit_w=None if product is None else product.power_limit_w,
        nvlink_active_links=None if gpu.nvlink is None else gpu.nvlink.links,
        ecc_corrected=errors.corrected,
        ecc_uncorrected=errors.uncorrected,
        remapped_rows=None if gpu.architecture in _WITHOUT_REMAPPING else rows,
    )


def nvlink_bytes_per_s(gpu: Gpu, load: Load) -> float:
    """In each direction, over all links: what the load says, else as a training job on several GPUs."""
    if gpu.nvlink is None or gpu.mig_enabled:
        return 0.0
    if load.nvlink_bytes_per_second is not None:
        return load.nvlink_bytes_per_second
    return _busy(load) * gpu.nvlink.links * _LINK_BYTES_PER_S


def within(load: Load, memory_bytes: int | None) -> Load:
    """The load with no more memory than a device has."""
    if memory_bytes is None:
        return load
    return Load(
        utilization_percent=load.utilization_percent,
        memory_used_bytes=min(load.memory_used_bytes, memory_bytes),
        nvlink_bytes_per_second=load.nvlink_bytes_per_second,
    )


def _free(used_bytes: int, memory_bytes: int | None) -> int | None:
    return None if memory_bytes is None else max(0, memory_bytes - used_bytes)


def _busy(load: Load) -> float:
    return load.utilization_percent / 100


def _share(gpu: Gpu, mig: MigDevice) -> float:
    return mig.profile.compute_slices / max((each.compute_slices for each in gpu.mig_profiles), default=7)


def _activity(gpu: Gpu, busy: float) -> tuple[float | None, float | None, float | None]:
    if gpu.architecture not in _WITH_ACTIVITY:
        return None, None, None
    return _SM * busy, _TENSOR * busy, _DRAM * busy


def _product(gpu: Gpu) -> _Product | None:
    return next((product for name, product in _PRODUCTS if name in (gpu.product_name or "")), None)
