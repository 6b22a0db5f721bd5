"""The structured allocator: devices for claims on their nodes, by complete search with a budget, depth first and with exact undo.

Decides as Kubernetes' own allocator should: an allocation whenever there is one, alternatives of `firstAvailable` as
upstream chooses them. Which node, and which devices first, is placement's choice. What it finds it takes from the ledger; a
failed search leaves no trace. Devices that are interchangeable (see `search_space`) are tried once per position.
Keeps: no device twice; counters and shared capacity never overdrawn; every constraint holds; at most 32 results a claim;
a search that ran out of steps says so and is never an "impossible".
Source: KEP-4381, 4815, 4816, 5055, 5075; k/k allocator_{stable,incubating}.go for the order of tests.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.engine.allocator.candidates import Candidates
from fairlead.engine.allocator.counting import counted_out
from fairlead.engine.allocator.requests import RESULTS_MAX, CompiledRequest
from fairlead.engine.allocator.result import ClaimCandidates, Pick, SearchResult, SearchStatus
from fairlead.engine.allocator.search_space import Constraint, Counts, SearchSpace, add_all
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.types.values import Consumption


def take_device(ledger: Ledger, request: CompiledRequest, device: Device, consumption: Consumption) -> bool:
    """Admin access takes nothing: no device, no counters. Of a shared device, as in Kubernetes, there must be as much left."""
    if request.admin:
        return not device.shared or ledger.capacity_fits(device, consumption)
    return ledger.take(device, consumption)


def release_device(ledger: Ledger, request: CompiledRequest, device: Device, consumption: Consumption) -> None:
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


QUICK_STEPS = 2_000  # before claims are tried one by one
COUNTED_AFTER = 2_000  # steps: most searches end before, and are not worth counting
COUNTED_SOON = 100  # for claims of so many requests and alternatives that they are not small
SMALL = 1_024  # pairs of a request and a device up to which nothing is charged for a look at them
PAIRS_STEP = 16  # further pairs that cost a step


def allocate(claims: Sequence[ClaimCandidates], ledger: Ledger, budget: StepBudget) -> SearchResult:
    """Allocate all claims together, or none. On FOUND the devices are taken from the ledger.

    The alternative of a `firstAvailable` is upstream's: that of the first result with devices in the inventory's order. That
    result is found first; devices are then chosen by preference with the alternatives fixed.
    """
    choices = [
        number
        for number, alternatives in enumerate(
            alternatives for claim in claims for alternatives in claim.claim.alternatives
        )
        if len(alternatives) > 1
    ]
    if not choices or choices == [0]:
        return _search(claims, ledger, budget, by_preference=True)
    result = _search(claims, ledger, budget, by_preference=False)
    if result.status is not SearchStatus.FOUND:
        return result
    for picks in result.picks:
        release(picks, ledger)
    chosen = [{pick.request.request: pick.request for pick in picks} for picks in result.picks]
    better = _run(SearchSpace(claims, ledger, chosen=chosen), budget)
    if better.status is SearchStatus.FOUND:
        return better
    for picks in result.picks:  # out of steps: the first result counts
        retake(picks, ledger)
    return result


def _search(
    claims: Sequence[ClaimCandidates], ledger: Ledger, budget: StepBudget, *, by_preference: bool
) -> SearchResult:
    """One search; where several claims together take long, each is first searched alone: most refusals show there."""
    if len(claims) == 1 or budget.steps <= QUICK_STEPS:
        return _run(SearchSpace(claims, ledger, by_preference=by_preference), budget)
    quick = budget.part(QUICK_STEPS)
    result = _run(SearchSpace(claims, ledger, by_preference=by_preference), quick)
    budget.steps -= QUICK_STEPS - max(quick.steps, 0)
    if result.status is not SearchStatus.BUDGET_ENDED:
        return result
    for claim in claims:
        alone = _run(SearchSpace([claim], ledger), budget)
        if alone.status is not SearchStatus.FOUND:
            return alone
        release(alone.picks[0], ledger)
    return _run(SearchSpace(claims, ledger, by_preference=by_preference), budget)


def _run(space: SearchSpace, budget: StepBudget) -> SearchResult:
    budget.account.spend(max(0, space.size - SMALL) // PAIRS_STEP)
    refusal = space.refusal()
    if refusal is not None:
        return refusal
    pause = 0 if not budget.counts else COUNTED_SOON if space.size > SMALL else COUNTED_AFTER
    search = Search(space, budget, pause=pause)
    try:
        try:
            found = search.request(0)
        except LongSearchError:  # walking through every way would prove what counting does, much later
            search.unwind()
            if counted_out(space):
                return SearchResult(
                    SearchStatus.IMPOSSIBLE, short=search.short, picked=search.picked, detail=search.detail
                )
            budget.give_back(pause)  # it is made again
            search = Search(space, budget)
            found = search.request(0)
    except (OutOfStepsError, RecursionError):
        search.unwind()
        budget.ended = True
        return SearchResult(SearchStatus.BUDGET_ENDED, short=search.short, picked=search.picked)
    if not found:
        return SearchResult(SearchStatus.IMPOSSIBLE, short=search.short, picked=search.picked, detail=search.detail)
    budget.account.spend(-sum(map(len, search.picks)))
    return SearchResult(SearchStatus.FOUND, picks=search.picks)


def release(picks: Sequence[Pick], ledger: Ledger) -> None:
    for pick in picks:
        release_device(ledger, pick.request, pick.device, pick.consumption)


def retake(picks: Sequence[Pick], ledger: Ledger) -> None:
    """Take released devices again, which nothing else has taken since."""
    for pick in picks:
        if not take_device(ledger, pick.request, pick.device, pick.consumption):
            raise AssertionError(f"{pick.device.ref} was released and is not free any more")
