"""The controller's options, as the command line and tests give them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fairlead.api import names
from fairlead.kube.credentials import Kubeconfig


@dataclass(frozen=True, kw_only=True)
class ControllerOptions:
    """`lease_s`: how long the lease lasts of a leader that ended; a third of it bounds each write."""

    kubeconfig: Kubeconfig = None
    namespace: str = names.NAMESPACE
    identity: str | None = None
    metrics_bind: str | None = None
    managed_drivers: tuple[str, ...] = (names.DRIVER,)
    gang_timeout_s: float = 120.0
    replace_timeout_s: float = 300.0  # how long a running gang may be short of members that are being replaced
    usage_half_life_s: float = 7 * 86_400.0  # after this long, past use of a queue counts half
    usage_weight: float = 1.0  # how strongly past use corrects weights; 0: not at all
    lease_s: float = 15.0
    forecast: bool = True  # the starts of waiting gangs, in a process beside the loop
    nominate_nodes: bool = False  # room for cpu and memory is kept where devices are held for a gang
    concurrent_writes: int = 64
    qps: float | None = None
    seed: int | None = None
    record: Path | None = None  # decisions are recorded into this directory
    record_bytes_max: int = 2 * 2**30
    record_age_max_s: float = 14 * 86_400.0
    ledger: str | None = None  # where devices' time is accounted: a directory, or a postgresql:// URL
    ledger_keep_s: float = 400 * 86_400.0
    ledger_labels: tuple[str, ...] = ()  # of pods or their namespaces, kept with each claim
    otlp_endpoint: str | None = None  # where spans of gangs are exported to
    trace_ratio: float = 1.0  # which part of gangs is traced where neither user nor webhook says, 0 to 1
    opencost: bool = False  # the series by which OpenCost charges claims
