"""Reports what a start, or another process, left in disorder: in the log, in a counter, and as Events on the Node.

With an Event a broken record shows in `kubectl describe node`, not only in a log.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable

from fairlead.driver.common.metrics import Metrics
from fairlead.driver.prepare.checkpoint import Unreadable
from fairlead.driver.prepare.leftovers import Leftover
from fairlead.driver.prepare.recovery import RecoveryResult
from fairlead.kube.events import EventRecorder, Regarding

log = logging.getLogger(__name__)

_REASONS = {"claim": "ClaimNotUndone", "orphan": "ClaimFilesNotRemoved", "files": "ClaimFilesNotRemoved"}


class RecoveryReporter:
    """Events are written while `events` runs."""

    def __init__(self, events: EventRecorder, metrics: Metrics, node_name: str) -> None:
        self._events = events
        self._metrics = metrics
        self._node = Regarding.node(node_name)

    def recovered(self, result: RecoveryResult) -> None:
        self.unreadable(result.unreadable, rebuilt=result.rebuilt)
        for uid in sorted(set(result.rebuilt) - {broken.uid for broken in result.unreadable}):
            log.warning("claim %s had no checkpoint; it was rebuilt from its CDI file", uid)
        for uid, reason in result.not_undone:
            self._warn("ClaimNotUndone", f"claim {uid} was left unfinished and cannot be undone yet: {reason}")
        log.info(
            "recovered",
            extra={
                "kept": len(result.kept),
                "undone": len(result.undone),
                "rebuilt": len(result.rebuilt),
                "earlier_boot": len(result.earlier_boot),
            },
        )

    def not_removed(self, left: Leftover, why: str, again_s: float) -> None:
        if left.kind == "claim":
            text, then = (
                "cannot be undone",
                "its devices stay held until then; a GPU that does not answer needs a reset",
            )
        else:
            text = "what its containers left cannot be removed"
            then = f"if this repeats, remove {left.name} in the directory of MPS by hand; no device is held by it"
        self._warn(_REASONS[left.kind], f"{left.subject}: {text}: {why}; tried again in {again_s:g} s; {then}")

    def unreadable(self, found: Iterable[Unreadable], *, rebuilt: Container[str] = ()) -> None:
        """`rebuilt` are the UIDs of those whose record was rebuilt."""
        for broken in found:
            self._metrics.unreadable()
            then = "it was rebuilt from its CDI file" if broken.uid in rebuilt else "its devices count as free"
            self._warn(
                "CheckpointUnreadable",
                f"record of claim {broken.uid} cannot be read ({broken.reason}); {then}, and the record is kept as "
                f"{broken.path}",
            )

    def _warn(self, reason: str, text: str) -> None:
        log.error("%s", text)
        self._events.record(self._node, reason, text, type="Warning")
