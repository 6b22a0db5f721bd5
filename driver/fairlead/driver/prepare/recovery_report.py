"""Tells what a start, or another process, left in disorder: in the log, in a counter, and in Events on the Node.

Exists so that a broken record is seen where a node is looked at (`kubectl describe node`), not only in a log that nobody reads.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable

from fairlead.driver.common.metrics import Metrics
from fairlead.driver.prepare.checkpoint import Unreadable
from fairlead.driver.prepare.recovery import Recovery
from fairlead.kube.events import EventRecorder, Regarding

log = logging.getLogger(__name__)


class Reports:
    """`events` has to run for Events to be written."""

    def __init__(self, events: EventRecorder, metrics: Metrics, node_name: str) -> None:
        self.events = events
        self._metrics = metrics
        # By the name in place of the UID, as kubelet has it: `kubectl describe node` shows both.
        self._node = Regarding(api_version="v1", kind="Node", name=node_name, uid=node_name)

    def recovery(self, recovery: Recovery) -> None:
        """INFO for what is as it should be, more for what is not."""
        self.unreadable(recovery.unreadable, rebuilt=recovery.rebuilt)
        for uid in sorted(set(recovery.rebuilt) - {broken.uid for broken in recovery.unreadable}):
            log.warning("claim %s had no checkpoint; it was rebuilt from its CDI file", uid)
        for uid, reason in recovery.stuck:
            self._warn("ClaimNotUndone", f"claim {uid} was left unfinished and cannot be undone yet: {reason}")
        log.info(
            "recovered",
            extra={
                "kept": len(recovery.kept),
                "undone": len(recovery.undone),
                "rebuilt": len(recovery.rebuilt),
                "earlier_boot": len(recovery.earlier_boot),
            },
        )

    def unreadable(self, found: Iterable[Unreadable], *, rebuilt: Container[str] = ()) -> None:
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
        self.events.record(self._node, reason, text, type="Warning")
