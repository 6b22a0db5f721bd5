"""The series `container_gpu_allocation`, by which a stock OpenCost charges claims of devices. Pure.

OpenCost counts the GPUs of pods from requests for `nvidia.com/gpu`, which pods with ResourceClaims do not have. Where this series exists
it is taken instead (opencost/opencost, pkg/costmodel/allocation.go: queryFmtGPUsAllocated; allocation_helpers.go: applyGPUsAllocated),
by container, pod, namespace and node. A claim that several pods or containers share is divided evenly among them, so that the sum over
all series is what is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

NAME: Final = "container_gpu_allocation"
HELP: Final = (
    "GPUs that containers hold through ResourceClaims, in whole devices; claims that are shared are divided evenly."
)


class Container(NamedTuple):
    pod: str
    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldClaim:
    """An allocated claim: its part of whole devices, and the containers of the pods in its status.reservedFor that use it."""

    namespace: str
    node: str
    gpus: Fraction
    containers: tuple[Container, ...] = ()


class Series(NamedTuple):
    container: str
    pod: str
    namespace: str
    node: str
    value: float


def series(held: Iterable[HeldClaim]) -> list[Series]:
    """In the order of their labels. Claims without a container or a node are left out: OpenCost cannot charge them."""
    found = dict[tuple[str, str, str, str], Fraction]()
    for claim in held:
        users = sorted({each for each in claim.containers if each.container and each.pod})
        if not claim.node:
            continue
        for user in users:
            key = (user.container, user.pod, claim.namespace, claim.node)
            found[key] = found.get(key, Fraction(0)) + claim.gpus / len(users)
    return [Series(*key, float(value)) for key, value in sorted(found.items())]


def lines(held: Iterable[HeldClaim]) -> list[str]:
    """In Prometheus' text format, with HELP and TYPE."""
    made = [
        f'{NAME}{{container="{_escaped(each.container)}",pod="{_escaped(each.pod)}",namespace="{_escaped(each.namespace)}",'
        f'node="{_escaped(each.node)}"}} {each.value!r}'
        for each in series(held)
    ]
    return [f"# HELP {NAME} {HELP}", f"# TYPE {NAME} gauge", *made]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
