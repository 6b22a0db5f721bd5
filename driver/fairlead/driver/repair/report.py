"""Reports repairs: as Events on the Node, and in metrics."""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.driver.common.metrics import Metrics
from fairlead.driver.repair.state import Repair
from fairlead.kube.events import EventRecorder, Regarding

_REASONS = {"done": "GpuRepaired", "failed": "GpuRepairFailed", "refused": "GpuRepairRefused"}


class RepairReporter:
    """Events are written while `events` runs."""

    def __init__(self, events: EventRecorder, metrics: Metrics, node_name: str) -> None:
        self._events = events
        self._metrics = metrics
        self._node = Regarding.node(node_name)

    def ended(self, repair: Repair) -> None:
        self._metrics.repaired(repair.phase)
        reason = _REASONS.get(repair.phase)
        if reason is not None:
            kind = "Normal" if repair.phase == "done" else "Warning"
            self._events.record(self._node, reason, f"{repair.device}: {repair.message}", type=kind)

    def now(self, repairs: Iterable[Repair]) -> None:
        counted = {"under_way": 0, "failed": 0}
        for repair in repairs:
            if repair.under_way or repair.phase == "failed":
                counted["under_way" if repair.under_way else "failed"] += len(repair.members)
        self._metrics.repairing(counted["under_way"], counted["failed"])
