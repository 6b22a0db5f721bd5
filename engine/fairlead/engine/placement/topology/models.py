"""One model for one gang: what it is bound to, which models it may have, and the search among them.

The rule binds requests that ask for the same: of one worker group (`PendingMember.worker_group`), with the same DeviceClass and
selectors in each alternative, whatever their counts. Requests with other selectors are another kind, and choose by themselves: a
leader on an L40S and workers on H100s, each by its own selector. Devices by admin access do not count, nor a claim whose devices
must be of distinct products (`distinctAttribute`). What released members hold decides for those that join.
Example: 16 GPUs by one template, 8 H100 and 12 A100 free: no place. With 16 A100 free: all of these.
Models are the outermost level of the gang's topology: of those that have capacity for it the one on which it fits best. Best is, in
this order: nodes on which it did not fail before, an earlier alternative of `firstAvailable`, preferred nodes, the smallest MIG devices,
the fewest nodes, least taken of what is scarce, the least capacity; with `spread` the most capacity.
A refusal is a proof where capacities rule all models out or each search proves it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice, product
from typing import NamedTuple

from fairlead.api.topology import Level
from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest, InvalidClaimError
from fairlead.engine.allocator.result import SearchStatus
from fairlead.engine.allocator.steps import StepBudget
from fairlead.engine.inventory.inventory import Inventory
from fairlead.engine.inventory.models import PRODUCTS, Model, model_of
from fairlead.engine.placement.capacity.unit_capacity import UnitCapacity, counts
from fairlead.engine.placement.model import NodeScope, PlacementResult, UnitPlacement, better
from fairlead.engine.placement.search.placer import Placer
from fairlead.engine.placement.shapes import PlacementUnit, UnitShape
from fairlead.engine.types.gangs import GangRequest
from fairlead.engine.types.values import DeviceRef

Search = Callable[[Sequence[PlacementUnit], Sequence[Level], StepBudget], PlacementResult]


def first_found(
    ways: Sequence[Sequence[PlacementUnit]], levels: Sequence[Level], budget: StepBudget, search: Search, *, whole: bool
) -> PlacementResult:
    """The gang in the first way that has a place, or the failure that got furthest. `ways`: its units, restricted; `whole`: they are all
    there are, so that a refusal may be a proof.
    """
    result = PlacementResult(SearchStatus.IMPOSSIBLE)
    for tried in _passes(levels) if len(ways) > 1 else [levels]:
        result = PlacementResult(SearchStatus.IMPOSSIBLE)
        for units in ways:
            found = search(units, tried, budget.attempt())
            if found.status is SearchStatus.FOUND:
                return found
            result = better(result, found)
    if not whole and result.status is SearchStatus.IMPOSSIBLE:
        result.status = SearchStatus.BUDGET_ENDED
    return result


def as_asked(result: PlacementResult, units: Sequence[PlacementUnit]) -> PlacementResult:
    """A failure, of the units as the gang asks for them instead of what they were restricted to."""
    unplaced = result.unplaced
    own = next((unit for unit in units if unplaced is not None and unit.members == unplaced.members), None)
    return replace(result, unplaced=own)


def _passes(levels: Sequence[Level]) -> list[Sequence[Level]]:
    """The levels with all that are preferred as required, then with fewer and fewer of these, at last as they are."""
    bound = sum(level.mode == "required" for level in levels)
    strict = [
        tuple(Level("required", level.label) for level in levels[:depth]) for depth in range(len(levels), bound, -1)
    ]
    return [*strict, levels]


CHOICES_MAX = 64  # of models for several kinds of requests together that are tried

Asked = tuple[tuple[str, tuple[str, ...]], ...]
"""The DeviceClass and selectors of each alternative."""
Kind = tuple[str, Asked]
"""Worker group, and what is asked for."""


class Choice(NamedTuple):
    """The gang's units with devices of one model for each kind of request."""

    models: tuple[Model, ...]
    units: list[PlacementUnit]


class Choices(NamedTuple):
    """`whole`: these are all there are."""

    of: list[Choice]
    whole: bool


class _Rank(NamedTuple):
    avoided: int
    alternative: int
    preference: int
    size: int
    nodes: int
    scarce: int
    share: float
    models: tuple[Model, ...]


