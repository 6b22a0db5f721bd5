"""A proof that no nodes take all units of a gang: per node how many of each kind fit at most, and why no more.

The numbers are the allocator's own. A reason is written down only where it lowers a number; devices are listed, and searched
for, only where nothing cheaper rules the units out.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from fairlead.api import certificate as form
from fairlead.engine.allocator import allocate as allocator
from fairlead.engine.allocator.model import ClaimCandidates, SearchStatus
from fairlead.engine.allocator.steps import StepAccount, StepBudget
from fairlead.engine.inventory import node_selector
from fairlead.engine.inventory.nodes import AFFINITY, GOES_SOON, SELECTOR
from fairlead.engine.placement.topology import parse
from fairlead.engine.prove.listing import Listing
from fairlead.engine.types.pod_needs import PODS, ports_clash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead.engine.allocator.candidates import Candidates
    from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.candidate_nodes import CandidateNode
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.queues.cache import SchedulerCache
    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.pod_needs import PodNeeds

STEPS_MAX = 50_000  # of the search on one node; the verifier allows itself twice as many
PROOF_STEPS = 400_000  # of the searches on all nodes
VECTORS_MAX = 512  # combinations of kinds on one node; beyond it they are taken one by one
Vector = tuple[int, ...]


class SearchEndedError(Exception):
    """A search did not end: nothing is known of this node."""


class PlaceProof:
    """Of one gang, on one ledger."""

    def __init__(
        self,
        cache: SchedulerCache,
        ledger: Ledger,
        taken_by: Mapping[Device, str],
        gang: GangRequest,
        units: Sequence[PlacementUnit],
    ) -> None:
        self._gang = gang
        self._steps = StepAccount(PROOF_STEPS)
        self._claims = {claim.key: claim for claim in gang.claims}
        self._cache = cache
        self._nodes = cache.node_snapshot
        self._ledger = ledger
        self._kinds: list[PlacementUnit] = []  # one of each
        self._counts: list[int] = []
        for unit in units:
            shapes = [kind.shape for kind in self._kinds]
            if unit.shape not in shapes:
                self._kinds.append(unit)
                self._counts.append(0)
            self._counts[[kind.shape for kind in self._kinds].index(unit.shape)] += 1
        self._requests: list[CompiledRequest] = [
            request
            for kind in self._kinds
            for claim in kind.shape.claims
            for alternatives in claim.alternatives
            for request in alternatives
        ]
        self._listing = Listing(cache.inventory, self._nodes.selectors, ledger, taken_by, self._requests)

    def proof(self) -> form.Place | None:
        """None where the gang may fit, as far as these bounds can tell."""
        try:
            nodes = {node.name: self._node(node) for node in self._nodes.all}
            domains = self._domains(self._gang)
            proven = [self._domain(value, domains[value], nodes) for value in sorted(domains, key=str)]
        except SearchEndedError:
            return None
        if any(each is None for each in proven):
            return None
        return form.Place(
            units=tuple(self._counts),
            nodes=tuple(nodes.values()),
            domains=tuple(each for each in proven if each is not None),
        )

    def _domains(self, gang: GangRequest) -> dict[str | None, list[CandidateNode]]:
        """The domains that the topology allows; as `TopologyDomains` chooses them."""
        domains = self._cache.domains
        allowed = domains.allowed(parse(gang.topology), domains.nodes(gang.placed_nodes))
        if allowed is None:
            return {None: self._nodes.all}
        return {domain.name: list(domain.nodes) for domain in allowed}

    # -- a domain

    def _domain(
        self, value: str | None, among: Sequence[CandidateNode], nodes: Mapping[str, form.NodeProof]
    ) -> form.Domain | None:
        kinds = range(len(self._kinds))
        most = tuple(sum(nodes[node.name].most[kind] for node in among) for kind in kinds)
        domain = form.Domain(domain=value, most=most)
        if any(most[kind] < self._counts[kind] for kind in kinds):
            return domain
        if len(self._kinds) > 1 and not self._reachable(among, nodes):
            return domain
        together = self._listing.of(node.devices for node in among)
        least = sum(kind.shape.least * count for kind, count in zip(self._kinds, self._counts, strict=True))
        free = set(together.free)
        shared = any(
            device.shared and (device.pool.driver, device.pool.name, device.name) in free
            for node in among
            for device in node.devices.devices
        )
        if shared or any(request.admin for request in self._requests) or len(free) >= least:
            return None
        return form.Domain(domain=value, most=most, because=together)

    def _reachable(self, among: Sequence[CandidateNode], nodes: Mapping[str, form.NodeProof]) -> bool:
        """Whether the nodes may take all units together, kinds on one node seen together."""
        goal = tuple(self._counts)
        front = {tuple(0 for _ in goal)}
        for node in among:
            proof = nodes[node.name]
            vectors = list(product(*(range(count + 1) for count in proof.most)))
            if len(vectors) <= VECTORS_MAX and any(isinstance(each, form.Devices) for each in proof.because):
                vectors = [vector for vector in vectors if self._devices_fit(node, vector)]
            else:
                vectors = [proof.most]
            sums = {tuple(min(a + b, g) for a, b, g in zip(x, y, goal, strict=True)) for x in front for y in vectors}
            front = {x for x in sums if not any(x != y and all(map(int.__le__, x, y)) for y in sums)}
        return goal in front

    # -- a node

    def _node(self, node: CandidateNode) -> form.NodeProof:
        because: list[form.Bound] = []
        most = list(self._counts)
        local = node.devices.local_only or all(device.local for device in node.devices.devices)
        for number, kind in enumerate(self._kinds):
            refused = self._refused(node, number, kind) if local or len(kind.members) == 1 else None
            if refused is not None:
                because.append(refused)
                most[number] = 0
        if local or all(len(kind.members) == 1 for kind in self._kinds):
            because += self._rooms(node, most)
        exact = [self._fitting(node, number, count) for number, count in enumerate(most)]
        if exact != most or (len(most) > 1 and sum(map(bool, exact)) > 1 and self._requests):
            because.append(self._listing.of((node.devices,)))
        return form.NodeProof(node=node.name, most=tuple(exact), because=tuple(because))

    def _refused(self, node: CandidateNode, number: int, kind: PlacementUnit) -> form.Refused | None:
        for pod, needs in enumerate(kind.shape.needs):
            why = self._refusal(node, needs)
            if why is not None:
                return form.Refused(unit=number, pod=pod, by=why[0], what=why[1])
        for member in kind.members:
            for key in member.claims:
                allocation = self._claims[key].allocation
                selector = None if allocation is None else allocation.node_selector
                if selector is not None and not node_selector.matches(selector, node.name, node.info.labels):
                    return form.Refused(unit=number, pod=0, by="Claim", what=key)
        return None

    def _refusal(self, node: CandidateNode, needs: PodNeeds) -> tuple[str, str] | None:
        info = node.info
        why = info.refuses(needs)
        if why is not None and why.startswith(GOES_SOON):
            why = None  # a verifier reads of a node what kube-scheduler does: a notice proves nothing
        match why:
            case (
                None | "volumes that are elsewhere"
            ):  # what a verifier reads of a cluster does not show volumes: they prove nothing
                taken = [*self._ledger.ports.get(info, ()), *(port for each in info.ports.values() for port in each)]
                port = ports_clash(needs.ports, taken)
                return None if port is None else ("Port", f"{port[2]}/{port[0]}")
            case "not ready":
                return "NotReady", ""
            case "unschedulable":
                return "Unschedulable", ""
        if why.startswith(SELECTOR):
            return "NodeSelector", next(k for k, value in needs.node_selector if info.labels.get(k) != value)
        if why.startswith(AFFINITY):
            return "Affinity", ""
        return "Taint", why.removeprefix("untolerated taint ")

    def _rooms(self, node: CandidateNode, most: list[int]) -> list[form.Room]:
        """Each resource that allows fewer units than those before it, and lowers `most`."""
        found: list[form.Room] = []
        wants: list[dict[str, int]] = []
        for kind in self._kinds:
            wants.append({})
            for needs in kind.shape.needs:
                for name, value in needs.requests:
                    wants[-1][name] = wants[-1].get(name, 0) + value
        for name in sorted({name for each in wants for name in each}):
            if name == PODS and not node.info.allocatable:
                continue
            left = self._ledger.left(node.info, name)
            lowered = [
                min(count, max(left, 0) // each[name]) if each.get(name) else count
                for count, each in zip(most, wants, strict=True)
            ]
            if lowered != most:
                found.append(form.Room(resource=name, left=left, wants=tuple(each.get(name, 0) for each in wants)))
                most[:] = lowered
        return found

    # -- devices

    def _fitting(self, node: CandidateNode, number: int, most: int) -> int:
        """How many units of the kind find devices there, up to `most`."""
        count = 0
        while count < most and self._devices_fit(
            node, tuple(count + 1 if other == number else 0 for other in range(len(self._kinds)))
        ):
            count += 1
        return count

    def _devices_fit(self, node: CandidateNode, vector: Vector) -> bool:
        claims = [
            self._candidates(claim, node)
            for kind, count in zip(self._kinds, vector, strict=True)
            for _ in range(count)
            for claim in kind.shape.claims
        ]
        if not claims:
            return True
        if len(claims) > 1 and self._takes_what_is_left(node):
            raise SearchEndedError  # what `All` means then depends on which claim comes first
        found = allocator.allocate(claims, self._ledger, StepBudget(STEPS_MAX, account=self._steps, counts=False))
        if found.status is SearchStatus.BUDGET_ENDED:
            raise SearchEndedError
        for picks in found.picks:
            allocator.release(picks, self._ledger)
        return found.status is SearchStatus.FOUND

    def _takes_what_is_left(self, node: CandidateNode) -> bool:
        """Whether a request wants all of some devices that can be shared."""
        return any(
            device.shared
            for request in self._requests
            if request.all
            for device in self._nodes.candidates(node, request).devices
        )

    def _candidates(self, claim: CompiledClaim, node: CandidateNode) -> ClaimCandidates:
        def candidates(request: CompiledRequest) -> Candidates:
            return self._nodes.candidates(node, request)

        return ClaimCandidates(claim, candidates, lambda _, found: found.devices)
