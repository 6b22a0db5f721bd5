"""The tree of queues: which queue is below which, and which leaf takes which gang.

A broken Queue object never stops the others: its faults are listed, and the queue is left out or treated as a root. Without
any Queue object there is one implicit queue without quotas, named "".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.queues.charges import add
from fairlead.engine.queues.limits import amount_text
from fairlead.engine.queues.queue import Cohort, Queue
from fairlead.engine.types.reasons import Code, Reason
from fairlead.engine.types.settings import Problem, QueueSpec
from fairlead.kube import labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead.engine.types.amounts import Amount
    from fairlead.engine.types.gangs import GangRequest, RunningGang


class Tree(Cohort):
    """The queues by name, and the faults of their specs."""

    def __init__(self, specs: Sequence[QueueSpec]) -> None:
        super().__init__()
        self.problems: list[Problem] = []
        self.implicit = not specs
        self.queues: dict[str, Queue] = {}
        for spec in sorted(specs or (QueueSpec(name=""),), key=lambda spec: (spec.name, spec.uid)):
            if spec.name not in self.queues:
                self.queues[spec.name] = Queue(spec, self)
        self._link()
        self.lending_limited = any(quota.lending_limit is not None for spec in specs for quota in spec.quotas)
        self.roots = [queue for queue in self.queues.values() if queue.parent is None]
        self._selectors: dict[str, labels.Selector] = {}
        for queue in self.queues.values():
            if queue.spec.namespace_selector is not None:
                try:
                    self._selectors[queue.name] = labels.from_label_selector(queue.spec.namespace_selector)
                except labels.SelectorError as error:
                    self._report(queue, "InvalidSelector", f"spec.namespaceSelector: {error}; it selects no namespace")

    def begin(self, totals: Mapping[str, Amount]) -> None:
        """A new decision on a cluster that has this of each flavor."""
        for queue in self.queues.values():
            queue.begin()
        if totals != self.totals:
            self.totals = totals
            self.lendable.clear()

    def settle(self) -> None:
        """The decision is made: queues use what their leaving pods hold still."""
        for queue in self.queues.values():
            add(queue.used, queue.releasing)

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
