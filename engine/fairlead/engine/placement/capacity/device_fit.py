"""For one list of claims, which nodes have devices for it: followed once for all shapes that differ only in what the pods need.

Tenants may submit thousands of pods that all differ, by a thousandth of a core for instance. Whether a node has the devices is
the same question for all of them; on a full cluster it is the only one, and it is answered once.

Example: 3,000 pods for one GPU each, no two alike, and 200 nodes without a free GPU: 200 looks at a node, not 600,000.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from fairlead.engine.allocator.candidates import Candidates, known_candidates
from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.placement.model import CandidateNode, NodeSnapshot

FEW = 8  # requests, of which no sum is taken: the allocator sees soon that they do not fit together


class Spare(NamedTuple):
    """`rank`: of the alternatives that may fit, summed over requests; `left`: free devices that would be left over; `size`: of
    MIG devices that were cut beforehand, how large those are that it takes, in thousandths of a GPU; 0: no such devices.
    """

    rank: int
    left: int
    size: int = 0


class DeviceFit:
    """Which nodes may have a unit's devices, by one ledger. Keeps: after `catch_up`, `nodes` are those that may have the devices, as of their latest change."""

    def __init__(self, claims: tuple[CompiledClaim, ...], node_snapshot: NodeSnapshot, ledger: Ledger) -> None:
        self.nodes: dict[CandidateNode, Spare] = {}
        self._requests = tuple(alternatives for claim in claims for alternatives in claim.alternatives)
        self._least = sum(min(each.count for each in alternatives) for alternatives in self._requests)
        self._node_snapshot = node_snapshot
        self._ledger = ledger
        self._cursor = -1

    def catch_up(self) -> None:
        """Look again at the nodes that changed; at all of them where devices are network-attached."""
        log = self._node_snapshot.log
        if self._cursor == log.cursor:
            return
        changed: Iterable[CandidateNode] | None = log.since(self._cursor)
        self._cursor = log.cursor
        if changed is None or self._node_snapshot.has_network_attached:
            self.nodes.clear()
            changed = self._node_snapshot.all
        by_name = self._node_snapshot.by_name
        for node in dict.fromkeys(changed):
            spare = self.spare(node) if by_name.get(node.name) is node else None
            if spare is None:
                self.nodes.pop(node, None)
            else:
                self.nodes[node] = spare

    def spare(self, node: CandidateNode) -> Spare | None:
        """The node's spare devices now, tentative changes included; None when it certainly lacks devices."""
        rank = left = size = 0
        for alternatives in self._requests:
            found = self._first_fit(node, alternatives)
            if found is None:
                return None
            rank += found.rank
            left += found.left
            size += found.size
        if len(self._requests) > FEW and self._counted_out(node):
            return None
        return Spare(rank, left, size)

    def _counted_out(self, node: CandidateNode) -> bool:
        """Whether all requests together want more devices than are free for any of them."""
        free: set[Device] = set()
        seen: set[object] = set()
        for request in (each for alternatives in self._requests for each in alternatives):
            if request.admin:
                return False
            if request.filter not in seen:
                seen.add(request.filter)
                found = self._node_snapshot.candidates(node, request)
                if found.consumption:
                    return False
                free.update(device for device in found.devices if self._ledger.free(device))
        return self._least > len(free)

    def _first_fit(self, node: CandidateNode, alternatives: tuple[CompiledRequest, ...]) -> Spare | None:
        for rank, request in enumerate(alternatives):
            found = known_candidates(node.devices, request.filter)
            if found is None:
                if self._too_few(node, request):
                    continue
                found = self._node_snapshot.candidates(node, request)
            if request.all:
                if found.all_problem is None:
                    return Spare(rank, 0)
                continue
            if len(found.devices) < request.count:
                continue
            free = self.free(request, found)
            if free >= request.count:
                return Spare(rank, free - request.count, self._size(request, found) if found.sizes else 0)
        return None

    def _size(self, request: CompiledRequest, found: Candidates) -> int:
        """The size of the smallest free devices, as many as requested."""
        ledger = self._ledger
        free = [size for device, size in found.sizes.items() if ledger.free(device)]
        return sum(sorted(free)[: request.count])

    def _too_few(self, node: CandidateNode, request: CompiledRequest) -> bool:
        """Whether fewer devices are free than it asks for, whatever they are: its selectors need not be evaluated then."""
        if request.all or request.admin:
            return False  # not to be told so
        free = filter(self._ledger.free, node.devices.devices)
        return len(list(islice(free, request.count))) < request.count

    def free(self, request: CompiledRequest, found: Candidates) -> int:
        ledger = self._ledger
        if request.admin:
            return sum(map(ledger.exists, found.devices))
        if found.plain:
            taken = ledger.taken
            if ledger.empty:
                return sum(device not in taken for device in found.devices)
            if ledger.releasing or ledger.released:
                return sum(ledger.free(device) for device in found.devices)
            return sum(device.use is None and device not in taken for device in found.devices)
        number, used = 0, ledger.used
        for device in found.devices:
            if device.use is None and device not in used and device.shared and not device.counter_consumption:
                number += device not in ledger.taken  # unused: as a candidate it is big enough
            elif (
                ledger.free(device)
                and (not device.counter_consumption or ledger.counters_fit(device))
                and (not device.shared or ledger.capacity_fits(device, found.consumption[device]))
            ):
                number += 1
        return number
