"""Gangs to which the decision itself has given devices, as eviction units.

What the next decision could evict, this one need not start: so deciding again on the outcome changes nothing. min-runtime
protects such a unit exactly as the next decision would protect the running gang, so that both come to the same answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.reclaim.candidates import EvictionUnit
from fairlead.engine.types.model import RunningGang, RunningMember

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.queues.assumed import AssumedGang


class TentativeAdmission(EvictionUnit):
    """`held` is what it holds of the pipelined ledger. `starts`: admitted; else only nominated for what comes free."""

    runs = False
    __slots__ = ("held", "starts", "turn")

    def __init__(
        self, assumed: AssumedGang, held: Sequence[UnitPlacement], now: float, turn: int, *, starts: bool
    ) -> None:
        gang = assumed.pending.gang
        members = tuple(
            RunningMember(pod=member.pod, node=placed.site.name, started=now)
            for placed in assumed.placed
            for member in placed.unit.members
        )
        as_running = RunningGang(
            namespace=gang.namespace,
            name=gang.name,
            uid=gang.uid,
            queue=gang.queue,
            claims=(),
            priority=gang.priority,
            created=gang.created,
            started=now,
            size=len(members),
            members=members,
            ends_by=None if gang.run_s is None else now + gang.run_s,
        )
        super().__init__(as_running, assumed.pending.queue, members, {}, assumed.charge, assumed.devices, whole=True)
        self.held = held
        self.starts = starts
        self.turn = turn

    def devices_on(self, node: str) -> int:
        return sum(len(picks) for placed in self.held if placed.site.name == node for picks in placed.picks)