class ModelRule:
    def __init__(self, placer: Placer, inventory: Inventory, capacity: UnitCapacity) -> None:
        self._placer = placer
        self._capacity = capacity
        self._inventory = inventory
        self._asked: dict[UnitShape, dict[CompiledRequest, Asked]] = {}
        self._offered: dict[object, frozenset[Model]] = {}  # by filter: of all nodes
        self._membership = -1

    @staticmethod
    def binds(gang: GangRequest, units: Sequence[PlacementUnit]) -> bool:
        """Whether there is anything to choose: not for a single device, unless it joins others."""
        if gang.models == "any":
            return False
        if len(units) > 1 or gang.placed_claims:
            return True
        shape = units[0].shape
        return shape.least > 1 or any(each.all for claim in shape.claims for of in claim.alternatives for each in of)

    def held(self, gang: GangRequest) -> dict[Kind, set[Model]]:
        """The models of what released members hold, as far as those devices are published now."""
        found: dict[Kind, set[Model]] = {}
        for group, claim in gang.placed_claims:
            if claim.allocation is None:
                continue
            try:
                compiled = self._placer.shapes.compiler.compile(claim)
            except InvalidClaimError:
                continue
            asked = {each.request: asked for each, asked in _asked_in(compiled)}
            for item in claim.allocation.devices.results:
                device = self._inventory.device(DeviceRef(item.driver, item.pool, item.device))
                kind = asked.get(item.request.partition("/")[0])
                if device is not None and kind is not None and not item.admin_access:
                    found.setdefault((group, kind), set()).add(model_of(device))
        return found

    def used(self, placed: Iterable[UnitPlacement]) -> dict[Kind, set[Model]]:
        """The models of what was chosen."""
        nodes = self._placer.node_snapshot
        by_request: dict[tuple[UnitShape, CompiledRequest, str], set[Model]] = {}
        for entry in placed:
            group = _group(entry.unit)
            for picks in entry.picks:
                for request in {pick.request: None for pick in picks}:
                    models: Iterable[Model] = (there := nodes.candidates(entry.node, request).models)
                    if len(there) > 1:
                        models = {model_of(pick.device) for pick in picks if pick.request is request}
                    by_request.setdefault((entry.unit.shape, request, group), set()).update(models)
        found: dict[Kind, set[Model]] = {}
        for (shape, request, group), several in by_request.items():
            asked = None if request.admin else self._asked_by(shape).get(request)
            if asked is not None:
                found.setdefault((group, asked), set()).update(several)
        return found

    def choices(self, gang: GangRequest, units: Sequence[PlacementUnit]) -> Choices | None:
        """Each way to give every kind of request one model that some node has; None where there is nothing to choose."""
        if not self.binds(gang, units):
            return None
        held = self.held(gang)
        options: dict[Kind, list[Model]] = {}
        for kind, (devices, requests) in self._wanted(units).items():
            offered = frozenset[Model]().union(*map(self._offers, requests))
            allowed = held.get(kind, offered)
            if (devices > 1 or kind in held) and (len(offered) > 1 or not offered <= allowed):
                options[kind] = sorted(allowed)
        if not options:
            return None
        every = product(*options.values())
        found = [self._choice(units, tuple(options), models) for models in islice(every, CHOICES_MAX)]
        return Choices(found, next(every, None) is None)

    def wanted(self, units: Sequence[PlacementUnit]) -> dict[Kind, int]:
        return {kind: devices for kind, (devices, _) in self._wanted(units).items()}

    def _wanted(self, units: Sequence[PlacementUnit]) -> dict[Kind, tuple[int, list[CompiledRequest]]]:
        """Devices at least, by kind of request, and the requests of it. `All` counts as two: it may be several."""
        found: dict[Kind, tuple[int, dict[CompiledRequest, None]]] = {}
        for (shape, group), count in Counter((unit.shape, _group(unit)) for unit in units).items():
            for claim in filter(_is_bound, shape.claims):
                for alternatives in claim.alternatives:
                    if all(each.admin for each in alternatives):
                        continue
                    most = max(2 if each.all else each.count for each in alternatives)
                    devices, requests = found.setdefault((group, _asked(alternatives)), (0, {}))
                    requests.update(dict.fromkeys(alternatives))
                    found[group, _asked(alternatives)] = devices + count * most, requests
        return {kind: (devices, list(requests)) for kind, (devices, requests) in found.items()}

    def _choice(self, units: Sequence[PlacementUnit], kinds: tuple[Kind, ...], models: tuple[Model, ...]) -> Choice:
        chosen = dict(zip(kinds, models, strict=True))
        known: dict[tuple[UnitShape, str], tuple[CompiledClaim, ...]] = {}
        shapes = self._placer.shapes
        restricted = []
        for unit in units:
            key = (unit.shape, _group(unit))
            claims = known.get(key)
            if claims is None:
                claims = known[key] = tuple(
                    shapes.compiler.of_models(
                        claim, tuple(chosen.get((key[1], _asked(of))) for of in claim.alternatives)
                    )
                    if _is_bound(claim)
                    else claim
                    for claim in unit.shape.claims
                )
            restricted.append(shapes.with_claims(unit, claims))
        return Choice(models, restricted)

    def _offers(self, request: CompiledRequest) -> frozenset[Model]:
        """The models of the devices that serve the request on some node, whatever is in use."""
        nodes = self._placer.node_snapshot
        if self._membership != nodes.membership:
            self._membership = nodes.membership
            self._offered.clear()
        found = self._offered.get(request.filter)
        if found is None:
            every = (nodes.candidates(node, request).models for node in nodes.all)
            found = self._offered[request.filter] = frozenset[Model]().union(*every)
        return found

    def _asked_by(self, shape: UnitShape) -> Mapping[CompiledRequest, Asked]:
        found = self._asked.get(shape)
        if found is None:
            found = self._asked[shape] = {each: asked for claim in shape.claims for each, asked in _asked_in(claim)}
        return found

    def ways(self, choices: Choices, scope: NodeScope) -> list[Sequence[PlacementUnit]]:
        """The units of the choices that may have capacity, best first; else of the largest: what is said of the gang comes from it."""
        fitting: list[tuple[_Rank, Choice]] = []
        others: list[tuple[float, int, Choice]] = []
        for number, choice in enumerate(choices.of):
            rank, share = self._rank(choice, scope)
            if share >= 1 or not self._placer.bounded(choice.units):
                fitting.append((rank, choice))
            else:
                others.append((-share, number, choice))
        fitting.sort(key=lambda each: each[0])
        return [choice.units for _, choice in fitting] or [choice.units for *_, choice in sorted(others)[:1]]

    def _rank(self, choice: Choice, scope: NodeScope) -> tuple[_Rank, float]:
        """With how many times over it may hold the gang."""
        avoided = alternative = preference = scarce = size = nodes = 0
        share = float("inf")
        for shape, count in counts(choice.units).items():
            capacities = sorted(self._capacity.by_node(shape, scope).values(), reverse=True)
            share = min(share, sum(capacities) / count)
            nodes += bisect_left(list(accumulate(capacities)), count) + 1
            scored = self._placer.scored_nodes(shape, scope)
            best = scored.best()
            score = None if best is None else scored.score(best)
            if best is not None and score is not None:
                spare = scored.fit.spare(best)
                avoided, alternative, preference, scarce = (
                    sum(pair) for pair in zip((avoided, alternative, preference, scarce), score[:4], strict=True)
                )
                size += 0 if spare is None else spare.size
        if scope.spread:
            nodes, share_rank = 0, -share
        else:
            share_rank = share
        return _Rank(avoided, alternative, preference, size, nodes, scarce, share_rank, choice.models), share


def mixes(used: Mapping[Kind, set[Model]], held: Mapping[Kind, set[Model]]) -> bool:
    """Whether a kind of request got several models, or another than what released members hold."""
    return any(len(models) > 1 or not models <= held.get(kind, models) for kind, models in used.items())


def _is_bound(claim: CompiledClaim) -> bool:
    return not any(each.distinct and each.attribute in PRODUCTS for each in claim.constraints)


def _asked_in(claim: CompiledClaim) -> Iterator[tuple[CompiledRequest, Asked]]:
    if _is_bound(claim):
        for alternatives in claim.alternatives:
            asked = _asked(alternatives)
            yield from ((each, asked) for each in alternatives)


def _asked(alternatives: Sequence[CompiledRequest]) -> Asked:
    return tuple([(each.class_name, each.filter.selectors) for each in alternatives])


def _group(unit: PlacementUnit) -> str:
    return (
        min([member.worker_group for member in unit.members]) if len(unit.members) > 1 else unit.members[0].worker_group
    )
