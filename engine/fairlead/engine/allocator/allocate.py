"""The structured allocator: devices for claims on their nodes, by complete search with a budget.

Decides as Kubernetes' own allocator should: an allocation whenever there is one, alternatives of `firstAvailable` as
upstream chooses them. Which node, and which devices first, is placement's choice. What it finds it takes from the ledger; a
failed search leaves no trace.
Keeps: no device twice; counters and shared capacity never overdrawn; every constraint holds; at most 32 results a claim;
a search that ran out of steps says so and is never an "impossible".
Source: KEP-4381, 4815, 4816, 5055, 5075.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator.counting import counted_out
from fairlead.engine.allocator.model import SearchResult, SearchStatus
from fairlead.engine.allocator.search import LongSearchError, OutOfStepsError, Search, release_device, take_device
from fairlead.engine.allocator.search_space import SearchSpace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.allocator.model import ClaimCandidates, Pick
    from fairlead.engine.allocator.steps import StepBudget
    from fairlead.engine.inventory.ledger import Ledger

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
    """Release the devices of a result."""
    for pick in picks:
        release_device(ledger, pick.request, pick.device, pick.consumption)


def retake(picks: Sequence[Pick], ledger: Ledger) -> None:
    """Take released devices again, which nothing else has taken since."""
    for pick in picks:
        if not take_device(ledger, pick.request, pick.device, pick.consumption):
            raise AssertionError(f"{pick.device.ref} was released and is not free any more")
