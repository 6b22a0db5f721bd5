"""From a failed placement to a Reason: which filter removed how many devices, who holds the rest, what would change it.

Exists apart from placement because explaining costs a look at every node, and is done once per decision and kind of gang.
Changes nothing. Counts are as of the end of the decision: the gangs admitted in it count as holders.
"""

from __future__ import annotations

import heapq
from types import MappingProxyType
from typing import TYPE_CHECKING

from fairlead.controller.allocator_model import Verdict
from fairlead.controller.reasons import (
    Bar,
    Barrier,
    Code,
    Filter,
    Holder,
    NearMiss,
    NodeShortage,
    Reason,
    RequestShortage,
)
from fairlead.kube import timestamps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead.controller.allocator_requests import Ask
    from fairlead.controller.inventory_device import Device
    from fairlead.controller.inventory_ledger import Ledger
    from fairlead.controller.model import GangRequest, Reservation
    from fairlead.controller.placement_model import Outcome
    from fairlead.controller.placement_shapes import Shape, Unit
    from fairlead.controller.placement_spots import Site, Sites

HOLDERS_MAX = 8
_NOBODY: Mapping[Device, tuple[str, str]] = MappingProxyType({})
_ORDER = {why: place for place, why in enumerate(Filter)}


class Census:
    """How the cluster's devices fall away for one ask of one shape."""

    __slots__ = ("best", "detail", "devices", "free", "holders", "incomplete", "nodes", "removed", "shown")

    def __init__(self) -> None:
        self.devices = 0
        self.free = 0
        self.best = 0  # most free on one node
        self.nodes = 0  # nodes with at least one free
        self.removed: dict[Filter, int] = {}
        self.holders: dict[str, int] = {}  # claim UID, or gang id for this decision's: devices
        self.detail = ""
        self.incomplete = False
        self.shown: tuple[Holder, ...] | None = None  # the largest holders, once asked for


