"""The collectors that the driver's registry calls at each scrape. They read what was polled last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fairlead.driver.backend.types import GpuCondition, Inventory, Telemetry
from fairlead.driver.metrics import dcgm, holders, readings, shares
from fairlead.driver.metrics.devices import measured
from fairlead.driver.metrics.readings import Family
from fairlead.driver.prepare.records import ClaimRecord
from fairlead.driver.publish.xid_counts import XidCounts


class GpuCollector(Collector):
    """Each callable is called at each scrape and must not block. `pods` gives a claim's pods (names), `usages` how busy its
    devices are, by its UID.

    With `with_dcgm` each measurement is also served under DCGM's name.
    """

    def __init__(
        self,
        *,
        inventory: Callable[[], Inventory],
        telemetry: Callable[[], Sequence[Telemetry]],
        conditions: Callable[[], Sequence[GpuCondition]],
        xids: XidCounts,
        records: Callable[[], Iterable[ClaimRecord]],
        pods: holders.Pods,
        usages: shares.Usages,
        node: str,
        with_dcgm: bool = False,
    ) -> None:
        self._inventory = inventory
        self._telemetry = telemetry
        self._conditions = conditions
        self._xids = xids
        self._records = records
        self._pods = pods
        self._usages = usages
        self._node = node
        self._with_dcgm = with_dcgm

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Empty: the metrics are known only after the first poll."""
        yield from ()

    def collect(self) -> Iterator[Family]:
        devices = measured(self._inventory(), self._telemetry(), self._conditions(), self._xids)
        records = tuple(self._records())
        yield from readings.families(devices)
        yield holders.device_claims(records, self._pods)
        yield from shares.families(records, self._usages)
        if self._with_dcgm:
            yield from dcgm.families(devices, holders.sole_pods(records, self._pods), self._node)


class SlicesCollector(Collector):
    """`synced_at_s` tells when the slices last were as the devices, in epoch seconds; None before the first time."""

    def __init__(self, synced_at_s: Callable[[], float | None]) -> None:
        self._synced_at_s = synced_at_s

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield from ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "fairlead_driver_slices_synced_timestamp_seconds",
            "When the ResourceSlices last were known to be as the node's devices.",
        )
        synced_at_s = self._synced_at_s()
        if synced_at_s is not None:
            family.add_metric((), synced_at_s)
        yield family
