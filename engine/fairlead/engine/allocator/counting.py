"""Bounds by counting: whether the claims ask for more than is free, in sum, whatever device goes to which request.

A search proves that by trying every way, which takes minutes where requests have many alternatives. Here each request counts for
the least that one of its alternatives takes: of devices, of counters (numbered ones together, in all sets), of the capacity of
shared devices. Necessary, not sufficient: False says nothing.
Three bounds: the results of each claim; all requests together; those that can only be served from the same few devices (Hall). With
`matchAttribute` the same for each value that the constraint's devices may share.

Example: 32 requests, each for one GPU or for two, on a node with 8 free GPUs: 32 > 8.
Example: 4 of 10 requests take only GPUs of one kind, of which 3 are free: 4 > 3, though there are 16 GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fairlead.engine.allocator.candidates import Candidates
from fairlead.engine.allocator.requests import RESULTS_MAX, CompiledRequest
from fairlead.engine.allocator.search_space import Constraint, Key, SearchSpace
from fairlead.engine.inventory.counters import group_name
from fairlead.engine.inventory.device import Device, Value
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.types.values import Amount

Amounts = dict[tuple[str, str], "Amount"]  # by kind and name of what is taken
DEVICES = ("devices", "")
VALUES_MAX = 64  # of an attribute, looked at
SETS_MAX = 64  # of devices that requests can only be served from, compared with one another


class Option(NamedTuple):
    """One alternative: devices that may serve it now, and the least that it takes of everything."""

    devices: frozenset[Device]
    least: Amounts
    admin: bool


class Counting:
    """The counts of one search, in the state before it. Alternatives with the same candidates are counted once."""

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._ledger = space.ledger
        self._taken: dict[Device, Amounts] = {}
        self._options: dict[object, Option | None] = {}
        self._alive: list[object] = []  # what keys name by identity

    def too_much(self) -> bool:
        if self._too_many_results():
            return True
        if self._in_sum({}):
            return True
        return any(
            isinstance(constraint, Constraint) and not constraint.distinct and self._no_value(claim, constraint)
            for claim, constraints in enumerate(self._space.constraints)
            for constraint in constraints
        )

    def _too_many_results(self) -> bool:
        results = [0] * len(self._space.claims)
        for (claim, _), alternatives in zip(self._space.slots, self._space.alternatives, strict=True):
            results[claim] += min(
                len(self._space.order[claim, each]) if each.all else each.count for each in alternatives
            )
        return max(results, default=0) > RESULTS_MAX

    def _no_value(self, claim: int, constraint: Constraint) -> bool:
        """Whether for each value that the devices of a `matchAttribute` may share there is too little."""
        space = self._space
        covered = [
            (claim, each)
            for (owner, _), alternatives in zip(space.slots, space.alternatives, strict=True)
            if owner == claim
            for each in alternatives
            if constraint.covers(each.request, each.name)
        ]
        devices = {device for key in covered for device in space.order[key]}
        having: dict[Value, set[Device]] = {}
        for device in devices:
            for value in device.values(constraint.attribute):
                having.setdefault(value, set()).add(device)
        if not covered or len(having) > VALUES_MAX:
            return False
        self._alive.append(having)
        # Where no device has the attribute, alternatives that the constraint does not cover may still serve.
        return all(self._in_sum(dict.fromkeys(covered, shares)) for shares in [*having.values()] or [set()])

    # ---------------------------------------------------------------------------------------------------- all together

    def _in_sum(self, only: Mapping[Key, set[Device]]) -> bool:
        """Whether it is too much. `only`: from which devices alone some requests are served."""
        slots: list[list[Option]] = []
        for (claim, _), alternatives in zip(self._space.slots, self._space.alternatives, strict=True):
            found = (self._option(claim, each, only.get((claim, each))) for each in alternatives)
            options = [option for option in found if option is not None]
            if not options:
                return True
            slots.append(options)
        union = [_union(each.devices for each in options if not each.admin) for options in slots]
        wanted: Amounts = {}
        for options in slots:
            for what, value in _least(options).items():
                wanted[what] = wanted.get(what, 0) + value
        left = self._left(_union(union))
        if any(value > left.get(what, 0) for what, value in wanted.items()):
            return True
        return self._few_devices(union, [_least(options).get(DEVICES, 0) for options in slots])

    def _few_devices(self, union: Sequence[frozenset[Device]], least: Sequence[Amount]) -> bool:
        """Whether the requests that are served from some of the devices only take more than those are."""
        sets = set(union)
        if len(sets) > SETS_MAX:
            return False
        return any(
            sum(least[slot] for slot, devices in enumerate(union) if devices <= among)
            > sum(not device.shared for device in among)
            for among in sets
        )

    def _option(self, claim: int, request: CompiledRequest, only: set[Device] | None) -> Option | None:
        """None where it cannot be served at all."""
        found = self._space.candidates[claim, request]
        key = (id(found), request.count, request.all, request.admin, None if only is None else id(only))
        if key not in self._options:
            ordered = self._space.order[claim, request]
            devices = [device for device in ordered if only is None or device in only]
            count = len(ordered) if request.all else request.count
            self._options[key] = self._of(devices, count, found, request) if len(devices) >= count else None
        return self._options[key]

    def _of(self, devices: Sequence[Device], count: int, found: Candidates, request: CompiledRequest) -> Option:
        if request.admin:
            return Option(frozenset(devices), {}, admin=True)
        takes = [self._takes(device, found) for device in devices]
        common = set.intersection(*(set(each) for each in takes)) if takes else set()
        least = {what: sum(sorted(each[what] for each in takes)[:count]) for what in common}
        return Option(frozenset(devices), least, admin=False)

    # ------------------------------------------------------------------------------------------------------- amounts

    def _takes(self, device: Device, found: Candidates) -> Amounts:
        """What it takes at least to give the device to one request more."""
        known = self._taken.get(device)
        if device.shared:
            return {("capacity", name.rpartition("/")[2]): value for name, value in found.consumption.get(device, ())}
        if known is None:
            known = self._taken[device] = {DEVICES: 1}
            if device.use is None:  # else a claim that is releasing may count for them already
                for index, value in device.counter_consumption:
                    what = ("counters", group_name(device.pool.layout.keys[index][1]))
                    known[what] = known.get(what, 0) + value
        return known

    def _left(self, devices: Iterable[Device]) -> Amounts:
        left: Amounts = {DEVICES: 0}
        seen: set[object] = set()
        for device in devices:
            if device.shared:
                for name, value in _capacity_left(device, self._ledger):
                    left["capacity", name] = left.get(("capacity", name), 0) + value
                continue
            left[DEVICES] += 1
            pool, own = device.pool, self._ledger.counters.get(device.pool)
            for index, _ in device.counter_consumption:
                if (pool, index) not in seen:
                    seen.add((pool, index))
                    used = (0 if self._ledger.empty else pool.used[index]) + (own[index] if own is not None else 0)
                    what = ("counters", group_name(pool.layout.keys[index][1]))
                    left[what] = left.get(what, 0) + max(0, pool.layout.totals[index] - used)
        return left


def counted_out(space: SearchSpace) -> bool:
    return Counting(space).too_much()


def _union(sets: Iterable[frozenset[Device]]) -> frozenset[Device]:
    return frozenset(device for each in sets for device in each)


def _least(options: Sequence[Option]) -> Amounts:
    """The least that one of the alternatives takes, of everything that each of them takes."""
    common = set.intersection(*(set(each.least) for each in options))
    return {what: min(each.least[what] for each in options) for what in common}


def _capacity_left(device: Device, ledger: Ledger) -> Iterable[tuple[str, Amount]]:
    own = ledger.used.get(device, {})
    running = {} if device.use is None or ledger.empty else device.use.consumed
    for full, total in device.kind.totals.items():
        yield full.rpartition("/")[2], max(0, total - own.get(full, 0) - running.get(full, 0))
