"""The forecast of one gang, within what is known for certain: no time for a gang that cannot start, none before or after a known end.

Forecasts, what-if and Gang status all go by `no_time` and `GangForecast.within`: a simulation looks at a cluster of a minute ago, and the
reason of the gang is newer. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fairlead.engine.types.reasons import Code
from fairlead.kube import timestamps

if TYPE_CHECKING:
    from fairlead.engine.types.plan import Waiting
    from fairlead.engine.types.reasons import Reason


@dataclass(frozen=True, slots=True)
class GangForecast:
    """`p50`, `p90`: unix seconds by which it starts with that probability; None: beyond the horizon. `never`: it cannot start at all."""

    p50: float | None
    p90: float | None
    because: str
    never: bool = False
    raw: tuple[float | None, float | None] = (None, None)  # the two before they were calibrated

    def within(self, waiting: Waiting) -> GangForecast:
        """As this one where what is known of the gang allows its times."""
        found = no_time(waiting.reason)
        if found is not None:
            return found
        return _not_beyond(_not_before(self, waiting.reason.due), waiting.ends_by)


def _not_before(said: GangForecast, due: float | None) -> GangForecast:
    """A forecast that was made before the eviction was set names it, too: on a quiet cluster none follows it."""
    if due is None or said.p50 is None:
        return said
    because = said.because if goes_at(due) in said.because else f"{goes_at(due)}; {said.because}"
    late = None if said.p90 is None else max(said.p90, due)
    return replace(said, p50=max(said.p50, due), p90=late, because=because)


def _not_beyond(said: GangForecast, end: float | None) -> GangForecast:
    """No time that the workload does not live to see."""
    if end is None or (said.p90 is not None and said.p90 <= end):
        return said
    early = said.p50 if said.p50 is not None and said.p50 <= end else None
    when = f"before it starts, at {timestamps.seconds(end)}: activeDeadlineSeconds counts while it waits"
    likely = "ends" if early is None and said.p50 is not None else "may end"
    because = said.because if when in said.because else f"its workload {likely} {when}; {said.because}"
    return replace(said, p50=early, p90=None, because=because)


def no_time(reason: Reason) -> GangForecast | None:
    """What is said of a gang instead of a time; None where a time may be given."""
    if reason.never:
        return GangForecast(None, None, f"cannot run: {reason.message}", never=True)
    if reason.code is Code.ON_HOLD:  # nothing foretells when a user resumes it
        return GangForecast(None, None, f"none while it does not compete: {reason.message}")
    return None


def goes_at(due: float) -> str:
    """What a forecast says of a set eviction; `due` in unix seconds."""
    return f"what is evicted for it goes at {timestamps.seconds(due)}"
