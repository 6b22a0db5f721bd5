"""The options of one driver process, with the flags of `fairlead driver`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from fairlead.api.mig_profiles import MigStrategy
from fairlead.api.withheld import Group
from fairlead.driver.backend import links
from fairlead.driver.backend.types import SharedLimits
from fairlead.driver.publish.slices import Offer
from fairlead.kube.credentials import Kubeconfig
from fairlead.kube.flags import KUBECONFIG, SIZE, DynamicMig, Form, MetricsBind, OtlpEndpoint

LEVELS_MAX = 8


def _levels(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(each) for each in text.split(",") if each.strip())
    except ValueError:
        found = (0.0,)
    if len(found) > LEVELS_MAX or not all(0 < each <= 100 for each in found):
        raise ValueError(
            f"{text[:80]!r} is no list of utilisations: write up to {LEVELS_MAX} percentages above 0 up to 100, such as 1,10,20"
        )
    return found


LEVELS = Form(_levels, lambda levels: ",".join(f"{each:g}" for each in levels))

RAILS = Form(links.parse_rails, links.rails_text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DriverOptions:
    """What `fairlead driver` can be told, and the intervals in which it works, in seconds, which have no flags."""

    node_name: Annotated[str, typer.Option(help="Name of the Node this runs on.", envvar="NODE_NAME")]
    kubeconfig: Annotated[Kubeconfig, KUBECONFIG] = None
    backend: Annotated[str, typer.Option(help="nvml, or simulated:PROFILE (a profile's name or a YAML file).")] = "nvml"
    plugins_dir: Annotated[Path, typer.Option(help="kubelet's directory of plugins.")] = Path(
        "/var/lib/kubelet/plugins"
    )
    registry_dir: Annotated[Path, typer.Option(help="The directory kubelet watches for registrations.")] = Path(
        "/var/lib/kubelet/plugins_registry"
    )
    cdi_dir: Annotated[Path, typer.Option(help="Where the container runtime reads CDI specs.")] = Path("/var/run/cdi")
    driver_root: Annotated[Path, typer.Option(help="Root of the NVIDIA driver's files, as this process sees it.")] = (
        Path("/")
    )
    driver_root_host: Annotated[
        Path | None, typer.Option(help="The same root as the host sees it. Default: --driver-root.")
    ] = None
    mps_dir: Annotated[
        Path | None,
        typer.Option(help="Pipes and shared memory of MPS, the same path on the host. Default: in --plugins-dir."),
    ] = None
    mps_shm_bytes: Annotated[
        int,
        SIZE,
        typer.Option(
            "--mps-shm-size", metavar="QUANTITY", help="What the containers of an MPS claim can write into /dev/shm."
        ),
    ] = 2**30
    """Nothing bounds it on simulated hardware."""
    device_metadata: Annotated[
        bool,
        typer.Option(
            "--device-metadata/--no-device-metadata", help="Give containers a file with their devices' attributes."
        ),
    ] = True
    pod_uid: Annotated[
        str | None,
        typer.Option(help="This pod's UID: sockets get names of their own for rolling updates.", envvar="POD_UID"),
    ] = None
    dynamic_mig: DynamicMig = False
    shared_gpus: Annotated[
        bool,
        typer.Option("--shared-gpus", help="Let a whole GPU be in several claims, each with a part of its memory."),
    ] = False
    shared_mig: Annotated[
        bool,
        typer.Option("--shared-mig", help="The same of MIG devices that are there, not of those made on demand."),
    ] = False
    shared_replicas: Annotated[
        int,
        typer.Option(
            min=1, max=128, help="Of a shared device a claim that does not say how much gets one of so many shares."
        ),
    ] = 1
    shared_limits: Annotated[
        SharedLimits,
        typer.Option(
            help="What holds a share to its limits where neither its claim nor its class says so: none, or MPS."
        ),
    ] = "none"
    dcgm_metrics: Annotated[bool, typer.Option("--dcgm-metrics", help="Serve GPU metrics under DCGM's names, too.")] = (
        False
    )
    node_labels_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write node labels as GPU feature discovery's into this directory of Node Feature Discovery's features.",
        ),
    ] = None
    mig_strategy: Annotated[
        MigStrategy,
        typer.Option(help="How these labels, and the attribute resourceName, show MIG devices, as the device plugin."),
    ] = "none"
    mig_config_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="MIG layouts, of which the node's label nvidia.com/mig.config chooses one, as NVIDIA's MIG manager.",
        ),
    ] = None
    rails: Annotated[
        tuple[tuple[str, int], ...],
        RAILS,
        typer.Option(
            metavar="PCI=RAIL,…",
            help="Which rail of the fabric GPUs are on, where their PCIe switches do not tell: 0000:18:00.0=0,0000:3a:00.0=1.",
        ),
    ] = ()
    device_usage: Annotated[
        bool,
        typer.Option(
            "--device-usage/--no-device-usage", help="Write into claims' statuses whether their devices are busy."
        ),
    ] = True
    idle_below: Annotated[
        float, typer.Option(min=0, max=100, metavar="PERCENT", help="A device of less utilisation than this is idle,")
    ] = 5.0
    idle_window_s: Annotated[
        float, typer.Option("--idle-window", min=30, metavar="SECONDS", help="when it was so for all of this time.")
    ] = 300.0
    idle_levels: Annotated[
        tuple[float, ...],
        LEVELS,
        typer.Option(
            "--idle-levels",
            metavar="PERCENT,…",
            help="Of these levels, too, a claim's status says since when a device is below it (for `idle.below` of queues).",
        ),
    ] = (1.0, 10.0, 20.0)
    metrics_bind: MetricsBind = None
    otlp_endpoint: OtlpEndpoint = None
    mig_settle_s: float = 10.0
    """How long a GPU is left alone between the publication of its taint and a new MIG layout."""
    usage_interval_s: float = 300.0
    """The least between two writes of one claim's usage."""
    hardware_interval_s: float = 5.0
    repair_interval_s: float = 1.0
    repair_quiet_s: float = 10.0
    """The least for which a GPU is watched after the reset of a repair."""
    mps_interval_s: float = 5.0
    orphan_gc_interval_s: float = 120.0
    release_wait_s: float = 30.0
    """How long a prepare waits for devices of a claim that is gone: well within kubelet's 45 s."""
    sync_delay_s: float = 2.0
    self_check_s: float = 15.0
    self_check_timeout_s: float = 5.0

    def __post_init__(self) -> None:
        if self.shared_limits != "none" and not (self.shared_gpus or self.shared_mig):
            raise typer.BadParameter(
                f"{self.shared_limits}: no device of this node is shared; add --shared-gpus or --shared-mig, or remove it",
                param_hint="--shared-limits",
            )

    @property
    def offer(self) -> Offer:
        return Offer(
            dynamic_mig=self.dynamic_mig,
            shared=self.shared_gpus,
            shared_mig=self.shared_mig,
            replicas=self.shared_replicas,
            mig_strategy=self.mig_strategy,
            rails=self.rails,
        )

    @property
    def wanted(self) -> frozenset[Group]:
        """The fields of slices that this node needs."""
        needed: dict[Group, bool] = {
            "counters": self.dynamic_mig,
            "taints": True,
            "shares": self.shared_gpus or self.shared_mig,
        }
        return frozenset(group for group, is_needed in needed.items() if is_needed)
