"""Which pods a claim is reserved for, as the claim said when it was last read.

Exists so that metrics can name pods, which kubelet does not tell a driver. Claims are read anyway, at prepare and by the sweeper:
a pod that joins a claim later shows up within one sweep, one that left goes with it. In memory only, and no decision rests on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead.driver.kubelet.service import Fetch
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.kube.resource import ResourceClaim

KNOWN_MAX = 1024


class Holders:
    """`held` gives the claims of this node; others are forgotten before there are more than `KNOWN_MAX`."""

    def __init__(self, held: Callable[[], Iterable[ClaimRecord]]) -> None:
        self._held = held
        self._pods: dict[str, tuple[str, ...]] = {}

    def noting(self, fetch: Fetch) -> Fetch:
        """`fetch`, and what it finds is remembered."""

        async def noted(namespace: str, name: str) -> ResourceClaim:
            claim = await fetch(namespace, name)
            if len(self._pods) >= KNOWN_MAX:
                self._pods = {record.uid: self.pods(record.uid) for record in self._held()}
            found = (one.name for one in claim.status.reserved_for if one.resource == "pods")
            self._pods[claim.metadata.uid] = tuple(sorted(found))
            return claim

        return noted

    def pods(self, uid: str) -> tuple[str, ...]:
        return self._pods.get(uid, ())
