"""The tree of queues: who is whose parent, who takes which gang, who holds what.

Exists so that a broken Queue object never stops the others: faults are listed, and the queue is left out or made a root.
Knows quotas and use, not devices. Without any Queue object there is one implicit queue without quotas, named "".
"""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Any

from fairlead.engine.queues.charges import Charge
from fairlead.engine.types.reasons import Code, LimitBlock, Reason
from fairlead.engine.types.settings import Problem, QueueSpec
from fairlead.kube import labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fairlead.engine.types.amounts import Amount
    from fairlead.engine.types.gangs import GangRequest, RunningGang
    from fairlead.engine.types.settings import FlavorQuota


class Queue:
    """One queue of the tree with its use, descendants' use included."""

    __slots__ = (
        "_deserved",
        "_kept",
        "admitted",
        "children",
        "demand",
        "devices",
        "fair",
        "grains",
        "parent",
        "quotas",
        "spec",
        "tree",
        "used",
        "waiting",
        "weights",
    )

    def __init__(self, spec: QueueSpec, tree: Tree) -> None:
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
        self.demand: Charge = {}  # used, and what waiting gangs ask for at least
        self.fair: Charge = {}  # what it may hold now, see fairshare_tree
        self.grains: dict[str, int] = {}  # into how many parts a unit of the flavor is cut, where it is
        self.weights: dict[str, float] = {}  # by flavor, corrected by past use, see fairshare_tree
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
        """Its own word, else what the queues below it deserve together."""
        known = self._deserved.get(flavor)
        if known is None:
            quota = self.quotas.get(flavor)
            below = sum(child.deserved(flavor) for child in self.children) if quota is None else quota.deserved
            known = self._deserved[flavor] = below
        return known

    def weight(self, flavor: str) -> float:
        quota = self.quotas.get(flavor)
        return 1.0 if quota is None else quota.weight

    def surplus(self, flavor: str, more: Amount = 0) -> float:
        """What it holds beyond deserved, with `more`, for its weight: what others compare with theirs."""
        over = self.used.get(flavor, 0) + more - self.deserved(flavor)
        if over <= 0:
            return 0.0
        weight = self.weights.get(flavor)
        weight = self.weight(flavor) if weight is None else weight
        return float(over) / weight if weight > 0 else float("inf")

    def charge(self, charge: Mapping[str, Amount], devices: int, sign: int = 1) -> None:
        """Count this on the queue and on those above it."""
        queue: Queue | None = self
        while queue is not None:
            used = queue.used
            for flavor, value in charge.items():
                used[flavor] = used.get(flavor, 0) + sign * value
            queue.devices += sign * devices
            queue = queue.parent

    def note_parts(self, charge: Mapping[str, Amount]) -> None:
        """A gang of this queue has or wants this much: where that is a part of a unit, shares are counted in such parts."""
        for flavor, value in charge.items():
            if value.denominator != 1:
                for step in self.path():
                    step.grains[flavor] = lcm(step.grains.get(flavor, 1), value.denominator)

    def wanted(self, flavor: str) -> Amount:
        """What it needs of its parent's pool: what is asked for below it, and what queues below it keep unlent."""
        demand = self.demand.get(flavor, 0)
        if not self.children or not self.tree.lending_limited:
            return demand
        return max(demand, sum(max(child.wanted(flavor), child.kept(flavor)) for child in self.children))

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

    def over_limit(self, charge: Mapping[str, Amount]) -> list[tuple[Queue, str]]:
        """(queue, flavor) of each bound on the way up that this charge would break.

        The queue itself stands for a bound of others: that what they keep unlent would be used.
        """
        broken: list[tuple[Queue, str]] = []
        for queue in self.path():
            for flavor, value in sorted(charge.items()):
                bounds = queue.bounds(flavor) if value else ()
                if bounds and queue.used.get(flavor, 0) + value > min(bounds):
                    broken.append((queue, flavor))
        if self.tree.lending_limited:
            known = {flavor for _, flavor in broken}
            broken += [
                (self, flavor) for flavor in sorted(charge) if flavor not in known and self._unlent(flavor, charge)
            ]
        return broken

    def _unlent(self, flavor: str, charge: Mapping[str, Amount]) -> bool:
        """Whether the charge would use what other queues keep for themselves."""
        more, taken = charge[flavor], sum(root.needed(flavor) for root in self.tree.roots)
        for step in self.path():
            inside = sum(child.needed(flavor) for child in step.children) or step.used.get(flavor, 0)
            more = max(step.kept(flavor), inside + more) - max(step.kept(flavor), inside)
            if more <= 0:
                return False
        return taken + more > self.tree.totals.get(flavor, 0)

    def needed(self, flavor: str) -> Amount:
        """What is not for others: in use, or kept."""
        inside = sum(child.needed(flavor) for child in self.children) or self.used.get(flavor, 0)
        return max(self.kept(flavor), inside)


