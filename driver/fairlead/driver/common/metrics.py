"""What the driver counts of its own work: all names and labels in one place.

Labels are bounded: operations, results, states and device types, never claims or pods by name. What is read from the
hardware and names claims is the package metrics'.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

OPERATIONS = ("NodePrepareResources", "NodeUnprepareResources")
LEFTOVERS = ("claim", "orphan", "files")
USAGE_RESULTS = ("ok", "gone", "forbidden", "invalid", "error")
REPAIRS = ("done", "failed", "refused", "cancelled")
MIG_STATES = ("pending", "success", "failed")
MIG_CUTS = ("ok", "undone", "stuck")
STATES = ("preparing", "prepared", "unpreparing")
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0)


class Metrics:
    """One registry per driver, so that several can run in a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"fairlead_driver_{name}", text, labels, registry=self.registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"fairlead_driver_{name}", text, labels, registry=self.registry)

        self._claims = counter("claims", "Claims that kubelet asked to prepare or unprepare.", "operation", "result")
        self._seconds = Histogram(
            "fairlead_driver_claim_duration_seconds",
            "Time to prepare or unprepare one claim, its fetch from the apiserver included.",
            ("operation",),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._inflight = gauge("calls_inflight", "Calls of kubelet in progress.", "operation")
        self._held = gauge("claims_held", "Claims with a record on this node.", "state")
        self._devices = gauge("devices", "Devices published.", "type")
        self._tainted = gauge("devices_tainted", "Published devices with a taint.")
        self._withheld = gauge(
            "gpus_withheld",
            "GPUs of which devices are left out of the slices, as the apiserver drops their taints or counters.",
        )
        self._kept = gauge(
            "slice_fields_kept",
            "1 where the apiserver keeps fields of slices that this node needs, 0 where it drops them.",
            "fields",
        )
        self._writes = counter("resourceslice_writes", "Writes of ResourceSlices.", "verb", "result")
        self._unreadable = counter("checkpoint_unreadable", "Checkpoint files set aside as unreadable.")
        self._mps_restarts = counter("mps_restarts", "MPS daemons that died and were started again.")
        self._leftovers = gauge(
            "leftovers",
            "What is left of claims and is tried again: claims that cannot be undone, files of their containers.",
            "kind",
        )
        self._usage_writes = counter(
            "usage_writes", "Writes of how busy the devices of a claim are, into its status.", "result"
        )
        self._repairs = counter("repairs", "Repairs of GPUs that ended.", "result")
        self._repairing = gauge(
            "gpus_repairing", "GPUs that are kept from claims by a repair that is under way, or that failed.", "state"
        )
        self._mig_config = gauge(
            "mig_config_state",
            "1 for how far the node is with the MIG layout that its label asks for; all 0 without one.",
            "state",
        )
        self._mig_cuts = counter(
            "mig_cuts",
            "GPUs that were cut as a MIG layout says, or were not and were put back (undone), or could not be (stuck).",
            "result",
        )
        for of, results in ((self._repairs, REPAIRS), (self._mig_cuts, MIG_CUTS), (self._usage_writes, USAGE_RESULTS)):
            for result in results:
                of.labels(result)
        for operation in OPERATIONS:
            self._inflight.labels(operation)
            self._seconds.labels(operation)
            for result in ("ok", "error"):
                self._claims.labels(operation, result)
        self.repairing(0, 0)
        self.mig_config(None)
        self.leftovers({})

    @contextlib.contextmanager
    def call(self, operation: str) -> Iterator[None]:
        with self._inflight.labels(operation).track_inprogress():
            yield

    def claim(self, operation: str, result: str, seconds: float) -> None:
        self._claims.labels(operation, result).inc()
        self._seconds.labels(operation).observe(seconds)

    def track_claims_held(self, states: Callable[[], Mapping[str, int]]) -> None:
        """Read the number of claims by state from `states` at each scrape."""
        for state in STATES:
            self._held.labels(state).set_function(functools.partial(_count, states, state))

    def published(self, types: Mapping[str, int], tainted: int, withheld: int = 0) -> None:
        """Devices by type, those with a taint, and the GPUs of which devices are withheld."""
        for kind in ("gpu", "mig"):
            self._devices.labels(kind).set(types.get(kind, 0))
        self._tainted.set(tainted)
        self._withheld.set(withheld)

    def kept(self, groups: Mapping[str, bool]) -> None:
        """By group of fields that this node needs."""
        for group, kept in groups.items():
            self._kept.labels(group).set(kept)

    def wrote(self, verb: str, result: str) -> None:
        self._writes.labels(verb, result).inc()

    def usage_written(self, result: str) -> None:
        self._usage_writes.labels(result).inc()

    def mig_config(self, state: str | None) -> None:
        for each in MIG_STATES:
            self._mig_config.labels(each).set(each == state)

    def mig_cut(self, result: str) -> None:
        self._mig_cuts.labels(result).inc()

    def leftovers(self, kinds: Mapping[str, int]) -> None:
        for kind in LEFTOVERS:
            self._leftovers.labels(kind).set(kinds.get(kind, 0))

    def repaired(self, result: str) -> None:
        self._repairs.labels(result).inc()

    def repairing(self, under_way: int, failed: int) -> None:
        self._repairing.labels("under_way").set(under_way)
        self._repairing.labels("failed").set(failed)

    def mps_restarted(self) -> None:
        self._mps_restarts.inc()

    def unreadable(self) -> None:
        self._unreadable.inc()


def _count(states: Callable[[], Mapping[str, int]], state: str) -> float:
    return states().get(state, 0)
