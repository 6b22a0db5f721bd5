"""The mix of pods that usually request devices: placement takes the future to be like it.

Frozen values; `placement.value.workload` counts them.
"""

from __future__ import annotations

from fairlead.engine.types.fact import Fact
from fairlead.engine.types.pod_needs import PodNeeds
from fairlead.kube import resource


class Demand(Fact, frozen=True):
    """A kind of pod that requests devices by one claim, and how often it arrived."""

    spec: resource.ResourceClaimSpec
    needs: PodNeeds
    count: int


class Workload(Fact, frozen=True, eq=False):
    """Most frequent first. Compared by identity: to use a new one costs a look at every node.

    `rare`: kinds that request several devices, or name where they may run, and are not among `demands`. `pods`: how many pods
    were counted, of all kinds.
    `once`: how many kinds were seen exactly once; `once / pods` estimates how often a pod of a new kind comes (Good, Turing).
    `cpu`: thousandths of a core that these pods requested, and pods that came without a claim.
    """

    demands: tuple[Demand, ...] = ()
    rare: tuple[Demand, ...] = ()
    pods: int = 0
    once: int = 0
    cpu: int = 0
