"""What keeps a gang from starting whatever is free: limits of queues, budgets, ResourceQuotas of its namespace, and holds.

Limits: a queue may not hold more than its limit, more than it may borrow, or what other queues keep unlent. One whose budget is exhausted may
hold no more than it deserves (noBorrow), or start nothing at all (stop). Two points of view: `used` counts leaving pods as gone (the
pipelined cluster), `held` counts what they hold still (now).
Example, 8 devices, queues a and b deserve 4 each and b lends 1 (lendingLimit): b keeps 3 even while it is idle, so a may use
5. With 5 in use by a, one more is refused: 5 + 3 kept + 1 > 8. When b itself uses 2, it still keeps 3 in all.
ResourceQuotas: the apiserver refuses a claim that exceeds one, so a gang whose claims exceed one together is not started, and no quota is
held by a part of a gang. What a decision admits or nominates counts at once. A quota is no reason to evict, and a gang that one stops is
no demand of its queue. Example: a quota of 8 devices, 0 used, gangs of 8 and 4. The first takes all; the second waits with
"8 used + 4 asked > 8". Source: `CheckRequest` of k8s.io/apiserver/pkg/admission/plugin/resourcequota (1.36), for each quota.
Holds: a gang on hold, by its own object, its queue's, or that of a queue above, asks for nothing: it is not in the order of its queue, no
share is divided for it, nothing is evicted or reserved for it, and it does not stand in the way of the gangs behind it, not even in a strict
queue. What runs goes on; so a member that replaces one of a gang that runs is admitted, else the hold would stop the gang in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from fairlead.api.durations import hours_text
from fairlead.engine.queues.tree import Queue, Tree
from fairlead.engine.snapshot import Snapshot
from fairlead.engine.types.gangs import GangRequest, Hold, RunningGang
from fairlead.engine.types.reasons import BudgetBlock, Code, LimitBlock, Reason
from fairlead.engine.types.settings import NamespaceQuota, QueueSpec
from fairlead.engine.types.values import Amount, amount_text
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
        advice=f"wait until it renews, or raise spec.budget.{block.field} of Queue {queue.name}",
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
        advice=f"wait until gangs of this queue end or the budget renews, or raise deserved in spec.flavors or {block.field} in spec.budget "
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
        unit=budget.unit,
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


class NamespaceQuotas:
    def __init__(self, quotas: Iterable[NamespaceQuota]) -> None:
        self._quotas: dict[tuple[str, str], list[NamespaceQuota]] = {}  # by namespace and resource
        for quota in quotas:
            self._quotas.setdefault((quota.namespace, quota.resource), []).append(quota)
        self._charged: dict[str, GangRequest] = {}  # by gang id
        self._taken: dict[tuple[str, str], int] = {}  # by those

    def copy(self) -> NamespaceQuotas:
        """With what is charged now; later charges of the one do not count for the other."""
        new = NamespaceQuotas(())
        new._quotas, new._charged, new._taken = self._quotas, dict(self._charged), dict(self._taken)
        return new

    def shortage(self, gang: GangRequest) -> Reason | None:
        """Why the gang may not start now: the first quota that it would exceed, those first that it exceeds by itself."""
        if not gang.quota_charge or gang.id in self._charged:
            return None
        broken = [
            (quota, asked)
            for resource, asked in gang.quota_charge
            for quota in self._quotas.get((gang.namespace, resource), ())
            if self._used(quota) + asked > quota.limit
        ]
        if not broken:
            return None
        first = min(broken, key=lambda each: (each[1] <= each[0].limit, each[0].name, each[0].resource))
        return self._reason(*first)

    def beyond(self, gang: GangRequest) -> bool:
        """Whether it asks by itself for more than the whole of a quota."""
        return any(
            asked > quota.limit
            for resource, asked in gang.quota_charge
            for quota in self._quotas.get((gang.namespace, resource), ())
        )

    def charge(self, gang: GangRequest) -> None:
        """The gang starts, or is nominated."""
        if gang.quota_charge and gang.id not in self._charged:
            self._charged[gang.id] = gang
            self._count(gang, 1)

    def withdraw(self, gang_id: str) -> None:
        """As if it had not been charged."""
        gang = self._charged.pop(gang_id, None)
        if gang is not None:
            self._count(gang, -1)

    def _count(self, gang: GangRequest, times: int) -> None:
        for resource, asked in gang.quota_charge:
            key = (gang.namespace, resource)
            self._taken[key] = self._taken.get(key, 0) + asked * times

    def _used(self, quota: NamespaceQuota) -> int:
        return quota.used + self._taken.get((quota.namespace, quota.resource), 0)

    def _reason(self, quota: NamespaceQuota, asked: int) -> Reason:
        fits = asked <= quota.limit
        cure = f"raise spec.hard[{quota.resource}] of ResourceQuota {quota.namespace}/{quota.name}"
        return Reason(
            code=Code.OVER_QUOTA,
            message=f"ResourceQuota {quota.namespace}/{quota.name} does not allow all claims of the gang: {quota.resource}: "
            f"{self._used(quota)} used + {asked} asked > {quota.limit}",
            could_ever_fit=None if fits else False,
            advice=f"wait until others of the namespace end, or {cure}"
            if fits
            else f"it asks for more than the whole quota: {cure}, or ask for less",
        )


class Found(NamedTuple):
    """`queue`: whose it is; "" for the gang's own."""

    hold: Hold
    queue: str

    def resume(self, gang: GangRequest | RunningGang) -> str:
        """The command that takes it away."""
        if self.queue:
            return f"fairlead resume queue {self.queue}"
        return f"fairlead resume gang {gang.name} -n {gang.namespace}"

    def __str__(self) -> str:
        return f"queue {self.queue} is {self.hold}" if self.queue else str(self.hold)


