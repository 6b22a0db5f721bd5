"""Fragmentation of nodes, measured against the usual requests: what a placement on a node would cost future ones.

Brings together the mix (`types.workload`), the nodes with their devices, and the value of leftovers (`leftover`). Ranks what is
possible; never decides what is. Considers devices without counters and CPU here, partitions in `partitions`; requests for several
kinds of device at once, or by several pods, are not ranked.
Where the mix has fewer than two kinds of request every placement costs the same: there is no score, and placement packs.
Compare: fragmentation gradient descent (FGD, Weng et al. 2023).
"""

from __future__ import annotations

from typing import NamedTuple

from fairlead.engine.allocator.requests import CompiledRequest, Compiler
from fairlead.engine.inventory.pool import NodeDevices
from fairlead.engine.placement.model import CandidateNode
from fairlead.engine.placement.shapes import UnitShape
from fairlead.engine.placement.value.leftover import MEMORY_MAX, WHOLE, LeftoverValue, UsualRequest
from fairlead.engine.placement.value.node_leftovers import NodeLeftovers
from fairlead.engine.placement.value.partitions import PartitionScore
from fairlead.engine.placement.value.scarce import NOTHING, Scarce, ScarceRequests
from fairlead.engine.placement.value.workload import CPU, Pace, Seen, cpu_of, single_request
from fairlead.engine.types.pods import Workload

KINDS_MIN = 2  # fewer are no mix
NO_COST = (0, 0, 0)
Profile = tuple[int, ...]  # thousandths of a device that each usual request takes on a node; 0: it can't run there


class _Wanted(NamedTuple):
    """What a shape takes; `ranked` False: not what is measured here."""

    request: CompiledRequest | None = None
    devices: int = 0
    cpu: int = 0  # thousandths of a core
    ranked: bool = True


