"""DCGM exporter's names, labels and units for the same measurements, for dashboards and alerts that know those. Pure.

As in the exporter, `UUID` and `gpu` of a MIG device are its GPU's, and GPU_I_PROFILE and GPU_I_ID say which part it is.
Only what has the same meaning has an alias. `container` is empty: kubelet does not tell a driver which containers of a
pod use a claim.
Source: NVIDIA/dcgm-exporter, etc/default-counters.csv and internal/pkg/rendermetrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily

from fairlead.driver.metrics.readings import Measured

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


def _rows(device: Measured, name: str) -> float | None:
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
        lambda d: _rows(d, "corrected"),
    ),
    (
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Rows remapped for uncorrectable errors.",
        lambda d: _rows(d, "uncorrected"),
    ),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether a remapping failed.", lambda d: _rows(d, "failed")),
    ("DCGM_FI_PROF_SM_ACTIVE", "Ratio of SMs with work.", lambda d: d.telemetry.sm_active_ratio),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of time tensor cores work.", lambda d: d.telemetry.tensor_active_ratio),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "Ratio of memory bandwidth used.", lambda d: d.telemetry.dram_active_ratio),
)


def families(
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