class Explainer:
    """Explains against the ledger as it is now."""

    def __init__(
        self,
        sites: Sites,
        ledger: Ledger,
        owners: Mapping[str, tuple[str, str]],
        taken_by: Mapping[Device, tuple[str, str]],
        held_for: Mapping[Device, tuple[str, str]] = _NOBODY,
    ) -> None:
        self._held_for = held_for  # devices that are free, but promised: (gang, queue)
        self._sites = sites
        self._ledger = ledger
        self._owners = owners  # claim UID: (gang, queue)
        self._taken_by = taken_by  # devices of this decision: (gang, queue)
        # By what they depend on: many shapes differ in counts only.
        self._census: dict[object, Census] = {}
        self._refusals: dict[object, tuple[dict[str, list[str]], set[Site]]] = {}

    def explain(
        self,
        gang: GangRequest,
        units: Sequence[Unit],
        outcome: Outcome,
        ever: bool | None,
        barriers: tuple[Barrier, ...] = (),
        reserved: Reservation | None = None,
    ) -> Reason:
        unit = outcome.stuck or units[0]
        refused, willing = self._nodes(unit.shape)
        shortages, worst = self._shortages(unit, willing)
        told = code = self._code(outcome, ever, worst, willing, shortages)
        if code is Code.NO_DEVICES:
            told = _by_whom(worst, sum(other.shape.least for other in units if other.shape is unit.shape), barriers)
        return Reason(
            code=told,
            message=self._message(code, gang, units, unit, shortages, worst, willing),
            advice=_reserved(reserved) or _advice(told, worst),
            barriers=barriers if code in {Code.NO_DEVICES, Code.SEARCH_ENDED} else (),
            could_ever_fit=ever,
            requests=shortages,
            nodes=tuple(
                NodeShortage(need=need, nodes=len(names), example=names[0]) for need, names in sorted(refused.items())
            ),
            near_miss=_near_miss(gang, outcome),
            holders=self._holders(unit, worst),
        )

    # ------------------------------------------------------------------------------------------------------- nodes

    def _nodes(self, shape: Shape) -> tuple[dict[str, list[str]], set[Site]]:
        """Nodes refused for what is not a device, by need; and the nodes that are left."""
        found = self._refusals.get(shape.needs)
        if found is not None:
            return found
        refused: dict[str, list[str]] = {}
        willing: set[Site] = set()
        for site in self._sites.all:
            why = next((why for needs in shape.needs if (why := site.node.refuses(needs)) is not None), None)
            example = site.node.name
            if why is None:
                lacking = next(
                    (lack for needs in shape.needs if (lack := self._ledger.node_lacks(site.node, needs)) is not None),
                    None,
                )
                if lacking is not None:
                    why, _, rest = lacking.partition(":")
                    example += f":{rest}" if rest else ""
            if why is None:
                willing.add(site)
            else:
                refused.setdefault(why, []).append(example)
        self._refusals[shape.needs] = (refused, willing)
        return refused, willing

    # ----------------------------------------------------------------------------------------------------- devices

    def _shortages(self, unit: Unit, willing: set[Site]) -> tuple[tuple[RequestShortage, ...], Census | None]:
        """One entry per alternative of each request, and the census of the request that is shortest of devices."""
        shortages: list[RequestShortage] = []
        worst: Census | None = None
        least = 0.0
        for claim, asked in zip(unit.shape.claims, unit.claims, strict=True):
            for asks in claim.alternatives:
                for ask in asks:
                    census = self._count(unit.shape, ask, willing)
                    count = max(ask.count, 1)
                    shortages.append(
                        RequestShortage(
                            claim=str(asked),
                            request=ask.name,
                            wanted=count,
                            per_node_best=census.best,
                            devices=census.devices,
                            removed=tuple(
                                (why, number)
                                for why, number in sorted(census.removed.items(), key=lambda item: _ORDER[item[0]])
                                if number
                            ),
                            nodes=census.nodes,
                            detail=census.detail,
                        )
                    )
                    if worst is None or census.best / count < least:
                        worst, least = census, census.best / count
        return tuple(shortages), worst

    def _count(self, shape: Shape, ask: Ask, willing: set[Site]) -> Census:
        key = (shape.needs, ask.filter, ask.admin, ask.all)
        census = self._census.get(key)
        if census is None:
            census = self._census[key] = Census()
            seen: set[Device] | None = set() if self._sites.roaming else None
            for site in self._sites.all:
                self._count_on(census, site, ask, reachable=site in willing, seen=seen)
        return census

    def _count_on(self, census: Census, site: Site, ask: Ask, *, reachable: bool, seen: set[Device] | None) -> None:
        found = self._sites.candidates(site, ask)
        census.devices += len(site.devices.devices) + found.removed.get(Filter.POOL, 0)
        for why, number in found.removed.items():
            census.removed[why] = census.removed.get(why, 0) + number
        if found.removed.get(Filter.POOL):
            census.incomplete = True
        if not census.detail:
            census.detail = found.errors[0][1] if found.errors else found.tainted[0][1] if found.tainted else ""
            if ask.all and found.all_problem is not None:
                census.detail = found.all_problem
        here = 0
        in_use = 0  # the usual answer, counted at once
        plain, promised, free = found.plain and not ask.admin, self._held_for, self._ledger.free
        for device in found.devices:
            if seen is not None:
                if device in seen:
                    census.devices -= 1
                    continue
                seen.add(device)
            if plain and device not in promised:
                lost = None if free(device) else Filter.IN_USE
            else:
                lost = self._why_not(ask, device, found.consumption.get(device, ()))
            if lost is None and not reachable:
                lost = Filter.NODE
            if lost is None:
                here += 1
                continue
            if lost is Filter.IN_USE:
                in_use += 1
            else:
                census.removed[lost] = census.removed.get(lost, 0) + 1
            if (lost is Filter.IN_USE or lost is Filter.SHARED_FULL) and device.use is not None:
                for uid in device.use.claims:
                    census.holders[uid] = census.holders.get(uid, 0) + 1
            elif device in self._taken_by or device in self._held_for:
                gang = (self._taken_by.get(device) or self._held_for[device])[0]
                census.holders[gang] = census.holders.get(gang, 0) + 1
        if in_use:
            census.removed[Filter.IN_USE] = census.removed.get(Filter.IN_USE, 0) + in_use
        census.free += here
        census.nodes += bool(here)
        census.best = max(census.best, here)

    def _why_not(self, ask: Ask, device: Device, consumption: tuple[tuple[str, object], ...]) -> Filter | None:
        ledger = self._ledger
        if ask.admin:
            return None
        if not ledger.free(device):
            return Filter.HELD if device in self._held_for else Filter.IN_USE
        if device.draws and not ledger.draws_fit(device):
            return Filter.COUNTERS
        if device.shared and not ledger.room(device, consumption):  # type: ignore[arg-type]
            return Filter.SHARED_FULL
        return None

    # ----------------------------------------------------------------------------------------------------- wording

    def _code(
        self,
        outcome: Outcome,
        ever: bool | None,
        worst: Census | None,
        willing: set[Site],
        shortages: tuple[RequestShortage, ...],
    ) -> Code:
        if outcome.verdict is Verdict.BUDGET_ENDED:
            return Code.SEARCH_ENDED
        if worst is not None and worst.removed.get(Filter.SELECTOR_ERROR):
            return Code.SELECTOR_ERROR
        if worst is not None and worst.incomplete:
            return Code.POOL_INCOMPLETE
        enough = all(shortage.per_node_best + _on_bad_nodes(shortage) >= shortage.wanted for shortage in shortages)
        by_nodes = not willing or (enough and any(_on_bad_nodes(shortage) for shortage in shortages))
        if by_nodes and (ever is not True or not any(_in_use(shortage) for shortage in shortages)):
            return Code.NO_NODE
        return Code.NEVER_FITS if ever is False else Code.NO_DEVICES

    def _message(
        self,
        code: Code,
        gang: GangRequest,
        units: Sequence[Unit],
        unit: Unit,
        shortages: tuple[RequestShortage, ...],
        worst: Census | None,
        willing: set[Site],
    ) -> str:
        count = len(gang.members)
        pods = f"its {count} pods" if count > 1 else "its pod"
        wanted = sum(claim.least for claim in unit.shape.claims)
        each = f"{_plural(wanted, 'device')}{' each' if count > 1 and len(unit.members) == 1 else ''}"
        free = f"{worst.free} free on {_plural(worst.nodes, 'node')}" if worst is not None else "none asked"
        match code:
            case Code.SEARCH_ENDED:
                return f"no place for {pods} was found before the search's budget ended ({each}; {free}); it may exist"
            case Code.NO_NODE:
                known = len(self._sites.all)
                return (
                    f"no node takes {pods}: {known - len(willing)} of {_plural(known, 'node')} ruled out by what "
                    "the pod needs besides devices"
                )
            case Code.SELECTOR_ERROR:
                return (
                    f"a selector failed on devices that {pods} might have used, and the others do not suffice "
                    f"({each}; {free})"
                )
            case Code.POOL_INCOMPLETE:
                return f"a driver has not published its pool whole, and the rest does not suffice for {pods} ({each}; {free})"
        short = next((shortage for shortage in shortages if shortage.per_node_best < shortage.wanted), None)
        total = sum(other.shape.least for other in units if other.shape is unit.shape)
        if short is not None:
            missing = f"request {short.request} wants {short.wanted} on one node, the best node has {short.per_node_best} free"
        elif worst is not None and worst.free < total:
            missing = f"{total} wanted, {free}, {total - worst.free} missing"
        else:
            missing = f"{total} wanted, {free}, but not together where the pods need them"
        if code is Code.NEVER_FITS:
            return f"{pods} can never fit on this cluster as it is, even with nothing else running: {each}; {missing}"
        return f"not enough free devices for {pods}, {each}: {missing}"

    def _holders(self, unit: Unit, worst: Census | None) -> tuple[Holder, ...]:
        if worst is None:
            return ()
        if worst.shown is None:
            gangs: dict[tuple[str, str], int] = {}
            queues = dict((*self._taken_by.values(), *self._held_for.values()))
            for holder, devices in worst.holders.items():
                owner = self._owners.get(holder) or ((holder, queues[holder]) if holder in queues else ("", ""))
                gangs[owner] = gangs.get(owner, 0) + devices
            most = heapq.nsmallest(HOLDERS_MAX, [(-devices, owner) for owner, devices in gangs.items()])
            worst.shown = tuple(Holder(gang=gang, queue=queue, devices=-devices) for devices, (gang, queue) in most)
        return worst.shown


