"""The tree of queues: what each may use by its spec, what it uses in this decision, and which leaf takes which gang.

A broken Queue object never stops the others: its faults are listed, and the queue is left out or treated as a root. Without
any Queue object there is one implicit queue without quotas, named "". Amounts are by flavor; devices play no part. What a
queue may not hold, for its limits or for what others keep unlent, is `limits`'; what its fair share is, `fair_share`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import lcm
from typing import Any

from fairlead.engine.queues.charges import Charge, add
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.settings import FlavorQuota, Problem, QueueSpec
from fairlead.engine.types.values import Amount, amount_text
from fairlead.kube import labels


class Queue:
    """Use and demand count those of the queues below it."""

    def __init__(self, spec: QueueSpec, tree: Tree) -> None:
        self.spec = spec
        self.tree = tree
        self.parent: Queue | None = None
        self.children: list[Queue] = []
        self.quotas: dict[str, FlavorQuota] = {quota.flavor: quota for quota in spec.quotas}
        self._deserved: Charge = {}
        self._kept: Charge = {}
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """A new decision, at `now` (unix seconds): nothing is charged yet."""
        self.exhausted = self.spec.budget is not None and self.spec.budget.exhausted(now)
        self.used: Charge = {}
        self.releasing: Charge = {}  # of pods that are leaving: held still, used no more
        self.demand: Charge = {}  # used, and what pending gangs ask for at least
        self.fair: Charge = {}  # what it may hold now, see fair_share
        self.allocation_units: dict[str, int] = {}  # into how many parts a unit of the flavor is cut, where it is
        self.weights: dict[str, float] = {}  # by flavor, corrected by past use, see fair_share
        self.devices = 0  # allocated, whatever their flavor: the measure when there are no flavors
        self.running = 0  # gangs of this queue itself

    @property
    def name(self) -> str:
        return self.spec.name

    def path(self) -> Iterator[Queue]:
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

    @property
    def stopped_by(self) -> Queue | None:
        """The first queue on the way up whose exhausted budget lets no gang start; None: no budget does."""
        return next((step for step in self.path() if step.exhausted and step.on_exhausted == "stop"), None)

    @property
    def on_exhausted(self) -> str:
        return "" if self.spec.budget is None else self.spec.budget.on_exhausted

    def bounds(self, flavor: str) -> tuple[Amount, ...]:
        """The most that it may hold: by its quota, and what it deserves while its budget lets it borrow nothing; () without."""
        bounds = self.quota_bounds(flavor)
        return (*bounds, self.deserved(flavor)) if self.exhausted and self.on_exhausted == "noBorrow" else bounds

    def quota_bounds(self, flavor: str) -> tuple[Amount, ...]:
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


class Tree:
    """The queues by name, the faults of their specs, and what the cluster has."""

    def __init__(self, specs: Sequence[QueueSpec], resources: frozenset[str] = frozenset()) -> None:
        """`resources`: the flavors of what pods request."""
        self.totals: Mapping[str, Amount] = {}  # what the cluster has of each flavor
        self.lendable: dict[tuple[Queue | None, str], Amount] = {}  # by parent and flavor, see `gangs.lendable`
        self.divided: dict[tuple[Queue | None, str], Any] = {}  # by parent and flavor, see fair_share
        self.problems: list[Problem] = []
        self.implicit = not specs
        self.queues: dict[str, Queue] = {}
        for spec in sorted(specs or (QueueSpec(name=""),), key=lambda spec: (spec.name, spec.uid)):
            if spec.name not in self.queues:
                self.queues[spec.name] = Queue(spec, self)
        self._link()
        self.any_idle = any(spec.idle is not None for spec in specs)
        self.any_hold = any(spec.hold is not None for spec in specs)
        self.budgeted = any(spec.budget is not None for spec in specs)
        # All pods request cpu: where a queue only limits it, none deserves any, and all would be beyond what they deserve.
        quotas = (quota for spec in specs for quota in spec.quotas)
        self.listed = frozenset(quota.flavor for quota in quotas if quota.flavor not in resources or quota.deserved)
        self.lending_limited = any(quota.lending_limit is not None for spec in specs for quota in spec.quotas)
        self.roots = [queue for queue in self.queues.values() if queue.parent is None]
        self._selectors: dict[str, labels.Selector] = {}
        for queue in self.queues.values():
            if queue.spec.namespace_selector is not None:
                try:
                    self._selectors[queue.name] = labels.from_label_selector(queue.spec.namespace_selector)
                except labels.SelectorError as error:
                    self._report(queue, "InvalidSelector", f"spec.namespaceSelector: {error}; it selects no namespace")

    def begin(self, totals: Mapping[str, Amount], now: float = 0.0) -> None:
        """A new decision, at `now` (unix seconds), on a cluster that has this of each flavor."""
        for queue in self.queues.values():
            before = queue.exhausted
            queue.begin(now)
            if queue.exhausted is not before:
                self.divided.clear()  # bounds of queues are not part of what is remembered there
                self.lendable.clear()
        if totals != self.totals:
            self.totals = totals
            self.lendable.clear()

    def settle(self) -> None:
        """The decision is made: queues use what their leaving pods hold still."""
        for queue in self.queues.values():
            add(queue.used, queue.releasing)

    def deciding(self, charge: Mapping[str, Amount]) -> Mapping[str, Amount]:
        """The flavors by which queues are compared for this charge: those that some queue lists (of what pods request: deserves),
        where it has any of them.

        A flavor that no queue lists counts the same devices in another measure, for a price or a graph. Else it would make
        the queues' deserved of the others worth nothing, as no queue deserves anything of it.
        """
        if self.listed.issuperset(charge):
            return charge
        return {flavor: value for flavor, value in charge.items() if flavor in self.listed} or charge

    def _link(self) -> None:
        for queue in self.queues.values():
            name = queue.spec.parent
            if name is None:
                continue
            parent = self.queues.get(name)
            if parent is None:
                self._report(
                    queue,
                    "UnknownParent",
                    f"spec.parent: there is no Queue {name!r}; create it or remove the field (treated as a root until then)",
                )
            elif queue in parent.path():
                self._report(
                    queue,
                    "ParentCycle",
                    f"spec.parent: {name!r} makes a cycle; name a queue that is not below this one "
                    "(treated as a root until then)",
                )
            else:
                queue.parent = parent
                parent.children.append(queue)
        for queue in self.queues.values():
            for flavor in sorted(queue.quotas):
                below = sum((child.deserved(flavor) for child in queue.children), 0)
                if queue.children and below > queue.quotas[flavor].deserved:
                    self._report(
                        queue,
                        "ChildrenDeserveMore",
                        f"spec.flavors: the queues below it deserve {amount_text(below)} of {flavor}, it only "
                        f"{amount_text(queue.quotas[flavor].deserved)}; raise its deserved or lower theirs",
                    )

    def _report(self, queue: Queue, reason: str, message: str) -> None:
        self.problems.append(Problem(kind="Queue", name=queue.name, reason=reason, message=message))

    def resolve(self, gang: GangRequest | RunningGang) -> Queue | Reason:
        """The leaf that takes the gang, or why none does."""
        if self.implicit:
            return self.queues[""]
        if gang.queue:
            return self._named(gang.queue, gang)
        matching = [
            self.queues[name]
            for name, selector in self._selectors.items()
            if not self.queues[name].children and selector.matches(gang.namespace_labels)
        ]
        if matching:
            return matching[0]  # in name order: overlapping selectors are reported where queues are validated
        leaves = ", ".join(queue.name for queue in self.queues.values() if not queue.children)
        return Reason(
            code=Code.UNKNOWN_QUEUE,
            message=f"no queue takes pods of namespace {gang.namespace}, and the gang names none",
            advice=f"label or annotate the pods with fairlead.dev/queue (one of: {leaves}), "
            "or give a queue a namespaceSelector that matches the namespace",
        )

    def _named(self, name: str, gang: GangRequest | RunningGang) -> Queue | Reason:
        queue = self.queues.get(name)
        if queue is None:
            known = ", ".join(queue.name for queue in self.queues.values() if not queue.children)
            return Reason(
                code=Code.UNKNOWN_QUEUE,
                message=f"there is no Queue {name!r}",
                advice=f"create it, or name one of: {known}",
            )
        if queue.children:
            leaves = ", ".join(sorted(child.name for child in queue.children))
            return Reason(
                code=Code.QUEUE_NOT_LEAF,
                message=f"Queue {name} has queues below it and takes no gangs itself",
                advice=f"name one of the queues below it: {leaves}",
            )
        selector = self._selectors.get(name)
        if selector is not None and not selector.matches(gang.namespace_labels):
            return Reason(
                code=Code.QUEUE_NOT_FOR_NAMESPACE,
                message=f"Queue {name} does not take pods of namespace {gang.namespace}: its namespaceSelector does not "
                "match the namespace's labels",
                advice="label the namespace so that it matches, or name another queue",
            )
        return queue
