"""How long the Job controller waits before it creates a pod again after failures.

Without `backoffLimitPerIndex` one record counts for the whole Job: every failed pod doubles the wait, also one that a
podFailurePolicy ignores, and also several that failed at once. A success resets it. So a gang of eight that is evicted has
failed eight times: 10 s doubled seven times is more than the maximum, 600 s. With `backoffLimitPerIndex` each index waits
by itself for its own failures, which its pods carry as annotations.
Pure. Times are unix seconds. Source: kubernetes pkg/controller/job/backoff_utils.go, 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_FACTOR: Final = 60.0
"""The longest wait, in base waits: 600 s with the real base of 10 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackoffRecord:
    """The failures of one Job. In memory only, as upstream: a Job controller that restarts counts from zero."""

    failures: int = 0  # after the last success
    last_failure_s: float = 0.0
    counted: frozenset[str] = frozenset()  # UIDs of the pods that are in it already

    def noted(self, succeeded: dict[str, float], failed: dict[str, float]) -> BackoffRecord:
        """With pods that ended since: their ends by UID. `counted` keeps only pods that still exist, as these do."""
        new_successes = [end for uid, end in succeeded.items() if uid not in self.counted]
        new_failures = [end for uid, end in failed.items() if uid not in self.counted]
        counted = frozenset((*succeeded, *failed))
        if not new_successes:
            last = max((self.last_failure_s, *new_failures))
            return BackoffRecord(failures=self.failures + len(new_failures), last_failure_s=last, counted=counted)
        after = [end for end in new_failures if end > max(new_successes)]
        return BackoffRecord(failures=len(after), last_failure_s=max(after, default=0.0), counted=counted)

    def remaining_s(self, now_s: float, base_s: float) -> float:
        return remaining_s(self.failures, self.last_failure_s, now_s, base_s)


def remaining_s(failures: int, last_failure_s: float, now_s: float, base_s: float) -> float:
    """Seconds until the next pod may be created."""
    if not failures:
        return 0.0
    wait_s = base_s * min(MAX_FACTOR, 2.0 ** min(20, failures - 1))
    return max(0.0, wait_s - (now_s - last_failure_s))


def soonest(waits: Iterable[float]) -> float | None:
    """The shortest wait that is not over; None when none is left."""
    return min((wait for wait in waits if wait > 0), default=None)