def _by_whom(worst: Census | None, wanted: int, barriers: tuple[Barrier, ...]) -> Code:
    """Why devices that are in use stay so, in one word."""
    held = 0 if worst is None else worst.removed.get(Filter.HELD, 0)
    if worst is not None and held and worst.free + held >= wanted:
        return Code.HELD
    bars = {barrier.bar for barrier in barriers}
    if bars & {Bar.MIN_RUNTIME, Bar.BUDGET, Bar.DISRUPTIONS}:
        return Code.PROTECTED
    return Code.OVER_SHARE if Bar.SHARE in bars else Code.NO_DEVICES


def _reserved(reserved: Reservation | None) -> str:
    if reserved is None:
        return ""
    ready = f", ready by {timestamps.seconds(reserved.ready_by)}" if reserved.ready_by is not None else ""
    return f"wait: {_plural(len(reserved.nodes), 'node')} reserved for it ({', '.join(reserved.nodes[:3])}{ready})"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _on_bad_nodes(shortage: RequestShortage) -> int:
    return dict(shortage.removed).get(Filter.NODE, 0)


def _in_use(shortage: RequestShortage) -> int:
    removed = dict(shortage.removed)
    return sum(removed.get(why, 0) for why in (Filter.IN_USE, Filter.COUNTERS, Filter.SHARED_FULL))


