"""First fit and best fit over published devices, to compare with: the same requests, devices and counters as the engine's.

- First fit: the first node that has the devices, and on it the first that are free, in order of publication. That is how
  kube-scheduler chooses devices on a node; among nodes it knows nothing of them either.
- Best fit: the GPU that keeps least (compute slices, then memory slices), then the node that keeps least, then as published.
  Of several GPUs: the node with fewest whole ones free.
Written on plain lists; shares nothing with the engine but the reading of amounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from benchmarks.mig.published import Offer, Published, serves
from benchmarks.mig.requests import MigRequest
from fairlead.engine.types.values import Amount

Rule = Literal["first-fit", "best-fit"]
Key = tuple[int, ...]


class Node:
    """A node as it fills."""

    def __init__(self, published: Published) -> None:
        self.published = published
        self.free = dict(published.totals)
        self.taken: set[str] = set()
        self.changes = 0
        self._compute: dict[str, int] = {}  # of each GPU, slices left
        self._memory: dict[str, int] = {}
        for offer in published.offers:
            if published.totals:  # dynamic: a GPU is as large as its largest device
                self._compute[offer.parent] = max(offer.compute, self._compute.get(offer.parent, 0))
                self._memory[offer.parent] = max(offer.memory, self._memory.get(offer.parent, 0))

    def fits(self, offer: Offer) -> bool:
        return offer.name not in self.taken and all(self.free[key] >= value for key, value in offer.counters)

    def change(self, offer: Offer, sign: int) -> None:
        """Take (1) or give back (-1)."""
        self.changes += 1
        note = self.taken.add if sign > 0 else self.taken.discard
        note(offer.name)
        for key, value in offer.counters:
            self.free[key] -= sign * value
        if offer.counters:
            self._compute[offer.parent] -= sign * offer.compute
            self._memory[offer.parent] -= sign * offer.memory

    def keeps(self, offer: Offer, request: MigRequest) -> tuple[int, int]:
        """Compute and memory slices that its GPU would have left; of a device cut beforehand, those it has too many."""
        if offer.counters:
            return self._compute[offer.parent] - offer.compute, self._memory[offer.parent] - offer.memory
        return offer.compute - request.slices // request.gpus, offer.memory

    def left(self) -> int:
        """Compute slices that nothing holds."""
        if self._compute:
            return sum(self._compute.values())
        return sum(offer.compute for offer in self.published.offers if offer.name not in self.taken)


class ListedFleet:
    """`place` returns what `release` takes, or None where the request fits nowhere."""

    def __init__(self, nodes: Iterable[Published], rule: Rule, *, static: bool) -> None:
        self._nodes = [Node(each) for each in nodes]
        self._rule = rule
        self._least = (
            {name: size for node in self._nodes for name, size in node.published.sizes.items()} if static else {}
        )
        self._found: dict[tuple[int, MigRequest], tuple[int, tuple[Key, tuple[Offer, ...]] | None]] = {}
        self._held: dict[int, tuple[Node, tuple[Offer, ...]]] = {}
        self._number = 0

    def place(self, request: MigRequest) -> int | None:
        best: tuple[Key, Node, tuple[Offer, ...]] | None = None
        for place, node in enumerate(self._nodes):
            found = self._on(place, node, request)
            if found is not None and (best is None or found[0] < best[0]):
                best = (found[0], node, found[1])
                if self._rule == "first-fit":
                    break
        if best is None:
            return None
        for offer in best[2]:
            best[1].change(offer, 1)
        self._number += 1
        self._held[self._number] = best[1:]
        return self._number

    def release(self, number: int) -> None:
        node, offers = self._held.pop(number)
        for offer in offers:
            node.change(offer, -1)

    def held(self) -> Sequence[tuple[int, tuple[Offer, ...]]]:
        """Which devices of which node are taken, for each request that runs."""
        places = {id(node): place for place, node in enumerate(self._nodes)}
        return [(places[id(node)], offers) for node, offers in self._held.values()]

    def _on(self, place: int, node: Node, request: MigRequest) -> tuple[Key, tuple[Offer, ...]] | None:
        """The best choice on one node; remembered until the node changes."""
        known = self._found.get((place, request))
        if known is None or known[0] != node.changes:
            known = self._found[place, request] = (node.changes, self._choose(node, request))
        return known[1]

    def _choose(self, node: Node, request: MigRequest) -> tuple[Key, tuple[Offer, ...]] | None:
        least: tuple[Amount, Amount] | None = self._least.get(request.profile)
        fitting = [each for each in node.published.offers if serves(each, request, least) and node.fits(each)]
        if len(fitting) < request.gpus:
            return None
        if self._rule == "first-fit":
            return (), tuple(fitting[: request.gpus])
        if request.gpus > 1:
            return (len(fitting),), tuple(fitting[: request.gpus])
        best = min(fitting, key=lambda each: node.keeps(each, request))  # ties: as published
        return (*node.keeps(best, request), node.left()), (best,)
