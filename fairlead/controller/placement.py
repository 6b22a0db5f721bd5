"""A node for every pod of a gang and devices for all its claims, or nothing: the transaction at the heart of a decision.

Exists because devices and nodes must be chosen together, for all pods at once. Greedy first, best node first; where greedy
fails the gang's claims on a node are allocated anew together (k/k#138765), and then nodes are searched with backtracking.
Decides neither order nor quota. On failure the ledger is as before.
For a gang of alike units without network-attached devices greedy with joint allocation is complete: what a node can hold
does not depend on other nodes. Otherwise the search over nodes is complete within the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from fairlead.controller import allocator
from fairlead.controller.allocator import Answer, Budget, Offer, Pick, Verdict
from fairlead.controller.allocator_result import node_selector
from fairlead.controller.placement_prefer import free_of, preferred, tightest
from fairlead.controller.placement_spots import Site, Sites, Spots
from fairlead.kube import core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fairlead.controller.allocator_candidates import Candidates
    from fairlead.controller.allocator_requests import Ask, ClaimAsk
    from fairlead.controller.inventory_device import Device
    from fairlead.controller.inventory_ledger import Ledger
    from fairlead.controller.placement_shapes import Shape, Shapes, Unit

SPOTS_MIN = 16  # heaps kept in any case; each is as long as there are nodes
SPOT_ENTRIES_MAX = 4_000_000  # of all heaps together: the oldest goes first
JOINT_NODES_MAX = 256  # nodes on which a unit that fits nowhere is tried together with its gang


@dataclass(slots=True, eq=False)
class Placed:
    """A unit on its node, with what each of its claims got."""

    unit: Unit
    site: Site
    picks: list[list[Pick]]
    fixed: bool = False  # other pods rely on these very devices


@dataclass(slots=True)
class Outcome:
    """`placed` is whole or empty. Otherwise: how far it got, and what stopped it."""

    verdict: Verdict
    placed: list[Placed] = field(default_factory=list)
    members_placed: int = 0
    stuck: Unit | None = None  # the unit that found no node
    closest: Site | None = None
    short: Answer | None = None


class Placer:
    """Places gangs one after the other against one ledger."""

    def __init__(self, sites: Sites, ledger: Ledger, shapes: Shapes) -> None:
        self.sites = sites
        self.shapes = shapes
        self.ledger = ledger
        self._spots: dict[object, Spots] = {}
        self._refused: list[tuple[Spots, Site]] = []
        self.mark = sites.log.cursor  # what is logged after it was changed by the decision being made

    # ------------------------------------------------------------------------------------------------- one gang

    def place(
        self,
        units: Sequence[Unit],
        budget: Budget,
        *,
        spread: bool = False,
        avoid: frozenset[str] = frozenset(),
        among: Domain | None = None,
    ) -> Outcome:
        """All units on nodes of the domain (default: all), or none."""
        attempt = _Attempt(self, budget, spread=spread, avoid=avoid, among=among)
        outcome = attempt.greedy(units)
        if outcome.verdict is Verdict.IMPOSSIBLE and self._worth_searching(units):
            searched = attempt.search(units)
            if searched.verdict is not Verdict.IMPOSSIBLE:
                return searched if searched.verdict is Verdict.FOUND else _undecided(outcome)
        return outcome

    def _worth_searching(self, units: Sequence[Unit]) -> bool:
        return self.sites.roaming or len({unit.shape for unit in units}) > 1

    def undo(self, placed: Iterable[Placed]) -> None:
        for entry in placed:
            for picks in entry.picks:
                allocator.release(picks, self.ledger)
            for needs in entry.unit.shape.needs:
                self.ledger.load(entry.site.node, needs, -1)
            self.sites.changed(entry.site)

    def spots(self, shape: Shape, *, spread: bool, avoid: frozenset[str], among: Domain | None) -> Spots:
        key = (shape, spread, avoid, among)
        found = self._spots.get(key)
        if found is None:
            while len(self._spots) >= SPOTS_MIN and len(self._spots) * len(self.sites.all) > SPOT_ENTRIES_MAX:
                del self._spots[next(iter(self._spots))]
            scope = None if among is None else frozenset(among.sites)
            found = self._spots[key] = Spots(shape, self.sites, self.ledger, scope=scope, spread=spread, avoid=avoid)
        return found

    def forget_spots(self) -> None:
        """All of them, as when nodes came or went: those of a domain no longer know their nodes."""
        self._spots.clear()

    def begin(self) -> None:
        """A new decision: what the last one gave and refused is forgotten, what it knew of unchanged nodes is kept."""
        touched = self.sites.log.since(self.mark)
        self.ledger.clear()
        for site in dict.fromkeys(touched or ()):
            self.sites.changed(site)
        if touched is None:
            self._spots.clear()
        for spots, site in self._refused:
            spots.again(site)
        self._refused.clear()
        self.mark = self.sites.log.cursor

    def refuse(self, spots: Spots, site: Site) -> None:
        """The allocator said no to the spots' shape on this node, as the ledger is."""
        spots.drop(site)
        self._refused.append((spots, site))

    # ------------------------------------------------------------------------------------------------- one node

    def put(self, unit: Unit, site: Site, budget: Budget) -> Placed | Answer:
        """The unit on this node, or why not. Room for the pods is checked too."""
        node, ledger = site.node, self.ledger
        loaded = 0
        for needs in unit.shape.needs:
            lacking = ledger.node_lacks(node, needs)
            if lacking is not None:
                self._unload(unit, site, loaded)
                return Answer(Verdict.IMPOSSIBLE, detail=lacking)
            ledger.load(node, needs, 1)
            loaded += 1
        answer = self._fast(unit, site) or allocator.allocate(
            [self._offer(claim, site) for claim in unit.shape.claims], ledger, budget
        )
        if answer.verdict is not Verdict.FOUND:
            self._unload(unit, site, loaded)
            return answer
        self.sites.changed(site)
        return Placed(unit, site, answer.picks)

    def _fast(self, unit: Unit, site: Site) -> Answer | None:
        """The common case, n alike whole devices for one claim: no search. None when it does not apply."""
        if not unit.shape.plain:
            return Answer(Verdict.FOUND) if not unit.shape.claims else None
        ask = unit.shape.claims[0].alternatives[0][0]
        found = self.sites.candidates(site, ask)
        if not found.plain:
            return None
        free = free_of(found, self.ledger)
        if len(free) < ask.count:
            return None
        ordered = tightest(free, ask.count)[: ask.count]
        self.ledger.taken.update(ordered)
        return Answer(Verdict.FOUND, picks=[[Pick(ask, device, ()) for device in ordered]])

    def _offer(self, claim: ClaimAsk, site: Site) -> Offer:
        sites, ledger = self.sites, self.ledger

        def found(ask: Ask) -> Candidates:
            return sites.candidates(site, ask)

        def prefer(ask: Ask, candidates: Candidates) -> Sequence[Device]:
            return preferred(ask, candidates, ledger)

        return Offer(claim, found, prefer)

    def _unload(self, unit: Unit, site: Site, loaded: int) -> None:
        for needs in unit.shape.needs[:loaded]:
            self.ledger.load(site.node, needs, -1)

    def put_jointly(self, unit: Unit, site: Site, gang: list[Placed], budget: Budget) -> Placed | None:
        """The unit on this node, with the gang's claims that could be in its way allocated anew; None if even so not."""
        others = [entry for entry in gang if (self.sites.roaming or entry.site is site) and not entry.fixed]
        if not others or not unit.shape.claims:
            return None
        node, ledger = site.node, self.ledger
        loaded = 0
        for needs in unit.shape.needs:
            if ledger.node_lacks(node, needs) is not None:
                self._unload(unit, site, loaded)
                return None
            ledger.load(node, needs, 1)
            loaded += 1
        for entry in others:
            for picks in entry.picks:
                allocator.release(picks, ledger)
        offers = [self._offer(claim, entry.site) for entry in others for claim in entry.unit.shape.claims]
        offers += [self._offer(claim, site) for claim in unit.shape.claims]
        answer = allocator.allocate(offers, ledger, budget)
        if answer.verdict is not Verdict.FOUND:
            for entry in others:
                for picks in entry.picks:
                    allocator.retake(picks, ledger)
            self._unload(unit, site, loaded)
            return None
        start = 0
        for entry in others:
            count = len(entry.unit.shape.claims)
            entry.picks = answer.picks[start : start + count]
            start += count
            self.sites.changed(entry.site)
        self.sites.changed(site)
        return Placed(unit, site, answer.picks[start:])


