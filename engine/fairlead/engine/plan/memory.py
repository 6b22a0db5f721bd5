"""What outlives a decision: caches of one cluster's tables, so that a decision costs what changed since the last one.

Memory only: with a fresh one every decision is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.engine.explain.counts import CountCaches
from fairlead.engine.explain.node_kinds import KnownKinds
from fairlead.engine.plan.running import RunningGangs
from fairlead.engine.queues.cache import SchedulerCache

if TYPE_CHECKING:
    from fairlead.engine.plan.pending_kinds import Known
    from fairlead.engine.queues.tree import Tree
    from fairlead.engine.snapshot import Snapshot


class Memory:
    """One per engine: of the tables for which it was asked last."""

    def __init__(self) -> None:
        self._cache: SchedulerCache | None = None
        self._running: RunningGangs | None = None
        self.counts = CountCaches()
        self.kinds = KnownKinds()
        self.pending_kinds: dict[str, Known] = {}  # by gang UID

    def cache(self, snapshot: Snapshot) -> SchedulerCache:
        """That of the snapshot's tables, brought up to date."""
        if self._cache is None or not self._cache.serves(snapshot):
            self._cache = SchedulerCache(snapshot.inventory, snapshot.nodes, snapshot.classes)
            self.counts, self.kinds, self.pending_kinds = CountCaches(), KnownKinds(), {}
        self._cache.begin(snapshot.flavors, snapshot.workload)
        return self._cache

    def running(self, snapshot: Snapshot, cache: SchedulerCache, tree: Tree) -> RunningGangs:
        """Those of the snapshot, charged to the queues of the tree, which has begun a decision."""
        if self._running is None or not self._running.is_of(tree, cache.charges):
            self._running = RunningGangs(snapshot.inventory, tree, cache.charges)
        self._running.update(snapshot.running)
        return self._running
