"""The search for devices: depth first over requests, alternatives and devices, with exact undo.

Devices that are interchangeable (see `search_space`) are tried once per position.
Source: k/k allocator_{stable,incubating}.go for the order of tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator.constraints import Constraint, Counts, add_all
from fairlead.engine.allocator.model import Pick
from fairlead.engine.allocator.requests import RESULTS_MAX
from fairlead.engine.allocator.steps import StepBudget

if TYPE_CHECKING:
    from fairlead.engine.allocator.candidates import Candidates
    from fairlead.engine.allocator.requests import CompiledRequest
    from fairlead.engine.allocator.search_space import SearchSpace
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.ledger import Consumption, Ledger


def take_device(ledger: Ledger, request: CompiledRequest, device: Device, consumption: Consumption) -> bool:
    """Admin access takes nothing: no device, no counters. Of a shared device, as in Kubernetes, there must be as much left."""
    if request.admin:
        return not device.shared or ledger.capacity_fits(device, consumption)
    return ledger.take(device, consumption)


def release_device(ledger: Ledger, request: CompiledRequest, device: Device, consumption: Consumption) -> None:
    """Undo one `take_device`."""
    if not request.admin:
        ledger.release(device, consumption)


class OutOfStepsError(Exception):
    """The budget ended."""


class LongSearchError(Exception):
    """It takes long: what is hard to find may be impossible by count."""


class Search:
    """One search: `request(0)`; then `picks` is the result, or `short` is the request that got furthest and fell short."""

    def __init__(self, space: SearchSpace, budget: StepBudget, *, pause: int = 0) -> None:
        """`pause`: steps after which LongSearchError is raised; 0: it is not."""
        self.space = space
        self.ledger = space.ledger
        self.budget = budget
        self.order = space.order
        self.picks: list[list[Pick]] = [[] for _ in space.claims]
        # Exclusive devices of each claim: they may not come twice, also not by admin access.
        self.exclusive: list[set[Device]] = [set() for _ in space.claims]
        self.trail: list[tuple[int, Pick, tuple[Constraint | Counts, ...]]] = []
        self._covering: dict[tuple[int, CompiledRequest], tuple[Constraint | Counts, ...]] = {}
        self.short: CompiledRequest | None = None
        self.picked = 0  # for `short`
        self.depth = -1
        self.detail = ""
        self._pause = pause
        self._tried = 0

    def request(self, slot: int) -> bool:
        """Serve the requests from this slot on."""
        if slot == len(self.space.slots):
            return True
        claim = self.space.slots[slot][0]
        for request in self.space.alternatives[slot]:
            found = self.space.candidates[claim, request]
            if request.all:
                problem = self.space.all_problem(claim, request)
                if problem is not None:
                    self._fell_short(request, 0, problem)
                elif self._take_all(slot, claim, request, found):
                    return True
            elif len(self.picks[claim]) + request.count > RESULTS_MAX:
                self._fell_short(request, 0, f"the claim would have more than {RESULTS_MAX} devices")
            elif self._choose(slot, claim, request, 0, request.count):
                return True
        return False

    def _take_all(self, slot: int, claim: int, request: CompiledRequest, found: Candidates) -> bool:
        wanted = self.order[claim, request]
        if len(self.picks[claim]) + len(wanted) > RESULTS_MAX:
            self._fell_short(request, 0, f"the claim would have more than {RESULTS_MAX} devices")
            return False
        mark = len(self.trail)
        for device in wanted:
            if not self._take(claim, request, device, found):
                detail = f"all devices are wanted, and {device.ref} can't be had"
                self._fell_short(request, len(self.trail) - mark, detail)
                self._undo(mark)
                return False
        short = next((each for each in self._constraints(claim, request) if not each.complete), None)
        if short is not None:
            self._fell_short(request, len(wanted), f"all devices are wanted, and they are fewer than {short.name} has")
        elif self.request(slot + 1):
            return True
        self._undo(mark)
        return False

    def _choose(self, slot: int, claim: int, request: CompiledRequest, start: int, left: int) -> bool:
        """Take `left` more devices from position `start` on, then serve the next slots."""
        if left == 0:
            return self.request(slot + 1)
        found, ordered = self.space.candidates[claim, request], self.order[claim, request]
        tried: set[object] = set()
        for position in range(start, len(ordered) - left + 1):
            device = ordered[position]
            if not device.shared and (
                device in self.exclusive[claim] or not (request.admin or self.ledger.free(device))
            ):
                continue  # taken at an earlier position of this search
            signature = self._signature(request, device)
            if signature in tried:
                continue
            self._step()
            tried.add(signature)
            if self._take(claim, request, device, found):
                if self._choose(slot, claim, request, position + 1, left - 1):
                    return True
                self._undo(len(self.trail) - 1)
        self._fell_short(request, request.count - left, "")
        return False

    def _step(self) -> None:
        if not self.budget.spend(1):
            raise OutOfStepsError
        self._tried += 1
        if self._tried == self._pause:
            raise LongSearchError

    def _take(self, claim: int, request: CompiledRequest, device: Device, found: Candidates) -> bool:
        consumption = found.consumption.get(device, ())
        if not device.shared and device in self.exclusive[claim]:
            return False
        covering = self._constraints(claim, request)
        if covering and not add_all(covering, device):
            return False
        if not take_device(self.ledger, request, device, consumption):
            for constraint in reversed(covering):
                constraint.remove(device)
            return False
        pick = Pick(request, device, consumption)
        self.picks[claim].append(pick)
        if not device.shared:
            self.exclusive[claim].add(device)
        self.trail.append((claim, pick, covering))
        return True

    def _constraints(self, claim: int, request: CompiledRequest) -> tuple[Constraint | Counts, ...]:
        """Those of the claim that the request's devices are under."""
        covering = self._covering.get((claim, request))
        if covering is None:
            constraints = self.space.constraints[claim]
            covering = tuple([each for each in constraints if each.covers(request.request, request.name)])
            self._covering[claim, request] = covering
        return covering

    def _undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            claim, pick, covering = self.trail.pop()
            self.picks[claim].pop()
            self.exclusive[claim].discard(pick.device)
            for constraint in reversed(covering):
                constraint.remove(pick.device)
            release_device(self.ledger, pick.request, pick.device, pick.consumption)

    def unwind(self) -> None:
        self._undo(0)

    def _signature(self, request: CompiledRequest, device: Device) -> object:
        """Equal for devices that are interchangeable at this point of the search."""
        signature = self.space.signatures[device]
        if device.shared:
            used = self.ledger.used.get(device)
            return (signature, tuple(sorted(used.items())) if used else (), self._claims_of(device))
        return (signature, self.ledger.free(device)) if request.admin else signature

    def _claims_of(self, device: Device) -> tuple[int, ...]:
        return tuple(claim for claim, picks in enumerate(self.picks) if any(pick.device is device for pick in picks))

    def _fell_short(self, request: CompiledRequest, picked: int, detail: str) -> None:
        if len(self.trail) >= self.depth:
            self.depth = len(self.trail)
            self.short, self.picked = request, picked
            self.detail = detail or self.detail