def _near_miss(gang: GangRequest, outcome: Outcome) -> NearMiss:
    node = outcome.closest.node.name if outcome.closest is not None else ""
    lacking = ""
    if outcome.short is not None:
        ask = outcome.short.short
        if ask is not None:
            lacking = f"{outcome.short.got} of {max(ask.count, 1)} devices for request {ask.name}"
        lacking = (
            f"{lacking}: {outcome.short.detail}"
            if lacking and outcome.short.detail
            else lacking or outcome.short.detail
        )
    return NearMiss(members_placed=outcome.members_placed, members_wanted=len(gang.members), node=node, lacking=lacking)


def _advice(code: Code, worst: Census | None) -> str:
    match code:
        case Code.NEVER_FITS:
            if worst is not None and worst.removed.get(Filter.TAINT):
                return "add nodes or devices, clear or tolerate the taint, or ask for less"
            return "add nodes or devices that match, or ask for less"
        case Code.NO_NODE:
            return "free or add what the nodes lack, or change what the pod asks of its node"
        case Code.SELECTOR_ERROR:
            return "guard the expression, for instance with has(...) or ?. and orValue(...)"
        case Code.POOL_INCOMPLETE:
            return "wait for the driver to finish publishing, or look at its log"
        case Code.OVER_SHARE:
            return "wait until gangs end; more deserved or weight for its queue, or less asked by others, would let it take back"
        case Code.PROTECTED:
            return "wait until what protects them ends"
        case Code.HELD:
            return "wait: the gang for which they are held goes first; a gang that promises to end in time may pass"
        case Code.SEARCH_ENDED:
            return "it is tried again when the cluster changes; simpler constraints make the search shorter"
        case _:
            return "it starts when enough of these devices are given back together"
