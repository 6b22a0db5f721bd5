"""Code, sentence and advice of a gang that found no place, from the counts of devices and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fairlead.api import names
from fairlead.api.texts import counted
from fairlead.engine.allocator.result import SearchStatus
from fairlead.engine.explain.count_sums import RequestCounts
from fairlead.engine.explain.counts import Shortages
from fairlead.engine.explain.node_kinds import Misfit
from fairlead.engine.placement.model import PlacementResult
from fairlead.engine.placement.shapes import PlacementUnit
from fairlead.engine.types.gangs import GangRequest, RefusedNode
from fairlead.engine.types.plan import Reservation
from fairlead.engine.types.reasons import (
    Code,
    LevelShortage,
    NearMiss,
    NodeShortage,
    PreemptionBlock,
    PreemptionBlocker,
    Reason,
    Rejection,
    RequestShortage,
)
from fairlead.kube import timestamps

NEEDS_MAX = 3  # of what rules nodes out, that a message names
NODES_NAMED = 3


def code_of(
    result: PlacementResult,
    ever: bool | None,
    shortages: Shortages,
    *,
    misfit: Misfit | None = None,
    wanted: int = 1,
    refused: Sequence[RefusedNode] = (),
    without_devices: bool = False,
) -> Code:
    """`misfit`: what no kind of node takes. `wanted`: units like the one that is explained. `refused`: nodes that would take the
    pods, and that are not chosen for a while. `without_devices`: the unit asks for none.
    """
    worst = shortages.worst
    if result.status is SearchStatus.BUDGET_ENDED and not result.beside:
        return Code.SEARCH_ENDED
    if shortages.selector_failed:
        return Code.SELECTOR_ERROR
    if worst is not None and worst.incomplete:
        return Code.POOL_INCOMPLETE
    if result.rule:
        return Code.NEVER_FITS if ever is False else Code.NO_DEVICES
    if refused and ever is not False:
        return Code.NODES_REFUSED
    if result.beside and ever is not False:
        return Code.NEIGHBOURS
    if misfit is not None:
        return Code.NO_NODE if misfit.beside else Code.NEVER_FITS
    if worst is not None and not any(map(_in_use, shortages.nearest)):
        total = wanted * _hardest(shortages.nearest).wanted
        if worst.full and worst.free + worst.full >= total:
            return Code.NODES_FULL
        if worst.away and worst.free + worst.full + worst.away >= total:
            return Code.NODES_AWAY
    if without_devices and ever is not False:
        return Code.NODES_FULL
    return Code.NEVER_FITS if ever is False else Code.NO_DEVICES


def without_devices(unit: PlacementUnit) -> bool:
    """Whether its pods ask for no device: members of a gang all the same."""
    return not any(member.claims for member in unit.members)


def _pods(gang: GangRequest, unit: PlacementUnit) -> str:
    """`its 8 pods`; where some ask for devices and some do not, those like the unit's."""
    bare = without_devices(unit)
    alike = sum(bare != bool(member.claims) for member in gang.members)
    what = "" if alike == len(gang.members) else f" {'without' if bare else 'with'} devices"
    return f"its {alike} pods{what}" if alike > 1 else f"its pod{what}"