def _undecided(outcome: Outcome) -> Outcome:
    outcome.verdict = Verdict.BUDGET_ENDED
    return outcome


class Domain:
    """Some of the nodes: those of one topology domain, or of a few. Compared by identity."""

    __slots__ = ("name", "sites")

    def __init__(self, name: str, sites: Sequence[Site]) -> None:
        self.name = name
        self.sites = sites


class _Attempt:
    """One gang on one domain."""

    def __init__(
        self, placer: Placer, budget: Budget, *, spread: bool, avoid: frozenset[str], among: Domain | None
    ) -> None:
        self.placer = placer
        self.budget = budget
        self._options: Callable[[Shape], Spots] = lambda shape: placer.spots(
            shape, spread=spread, avoid=avoid, among=among
        )
        self.deepest = Outcome(Verdict.IMPOSSIBLE)

    def greedy(self, units: Sequence[Unit]) -> Outcome:
        placed: list[Placed] = []
        ended = False
        for unit in _hardest_first(units):
            entry, stuck = self._best_node(unit)
            if entry is None:
                entry = self._with_gang(unit, placed)
            if entry is None and (parts := self._apart(unit)):
                placed += parts
                continue
            if entry is None:
                ended = self.budget.ended
                self.placer.undo(placed)
                verdict = Verdict.BUDGET_ENDED if ended else Verdict.IMPOSSIBLE
                outcome = Outcome(verdict, members_placed=_members(placed), stuck=unit)
                if stuck is not None:
                    outcome.closest, outcome.short = stuck
                return outcome
            placed.append(entry)
        return Outcome(Verdict.FOUND, placed, members_placed=_members(placed))

    def _best_node(self, unit: Unit) -> tuple[Placed | None, tuple[Site, Answer] | None]:
        spots = self._options(unit.shape)
        closest: tuple[Site, Answer] | None = None
        undecided: set[Site] = set()
        while (site := spots.best(undecided)) is not None:
            entry = self.placer.put(unit, site, self.budget)
            if isinstance(entry, Placed):
                return entry, None
            closest = closest or (site, entry)
            if entry.verdict is Verdict.BUDGET_ENDED:
                undecided.add(site)
            else:
                self.placer.refuse(spots, site)
        return None, closest

    def _with_gang(self, unit: Unit, placed: list[Placed]) -> Placed | None:
        """On a node that its gang uses already, all their claims there allocated together."""
        if unit.shape.plain and all(entry.unit.shape is unit.shape for entry in placed):
            return None  # alike asks can't make room for one another
        spots = self._options(unit.shape)
        seen: dict[Site, None] = dict.fromkeys(entry.site for entry in placed)
        for site in list(seen)[:JOINT_NODES_MAX]:
            if site in spots.among:
                entry = self.placer.put_jointly(unit, site, placed, self.budget)
                if entry is not None:
                    return entry
        return None

    def _apart(self, unit: Unit) -> list[Placed]:
        """Pods that share a claim on different nodes, where its devices can be reached from several; [] if they can't."""
        if len(unit.members) == 1 or not self.placer.sites.roaming:
            return []
        lead = self.placer.shapes.lead(unit)
        for site in self._options(lead.shape).ranked():
            first = self.placer.put(lead, site, self.budget)
            if not isinstance(first, Placed):
                continue
            picks = [pick for given in first.picks for pick in given]
            parts = [first]
            if not any(pick.device.local for pick in picks):
                selector = node_selector(picks, site.name)
                bound = None if selector is None else msgspec.convert(selector, core.NodeSelector)
                for follower in self.placer.shapes.followers(unit, bound):
                    entry, _ = self._best_node(follower)
                    if entry is None:
                        break
                    parts.append(entry)
                else:
                    first.fixed = True
                    return parts
            self.placer.undo(parts)
        return []

    # ------------------------------------------------------------------------------------- backtracking over nodes

    def search(self, units: Sequence[Unit]) -> Outcome:
        """Every way to spread the units over nodes, until one works or the budget ends."""
        ordered = _hardest_first(units)
        placed: list[Placed] = []
        try:
            found = self._descend(ordered, 0, placed)
        except (_EndError, RecursionError):
            found = False
            self.budget.ended = True
            self.placer.undo(placed)
        if found:
            return Outcome(Verdict.FOUND, placed, members_placed=_members(placed))
        return Outcome(Verdict.BUDGET_ENDED if self.budget.ended else Verdict.IMPOSSIBLE)

    def _descend(self, units: list[Unit], place: int, placed: list[Placed]) -> bool:
        if place == len(units):
            return True
        unit = units[place]
        spots = self._options(unit.shape)
        alike = place > 0 and units[place - 1].shape is unit.shape
        least = placed[-1].site.name if alike and not self.placer.sites.roaming else ""
        for site in sorted(spots.among, key=_name):
            if site.name < least:
                continue  # alike units in ascending order of nodes: any other way is the same way
            self.budget.steps -= 1
            if self.budget.steps < 0:
                raise _EndError
            before = [entry.picks for entry in placed]
            entry: Placed | Answer | None = self.placer.put(unit, site, self.budget)
            if not isinstance(entry, Placed):
                entry = self.placer.put_jointly(unit, site, placed, self.budget)
            if entry is None:
                continue
            placed.append(entry)
            if self._descend(units, place + 1, placed):
                return True
            placed.pop()
            self.placer.undo((entry,))
            self._restore(placed, before)
        return False

    def _restore(self, placed: list[Placed], before: list[list[list[Pick]]]) -> None:
        """Back to the picks that the units had before they were allocated anew together."""
        moved = [(entry, picks) for entry, picks in zip(placed, before, strict=True) if entry.picks is not picks]
        for entry, _ in moved:
            for picks in entry.picks:
                allocator.release(picks, self.placer.ledger)
        for entry, earlier in moved:
            entry.picks = earlier
            for picks in earlier:
                allocator.retake(picks, self.placer.ledger)
            self.placer.sites.changed(entry.site)


class _EndError(Exception):
    """The budget ended."""


def _name(site: Site) -> str:
    return site.name


def _members(placed: Sequence[Placed]) -> int:
    return sum(len(entry.unit.members) for entry in placed)


def _hardest_first(units: Sequence[Unit]) -> list[Unit]:
    """Large units before small ones, alike ones together; otherwise as given."""
    return sorted(units, key=lambda unit: (-unit.shape.least, unit.shape.number))
