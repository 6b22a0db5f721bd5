"""The options of one driver process: the flags of `fairlead driver` by the same names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from fairlead.api.withheld import Group
from fairlead.driver.publish.resource_names import MigStrategy
from fairlead.kube.credentials import Kubeconfig
from fairlead.kube.quantity import Quantity

MPS_SHM_SIZE = "1Gi"
IDLE_LEVELS = (1.0, 10.0, 20.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverOptions:
    """`backend` is "nvml", or "simulated:" and a profile's name or file. `pod_uid` makes rolling updates possible.

    `dynamic_mig` publishes every MIG placement of GPUs without MIG devices, and creates MIG devices on demand.
    `shared_gpus` lets a whole GPU be in several claims at once, each with a part of its memory, `shared_mig` a MIG device
    that was not made for a claim. `dcgm_metrics` adds
    DCGM's names. `driver_root` is where this process finds NVIDIA's driver, `driver_root_host` where the host does, if
    that differs. `mps_dir` (default: in the driver's own directory) has to be the same path on the host. `mps_shm_size`
    is a quantity: what the containers of one MPS claim can write into their /dev/shm; nothing bounds it on simulated
    hardware.
    `node_labels_dir` is where labels as GPU feature discovery's are written for Node Feature Discovery; None: nowhere. `mig_strategy`
    says how they show MIG devices, and under which extended resources devices are published.
    `mig_config_file` holds MIG layouts, of which a label of the node chooses one; a GPU that is to be cut is left alone for
    `mig_settle_s` after its taint is published.
    `otlp_endpoint` is where a span of each prepared claim goes, where the claim's annotation names a trace.
    `device_metadata` gives containers a file with their devices' attributes.
    `device_usage` writes into claims' statuses whether their devices are busy: idle is what was below `idle_below` percent
    for all of `idle_window_s`, and since when it is below each of `idle_levels` is written, too; a claim is written at most once per `usage_interval_s`.
    A prepare waits `release_wait_s` for devices of a claim that is gone: well within kubelet's 45 s.
    After the reset of a repair a GPU is watched for `repair_quiet_s` at least.
    """

    node_name: str
    plugins_dir: Path
    registry_dir: Path
    cdi_dir: Path
    kubeconfig: Kubeconfig = None
    backend: str = "nvml"
    metrics_bind: str | None = None
    pod_uid: str | None = None
    driver_root: Path = Path("/")
    driver_root_host: Path | None = None
    mps_dir: Path | None = None
    mps_shm_size: str = MPS_SHM_SIZE
    device_metadata: bool = True
    dynamic_mig: bool = False
    shared_gpus: bool = False
    shared_mig: bool = False
    shared_replicas: int = 1
    dcgm_metrics: bool = False
    node_labels_dir: Path | None = None
    mig_strategy: MigStrategy = "none"
    mig_config_file: Path | None = None
    mig_settle_s: float = 10.0
    otlp_endpoint: str | None = None
    device_usage: bool = True
    idle_below: float = 5.0
    idle_window_s: float = 300.0
    idle_levels: tuple[float, ...] = IDLE_LEVELS
    usage_interval_s: float = 300.0
    hardware_interval_s: float = 5.0
    repair_interval_s: float = 1.0
    repair_quiet_s: float = 10.0
    mps_interval_s: float = 5.0
    orphan_gc_interval_s: float = 120.0
    release_wait_s: float = 30.0
    sync_delay_s: float = 2.0
    self_check_s: float = 15.0
    self_check_timeout_s: float = 5.0

    @property
    def wanted(self) -> frozenset[Group]:
        """The fields of slices that this node needs."""
        needed: dict[Group, bool] = {
            "counters": self.dynamic_mig,
            "taints": True,
            "shares": self.shared_gpus or self.shared_mig,
        }
        return frozenset(group for group, is_needed in needed.items() if is_needed)

    @property
    def mps_shm_bytes(self) -> int:
        return int(Quantity.of(self.mps_shm_size))
