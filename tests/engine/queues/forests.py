"""Random trees of queues, as deep as they come, in several flavors, and what their leaves ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.engine.queues.fair_share import divide_tree
from fairlead.engine.queues.tree import Tree
from fairlead.engine.types.settings import FlavorQuota, QueueSpec

Demands = Mapping[str, Mapping[str, int]]
"""Leaf: flavor: amount."""


@dataclass(frozen=True)
class Forest:
    """Parents come before their children. Nobody is promised what the queue above, or the cluster, has not got."""

    specs: tuple[QueueSpec, ...]
    demands: Demands
    totals: Mapping[str, int]
    k: float

    def __repr__(self) -> str:
        rows = [
            f"{s.name} in {s.parent}: {[*s.quotas]} priority {s.priority} past {dict(s.past_usage)} "
            f"asks {dict(self.demands.get(s.name, {}))}"
            for s in self.specs
        ]
        return "\n".join([f"{dict(self.totals)}, k={self.k}", *rows])

    def tree(self) -> Tree:
        """Divided."""
        tree = Tree(self.specs)
        tree.begin(self.totals)
        for name, asked in self.demands.items():
            for step in tree.queues[name].path():
                for flavor, amount in asked.items():
                    if amount:
                        step.demand[flavor] = step.demand.get(flavor, 0) + amount
        divide_tree(tree, self.totals, k=self.k)
        return tree

    def shares(self) -> dict[tuple[str, str], Fraction]:
        tree = self.tree()
        return {
            (name, flavor): Fraction(queue.fair.get(flavor, 0))
            for name, queue in tree.queues.items()
            for flavor in self.totals
        }


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    """Up to a dozen queues."""
    flavors = ["a100", "h100", "mig"][: draw(st.integers(1, 3))]
    specs: list[QueueSpec] = []
    for number in range(draw(st.integers(1, 12))):
        parent = draw(st.sampled_from([None, *(spec.name for spec in specs)])) if specs else None
        quotas = [
            FlavorQuota(
                flavor=flavor,
                deserved=draw(st.sampled_from([0, 0, 1, 3, 6])),
                limit=draw(st.sampled_from([None, None, None, 4, 9])),
                weight=draw(st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 2.5, 6.0])),
                borrowing_limit=draw(st.sampled_from([None, None, None, 3])),
                lending_limit=draw(st.sampled_from([None, None, None, 1])),
            )
            for flavor in flavors
            if draw(st.integers(0, 3))
        ]
        past = {flavor: draw(st.sampled_from([0.0, 0.0, 0.1, 0.4, 0.8])) for flavor in flavors}
        priority = draw(st.sampled_from([0, 0, 0, 1]))
        specs.append(
            QueueSpec(name=f"q{number:02}", parent=parent, priority=priority, quotas=tuple(quotas), past_usage=past)
        )
    specs = consistent(specs)
    by_name = {spec.name: spec for spec in specs}
    roots = [spec for spec in specs if spec.parent is None]
    totals = {
        flavor: max(draw(st.integers(1, 40)), ceil(sum(deserved_of(by_name, spec, flavor) for spec in roots)))
        for flavor in flavors
    }
    above = {spec.parent for spec in specs}
    asked = st.sampled_from([0, 0, 1, 2, 3, 5, 7, 9, 20, 40])
    demands = {spec.name: {flavor: draw(asked) for flavor in flavors} for spec in specs if spec.name not in above}
    return Forest(tuple(specs), demands, totals, draw(st.sampled_from([0.0, 1.0])))


def consistent(specs: Sequence[QueueSpec]) -> list[QueueSpec]:
    """The same, with parents that deserve no less than their children, and no limit below what is deserved."""
    found: dict[str, QueueSpec] = {}
    for spec in reversed(specs):
        quotas = []
        for quota in spec.quotas:
            children = [child for child in found.values() if child.parent == spec.name]
            below = sum(deserved_of(found, child, quota.flavor) for child in children)
            deserved = max(quota.deserved, below)
            limit = None if quota.limit is None else max(quota.limit, deserved)
            quotas.append(replace(quota, deserved=deserved, limit=limit))
        found[spec.name] = replace(spec, quotas=tuple(quotas))
    return [found[spec.name] for spec in specs]


def deserved_of(specs: Mapping[str, QueueSpec], spec: QueueSpec, flavor: str) -> int | Fraction:
    """Its own word, or what those below it deserve together."""
    for quota in spec.quotas:
        if quota.flavor == flavor:
            return quota.deserved
    return sum(deserved_of(specs, child, flavor) for child in specs.values() if child.parent == spec.name)
