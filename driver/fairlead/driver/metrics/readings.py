"""The devices of the last poll, each with all that is known of it, under our names and DCGM's: one row per metric. Pure.

Labels of ours are `device` and `uuid`, of a GPU or a MIG device, and at most one more with a closed set of values. What the
hardware does not tell has no series.

Under the names, labels and units of DCGM's exporter stands only what has the same meaning, for dashboards and alerts that know those. As
there, `UUID` and `gpu` of a MIG device are its GPU's, and GPU_I_PROFILE and GPU_I_ID say which part it is. `container` is empty: kubelet
does not tell a driver which containers of a pod use a claim.
Source: NVIDIA/dcgm-exporter, etc/default-counters.csv and internal/pkg/rendermetrics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from fairlead.driver.backend import device_names
from fairlead.driver.backend.types import Gpu, GpuCondition, Inventory, MigDevice, Telemetry
from fairlead.driver.publish.known_faults import XidCounts

Family = GaugeMetricFamily | CounterMetricFamily
_Values = Mapping[str, float | None]


@dataclasses.dataclass(frozen=True, slots=True)
class _Reading:
    """One series per device; with `label`, one for each of its values. `name` of a counter is without `_total`."""

    name: str
    text: str
    values: Callable[[Measured], float | None] | Callable[[Measured], _Values]
    label: str | None = None
    counter: bool = False


def _throttled(device: Measured) -> _Values:
    return {reason: float(holds) for reason, holds in device.telemetry.throttled.items()}


def _ecc(device: Measured) -> _Values:
    return {"corrected": device.condition.ecc_corrected, "uncorrected": device.condition.ecc_uncorrected}


def _rows(device: Measured) -> _Values:
    rows = device.condition.remapped_rows
    if rows is None:
        return {}
    return {
        "corrected": rows.corrected,
        "uncorrected": rows.uncorrected,
        "pending": float(rows.pending),
        "failed": float(rows.failed),
    }


_P = "fairlead_driver_gpu_"
READINGS = (
    _Reading(_P + "memory_bytes", "Memory there is.", lambda d: d.memory_bytes),
    _Reading(
        _P + "utilization_percent", "Part of the time that a kernel ran.", lambda d: d.telemetry.utilization_percent
    ),
    _Reading(_P + "memory_used_bytes", "Memory in use.", lambda d: d.telemetry.memory_used_bytes),
    _Reading(
        _P + "memory_reserved_bytes",
        "Memory that NVIDIA's driver keeps for itself, neither in use nor free.",
        lambda d: d.telemetry.memory_reserved_bytes,
    ),
    _Reading(_P + "power_watts", "Power drawn.", lambda d: d.telemetry.power_w),
    _Reading(_P + "power_limit_watts", "Power that it may draw.", lambda d: d.condition.power_limit_w),
    _Reading(_P + "temperature_celsius", "Temperature.", lambda d: d.telemetry.temperature_c),
    _Reading(_P + "sm_clock_hertz", "Clock of the multiprocessors.", lambda d: d.telemetry.sm_clock_hz),
    _Reading(_P + "memory_clock_hertz", "Clock of the memory.", lambda d: d.telemetry.memory_clock_hz),
    _Reading(
        _P + "sm_active_ratio",
        "Part of the multiprocessors that had work, mean since the poll before.",
        lambda d: d.telemetry.sm_active_ratio,
    ),
    _Reading(
        _P + "tensor_active_ratio",
        "Part of the time that tensor cores worked, mean since the poll before.",
        lambda d: d.telemetry.tensor_active_ratio,
    ),
    _Reading(
        _P + "dram_active_ratio",
        "Part of the memory's bandwidth that was used, mean since the poll before.",
        lambda d: d.telemetry.dram_active_ratio,
    ),
    _Reading(_P + "throttled", "1 while clocks are held down for this reason, else 0.", _throttled, label="reason"),
    _Reading(_P + "ecc_errors", "ECC errors of its memories over the GPU's life.", _ecc, label="kind", counter=True),
    _Reading(
        _P + "remapped_rows",
        "Rows of memory that were replaced, by kind of error; 1 while one is pending, or failed.",
        _rows,
        label="kind",
    ),
    _Reading(_P + "xids", "Xids since the driver started.", lambda d: d.xids, label="xid", counter=True),
    _Reading(_P + "nvlink_active_links", "NVLinks that are up.", lambda d: d.condition.nvlink_active_links),
    _Reading(
        _P + "nvlink_sent_bytes",
        "Sent over NVLink since NVIDIA's driver was loaded.",
        lambda d: d.telemetry.nvlink_sent_bytes,
        counter=True,
    ),
    _Reading(
        _P + "nvlink_received_bytes",
        "Received over NVLink since then.",
        lambda d: d.telemetry.nvlink_received_bytes,
        counter=True,
    ),
)


def families(devices: Iterable[Measured]) -> Iterator[Family]:
    """A family for each metric, empty where no device tells."""
    devices = tuple(devices)
    for reading in READINGS:
        kind = CounterMetricFamily if reading.counter else GaugeMetricFamily
        labels = ("device", "uuid") if reading.label is None else ("device", "uuid", reading.label)
        family = kind(reading.name, reading.text, labels=labels)
        for device in devices:
            value = reading.values(device)
            by_label = value.items() if isinstance(value, Mapping) else (("", value),)
            for label, each in by_label:
                if each is not None:
                    own = (device.name, device.uuid)
                    family.add_metric(own if reading.label is None else (*own, label), each)
        yield family


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A GPU, or with `mig` a MIG device on it. What is not known is empty; the condition and Xids are of whole GPUs.

    `name` is the device's in the slices.
    """

    name: str
    uuid: str
    gpu: Gpu
    mig: MigDevice | None = None
    memory_bytes: int | None = None
    telemetry: Telemetry
    condition: GpuCondition
    xids: Mapping[str, int] = dataclasses.field(default_factory=dict)
    last_xid: int | None = None


