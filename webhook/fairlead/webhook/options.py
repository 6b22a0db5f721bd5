"""The webhook's options, with the flags of `fairlead webhook`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fairlead.api import names
from fairlead.kube.credentials import Kubeconfig
from fairlead.kube.flags import (
    DRIVERS,
    KUBECONFIG,
    ManagedDrivers,
    MetricsBind,
    OtlpEndpoint,
    SharedClaimDrivers,
    TraceRatio,
)


@dataclass(frozen=True, kw_only=True)
class WebhookOptions:
    """What `fairlead webhook` can be told."""

    kubeconfig: Annotated[Kubeconfig, KUBECONFIG] = None
    bind: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where to listen (TLS); /healthz and /readyz are answered here, too."),
    ] = "0.0.0.0:9443"
    url: Annotated[
        str | None, typer.Option(help="Register under this URL, as https://127.0.0.1:9443. Default: by Service.")
    ] = None
    service: Annotated[str, typer.Option(metavar="NAMESPACE/NAME", help="Register as this Service.")] = (
        f"{names.NAMESPACE}/fairlead-webhook"
    )
    managed_drivers: ManagedDrivers = DRIVERS
    shared_claim_drivers: SharedClaimDrivers = ()
    certificate_from: Annotated[
        Path | None,
        typer.Option(
            help="Serve tls.crt and tls.key from this directory, read again when they change (a Secret of cert-manager). "
            "Default: a certificate of its own.",
            exists=True,
            file_okay=False,
        ),
    ] = None
    metrics_bind: MetricsBind = None
    otlp_endpoint: OtlpEndpoint = None
    trace_ratio: TraceRatio = 1.0
    controllers: tuple[str, ...] = (names.CONTROLLER_USER,)
    """Users that may remove the gate, besides those that RBAC lets write allocations."""