def hold_of(gang: GangRequest | RunningGang, queue: Queue) -> Found | None:
    """Its own, else that of the nearest queue on the way up."""
    return next(_all(gang, queue), None)


def evicting_hold(gang: RunningGang, queue: Queue) -> Found | None:
    """The first of those that say that what runs goes, too."""
    return next((found for found in _all(gang, queue) if found.hold.evict), None)


def _all(gang: GangRequest | RunningGang, queue: Queue) -> Iterator[Found]:
    if gang.hold is not None:
        yield Found(gang.hold, "")
    if queue.tree.any_hold:
        yield from (Found(step.spec.hold, step.name) for step in queue.path() if step.spec.hold is not None)


def on_hold(gang: GangRequest, queue: Queue) -> Reason | None:
    """Why the gang is not admitted; None where no hold forbids it."""
    found = None if gang.replaces else hold_of(gang, queue)
    if found is None:
        return None
    return Reason(code=Code.ON_HOLD, message=str(found), advice=f"it is considered again after `{found.resume(gang)}`")


def held_queues(queues: Sequence[QueueSpec]) -> dict[str, Found]:
    """By name, of the queues that take no gangs now: their own hold, or the nearest above."""
    by_name = {each.name: each for each in queues}
    found: dict[str, Found] = {}
    for each in queues:
        at: QueueSpec | None = each
        seen = set[str]()
        while at is not None and at.hold is None and at.name not in seen:
            seen.add(at.name)
            at = by_name.get(at.parent or "")
        if at is not None and at.hold is not None:
            found[each.name] = Found(at.hold, at.name)
    return found


def gangs_on_hold(snapshot: Snapshot) -> tuple[GangRequest, ...]:
    """Those of the snapshot's pending gangs that a hold keeps from being admitted."""
    own = any(gang.hold is not None for gang in snapshot.gangs)
    if not own and not any(queue.hold is not None for queue in snapshot.queues):
        return ()
    tree = Tree(snapshot.queues)
    placed = ((gang, tree.resolve(gang)) for gang in snapshot.gangs)
    return tuple(gang for gang, queue in placed if isinstance(queue, Queue) and on_hold(gang, queue) is not None)
