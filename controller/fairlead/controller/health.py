"""What the probes answer: whether this replica is ready, and whether its loop still runs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fairlead.controller.loop import Controller
from fairlead.controller.watch.caches import Caches

BLIND_AFTER = 5  # failures in a row of one watch
STUCK_S = 120.0
DECISION_STUCK_S = 900.0  # a decision that takes this long does not end


@dataclass
class Health:
    """Both are None on a standby."""

    caches: Caches | None = None
    controller: Controller | None = None

    def ready(self) -> str | None:
        """None when ready, else why not. A standby is ready; a leader is while its caches are synced and watched."""
        if self.caches is None:
            return None
        if not self.caches.synced:
            return "leading, but the caches are not filled"
        blind = [str(each.resource) for each in self.caches.required() if each.failures >= BLIND_AFTER]
        return f"cannot watch {', '.join(blind)}" if blind else None

    def healthy(self) -> str | None:
        """None when healthy. The loop runs at least every `claim_reconciler.SWEEP_S`, but for a long decision beside it."""
        if self.controller is None:
            return None
        idle_s = time.monotonic() - self.controller.last_run_at
        if idle_s > (DECISION_STUCK_S if self.controller.deciding else STUCK_S):
            doing = "a decision has not ended" if self.controller.deciding else "the loop has not turned"
            return f"{doing} for {idle_s:.0f} s"
        return None
