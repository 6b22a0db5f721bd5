"""How long a gang takes to run once it is admitted: what a restart costs, learned from its own starts and those of earlier runs.

A run's time is from the allocation of its first claim to the moment at which the last of its pods was ready, as their conditions
say. What is learned lives in the history of forecasts, which outlives the controller where forecasts are on.
"""

from __future__ import annotations

from typing import Protocol

from fairlead.controller.book.book import Book
from fairlead.controller.gangs.claims.allocations import allocation_times
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.engine.forecast.run_times import GangKey, name_stem
from fairlead.kube import timestamps


class StartHistory(Protocol):
    def note_restart(self, key: GangKey, seconds: float) -> None: ...
    def restart_s(self, key: GangKey) -> float | None: ...


class RestartTimes:
    def __init__(self, book: Book, history: StartHistory) -> None:
        self._book = book
        self._history = history

    def of(self, gang: Gang) -> float | None:
        """Seconds, the median of this run and earlier ones; None where none is known."""
        key = GangKey(gang.namespace, name_stem(gang.name), gang.size)
        began = min(allocation_times(gang.released).values(), default=0.0)
        if began and self._book[gang.id].start_noted != began:
            seconds = start_time_s(gang, began)
            if seconds is not None:
                self._history.note_restart(key, seconds)
                self._book[gang.id].start_noted = began
        return self._history.restart_s(key)


def start_time_s(gang: Gang, began: float) -> float | None:
    """The start of the present run; None while one of its pods is not ready, or has been replaced."""
    ready: list[float] = []
    for member in gang.released:
        condition = member.pod.condition("Ready")
        if condition is None or condition.status != "True" or not condition.last_transition_time:
            return None
        ready.append(timestamps.parse(condition.last_transition_time))
    return max(0.0, max(ready) - began) if ready else None
