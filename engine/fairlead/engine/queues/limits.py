"""What a queue may not hold: more than its limit, more than it may borrow, or what other queues keep unlent.

A queue whose budget is exhausted may hold no more than it deserves (noBorrow), or start nothing at all (stop).

Two points of view: `used` counts leaving pods as gone (the pipelined cluster), `held` counts what they hold still (now).
Example, 8 devices, queues a and b deserve 4 each and b lends 1 (lendingLimit): b keeps 3 even while it is idle, so a may use
5. With 5 in use by a, one more is refused: 5 + 3 kept + 1 > 8. When b itself uses 2, it still keeps 3 in all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction

from fairlead.api.hours import hours_text
from fairlead.engine.queues.tree import Queue
from fairlead.engine.types.amounts import Amount, amount_text
from fairlead.engine.types.reasons import BudgetBlock, Code, LimitBlock, Reason
from fairlead.kube import timestamps

View = Callable[[Queue, str], Amount]


def used(queue: Queue, flavor: str) -> Amount:
    return queue.used.get(flavor, 0)


def held(queue: Queue, flavor: str) -> Amount:
    """What the queue uses, and what its leaving pods hold still."""
    return queue.used.get(flavor, 0) + queue.releasing.get(flavor, 0)


def over_limit(leaf: Queue, charge: Mapping[str, Amount], view: View = used) -> list[tuple[Queue, str]]:
    """(queue, flavor) of each bound on the way up that this charge would break.

    The leaf itself stands for a bound of others: that what they keep unlent would be used.
    """
    broken: list[tuple[Queue, str]] = []
    for queue in leaf.path():
        for flavor, value in sorted(charge.items()):
            bounds = queue.bounds(flavor) if value else ()
            if bounds and view(queue, flavor) + value > min(bounds):
                broken.append((queue, flavor))
    if leaf.tree.lending_limited:
        known = {flavor for _, flavor in broken}
        broken += [
            (leaf, flavor)
            for flavor in sorted(charge)
            if flavor not in known and _uses_unlent(leaf, flavor, charge[flavor], view)
        ]
    return broken


def beyond_limits(leaf: Queue, charge: Mapping[str, Amount]) -> bool:
    """Whether so much is more than a limit on the way up allows with nothing else used, and no schedule changes that."""
    return any(
        value > min(bounds)
        for queue in leaf.path()
        if queue.spec.quotas_change_at is None
        for flavor, value in charge.items()
        if value and (bounds := queue.quota_bounds(flavor))
    )


def _uses_unlent(leaf: Queue, flavor: str, more: Amount, view: View) -> bool:
    """Whether so much more would use what other queues keep for themselves."""
    taken = sum(_needed(root, flavor, view) for root in leaf.tree.roots)
    for step in leaf.path():
        inside = sum(_needed(child, flavor, view) for child in step.children) or view(step, flavor)
        more = max(step.kept(flavor), inside + more) - max(step.kept(flavor), inside)
        if more <= 0:
            return False
    return taken + more > leaf.tree.totals.get(flavor, 0)


def _needed(queue: Queue, flavor: str, view: View) -> Amount:
    """What is not for others: in use, or kept unlent."""
    inside = sum(_needed(child, flavor, view) for child in queue.children) or view(queue, flavor)
    return max(queue.kept(flavor), inside)


def limit_reason(queue: Queue, flavor: str, asked: Amount) -> Reason:
    """Why a gang waits at a limit of this queue, or at what other queues keep unlent."""
    bounds = queue.bounds(flavor)
    if not bounds or used(queue, flavor) + asked <= min(bounds):
        return _unlent_reason(queue, flavor, asked)
    bound = min(bounds)
    if bound < min(queue.quota_bounds(flavor), default=bound + 1):
        return _no_borrowing(queue, flavor, asked, bound)
    field = "limit" if bound == queue.quotas[flavor].limit else "borrowingLimit"
    fits = asked <= bound
    changes_at = queue.spec.quotas_change_at
    later = (
        ""
        if changes_at is None
        else f"; the schedule of queue {queue.name} changes its quotas at {timestamps.seconds(changes_at)}"
    )
    return Reason(
        code=Code.OVER_LIMIT,
        message=f"the {field} of queue {queue.name} for flavor {flavor} does not allow it",
        limit=replace(_block(queue, flavor, asked, bound), whole=not fits, changes_at=changes_at),
        could_ever_fit=True if fits else None if changes_at is not None else False,
        advice=(
            f"wait until gangs of this queue end, or raise the {field}"
            if fits
            else f"it asks for more than the whole {field}: raise spec.flavors of Queue {queue.name}, or ask for less"
        )
        + later,
    )


def stopped(queue: Queue) -> Reason:
    """Why no gang starts below this queue, whose budget is exhausted."""
    block = _budget(queue)
    return Reason(
        code=Code.BUDGET_EXHAUSTED,
        message=f"the budget of queue {queue.name} is exhausted, and no gang is admitted until it renews: {block}",
        budget=block,
        advice=f"wait until it renews, or raise spec.budget.gpuHours of Queue {queue.name}",
    )


def _no_borrowing(queue: Queue, flavor: str, asked: Amount, deserved: Amount) -> Reason:
    """Why a gang waits that would hold more than its queue deserves, while the budget is exhausted."""
    block = _budget(queue)
    return Reason(
        code=Code.BUDGET_EXHAUSTED,
        message=f"the budget of queue {queue.name} is exhausted, and until it renews no more is admitted than the queue deserves of "
        f"flavor {flavor}: {block}",
        limit=_block(queue, flavor, asked, deserved),
        budget=block,
        advice="wait until gangs of this queue end or the budget renews, or raise deserved in spec.flavors or gpuHours in spec.budget "
        f"of Queue {queue.name}",
    )


def _budget(queue: Queue) -> BudgetBlock:
    budget = queue.spec.budget
    assert budget is not None, "only a queue with a budget has one that is exhausted"
    return BudgetBlock(
        queue=queue.name,
        spent=hours_text(Fraction(budget.limit if budget.spent is None else max(budget.spent, budget.limit))),
        limit=hours_text(Fraction(budget.limit)),
        renews_at=budget.renews_at,
    )


def _unlent_reason(queue: Queue, flavor: str, asked: Amount) -> Reason:
    others = sum(_needed(root, flavor, used) for root in queue.tree.roots) - used(queue, flavor)
    total = queue.tree.totals.get(flavor, 0)
    beside = [
        other
        for step in queue.path()
        for other in (queue.tree.roots if step.parent is None else step.parent.children)
        if other is not step
    ]
    fits = asked <= total - sum(other.kept(flavor) for other in beside)
    return Reason(
        code=Code.OVER_LIMIT,
        message=f"other queues keep what they deserve of flavor {flavor} for themselves",
        limit=replace(_block(queue, flavor, asked, max(total - others, 0)), whole=not fits),
        could_ever_fit=fits,
        advice="wait until gangs of other queues end, raise deserved of this queue, or raise lendingLimit of the others",
    )


def _block(queue: Queue, flavor: str, asked: Amount, limit: Amount) -> LimitBlock:
    return LimitBlock(
        queue=queue.name,
        flavor=flavor,
        used=amount_text(used(queue, flavor)),
        asked=amount_text(asked),
        limit=amount_text(limit),
    )
