"""From a failed placement to a Reason: which filter removed how many devices, who holds the rest, what would change it.

Exists apart from placement because explaining costs a look at every node, and is done once per decision and kind of gang.
Changes nothing. ShortageCounter are as of the end of the decision: the gangs admitted in it count as holders.
Counting is in `reasons_census`, the wording in `reasons_words`.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from fairlead.engine.explain import messages as words
from fairlead.engine.explain.counts import NOBODY, RequestCounts, ShortageCounter
from fairlead.engine.types.reasons import Code, Holder, NodeShortage, PreemptionBlocker, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead.engine.inventory.device import Device
    from fairlead.engine.inventory.ledger import Ledger
    from fairlead.engine.placement.model import PlacementResult
    from fairlead.engine.placement.node_info import NodeSnapshot
    from fairlead.engine.placement.shapes import PlacementUnit
    from fairlead.engine.types.gangs import GangRequest
    from fairlead.engine.types.plan import Reservation

HOLDERS_MAX = 8


class Explainer:
    """Explains against the ledger as it is now."""

    def __init__(
        self,
        sites: NodeSnapshot,
        ledger: Ledger,
        owners: Mapping[str, tuple[str, str]],
        taken_by: Mapping[Device, tuple[str, str]],
        held_for: Mapping[Device, tuple[str, str]] = NOBODY,
    ) -> None:
        self._held_for = held_for  # devices that are free, but promised: (gang, queue)
        self._sites = sites
        self._owners = owners  # claim UID: (gang, queue)
        self._taken_by = taken_by  # devices of this decision: (gang, queue)
        self._counts = ShortageCounter(sites, ledger, taken_by, held_for)

    def explain(
        self,
        gang: GangRequest,
        units: Sequence[PlacementUnit],
        outcome: PlacementResult,
        ever: bool | None,
        barriers: tuple[PreemptionBlocker, ...] = (),
        reserved: Reservation | None = None,
    ) -> Reason:
        unit = outcome.stuck or units[0]
        refused, willing = self._counts.nodes(unit.shape)
        shortages, worst = self._counts.shortages(unit, willing)
        told = code = words.code_of(outcome, ever, worst, willing, shortages)
        if code is Code.NO_DEVICES:
            told = words.by_whom(
                worst, sum(other.shape.least for other in units if other.shape is unit.shape), barriers
            )
        return Reason(
            code=told,
            message=words.message_of(code, gang, units, unit, shortages, worst, willing, len(self._sites.all)),
            advice=words.reserved_of(reserved) or words.advice_of(told, worst),
            barriers=barriers if code in {Code.NO_DEVICES, Code.SEARCH_ENDED} else (),
            could_ever_fit=ever,
            requests=shortages,
            nodes=tuple(
                NodeShortage(need=need, nodes=len(names), example=names[0]) for need, names in sorted(refused.items())
            ),
            near_miss=words.near_miss_of(gang, outcome),
            holders=self._holders(unit, worst),
        )

    def _holders(self, unit: PlacementUnit, worst: RequestCounts | None) -> tuple[Holder, ...]:
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
