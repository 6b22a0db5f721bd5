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
LogFormat = Annotated[Literal["json", "text"], typer.Option("--log-format", help="Form of the log lines.")]
LogLevel = Annotated[
    Literal["ERROR", "WARNING", "INFO", "DEBUG"], typer.Option("--log-level", help="Least level shown.")
]


def drivers(given: list[str] | None) -> tuple[str, ...]:
    """What `--managed-driver` means: the drivers given, else ours."""
    return tuple(given or (names.DRIVER,))
