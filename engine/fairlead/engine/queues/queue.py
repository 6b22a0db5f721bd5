"""One queue: its quotas, as its spec and those of the queues below it say, and what it uses in this decision.

Holds amounts by flavor, not devices. What it may not hold, for its limits or for what others keep unlent, is `limits`'; what
its fair share is, `tree_shares`'.
"""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Any

from fairlead.engine.queues.charges import Charge, add

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fairlead.engine.types.amounts import Amount
    from fairlead.engine.types.settings import FlavorQuota, QueueSpec


class Cohort:
    """What the queues of one tree have in common."""

    def __init__(self) -> None:
        self.roots: list[Queue] = []
        self.totals: Mapping[str, Amount] = {}  # what the cluster has of each flavor
        self.lending_limited = False  # whether some queue limits what it lends
        self.lendable: dict[tuple[Queue | None, str], Amount] = {}  # by parent and flavor, see dominant_share
        self.divided: dict[tuple[Queue | None, str], Any] = {}  # by parent and flavor, see tree_shares


class Queue:
    """Use and demand count those of the queues below it."""

    def __init__(self, spec: QueueSpec, tree: Cohort) -> None:
        self.spec = spec
        self.tree = tree
        self.parent: Queue | None = None
        self.children: list[Queue] = []
        self.quotas: dict[str, FlavorQuota] = {quota.flavor: quota for quota in spec.quotas}
        self._deserved: Charge = {}
        self._kept: Charge = {}
        self.begin()

    def begin(self) -> None:
        """A new decision: nothing is charged yet."""
        self.used: Charge = {}
        self.releasing: Charge = {}  # of pods that are leaving: held still, used no more
        self.demand: Charge = {}  # used, and what pending gangs ask for at least
        self.fair: Charge = {}  # what it may hold now, see tree_shares
        self.allocation_units: dict[str, int] = {}  # into how many parts a unit of the flavor is cut, where it is
        self.weights: dict[str, float] = {}  # by flavor, corrected by past use, see tree_shares
        self.devices = 0  # allocated, whatever their flavor: the measure when there are no flavors
        self.admitted = 0  # gangs of this queue itself
        self.waiting = 0

    @property
    def name(self) -> str:
        return self.spec.name

    def path(self) -> Iterator[Queue]:
        """This queue and those above it."""
        queue: Queue | None = self
        while queue is not None:
            yield queue
            queue = queue.parent

    def deserved(self, flavor: str) -> Amount:
        """What its spec says, else what the queues below it deserve together."""
        known = self._deserved.get(flavor)
        if known is None:
            quota = self.quotas.get(flavor)
            below = sum(child.deserved(flavor) for child in self.children) if quota is None else quota.deserved
            known = self._deserved[flavor] = below
        return known

    def weight(self, flavor: str) -> float:
        quota = self.quotas.get(flavor)
        return 1.0 if quota is None else quota.weight

    def kept(self, flavor: str) -> Amount:
        """What of its deserved, or of that of those below it, others may not use even while it is idle."""
        known = self._kept.get(flavor)
        if known is None:
            known = sum(child.kept(flavor) for child in self.children)
            quota = self.quotas.get(flavor)
            if quota is not None and quota.lending_limit is not None:
                known = max(known, quota.deserved - quota.lending_limit, 0)
            self._kept[flavor] = known
        return known

    def bounds(self, flavor: str) -> tuple[Amount, ...]:
        """Its limit, and what it may hold with all that it may borrow; () without either."""
        quota = self.quotas.get(flavor)
        if quota is None or (quota.limit is None and quota.borrowing_limit is None):
            return ()
        borrow = () if quota.borrowing_limit is None else (quota.deserved + quota.borrowing_limit,)
        return borrow if quota.limit is None else (quota.limit, *borrow)

    def charge(self, charge: Mapping[str, Amount], devices: int, times: int = 1) -> None:
        """Count this as used by the queue and by those above it."""
        queue: Queue | None = self
        while queue is not None:
            used = queue.used
            for flavor, value in charge.items():
                used[flavor] = used.get(flavor, 0) + times * value
            queue.devices += times * devices
            queue = queue.parent

    def release(self, charge: Mapping[str, Amount], devices: int, times: int = 1) -> None:
        """Count what it uses as releasing, for the queue and for those above it."""
        self.charge(charge, devices, -times)
        for queue in self.path():
            add(queue.releasing, charge, times)

    def surplus(self, flavor: str, more: Amount = 0) -> float:
        """What it uses beyond deserved, with `more`, for its weight: what others compare with theirs."""
        over = self.used.get(flavor, 0) + more - self.deserved(flavor)
        if over <= 0:
            return 0.0
        weight = self.weights.get(flavor)
        weight = self.weight(flavor) if weight is None else weight
        return float(over) / weight if weight > 0 else float("inf")

    def wanted(self, flavor: str) -> Amount:
        """What it needs of its parent's pool: what is asked for below it, and what queues below it keep unlent."""
        demand = self.demand.get(flavor, 0)
        if not self.children or not self.tree.lending_limited:
            return demand
        return max(demand, sum(max(child.wanted(flavor), child.kept(flavor)) for child in self.children))

    def note_allocation_unit(self, charge: Mapping[str, Amount]) -> None:
        """A gang of this queue has or asks for this: where that is a part of a device, shares are counted in such parts."""
        for flavor, value in charge.items():
            if value.denominator != 1:
                for step in self.path():
                    step.allocation_units[flavor] = lcm(step.allocation_units.get(flavor, 1), value.denominator)
