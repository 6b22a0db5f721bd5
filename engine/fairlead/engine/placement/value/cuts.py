"""What is left of a GPU that can be cut is worth, and what a cut costs of it. Works on amounts only: no nodes, no devices.

A GPU's state is what its counters have left; a cut is what one partition (a MIG device at one placement, or the whole GPU)
consumes of them. Where a partition goes decides what still fits: 1g.10gb at slice 0 of an empty GPU ends 4g.40gb, at slice 6
nothing but 7g.80gb. Each kind of usual request has a price, its dual in the cutting-stock programme (as few GPUs as possible for
the whole mix, `leftover.Stock`); a state is worth the most valuable set of usual partitions that fits into it, and
- waste is what the state loses beyond the price of the request;
- room that the GPU keeps costs too, so that GPUs which are cut already come first: each GPU that is cut is one less for gangs that
  request whole ones, and comes back late. It counts half, and in full where a part `FIRM` of the demand or more is for several GPUs
  at once. Chosen on mixes drawn for it: without it, some mixes lost up to 1.6 points against best fit at 100 % load.
Source: Gilmore and Gomory 1961; NVIDIA MIG User Guide, placements.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.engine.placement.value.leftover import Stock
from fairlead.engine.types.values import Amount

STATES_MAX = 20_000  # of one kind of GPU; with more, cuts are not priced
MEMORY_MAX = 50_000
FIRM = 0.05  # part of the demand, by size
FIRMNESS_MIN = 0.5
SCALE = 1_000_000  # costs are whole numbers of this part of a GPU
_TINY = 1e-12
State = tuple["Amount", ...]  # what each counter of the GPU has left
Cut = tuple[tuple[int, "Amount"], ...]  # counter, by its place in the state, and what is consumed of it
Kind = tuple[tuple[str, ...], State]  # of GPU: names of its counters, and how much it has of each


class Packings:
    """Which usual partitions fit into each state, and what is left then. `kinds`: the cuts that serve each kind of request."""

    def __init__(self, kinds: Sequence[Sequence[Cut]]) -> None:
        self.kinds = kinds
        self._next: dict[State, tuple[tuple[int, State], ...]] = {}

    def next(self, state: State) -> tuple[tuple[int, State], ...]:
        """(kind, state after it) for each cut that fits."""
        found = self._next.get(state)
        if found is None:
            if len(self._next) >= MEMORY_MAX:
                self._next.clear()
            steps = {
                (kind, after(state, cut)): None
                for kind, cuts in enumerate(self.kinds)
                for cut in cuts
                if fits(state, cut)
            }
            found = self._next[state] = tuple(steps)
        return found

    def few(self, totals: State) -> bool:
        """Whether a whole GPU has at most `STATES_MAX` states."""
        seen, waiting = {totals}, [totals]
        while waiting:
            for _, state in self.next(waiting.pop()):
                if state not in seen:
                    seen.add(state)
                    waiting.append(state)
            if len(seen) > STATES_MAX:
                return False
        return True


class Worth:
    """The worth of states, at given prices of the kinds."""

    def __init__(self, packings: Packings, prices: Sequence[float]) -> None:
        self._packings = packings
        self._prices = prices
        self._known: dict[State, tuple[float, int, State]] = {}

    def __call__(self, state: State) -> float:
        return self._best(state)[0]

    def packing(self, state: State) -> list[int]:
        counts = [0] * len(self._prices)
        while True:
            _, kind, following = self._best(state)
            if kind < 0:
                return counts
            counts[kind] += 1
            state = following

    def _best(self, state: State) -> tuple[float, int, State]:
        """The worth, and the first step to it: its kind (-1: none) and the state after it."""
        found = self._known.get(state)
        if found is None:
            found = (0.0, -1, state)
            for kind, following in self._packings.next(state):
                worth = self._prices[kind] + self._best(following)[0]
                if worth > found[0] + _TINY:
                    found = (worth, kind, following)
            if len(self._known) >= MEMORY_MAX:
                self._known.clear()
            self._known[state] = found
        return found


class CutValue:
    """The usual requests on GPUs of one kind, priced."""

    def __init__(
        self,
        kind: Kind,
        kinds: Sequence[Sequence[Cut]],
        demand: Sequence[float],
        groups: Sequence[Sequence[int]],
        several: float,
    ) -> None:
        """`kinds`: the cuts that serve each kind of request. `demand`: devices of each kind; each fits. `groups`: counters that are parts of one thing. `several`: the part of the
        demand that is for several GPUs at once.
        """
        self.kind = kind
        self._packings = Packings(kinds)
        self._totals = totals = kind[1]
        every = [{place for place, _ in cut} for cuts in kinds for cut in cuts]
        # Of what all consume; the media engines that few do say nothing of what is left for the others.
        self._groups = [
            (group, sum(totals[place] for place in group))
            for group in groups
            if any(totals[place] for place in group) and all(not each.isdisjoint(group) for each in every)
        ]
        self._firmness = max(FIRMNESS_MIN, min(1.0, several / FIRM))
        self.priced = self._packings.few(totals)
        prices = self._prices(demand) if self.priced else [0.0] * len(kinds)
        self._worth = Worth(self._packings, prices)
        scale = self._worth(totals) or 1.0
        prices = [price / scale for price in prices]
        self._worth = Worth(self._packings, prices)
        self._price: dict[Cut, float] = {}
        for price, cuts in zip(prices, kinds, strict=True):
            for cut in cuts:
                self._price[cut] = max(price, self._price.get(cut, 0.0))
        self._costs: dict[tuple[State, Cut], tuple[int, int] | None] = {}

    def cost(self, state: State, cut: Cut) -> tuple[int, int] | None:
        """(cost, thousandths of the GPU left then), low is better; None where the cut does not fit."""
        key = (state, cut)
        if key in self._costs:
            return self._costs[key]
        if len(self._costs) >= MEMORY_MAX:
            self._costs.clear()
        found: tuple[int, int] | None = None
        if fits(state, cut):
            rest = after(state, cut)
            left = self.left(rest)
            waste = self._worth(state) - self._worth(rest) - self._price.get(cut, 0.0)
            found = (round(SCALE * (round(waste, 6) + self._firmness * left / 1000)), left)
        self._costs[key] = found
        return found

    def left(self, state: State) -> int:
        """Thousandths of the GPU: of what is scarcest on it."""
        return min(
            [int(1000 * sum([state[place] for place in group]) // total) for group, total in self._groups], default=0
        )

    def whole(self, state: State) -> bool:
        return state == self._totals

    def _prices(self, demand: Sequence[float]) -> list[float]:
        most = []
        for number in range(len(demand)):
            alone = [1.0 if kind == number else 0.0 for kind in range(len(demand))]
            most.append(max(1, round(Worth(self._packings, alone)(self._totals))))

        def most_valuable(prices: Sequence[float]) -> tuple[float, Sequence[int]]:
            worth = Worth(self._packings, prices)
            return worth(self._totals), worth.packing(self._totals)

        return Stock(most, demand).prices(most_valuable)


def fits(state: State, cut: Cut) -> bool:
    return all([state[place] >= value for place, value in cut])  # noqa: C419  # a generator takes twice the time


def after(state: State, cut: Cut) -> State:
    """What is left after the cut, which fits."""
    left = list(state)
    for place, value in cut:
        left[place] -= value
    return tuple(left)
