"""The last plan of an engine, for when nothing has changed since. A cycle with nothing new costs a comparison.

The controller's loop wakes for much that changes no decision. Equal input gives an equal plan, so the last plan is the answer
as long as the snapshot is equal and no time has come at which the decision would be another.
Gangs are compared by identity first: where the same objects are passed in that takes microseconds.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from fairlead.engine.snapshot import Snapshot

if TYPE_CHECKING:
    from fairlead.engine.types.plan import Plan

_beside_tables = attrgetter(*(name for name in Snapshot.__struct_fields__ if name not in {"inventory", "nodes"}))


class LastPlan:
    def __init__(self) -> None:
        self._known: tuple[tuple[Any, ...], tuple[Any, ...], float, Plan] | None = None

    def recall(self, snapshot: Snapshot, now: float, share_ids: object) -> Plan | None:
        """The last plan, if this is the same question."""
        if self._known is None:
            return None
        tables, settings, began, last = self._known
        if now < began or (last.due is not None and now >= last.due) or tables != _tables(snapshot):
            return None
        return last if settings == _settings(snapshot, share_ids) else None

    def remember(self, snapshot: Snapshot, now: float, share_ids: object, plan: Plan) -> None:
        self._known = (_tables(snapshot), _settings(snapshot, share_ids), now, plan)


def _tables(snapshot: Snapshot) -> tuple[Any, ...]:
    """Which tables, and what they were; they only ever grow these numbers."""
    inventory, nodes = snapshot.inventory, snapshot.nodes
    return (inventory, inventory.version, inventory.structure, nodes, nodes.structure, nodes.changes.cursor)


def _settings(snapshot: Snapshot, share_ids: object) -> tuple[Any, ...]:
    return share_ids, _beside_tables(snapshot)
