"""Which forecast of each gang is shown: a new one only when it differs noticeably, so that the clock alone writes nothing.

A gang's status, events and metrics say the same one. Pure but for what it remembers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.engine.forecast.calibration import Outcome
from fairlead.engine.forecast.gang_forecast import GangForecast
from fairlead.engine.types.plan import Waiting
from fairlead.kube import timestamps

NOTICEABLE_PART = 0.25  # of the wait that is left
NOTICEABLE_S = 60.0
BECAUSE_MAX = 1024


@dataclass(frozen=True, slots=True)
class ShownForecast:
    """`as_of`: unix seconds. `first_as_of` and `first`: the gang's first forecast, by which forecasts are judged.

    `stale`: why there has been no newer one for a while, "" where there has.
    """

    forecast: GangForecast
    as_of: float
    first: GangForecast
    first_as_of: float
    stale: str = ""

    def status(self, waiting: Waiting) -> dict[str, Any]:
        """As Gang status has it, with why the gang waits: that is newer, and may rule its times out."""
        said = self.forecast.within(waiting)
        because = f"no newer forecast: {self.stale}; {said.because}" if self.stale else said.because
        found: dict[str, Any] = {"asOf": timestamps.seconds(self.as_of), "because": because[:BECAUSE_MAX]}
        if said.never:
            found["never"] = True
        if said.p50 is not None:
            found["p50"] = timestamps.seconds(said.p50)
        if said.p90 is not None:
            found["p90"] = timestamps.seconds(said.p90)
        return found


def forecast_text(status: Mapping[str, Any]) -> str:
    """A sentence of `status.forecast`."""
    if status.get("never"):
        return f"forecast: it {status.get('because', 'cannot run')}"
    by = (
        f"forecast: starts by {status['p50']} with even odds"
        if status.get("p50")
        else "forecast: start beyond the horizon"
    )
    late = f", by {status['p90']} nine times in ten" if status.get("p90") else ""
    return f"{by}{late} ({status.get('because', '')})"


class ShownForecasts:
    def __init__(self) -> None:
        self._shown: dict[GangId, ShownForecast] = {}

    def get(self, gang: GangId) -> ShownForecast | None:
        return self._shown.get(gang)

    def set(self, forecasts: Mapping[str, GangForecast], as_of: float) -> set[GangId]:
        """The newest of all gangs that wait, by id. Returns the gangs of which another is shown now."""
        changed: set[GangId] = set()
        for gang, said in forecasts.items():
            namespace, _, name = gang.partition("/")
            gang_id, before = (namespace, name), self._shown.get((namespace, name))
            if before is None:
                self._shown[gang_id] = ShownForecast(said, as_of, said, as_of)
            elif before.stale or _differs(before.forecast, said, as_of):
                self._shown[gang_id] = ShownForecast(said, as_of, before.first, before.first_as_of)
            else:
                continue
            changed.add(gang_id)
        return changed

    def not_renewed(self, why: str) -> frozenset[GangId]:
        """No newer ones are made. Returns the gangs whose forecast did not say so yet."""
        changed = frozenset(gang for gang, shown in self._shown.items() if not shown.stale)
        for gang in changed:
            self._shown[gang] = replace(self._shown[gang], stale=why)
        return changed

    def started(self, gang: GangId, now: float) -> tuple[float | None, bool | None, Outcome | None]:
        """The gang starts. Of its first forecast: seconds between p50 and now, whether it is before p90, and what to learn from it."""
        shown = self._shown.pop(gang, None)
        if shown is None:
            return None, None, None
        said, since = shown.first, shown.first_as_of
        error = None if said.p50 is None else abs(now - said.p50)
        before = None if said.p90 is None else now <= said.p90
        raw50, raw90 = said.raw
        outcome = None if raw50 is None or raw90 is None else Outcome(max(0.0, now - since), raw50, raw90)
        return error, before, outcome

    def gone(self, gang: GangId) -> None:
        self._shown.pop(gang, None)


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
