"""Counts the pods that request devices, and makes the mix of usual requests from them.

"Least loss of future requests" takes the future to be like the past: the mix comes from gangs that arrived, never from those
still to come. Places nothing.
A new mix is made only when `GROWTH` times as many pods were seen as at the last one, since each makes placement score every
node again; from `REMEMBERED` pods on, the older ones count less and less. Anybody's pods are counted: of very many kinds those that
came once are forgotten, and a mix has only so many selectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.inventory.selectors import selector_weight
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
SELECTORS_MAX = 256  # of a mix, by weight: each is evaluated on every device


class WorkloadCounter:
    """Counts pods as they come."""

    def __init__(self) -> None:
        self._counts: dict[tuple[bytes, PodNeeds], int] = {}
        self._specs: dict[bytes, resource.ResourceClaimSpec] = {}
        self._total = 0
        self._cpu = 0
        self._new = 0  # pods since the last mix
        self._due = FIRST  # when they are so many, another is made
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
            self._new += 1
        if len(self._counts) > KINDS_MAX or self._total >= REMEMBERED:
            self._fade()

    @property
    def latest(self) -> Workload | None:
        """The mix that was made last."""
        return self._workload

    def workload(self) -> Workload | None:
        """The latest mix; None before there is one."""
        if self._new >= self._due:
            self._new, self._due = 0, max(self._due, (GROWTH - 1) * self._total)
            counts = ((self._specs[text], needs, count) for (text, needs), count in self._counts.items())
            self._workload = mix(counts, self._cpu)
        return self._workload

    def _fade(self) -> None:
        """Kinds that came once are forgotten. Where very many remain, or many pods were seen, the others count half."""
        many = self._total >= REMEMBERED
        counts = {key: count for key, count in self._counts.items() if count > 1}
        if many or len(counts) > KINDS_MAX // 2:
            counts = {key: count // 2 for key, count in counts.items()}
        self._counts = counts
        self._specs = {text: self._specs[text] for text, _ in counts}
        before, self._total = self._total, sum(counts.values())
        self._cpu = self._cpu * self._total // before
        if many:
            self._due = 0


def mix(counts: Iterable[tuple[resource.ResourceClaimSpec, PodNeeds, int]], cpu: int) -> Workload:
    """The mix of what single kinds of pod request, and how many of each there were; kinds of equal number stay in their order.

    `cpu`: what all pods requested, thousandths of a core.
    """
    ranked = sorted((Demand(*each) for each in counts), key=lambda demand: -demand.count)
    rare = [demand for demand in ranked[DEMANDS_MAX:] if _particular(demand)]
    few = _FewSelectors()
    return Workload(
        tuple(filter(few.take, ranked[:DEMANDS_MAX])),
        rare=tuple(filter(few.take, rare[:RARE_MAX])),
        pods=sum(demand.count for demand in ranked),
        once=sum(demand.count == 1 for demand in ranked),
        cpu=cpu,
    )


class _FewSelectors:
    """Which kinds are in a mix of selectors that weigh SELECTORS_MAX together at most."""

    def __init__(self) -> None:
        self._left = SELECTORS_MAX
        self._known: set[str] = set()

    def take(self, demand: Demand) -> bool:
        requests = (request.exactly for request in demand.spec.devices.requests)
        texts = {each.cel.expression for request in requests if request for each in request.selectors if each.cel}
        weight = selector_weight(texts - self._known)
        if weight > self._left:
            return False
        self._left -= weight
        self._known |= texts
        return True


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