class FragmentationScore:
    """One mix on the cluster as it is, refreshed when nodes change; for one placer, whose ledger `leftovers` reads."""

    def __init__(self, usual: list[tuple[CompiledRequest, int, float]], seen: Seen, leftovers: NodeLeftovers) -> None:
        """`usual`: request, CPU (thousandths of a core), and its part of the mix."""
        self._usual = usual
        self._seen = seen
        self._node_snapshot = leftovers.node_snapshot
        self.leftovers = leftovers
        self._profiles: dict[CandidateNode, tuple[NodeDevices, Profile]] = {}
        self._valued: dict[CandidateNode, tuple[NodeDevices, LeftoverValue | None]] = {}  # as `_values`, by node
        self._wanted: dict[UnitShape, _Wanted] = {}
        self._parts: list[float] = []
        self._values: dict[Profile, LeftoverValue] = {}
        self.partitions = PartitionScore(usual, leftovers.node_snapshot, leftovers.ledger)
        self._judged: frozenset[Profile] = frozenset()
        self.ahead = ScarceRequests((), self.leftovers)
        self._pace = Pace(0.0, 0.0)
        self.scarce: Scarce = NOTHING  # as of `look`
        self.refresh()

    @classmethod
    def of(cls, workload: Workload | None, compiler: Compiler, leftovers: NodeLeftovers) -> FragmentationScore | None:
        if workload is None:
            return None
        kinds: dict[tuple[object, int, int], tuple[CompiledRequest, int, int]] = {}
        for demand in workload.demands:
            request = single_request(demand.spec, compiler)
            if request is not None:
                cpu = cpu_of(demand.needs)
                key = (request.filter, request.count, cpu)
                known = kinds.get(key, (request, cpu, 0))
                kinds[key] = (known[0], cpu, known[2] + demand.count)
        total = sum(count for _, _, count in kinds.values())
        if len(kinds) < KINDS_MIN:
            return None
        usual = [(request, cpu, count / total) for request, cpu, count in kinds.values()]
        return cls(usual, Seen.of(workload, compiler), leftovers)

    def cost(self, shape: UnitShape, node: CandidateNode, scarce: Scarce) -> tuple[int, int, int]:
        """(taken of scarce requests, waste, loss) of one unit of this shape there; low is better. The unit is likely to fit."""
        found = self._cost(shape, node, scarce)
        if found is None:
            of_partitions = self.partitions.cost(shape, node)
            return NO_COST if of_partitions is None else (0, *of_partitions)
        taken, waste, loss, _ = found
        return taken, waste, loss

    def leftover(self, shape: UnitShape, node: CandidateNode) -> int:
        """What the unit's shared device should have left, in thousandths; 0: any."""
        found = self._cost(shape, node, NOTHING)
        return 0 if found is None else found[3]

    # ------------------------------------------------------------------------------------------------------ one node

    def _cost(self, shape: UnitShape, node: CandidateNode, scarce: Scarce) -> tuple[int, int, int, int] | None:
        known = self._valued.get(node)
        if known is None or known[0] is not node.devices:
            known = self._valued[node] = (node.devices, self._values.get(self._profile(node)))
        value = known[1]
        if value is None and not scarce.classes:
            return None
        wanted = self._wanted.get(shape)
        if wanted is None:
            if len(self._wanted) >= MEMORY_MAX:
                self._wanted.clear()
            wanted = self._wanted[shape] = _wanted(shape)
        if not wanted.ranked:
            return None
        count, share = wanted.devices, 0
        leftovers, cpu = self.leftovers.state(node)
        if wanted.request is not None:
            share = self.leftovers.share(node, wanted.request)
            if not share or len(leftovers) < count or (count and leftovers[-count] < share):
                return None
        waste = loss = leftover = taken = 0
        if value is not None:
            waste, loss, leftover = value.cost(leftovers, cpu, count=count, share=share, wanted_cpu=wanted.cpu)
        if scarce.classes:
            taken = self.ahead.taken(node, leftovers, cpu, count, share, wanted.cpu, leftover, scarce)
        return taken, waste, loss, leftover

    def _profile(self, node: CandidateNode) -> Profile:
        found = self._profiles.get(node)
        if found is None or found[0] is not node.devices:
            profile = tuple([self.leftovers.share(node, request) for request, _, _ in self._usual])
            found = self._profiles[node] = (node.devices, profile)
        return found[1]

    # -------------------------------------------------------------------------------------------------- the cluster

    def refresh(self) -> bool:
        """Read the nodes again, as they came, went or changed; True when that changes the score of any.

        Makes a LeftoverValue for each kind of node. Requests that few nodes serve weigh more.
        """
        kinds: dict[tuple[Profile, int, int], int] = {}
        self.partitions.forget_gone()
        self.leftovers.forget_gone()
        if len(self._profiles) > 2 * len(self._node_snapshot.all):
            self._profiles.clear()
            self._valued.clear()
        for node in self._node_snapshot.all:
            key = (self._profile(node), len(self.leftovers.devices(node)), node.info.allocatable.get(CPU, 0))
            kinds[key] = kinds.get(key, 0) + 1
        renewed = self._refresh_ahead(kinds)
        capacity = [0] * len(self._usual)
        devices = 0
        requests: dict[Profile, tuple[UsualRequest, ...]] = {}
        for (profile, whole, cpu), number in kinds.items():
            devices += number * whole
            if profile not in requests:
                requests[profile] = tuple(
                    UsualRequest(request.count, share, wanted_cpu, part)
                    for (request, wanted_cpu, part), share in zip(self._usual, profile, strict=True)
                )
            for index, usual in enumerate(requests[profile]):
                if usual.share:
                    capacity[index] += number * usual.size * usual.copies((WHOLE,) * whole, cpu)
        # Two digits are enough, and spare a look at every node whenever one comes or goes.
        parts = [float(f"{max(amount / (devices * WHOLE), 0.001):.1e}") if devices else 1.0 for amount in capacity]
        if parts == self._parts and requests.keys() <= self._judged:
            return renewed
        self._parts = parts
        self._judged = frozenset(requests)
        self._values = {}
        self._valued.clear()
        for profile, of_profile in requests.items():
            able = [(usual, part) for usual, part in zip(of_profile, parts, strict=True) if usual.share]
            if able:
                weights = [usual.frequency / (usual.size / WHOLE) ** 0.5 / part / WHOLE for usual, part in able]
                self._values[profile] = LeftoverValue(tuple(usual for usual, _ in able), weights)
        return True

    def _refresh_ahead(self, kinds: dict[tuple[Profile, int, int], int]) -> bool:
        """The requests ahead, and what a pod takes on average; True when the former are others now."""
        sizes, weights = [0.0] * len(self._usual), [0.0] * len(self._usual)
        for (profile, whole, _), number in kinds.items():
            for index, share in enumerate(profile):
                if share:
                    sizes[index] += number * whole * share * self._usual[index][0].count
                    weights[index] += number * whole
        mean = sum(
            part * size / weight
            for (_, _, part), size, weight in zip(self._usual, sizes, weights, strict=True)
            if weight
        )
        self._pace = Pace(mean, self._seen.cpu, self._seen.pods)
        ahead = self._seen.with_new(sorted({(whole, _three_digits(cpu)) for _, whole, cpu in kinds if whole > 1}))
        if ahead == self.ahead.kinds:
            return False
        self.ahead = ScarceRequests(ahead, self.leftovers)
        return True

    def look(self) -> None:
        """At the start of a decision: which demand classes are scarce."""
        self.scarce = self.ahead.look(self._pace)


def _wanted(shape: UnitShape) -> _Wanted:
    if len(shape.needs) != 1 or (shape.claims and not shape.plain):
        return _Wanted(ranked=False)
    cpu = cpu_of(shape.needs[0])
    if not shape.claims:
        return _Wanted(cpu=cpu)
    request = shape.claims[0].alternatives[0][0]
    return _Wanted(request, request.count, cpu)


def _three_digits(amount: int) -> int:
    """Rounded down: nodes of one kind do not have the same CPU to the thousandth."""
    unit = int(10 ** max(len(str(amount)) - 3, 0))
    return amount // unit * unit
