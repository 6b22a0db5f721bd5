"""Which forecast of each gang is shown: a new one only when it differs noticeably, so that the clock alone writes nothing.

A gang's status, events and metrics say the same one. Pure but for what it remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from fairlead.controller.book.book import Book, GangState
from fairlead.controller.book.shown import ShownForecast
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.engine.forecast.calibration import Outcome
from fairlead.engine.forecast.forecast import GangForecast

NOTICEABLE_PART = 0.25  # of the wait that is left
NOTICEABLE_S = 60.0


def forecast_text(status: Mapping[str, Any]) -> str:
    """A sentence of `status.forecast`."""
    if status.get("never"):
        return f"forecast: it {status.get('because', 'cannot run')}"
    by = (
        f"forecast: starts by {status['p50']} with 50 % probability"
        if status.get("p50")
        else "forecast: start beyond the horizon"
    )
    late = f", by {status['p90']} with 90 % probability" if status.get("p90") else ""
    return f"{by}{late} ({status.get('because', '')})"


class ShownForecasts:
    """`learn` is told how far off forecasts were, with the gang's namespace."""

    def __init__(self, book: Book, learn: Callable[[str, Outcome], None]) -> None:
        self._book = book
        self._shown = book.all(GangState.forecast)
        self._learn = learn

    def set(self, forecasts: Mapping[str, GangForecast], as_of: float) -> set[GangId]:
        """The newest of all gangs that wait, by id. Returns the gangs of which another is shown now."""
        changed: set[GangId] = set()
        for gang, said in forecasts.items():
            namespace, _, name = gang.partition("/")
            state = self._book[namespace, name]
            before = state.forecast
            if before is None:
                state.forecast = ShownForecast(said, as_of, said, as_of)
            elif before.stale or _differs(before.forecast, said, as_of):
                state.forecast = ShownForecast(said, as_of, before.first, before.first_as_of)
            else:
                continue
            changed.add(state.id)
        return changed

    def not_renewed(self, why: str) -> frozenset[GangId]:
        """No newer ones are made. Returns the gangs whose forecast did not say so yet."""
        changed = {gang_id: replace(shown, stale=why) for gang_id, shown in self._shown.items() if not shown.stale}
        for gang_id, shown in changed.items():
            self._book[gang_id].forecast = shown
        return frozenset(changed)

    def started(self, gang: GangId, now: float) -> tuple[float | None, bool | None]:
        """The gang starts. Of its first forecast: seconds between p50 and now, and whether it is before p90."""
        shown = self._book.take(gang, GangState.forecast)
        if shown is None:
            return None, None
        said, since = shown.first, shown.first_as_of
        error = None if said.p50 is None else abs(now - said.p50)
        before = None if said.p90 is None else now <= said.p90
        raw50, raw90 = said.raw
        if raw50 is not None and raw90 is not None:
            self._learn(gang[0], Outcome(max(0.0, now - since), raw50, raw90))
        return error, before


def _differs(before: GangForecast, said: GangForecast, now: float) -> bool:
    if before.never != said.never or (said.never and before.because != said.because):
        return True
    for old, new in ((before.p50, said.p50), (before.p90, said.p90)):
        if (old is None) != (new is None):
            return True
        if old is not None and new is not None:
            left_s = max(0.0, min(old, new) - now)
            if abs(new - old) > max(NOTICEABLE_S, NOTICEABLE_PART * left_s):
                return True
    return False
