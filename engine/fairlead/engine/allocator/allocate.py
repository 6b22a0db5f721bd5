"""The structured allocator: devices for claims on their nodes, by complete search with a budget.

Exists to give the verdict that Kubernetes' own allocator should give: an allocation whenever there is one, alternatives of
`firstAvailable` as upstream would choose them. It picks within what it is offered: which node, and which devices first, is
placement's word. Takes what it finds from the ledger; a failed search leaves no trace.
Keeps: no device twice; counters and shared capacity never overdrawn; every constraint holds; at most 32 results a claim;
a search that ran out of steps says so and is never an "impossible".
Source: KEP-4381, 4815, 4816, 5055, 5075.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.allocator.model import SearchResult, SearchStatus, StepBudget
from fairlead.engine.allocator.search import OutOfStepsError, Search, give, give_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.allocator.model import ClaimCandidates, Pick
    from fairlead.engine.inventory.ledger import Ledger

QUICK_STEPS = 2_000  # before claims are looked at one by one


def allocate(offers: Sequence[ClaimCandidates], ledger: Ledger, budget: StepBudget) -> SearchResult:
    """Allocate all claims together, or none. On FOUND the devices are taken from the ledger.

    Which alternative of a `firstAvailable` wins is upstream's to say: the one of the first answer with devices in the
    inventory's order. So that is found first, and devices are then chosen by preference with the alternatives fixed.
    """
    choices = [
        number
        for number, asks in enumerate(asks for offer in offers for asks in offer.claim.alternatives)
        if len(asks) > 1
    ]
    if not choices or choices == [0]:
        return _patiently(offers, ledger, budget, by_preference=True)
    answer = _patiently(offers, ledger, budget, by_preference=False)
    if answer.verdict is not SearchStatus.FOUND:
        return answer
    for picks in answer.picks:
        release(picks, ledger)
    chosen = [{pick.ask.request: pick.ask for pick in picks} for picks in answer.picks]
    better = _run(Search(offers, ledger, budget, chosen=chosen), budget)
    if better.verdict is SearchStatus.FOUND:
        return better
    for picks in answer.picks:  # out of steps; the first answer stands
        retake(picks, ledger)
    return answer


def _patiently(
    offers: Sequence[ClaimCandidates], ledger: Ledger, budget: StepBudget, *, by_preference: bool
) -> SearchResult:
    """The search; where several claims together take long, it is seen first whether each could be had alone."""
    if len(offers) == 1 or budget.steps <= QUICK_STEPS:
        return _run(Search(offers, ledger, budget, by_preference=by_preference), budget)
    quick = StepBudget(QUICK_STEPS)
    answer = _run(Search(offers, ledger, quick, by_preference=by_preference), quick)
    budget.steps -= QUICK_STEPS - max(quick.steps, 0)
    if answer.verdict is not SearchStatus.BUDGET_ENDED:
        return answer
    for offer in offers:
        alone = _run(Search([offer], ledger, budget), budget)
        if alone.verdict is not SearchStatus.FOUND:
            return alone
        release(alone.picks[0], ledger)
    return _run(Search(offers, ledger, budget, by_preference=by_preference), budget)


def _run(search: Search, budget: StepBudget) -> SearchResult:
    refusal = search.hopeless()
    if refusal is not None:
        return refusal
    try:
        found = search.request(0)
    except (OutOfStepsError, RecursionError):
        search.unwind()
        budget.ended = True
        return SearchResult(SearchStatus.BUDGET_ENDED, short=search.short, got=search.got)
    if not found:
        return SearchResult(SearchStatus.IMPOSSIBLE, short=search.short, got=search.got, detail=search.detail)
    return SearchResult(SearchStatus.FOUND, picks=search.picks)


def release(picks: Sequence[Pick], ledger: Ledger) -> None:
    """Give devices back that an answer took."""
    for pick in picks:
        give_back(ledger, pick.ask, pick.device, pick.consumption)


def retake(picks: Sequence[Pick], ledger: Ledger) -> None:
    """Take devices again that were released and that nobody took since."""
    for pick in picks:
        if not give(ledger, pick.ask, pick.device, pick.consumption):
            raise AssertionError(f"{pick.device.ref} was released and is not free any more")
