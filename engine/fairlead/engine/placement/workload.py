"""Counts the pods that request devices, and makes the mix of usual requests from them.

"Least loss of future requests" takes the future to be like the past: the mix comes from gangs that arrived, never from those
still to come. Places nothing.
A new mix is made only when `GROWTH` times as many pods were seen as at the last one, since each makes placement score every
node again; from `REMEMBERED` pods on, the older ones count less and less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.types.pod_needs import Constraints
from fairlead.engine.types.workload import Demand, Workload
from fairlead.kube.spec_key import spec_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.kube import resource

CPU = "cpu"
FIRST = 32  # pods seen before there is a mix
GROWTH = 2
REMEMBERED = 65_536
DEMANDS_MAX = 64  # most frequent kinds of pod in a mix
RARE_MAX = 64  # kinds of pod beside these that request several devices, or name where they may run
KINDS_MAX = 4_096  # kinds of pod remembered at all


class WorkloadCounter:
    """Counts pods as they come."""

    def __init__(self) -> None:
        self._counts: dict[tuple[bytes, PodNeeds], int] = {}
        self._specs: dict[bytes, resource.ResourceClaimSpec] = {}
        self._total = 0
        self._cpu = 0
        self._due = FIRST
        self._workload: Workload | None = None

    def note(self, gang: GangRequest) -> None:
        """A gang arrived. Of pods without a claim, or with several, only their CPU counts."""
        specs = {claim.key: claim.spec for claim in gang.claims}
        for member in gang.members:
            self._cpu += cpu_of(member.needs)
            if len(member.claims) != 1 or member.claims[0] not in specs:
                continue
            spec = specs[member.claims[0]]
            text = spec_key(spec)
            self._specs.setdefault(text, spec)
            key = (text, member.needs)
            self._counts[key] = self._counts.get(key, 0) + 1
            self._total += 1
        if len(self._counts) > KINDS_MAX or self._total >= REMEMBERED:
            self._fade()

    @property
    def latest(self) -> Workload | None:
        """The mix that was made last."""
        return self._workload

    def workload(self) -> Workload | None:
        """The latest mix; None before there is one."""
        if self._total >= self._due:
            self._due = GROWTH * self._total
            counts = ((self._specs[text], needs, count) for (text, needs), count in self._counts.items())
            self._workload = mix(counts, self._cpu)
        return self._workload

    def _fade(self) -> None:
        self._counts = {key: count // 2 for key, count in self._counts.items() if count > 1}
        self._specs = {text: self._specs[text] for text, _ in self._counts}
        before, self._total = self._total, sum(self._counts.values())
        self._cpu = self._cpu * self._total // before
        self._due = 0


def mix(counts: Iterable[tuple[resource.ResourceClaimSpec, PodNeeds, int]], cpu: int) -> Workload:
    """Of what single kinds of pod request, and how many of each there were; kinds of equal number stay in their order.

    `cpu`: what all pods requested, thousandths of a core.
    """
    ranked = sorted((Demand(*each) for each in counts), key=lambda demand: -demand.count)
    rare = [demand for demand in ranked[DEMANDS_MAX:] if _particular(demand)]
    return Workload(
        tuple(ranked[:DEMANDS_MAX]),
        rare=tuple(rare[:RARE_MAX]),
        pods=sum(demand.count for demand in ranked),
        once=sum(demand.count == 1 for demand in ranked),
        cpu=cpu,
    )


def _particular(demand: Demand) -> bool:
    """Whether it may be scarce: it requests more than one device, or does not run everywhere."""
    return demand.needs.constraints != Constraints() or any(
        request.exactly is not None and (request.exactly.count > 1 or request.exactly.selectors)
        for request in demand.spec.devices.requests
    )


def cpu_of(needs: PodNeeds) -> int:
    """Thousandths of a core that a pod requests."""
    for name, value in needs.requests:
        if name == CPU:
            return value
    return 0
