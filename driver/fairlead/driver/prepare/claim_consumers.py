"""Reads claims from the apiserver, and keeps the pods for which each is reserved (its consumers).

Metrics name pods, which kubelet does not pass to a driver. Claims are read at prepare and by the garbage collection
anyway: a pod that joins or leaves a claim later shows in the metrics after the next collection. No decision uses the
consumers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fairlead.driver.prepare.record_cache import RecordCache
from fairlead.kube.resource import ResourceClaim

KNOWN_MAX = 1024

# From namespace and name. Raises ApiError.
Fetch = Callable[[str, str], Awaitable[ResourceClaim]]


class ClaimConsumers:
    """`read` reads from the apiserver. At `KNOWN_MAX` claims, those without a record are forgotten."""

    def __init__(self, read: Fetch, records: RecordCache) -> None:
        self._read = read
        self._records = records
        self._pods: dict[str, tuple[str, ...]] = {}

    async def fetch(self, namespace: str, name: str) -> ResourceClaim:
        claim = await self._read(namespace, name)
        if len(self._pods) >= KNOWN_MAX:
            self._pods = {record.uid: self.pods(record.uid) for record in self._records.all()}
        pods = (consumer.name for consumer in claim.status.reserved_for if consumer.resource == "pods")
        self._pods[claim.metadata.uid] = tuple(sorted(pods))
        return claim

    def pods(self, uid: str) -> tuple[str, ...]:
        """Names of the pods for which the claim was reserved when it was last read, sorted."""
        return self._pods.get(uid, ())
