"""The controller's options, with the flags of `fairlead controller`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead.api import names
from fairlead.kube.credentials import Kubeconfig
from fairlead.kube.flags import (
    DRIVERS,
    DURATION,
    KUBECONFIG,
    SIZE,
    ManagedDrivers,
    MetricsBind,
    OtlpEndpoint,
    SharedClaimDrivers,
    TraceRatio,
)


@dataclass(frozen=True, kw_only=True)
class ControllerOptions:
    """What `fairlead controller` can be told; fields without a flag are for tests and measurements."""

    kubeconfig: Annotated[Kubeconfig, KUBECONFIG] = None
    namespace: Annotated[str, typer.Option(help="Namespace of the leader lease.")] = names.NAMESPACE
    identity: Annotated[str | None, typer.Option(help="Name in the lease. Default: host name and a random part.")] = (
        None
    )
    gang_timeout_s: Annotated[
        float,
        typer.Option("--gang-timeout", min=1, help="Seconds a released gang has to be bound, before it goes back."),
    ] = 120.0
    replace_timeout_s: Annotated[
        float,
        typer.Option(
            "--replace-timeout",
            min=1,
            help="Seconds a running gang may be short of a member that is being replaced, before all of it starts again.",
        ),
    ] = 300.0
    lease_s: Annotated[
        float,
        typer.Option("--lease-duration", min=3, help="Seconds until another replica takes a silent leader's place."),
    ] = 15.0
    """A third of it bounds each write."""
    usage_half_life_s: Annotated[
        float,
        DURATION,
        typer.Option("--usage-half-life", help="After this long, what a queue used counts half, such as 7d or 12h."),
    ] = 7 * 86_400.0
    usage_weight: Annotated[
        float,
        typer.Option("--usage-weight", min=0, help="How strongly past use corrects queues' weights; 0: not at all."),
    ] = 1.0
    forecast: Annotated[
        bool,
        typer.Option(
            "--forecast/--no-forecast", help="Forecast the starts of waiting gangs, in a process beside the decisions."
        ),
    ] = True
    nominate_nodes: Annotated[
        bool,
        typer.Option(
            "--nominate-nodes",
            help="Where devices are held for a waiting gang, have kube-scheduler keep cpu and memory for its pods, too (nominatedNodeName).",
        ),
    ] = False
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Record every decision there while leading, for `fairlead replay`.", file_okay=False
        ),
    ] = None
    record_bytes_max: Annotated[
        int,
        SIZE,
        typer.Option("--record-max-size", metavar="QUANTITY", help="The oldest segments are deleted beyond this."),
    ] = 2 * 2**30
    record_age_max_s: Annotated[
        float,
        DURATION,
        typer.Option("--record-max-age", help="Segments older than this are deleted, such as 14d or 12h."),
    ] = 14 * 86_400.0
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|URL",
            help="Account there for the time of every device while leading: a directory, or postgresql://…, for `fairlead cost`.",
            envvar="FAIRLEAD_LEDGER",
        ),
    ] = None
    ledger_keep_s: Annotated[
        float,
        DURATION,
        typer.Option("--ledger-keep", help="What ended longer ago is removed from the ledger, such as 400d."),
    ] = 400 * 86_400.0
    ledger_labels: Annotated[
        tuple[str, ...],
        typer.Option(
            "--ledger-label",
            metavar="NAME",
            help="Keep this label of pods, or of their namespace, with each claim, for `fairlead cost --by label=NAME`; may be repeated.",
        ),
    ] = ()
    opencost: Annotated[
        bool,
        typer.Option(
            help="Show in the metrics which container holds how many GPUs (container_gpu_allocation), by which OpenCost charges them."
        ),
    ] = False
    managed_drivers: ManagedDrivers = DRIVERS
    shared_claim_drivers: SharedClaimDrivers = ()
    metrics_bind: MetricsBind = None
    otlp_endpoint: OtlpEndpoint = None
    trace_ratio: TraceRatio = 1.0
    concurrent_writes: int = 64
    qps: float | None = None
    seed: int | None = None