class Tree:
    def __init__(self, specs: Sequence[QueueSpec]) -> None:
        self.problems: list[Problem] = []
        self.implicit = not specs
        self.queues: dict[str, Queue] = {}
        for spec in sorted(specs or (QueueSpec(name=""),), key=lambda spec: (spec.name, spec.uid)):
            if spec.name not in self.queues:
                self.queues[spec.name] = Queue(spec, self)
        self._link()
        self.lending_limited = any(quota.lending_limit is not None for spec in specs for quota in spec.quotas)
        self.totals: Mapping[str, Amount] = {}  # what the cluster has of each flavor
        self.lendable: dict[tuple[Queue | None, str], Amount] = {}  # see fairshare_dominant
        self.divided: dict[tuple[Queue | None, str], Any] = {}  # see fairshare_tree
        self.roots = [queue for queue in self.queues.values() if queue.parent is None]
        self._selectors: dict[str, labels.Selector] = {}
        for queue in self.queues.values():
            if queue.spec.namespace_selector is not None:
                try:
                    self._selectors[queue.name] = labels.from_label_selector(queue.spec.namespace_selector)
                except labels.SelectorError as error:
                    self._object(queue, "InvalidSelector", f"spec.namespaceSelector: {error}; it selects no namespace")

    def begin(self, totals: Mapping[str, Amount]) -> None:
        """A new decision on a cluster that has this of each flavor."""
        for queue in self.queues.values():
            queue.begin()
        if totals != self.totals:
            self.totals = totals
            self.lendable.clear()

    def _link(self) -> None:
        for queue in self.queues.values():
            name = queue.spec.parent
            if name is None:
                continue
            parent = self.queues.get(name)
            if parent is None:
                self._object(
                    queue,
                    "UnknownParent",
                    f"spec.parent: there is no Queue {name!r}; create it or remove the field (treated as a root until then)",
                )
            elif queue in parent.path():
                self._object(
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
                    self._object(
                        queue,
                        "ChildrenDeserveMore",
                        f"spec.flavors: the queues below it deserve {amount_text(below)} of {flavor}, it only "
                        f"{amount_text(queue.quotas[flavor].deserved)}; raise its deserved or lower theirs",
                    )

    def _object(self, queue: Queue, reason: str, message: str) -> None:
        self.problems.append(Problem(kind="Queue", name=queue.name, reason=reason, message=message))

    def resolve(self, gang: GangRequest | RunningGang) -> Queue | Reason:
        """The leaf that takes the gang, or why none does."""
        if self.implicit:
            return self.queues[""]
        if gang.queue:
            return self._named(gang.queue, gang)
        takers = [
            self.queues[name]
            for name, selector in self._selectors.items()
            if not self.queues[name].children and selector.matches(gang.namespace_labels)
        ]
        if takers:
            return takers[0]  # in name order: overlapping selectors are reported where queues are validated
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


def limit_reason(queue: Queue, flavor: str, asked: Amount) -> Reason:
    """Why a gang waits at a limit of this queue, or at what other queues keep."""
    bounds = queue.bounds(flavor)
    used = queue.used.get(flavor, 0)
    if not bounds or used + asked <= min(bounds):
        return _unlent_reason(queue, flavor, asked)
    quota, bound = queue.quotas[flavor], min(bounds)
    word = "limit" if bound == quota.limit else "borrowingLimit"
    fits = asked <= bound
    return Reason(
        code=Code.OVER_LIMIT,
        message=f"the {word} of queue {queue.name} for flavor {flavor} does not allow it",
        limit=_block(queue, flavor, asked, bound),
        could_ever_fit=fits,
        advice=f"wait until gangs of this queue end, or raise the {word}"
        if fits
        else f"it asks for more than the whole {word}: raise spec.flavors of Queue {queue.name}, or ask for less",
    )


def _unlent_reason(queue: Queue, flavor: str, asked: Amount) -> Reason:
    others = sum(root.needed(flavor) for root in queue.tree.roots) - queue.used.get(flavor, 0)
    total = queue.tree.totals.get(flavor, 0)
    left = max(total - others, 0)
    beside = [
        other
        for step in queue.path()
        for other in (queue.tree.roots if step.parent is None else step.parent.children)
        if other is not step
    ]
    return Reason(
        code=Code.OVER_LIMIT,
        message=f"other queues keep what they deserve of flavor {flavor} for themselves",
        limit=_block(queue, flavor, asked, left),
        could_ever_fit=asked <= total - sum(other.kept(flavor) for other in beside),
        advice="wait until gangs of other queues end, raise deserved of this queue, or raise lendingLimit of the others",
    )


def _block(queue: Queue, flavor: str, asked: Amount, limit: Amount) -> LimitBlock:
    return LimitBlock(
        queue=queue.name,
        flavor=flavor,
        used=amount_text(queue.used.get(flavor, 0)),
        asked=amount_text(asked),
        limit=amount_text(limit),
    )


def amount_text(value: Amount) -> str:
    return str(value) if isinstance(value, int) else f"{float(value):.4g}"
