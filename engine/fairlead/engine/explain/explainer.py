"""From a failed placement to a Reason: how many devices each rejection removed, which gangs hold the rest, what would change it.

Explaining reads every node, so it is done once per decision and kind of gang. Changes nothing. Counts are as of the end of
the decision: the gangs admitted in it count as holders. `counts` counts, `messages` makes the sentences; `explanation` is the reason as
Gang status keeps it, in parts with bounded lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.engine.explain import messages
from fairlead.engine.explain.count_sums import ClaimOwners, RequestCounts
from fairlead.engine.explain.counts import NO_DEVICES, CountCaches, ShortageCounter
from fairlead.engine.explain.node_kinds import Misfit
from fairlead.engine.explain.rules import GangRules
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.ledger import Ledger
from fairlead.engine.placement.model import NodeSnapshot, PlacementResult
from fairlead.engine.placement.shapes import PlacementUnit
from fairlead.engine.types.gangs import GangRequest, RefusedNode
from fairlead.engine.types.plan import Reservation
from fairlead.engine.types.reasons import Code, LevelShortage, PreemptionBlocker, Reason

HOLDERS_MAX = 8


class Explainer:
    """Explains against the ledger as it is now.

    `taken_by` are devices of this decision, `held_for` free devices that are held for a gang: each with gang and queue.
    """

    def __init__(
        self,
        caches: CountCaches,
        node_snapshot: NodeSnapshot,
        ledger: Ledger,
        owners: ClaimOwners,
        taken_by: Mapping[Device, tuple[str, str]],
        held_for: Mapping[Device, tuple[str, str]] = NO_DEVICES,
        rules: GangRules | None = None,
    ) -> None:
        self._node_snapshot = node_snapshot
        self._ledger = ledger
        self._rules = rules
        self._owners = owners
        self._queues = dict((*taken_by.values(), *held_for.values()))  # of this decision's gangs, by id
        self._counts = ShortageCounter(caches, node_snapshot, ledger, taken_by, held_for)

    def code(
        self,
        gang: GangRequest,
        units: Sequence[PlacementUnit],
        result: PlacementResult,
        ever: bool | None,
        misfit: Misfit | None,
    ) -> Code:
        """What it lacks, without the evidence; it is not looked at what keeps others from being evicted."""
        unit = misfit.unit if misfit is not None else result.unplaced or units[0]
        refusals = self._counts.nodes(unit.shape)
        shortages = self._counts.shortages(unit, refusals)
        worst = shortages.worst
        refused = [each for each in gang.refused if any(node.name == each.node for node in refusals.willing)]
        wanted = _count(unit, units)
        bare = messages.without_devices(unit)
        code = messages.code_of(
            result, ever, shortages, misfit=misfit, wanted=wanted, refused=refused, without_devices=bare
        )
        return (
            messages.refined_code(_held_back(result, worst), _wanted(unit, units), ())
            if code is Code.NO_DEVICES
            else code
        )

    def explain(
        self,
        gang: GangRequest,
        units: Sequence[PlacementUnit],
        result: PlacementResult,
        ever: bool | None,
        blockers: tuple[PreemptionBlocker, ...] = (),
        reserved: Reservation | None = None,
        misfit: Misfit | None = None,
    ) -> Reason:
        """`misfit`: a unit that no kind of node takes."""
        unit = misfit.unit if misfit is not None else result.unplaced or units[0]
        refusals = self._counts.nodes(unit.shape)
        willing = refusals.willing
        shortages = self._counts.shortages(unit, refusals)
        worst = shortages.worst
        nodes, refused = refusals.shortages(unit.shape.needs, self._ledger), list[RefusedNode]()
        if gang.refused or result.beside:
            refused = [each for each in gang.refused if any(node.name == each.node for node in willing)]
            more = (*nodes, *result.beside, *messages.refused_nodes(refused))
            nodes = tuple(sorted(more, key=lambda each: each.need))
        levels = () if self._rules is None else self._rules.shortages(gang, units)
        wanted = _count(unit, units)
        bare = messages.without_devices(unit)
        refined = code = messages.code_of(
            result, ever, shortages, misfit=misfit, wanted=wanted, refused=refused, without_devices=bare
        )
        if code is Code.NO_DEVICES:
            refined = messages.refined_code(_held_back(result, worst), _wanted(unit, units), blockers)
        rule = "" if self._rules is None else self._rules.missing(result.rule, gang, units, ever=ever)
        known, short = len(self._node_snapshot.all), _decisive(levels)
        evidence = messages.Evidence(
            result, unit, shortages.nearest, worst, shortages.scarcest, known, nodes, refused, short, rule
        )
        return Reason(
            code=refined,
            message=messages.message_of(code, gang, units, evidence),
            advice=messages.reserved_of(reserved)
            or messages.advice_of(refined, worst, rule=result.rule if rule else "", without_devices=bare),
            blockers=blockers if code in {Code.NO_DEVICES, Code.SEARCH_ENDED} else (),
            could_ever_fit=ever,
            requests=shortages.all,
            nodes=nodes,
            near_miss=messages.near_miss_of(gang, result),
            levels=levels,
            holders=() if worst is None else worst.largest(HOLDERS_MAX, self._owners, self._queues),
        )


def _held_back(result: PlacementResult, worst: RequestCounts | None) -> RequestCounts | None:
    """By which it is told whether held devices are what is missing: not where free ones would do but for a rule of its own."""
    return None if result.rule else worst


def _count(unit: PlacementUnit, units: Sequence[PlacementUnit]) -> int:
    """Units of this shape."""
    return sum(other.shape is unit.shape for other in units) or 1


def _wanted(unit: PlacementUnit, units: Sequence[PlacementUnit]) -> int:
    """Devices of all units of this shape."""
    return sum(other.shape.least for other in units if other.shape is unit.shape)


def _decisive(levels: Sequence[LevelShortage]) -> LevelShortage | None:
    """Where several levels are named, the innermost that is required and has too little room. One alone is told in the details."""
    required = (each for each in reversed(levels) if each.required and each.short)
    return next(required, None) if len(levels) > 1 or any(each.subgroups for each in levels) else None


PARTS_MAX = 16
LINE_MAX = 1024
MESSAGE_MAX = 4096


def explanation(reason: Reason) -> dict[str, Any]:
    """The parts that say something; `status.why` of a Gang."""
    near = reason.near_miss if reason.near_miss is not None and reason.near_miss.informative else None
    details = [str(part) for part in (reason.limit, near) if part is not None]
    details += [str(level) for level in reason.levels]
    details += [str(request) for request in reason.requests]
    details += [f"ruled out {node}" for node in reason.nodes]
    holders = [
        {"gang": holder.gang[:512], "queue": holder.queue[:253], "devices": holder.devices}
        for holder in reason.holders[:PARTS_MAX]
    ]
    parts: dict[str, Any] = {
        "message": reason.message[:MESSAGE_MAX],
        "advice": reason.advice[:LINE_MAX],
        "couldEverFit": reason.could_ever_fit,
        "details": _lines(details),
        "holders": holders,
        "blockers": _lines([blocker.explained for blocker in reason.blockers]),
    }
    return {key: value for key, value in parts.items() if value not in ("", None, [])}


def _lines(texts: list[str]) -> list[str]:
    kept = texts if len(texts) <= PARTS_MAX else [*texts[: PARTS_MAX - 1], f"and {len(texts) - PARTS_MAX + 1} more"]
    return [text[:LINE_MAX] for text in kept]
