"""Options that several commands take, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fairlead.api import names

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        help="Cluster to talk to. Default: $KUBECONFIG, the pod's service account, ~/.kube/config.",
        exists=True,
        dir_okay=False,
    ),
]
MetricsBind = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics here. Default: nowhere.")
]
ManagedDrivers = Annotated[
    list[str] | None,
    typer.Option("--managed-driver", help=f"DRA driver whose devices Fairlead allocates. Default: {names.DRIVER}."),
]
DynamicMig = Annotated[
    bool,
    typer.Option("--dynamic-mig", help="Offer every MIG placement of GPUs that are not cut, and cut them on demand."),
]
OtlpEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Export traces of gangs to this OTLP/HTTP receiver, as http://collector:4318; needs fairlead\\[otel]. Default: no traces.",
        envvar="OTEL_EXPORTER_OTLP_ENDPOINT",
    ),
]
TraceRatio = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="Which part of gangs is traced; a user's own traceparent says it for itself.",
        envvar="OTEL_TRACES_SAMPLER_ARG",
    ),
]
LogFormat = Annotated[Literal["json", "text"], typer.Option("--log-format", help="Form of the log lines.")]
LogLevel = Annotated[
    Literal["ERROR", "WARNING", "INFO", "DEBUG"], typer.Option("--log-level", help="Least level shown.")
]


def drivers(given: list[str] | None) -> tuple[str, ...]:
    """What `--managed-driver` means: the drivers given, else ours."""
    return tuple(given or (names.DRIVER,))