def measured(
    inventory: Inventory, telemetry: Iterable[Telemetry], conditions: Iterable[GpuCondition], xids: XidCounts
) -> list[Measured]:
    """Each GPU, followed by its MIG devices."""
    loads = {reading.uuid: reading for reading in telemetry}
    states = {condition.uuid: condition for condition in conditions}
    found = []
    for gpu in inventory.gpus:
        found.append(
            Measured(
                name=device_names.gpu_name(gpu),
                uuid=gpu.uuid,
                gpu=gpu,
                memory_bytes=gpu.memory_bytes,
                telemetry=loads.get(gpu.uuid) or Telemetry(uuid=gpu.uuid),
                condition=states.get(gpu.uuid) or GpuCondition(uuid=gpu.uuid),
                xids=xids.by_gpu.get(gpu.uuid, {}),
                last_xid=xids.last.get(gpu.uuid),
            )
        )
        found += [
            Measured(
                name=device_names.mig_name(gpu.minor, mig.profile, mig.start),
                uuid=mig.uuid,
                gpu=gpu,
                mig=mig,
                memory_bytes=mig.profile.memory_bytes,
                telemetry=loads.get(mig.uuid) or Telemetry(uuid=mig.uuid),
                condition=GpuCondition(uuid=mig.uuid),
            )
            for mig in gpu.mig_devices
        ]
    return found


# -- under DCGM's names ------------------------------------------------------------------------------------------------

LABELS = (
    "gpu",
    "UUID",
    "pci_bus_id",
    "device",
    "modelName",
    "GPU_I_PROFILE",
    "GPU_I_ID",
    "hostname",
    "namespace",
    "pod",
    "container",
)
_MIB, _MHZ = 2**20, 1_000_000


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _rows_in(device: Measured, name: str) -> float | None:
    rows = device.condition.remapped_rows
    return None if rows is None else float(getattr(rows, name))


_ALIASES: tuple[tuple[str, str, Callable[[Measured], float | None]], ...] = (
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda d: d.telemetry.utilization_percent),
    ("DCGM_FI_DEV_FB_USED", "Memory used (in MiB).", lambda d: _scaled(d.telemetry.memory_used_bytes, _MIB)),
    ("DCGM_FI_DEV_FB_FREE", "Memory free (in MiB).", lambda d: _scaled(d.telemetry.memory_free_bytes, _MIB)),
    (
        "DCGM_FI_DEV_FB_RESERVED",
        "Memory reserved (in MiB).",
        lambda d: _scaled(d.telemetry.memory_reserved_bytes, _MIB),
    ),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", lambda d: d.telemetry.power_w),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", lambda d: d.telemetry.temperature_c),
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock (in MHz).", lambda d: _scaled(d.telemetry.sm_clock_hz, _MHZ)),
    ("DCGM_FI_DEV_MEM_CLOCK", "Memory clock (in MHz).", lambda d: _scaled(d.telemetry.memory_clock_hz, _MHZ)),
    ("DCGM_FI_DEV_XID_ERRORS", "The last Xid.", lambda d: d.last_xid),
    ("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "Corrected ECC errors, lifetime.", lambda d: d.condition.ecc_corrected),
    ("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "Uncorrected ECC errors, lifetime.", lambda d: d.condition.ecc_uncorrected),
    (
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "Rows remapped for correctable errors.",
        lambda d: _rows_in(d, "corrected"),
    ),
    (
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Rows remapped for uncorrectable errors.",
        lambda d: _rows_in(d, "uncorrected"),
    ),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether a remapping failed.", lambda d: _rows_in(d, "failed")),
    ("DCGM_FI_PROF_SM_ACTIVE", "Ratio of SMs with work.", lambda d: d.telemetry.sm_active_ratio),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of time tensor cores work.", lambda d: d.telemetry.tensor_active_ratio),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "Ratio of memory bandwidth used.", lambda d: d.telemetry.dram_active_ratio),
)


def dcgm_families(
    devices: Iterable[Measured], pods: Mapping[str, tuple[str, str]], node: str
) -> Iterator[GaugeMetricFamily]:
    """A family for each alias. `pods` has namespace and pod by the device's UUID."""
    labelled = [(device, _labels(device, pods, node)) for device in devices]
    for name, text, value in _ALIASES:
        # All are gauges: a counter's name would end in _total, which DCGM's do not.
        family = GaugeMetricFamily(name, text, labels=LABELS)
        for device, labels in labelled:
            if (found := value(device)) is not None:
                family.add_metric(labels, found)
        yield family


def _labels(device: Measured, pods: Mapping[str, tuple[str, str]], node: str) -> tuple[str, ...]:
    gpu, mig = device.gpu, device.mig
    namespace, pod = pods.get(device.uuid, ("", ""))
    return (
        str(gpu.minor),
        gpu.uuid,
        _pci_bus_id(gpu.pci_bus_id),
        f"nvidia{gpu.minor}",
        gpu.product_name or "",
        "" if mig is None else mig.profile.name,
        "" if mig is None else str(mig.gi_id),
        node,
        namespace,
        pod,
        "",
    )


def _pci_bus_id(bus_id: str | None) -> str:
    """As NVML prints it, with eight digits of domain and in capitals; ours is as in sysfs."""
    if bus_id is None:
        return ""
    domain, _, rest = bus_id.partition(":")
    return f"{domain:0>8}:{rest}".upper()
