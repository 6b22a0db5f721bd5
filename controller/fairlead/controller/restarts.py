"""How long a gang takes to run once it is admitted: what a restart costs, learned from its own starts and those of earlier runs.

A run's time is from the allocation of its first claim to the moment at which the last of its pods was ready, as their conditions
say. What is learned lives in the history of forecasts, which outlives the controller where forecasts are on.
"""

from __future__ import annotations

from typing import Protocol

from fairlead.controller.gangs.claims.allocation_times import allocation_times
from fairlead.controller.gangs.membership.gangs import Gang, GangId
from fairlead.engine.forecast.run_times import GangKey, name_stem
from fairlead.kube import timestamps

KNOWN_MAX = 10_000


class StartHistory(Protocol):
    def note_restart(self, key: GangKey, seconds: float) -> None: ...
    def restart_s(self, key: GangKey) -> float | None: ...


class RestartTimes:
    def __init__(self) -> None:
        self.history: StartHistory | None = None  # None: nothing is learned
        self._noted: dict[GangId, float] = {}  # by gang: when the run began that was noted last

    def of(self, gang: Gang) -> float | None:
        """Seconds, the median of this run and earlier ones; None where none is known."""
        if self.history is None:
            return None
        key = GangKey(gang.namespace, name_stem(gang.name), gang.size)
        began = min(allocation_times(gang.released).values(), default=0.0)
        if began and self._noted.get(gang.id) != began:
            seconds = start_time_s(gang, began)
            if seconds is not None:
                self.history.note_restart(key, seconds)
                if len(self._noted) >= KNOWN_MAX:
                    self._noted.clear()
                self._noted[gang.id] = began
        return self.history.restart_s(key)


def start_time_s(gang: Gang, began: float) -> float | None:
    """Of the run that began then; None while one of its pods is not ready, or has been replaced."""
    ready: list[float] = []
    for member in gang.released:
        condition = member.pod.condition("Ready")
        if condition is None or condition.status != "True" or not condition.last_transition_time:
            return None
        ready.append(timestamps.parse(condition.last_transition_time))
    return max(0.0, max(ready) - began) if ready else None
