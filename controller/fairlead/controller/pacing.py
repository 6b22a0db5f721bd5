"""When the next decision may start, so that decisions leave time for all else.

After any decision the loop pauses as long as it took, up to `PAUSE_MAX_S`: writes, lease renewals and watches get half
of the core however long decisions take. Without that, decisions of seconds one after the other let every write time out.
After a decision that admitted no gang, the next one that is not urgent waits `IDLE_FACTOR` times as long as that one
took, up to `IDLE_MAX_S`: other gangs' changes cost at most a fiftieth of a core, and delay no gang by more than a second.
"""

from __future__ import annotations

from fairlead.kube.limits import Clock

PAUSE_MAX_S = 10.0
IDLE_FACTOR = 50
IDLE_MAX_S = 1.0


class Pacing:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._urgent_at = 0.0  # of the clock: nothing is decided before
        self._normal_at = 0.0  # nor before this, unless it is urgent

    def wait_s(self, *, urgent: bool) -> float:
        """For how long nothing is to be decided yet."""
        return max(0.0, (self._urgent_at if urgent else self._normal_at) - self._clock())

    def note(self, *, began: float, decide_began: float, ended: float, admitted: bool) -> None:
        """A decision ended; times are of the clock. `began`: its snapshot, `decide_began`: the engine."""
        self._urgent_at = self._normal_at = ended + min(PAUSE_MAX_S, ended - began)
        if not admitted:
            self._normal_at = max(self._urgent_at, ended + min(IDLE_MAX_S, IDLE_FACTOR * (ended - decide_began)))
