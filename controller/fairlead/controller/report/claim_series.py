"""The series `fairlead_claim_info`: which gang, queue and flavor each allocated claim is of, to be joined with the driver's series.

One series per allocated claim of our devices, and none per pod or device: never more than there are devices and shares of devices.
What changed since the last scrape is looked at, and all of it after Queues or Flavors changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead.controller.gangs.membership.gangs import gang_id
from fairlead.controller.report.failures import Failures
from fairlead.controller.report.held_flavors import HeldFlavors
from fairlead.controller.watch.allocated_claims import AllocatedClaims, Held
from fairlead.controller.watch.caches import Caches
from fairlead.controller.watch.settings import Settings
from fairlead.kube.limits import Clock


class ClaimInfo(NamedTuple):
    namespace: str
    claim: str
    gang: str
    queue: str
    flavor: str


class ClaimSeries(Collector):
    """Between `begin` and `end` it has the series of these caches, else none."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._known: KnownClaims | None = None

    def begin(self, caches: Caches, *, wall: Clock) -> None:
        self._known = KnownClaims(caches, self._failures, wall=wall)

    def end(self) -> None:
        if self._known is not None:
            self._known.close()
        self._known = None

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        if self._known is None:
            return
        family = GaugeMetricFamily(
            "fairlead_claim_info", "1 for each allocated claim of our devices.", labels=ClaimInfo._fields
        )
        for info in self._known.infos():
            family.add_metric(info, 1)
        yield family


class KnownClaims:
    def __init__(self, caches: Caches, failures: Failures, *, wall: Clock) -> None:
        self._caches = caches
        self._failures = failures
        self._notes = AllocatedClaims(caches, self._contained, wall=wall, keeps_ended=False)
        self._flavors = HeldFlavors(caches)
        self._infos: dict[str, ClaimInfo] = {}  # by claim UID
        self._settings: Settings | None = None
        self._notes.begin()

    def close(self) -> None:
        self._notes.end()

    def infos(self) -> Iterable[ClaimInfo]:
        settings = self._caches.rules.settings()
        if settings is not self._settings:
            self._settings = settings
            self._notes.touch_all()
        changed, _ = self._notes.take()
        for held in changed:
            with self._contained(held):
                self._infos[held.uid] = self._info(held)
        for uid in [uid for uid in self._infos if not self._notes.holds(uid)]:
            del self._infos[uid]
        return self._infos.values()

    def _contained(self, held: Held) -> AbstractContextManager[None]:
        return self._failures.contained("series", f"claim {held.claim.metadata.key}")

    def _info(self, held: Held) -> ClaimInfo:
        meta, pod = held.claim.metadata, held.first_pod
        gang = None if pod is None else gang_id(pod)
        return ClaimInfo(
            meta.namespace,
            meta.name,
            "" if gang is None else gang[1],
            "" if gang is None else self._caches.rules.queue_of(gang),
            self._flavors.of([held.claim]),
        )
