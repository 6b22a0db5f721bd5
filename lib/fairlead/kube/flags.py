"""Flags of the command line, as annotations of options: those that several programs share, and how durations and sizes are written.

A field `Annotated[TYPE, typer.Option(help=…)]` of an options dataclass is a flag (`fairlead.cli.command`); one with a `Form` beside it
is written as text in that form. A field without an option has no flag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import typer

from fairlead.api import names
from fairlead.api.durations import duration_s, written
from fairlead.kube.quantity import Quantity, QuantityError


class Form(NamedTuple):
    """`read` raises ValueError with the next step; `write` shows a default."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]


def _bytes(text: str) -> int:
    try:
        if (size := int(Quantity.of(text))) >= 1:
            return size
    except QuantityError:
        pass
    raise ValueError(f"{text!r} is no size: write a quantity of bytes, such as 1Gi")


def _binary(size: int) -> str:
    suffix, larger = "", ["Ti", "Gi", "Mi", "Ki"]
    while larger and size % 1024 == 0:
        size, suffix = size // 1024, larger.pop()
    return f"{size}{suffix}"


DURATION = Form(duration_s, written)
SIZE = Form(_bytes, _binary)

KUBECONFIG = typer.Option(
    help="Cluster to talk to. Default: $KUBECONFIG, the pod's service account, ~/.kube/config.",
    exists=True,
    dir_okay=False,
)
MetricsBind = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Serve /healthz, /readyz and /metrics here. Default: nowhere.")
]
ManagedDrivers = Annotated[
    tuple[str, ...],
    typer.Option("--managed-driver", help="DRA driver whose devices Fairlead allocates; may be repeated."),
]
DRIVERS = (names.DRIVER,)
SharedClaimDrivers = Annotated[
    tuple[str, ...],
    typer.Option(
        "--shared-claim-driver",
        help="DRA driver that is not managed, and whose devices Fairlead allocates in claims beside managed ones: no other claims use them; may be repeated.",
    ),
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
