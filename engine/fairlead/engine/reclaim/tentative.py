"""Gangs that the decision itself has given devices, as pieces: who is owed their devices takes them back before anybody is told.

Exists so that a decision leads to nothing that the next one would undo: what the next one could evict of it, this one need not
start. What would protect them from the next decision protects them here, so that both come to the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.reclaim.candidates import EvictionUnit
from fairlead.engine.types.gangs import RunningGang, RunningMember

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.engine.placement.model import UnitPlacement
    from fairlead.engine.queues.assumed import AssumedGang


class TentativeAdmission(EvictionUnit):
    """`kept` is what it holds of the later ledger."""

    runs = False
    __slots__ = ("kept", "starts", "turn")

    def __init__(
        self, landed: AssumedGang, kept: Sequence[UnitPlacement], now: float, turn: int, *, starts: bool
    ) -> None:
        gang = landed.entry.gang
        members = tuple(
            RunningMember(pod=member.pod, node=placed.node.name, started=now)
            for placed in landed.placed
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
        super().__init__(as_running, landed.entry.queue, members, {}, landed.charge, landed.devices, whole=True)
        self.kept = kept
        self.starts = starts
        self.turn = turn

    def here(self, node: str) -> int:
        return sum(len(picks) for placed in self.kept if placed.node.name == node for picks in placed.picks)