def _hardest(shortages: Sequence[RequestShortage]) -> RequestShortage:
    return min(shortages, key=lambda each: each.per_node_best / each.wanted)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for a gang for which placement found `result`, in counts of what `unit` lacks."""

    result: PlacementResult
    unit: PlacementUnit
    shortages: tuple[RequestShortage, ...]  # of each request its nearest alternative
    worst: RequestCounts | None
    scarcest: RequestShortage | None
    known: int  # nodes
    ruled_out: Sequence[NodeShortage]  # those of them, by what the pod needs besides devices
    refused: Sequence[RefusedNode]  # that would take the pods, and that are not chosen for a while
    short: LevelShortage | None  # the innermost required level of the topology whose domains take too few units
    rule: str  # what there is for a gang that only a rule of its own keeps from a place


def message_of(code: Code, gang: GangRequest, units: Sequence[PlacementUnit], found: Evidence) -> str:
    result, unit, shortages, worst = found.result, found.unit, found.shortages, found.worst
    count, pods = len(gang.members), _pods(gang, unit)
    wanted = sum(claim.least for claim in unit.shape.claims)
    each = f"{counted(wanted, 'device')}{' each' if count > 1 and len(unit.members) == 1 else ''}"
    free = f"{worst.free} free on {counted(worst.nodes, 'node')}" if worst is not None else "none asked"
    if without_devices(unit) and code in {Code.NODES_FULL, Code.NEVER_FITS}:
        never = "" if code is Code.NODES_FULL else " on this cluster as it is, even with nothing else running"
        them = "them" if "pods" in pods else "it"
        return f"the nodes that would take {pods} have no room for {them} beside the others{never}{_ruled_out(found)}"
    match code:
        case Code.SEARCH_ENDED:
            return f"no place for {pods} was found before the search's budget ended ({each}; {free}); it may exist"
        case Code.NO_NODE:
            besides = "" if without_devices(unit) else " besides devices"
            return (
                f"no node takes {pods}: {sum(each.nodes for each in found.ruled_out)} of {counted(found.known, 'node')} ruled out by what the "
                f"pod needs{besides}{_ruled_out(found)}"
            )
        case Code.NODES_FULL | Code.NODES_AWAY:
            assert worst is not None
            why = "where other resources of the node are in use" if code is Code.NODES_FULL else "that take no pods now"
            more = worst.full if code is Code.NODES_FULL else worst.full + worst.away
            return f"{pods} would find devices only on nodes {why}: {each}; {free}, {more} more on such nodes"
        case Code.NODES_REFUSED:
            soonest = min(found.refused, key=lambda one: (one.until, one.node))
            said = f" ({soonest.why})" if soonest.why else ""
            return (
                f"kube-scheduler refused {pods} on {counted(len(found.refused), 'node')} that would do, such as {soonest.node}{said}; "
                f"not chosen again until {timestamps.seconds(soonest.until)}; the other nodes do not suffice ({each}; {free})"
            )
        case Code.NEIGHBOURS:
            kept = ", ".join(f"{one.need} ({counted(one.nodes, 'node')})" for one in result.beside)
            first = (
                f"{result.members_placed} of {pods} would find a place, the next one is"
                if result.members_placed
                else f"{pods} would be"
            )
            return f"{first} kept off nodes by the pods there: {kept}; the other nodes do not suffice ({each}; {free})"
        case Code.SELECTOR_ERROR:
            return (
                f"a selector failed on devices that {pods} might have used, and the others do not suffice "
                f"({each}; {free})"
            )
        case Code.POOL_INCOMPLETE:
            return (
                f"a driver has not published its pool whole, and the rest does not suffice for {pods} ({each}; {free})"
            )
    request = next((shortage for shortage in shortages if shortage.per_node_best < shortage.wanted), None)
    scarcest, alike = found.scarcest, sum(other.shape is unit.shape for other in units)
    total = sum(other.shape.least for other in units if other.shape is unit.shape)
    if found.rule:
        missing = found.rule
    elif request is not None:
        nearest = f" (the nearest of {request.alternatives} alternatives)" if request.alternatives > 1 else ""
        what = f"{request.wanted} of {request.of}" if request.of else request.wanted
        missing = f"request {request.request}{nearest} wants {what} on one node, the best node has {request.per_node_best} free"
        if len(units) > 1 and worst is not None and worst.free < total:
            missing += f"; in all {total} wanted, {free}, {total - worst.free} missing"
    elif scarcest is not None and scarcest.free < (asked := scarcest.wanted * alike):
        nodes = counted(scarcest.nodes, "node")
        missing = f"of {scarcest.of} {asked} wanted, {scarcest.free} free on {nodes}, {asked - scarcest.free} missing"
    elif found.short is not None and (scarcest is not None or worst is None or worst.free >= total):
        missing = str(found.short)
    elif scarcest is not None:
        missing = "of each class enough are free, but not together where the pods need them"
    elif worst is not None and worst.free < total:
        missing = f"{total} wanted, {free}, {total - worst.free} missing"
    else:
        missing = f"{total} wanted, {free}, but not together where the pods need them"
    if code is Code.NEVER_FITS:
        return f"{pods} can never fit on this cluster as it is, even with nothing else running: {each}; {missing}"
    return f"not enough free devices for {pods}, {each}: {missing}"


def _ruled_out(found: Evidence) -> str:
    """`: cpu (2 nodes)`; "" where no node is."""
    by_need = sorted(found.ruled_out, key=lambda each: (-each.nodes, each.need))
    said = ", ".join(f"{each.need} ({counted(each.nodes, 'node')})" for each in by_need[:NEEDS_MAX])
    return f": {said}" if said else ""


def refused_nodes(refused: Sequence[RefusedNode]) -> tuple[NodeShortage, ...]:
    if not refused:
        return ()
    first = min(refused, key=lambda one: one.node)
    said = f": {first.why}" if first.why else ""
    example = f"{first.node} until {timestamps.seconds(first.until)}{said}"
    return (NodeShortage(need="refused by kube-scheduler", nodes=len(refused), example=example),)


def refined_code(worst: RequestCounts | None, wanted: int, blockers: tuple[PreemptionBlocker, ...]) -> Code:
    """The code for devices in use: held for another gang, protected, beyond the fair share, or simply in use."""
    held = 0 if worst is None else worst.removed.get(Rejection.HELD, 0)
    if worst is not None and held and worst.free + held >= wanted:
        return Code.HELD
    blocks = {blocker.block for blocker in blockers}
    if blocks & {PreemptionBlock.MIN_RUNTIME, PreemptionBlock.BUDGET, PreemptionBlock.DISRUPTIONS}:
        return Code.PROTECTED
    return Code.OVER_SHARE if PreemptionBlock.SHARE in blocks else Code.NO_DEVICES


def with_nodes_back(reason: Reason, away: Sequence[str]) -> Reason:
    """For a gang that fits not even on all that is in service, or would on what is free elsewhere: these nodes take no pods now, and would
    take some of its.
    """
    if not away:
        return reason
    listed = f"{', '.join(away[:NODES_NAMED])}{', …' if len(away) > NODES_NAMED else ''}"
    are, take = ("is", "takes") if len(away) == 1 else ("are", "take")
    wait = f"wait until {counted(len(away), 'node')} that {are} not ready, cordoned or tainted for a time ({listed}) {take} pods again"
    alone = reason.code is Code.NODES_AWAY or not reason.advice
    return replace(
        reason, could_ever_fit=reason.could_ever_fit or None, advice=wait if alone else f"{reason.advice}; or {wait}"
    )


def reserved_of(reserved: Reservation | None) -> str:
    if reserved is None:
        return ""
    ready = f", ready by {timestamps.seconds(reserved.ready_by)}" if reserved.ready_by is not None else ""
    count = len(reserved.nodes)
    where = f"{counted(count, 'node')} {'is' if count == 1 else 'are'} reserved for it"
    return f"wait until what runs there has ended: {where} ({', '.join(reserved.nodes[:3])}{', …' if count > 3 else ''}{ready})"


def _in_use(shortage: RequestShortage) -> int:
    removed = dict(shortage.removed)
    return sum(
        removed.get(why, 0)
        for why in (Rejection.IN_USE, Rejection.RELEASING, Rejection.COUNTERS, Rejection.SHARED_FULL)
    )


def near_miss_of(gang: GangRequest, result: PlacementResult) -> NearMiss:
    node = result.closest.name if result.closest is not None else ""
    lacking = ""
    if result.short is not None:
        request = result.short.short
        if request is not None:
            lacking = f"{result.short.picked} of {max(request.count, 1)} devices for request {request.name}"
        lacking = (
            f"{lacking}: {result.short.detail}" if lacking and result.short.detail else lacking or result.short.detail
        )
    return NearMiss(members_placed=result.members_placed, members_wanted=len(gang.members), node=node, lacking=lacking)


_RULES = {
    names.MODELS: ("add devices of one model, ask for less", f"write {names.MODELS}: any to mix models"),
    names.ALIGN: (
        "add nodes with such devices, ask for less",
        f"leave out {names.ALIGN} where its pods reach one another anyway",
    ),
}
"""What helps a gang that can never fit, and what every gang with such a rule may do."""


def advice_of(code: Code, worst: RequestCounts | None, *, rule: str = "", without_devices: bool = False) -> str:
    """`rule`: the annotation without whose rule it has a place. `without_devices`: what lacks room asks for none."""
    if rule:
        first, otherwise = _RULES[rule]
        return f"{first if code is Code.NEVER_FITS else 'wait'}, or {otherwise}"
    match code:
        case Code.NEVER_FITS:
            if worst is not None and worst.removed.get(Rejection.TAINT):
                return "add nodes or devices, clear or tolerate the taint, or ask for less"
            return "add nodes or devices that match, or ask for less"
        case Code.NO_NODE:
            return "change what the pod asks of its node, or label, untaint or add nodes so that they take it"
        case Code.NODES_FULL if without_devices:
            return "it starts when a node has the room; end or move what runs there, ask for less, or add nodes"
        case Code.NODES_FULL:
            return "end or move what runs there without devices, or ask for less of it; taint such nodes against pods without devices"
        case Code.NODES_AWAY:
            return "it starts when such nodes are ready and schedulable again"
        case Code.NODES_REFUSED:
            return "see what kube-scheduler says of its pods; the nodes are tried again when that time is over"
        case Code.NEIGHBOURS:
            return "it starts when such pods end or others start, or nodes are added in other domains; or loosen affinity or spread"
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
            return "it starts when enough of these devices are released together"
