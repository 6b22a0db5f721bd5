"""The mix of pods that usually ask for devices: what placement takes the future to be like.

Frozen values; `placement.workload` counts them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.kube import resource


@dataclass(frozen=True, slots=True)
class Demand:
    """A kind of pod that asks for devices by one claim, and how often it came."""

    spec: resource.ResourceClaimSpec
    needs: PodNeeds
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Most frequent first. Compared by identity: it costs something to take a new one in."""

    demands: tuple[Demand, ...]
