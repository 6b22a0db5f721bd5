"""The controller's Prometheus metrics: names and help in one table. Labels are bounded: queues and outcomes, never gangs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from fairlead.api.phases import Phase
from fairlead.controller.report.events import Failures
from fairlead.controller.report.queue_series import ClaimSeries, QueueFacts, QueueSeries
from fairlead.controller.spending import BudgetNow
from fairlead.controller.watch.caches import Caches
from fairlead.engine.types.plan import NodeDemand
from fairlead.history.ledger.entries import BUCKETS, WHOLE_PPM, Bucket
from fairlead.kube.limits import Clock

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
WAITS_S = (
    1.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 86400.0, 259200.0,
)  # fmt: skip


class Growing:
    """Counters that follow totals which others keep: of one term, each total by its name."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}

    def show(self, name: str, total: int, counter: Counter) -> None:
        """`counter` grows by what `total` has grown since the last call; a total that shrank adds nothing until it is larger again."""
        before = self._shown.get(name, 0)
        counter.inc(max(0, total - before))
        self._shown[name] = max(total, before)


class Metrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        histogram = partial(Histogram, registry=self.registry)
        self.errors = counter("fairlead_controller_errors_total", "Unexpected errors; each is in the log.", ["where"])
        self.failures = Failures(self.errors)
        self.leader = gauge("fairlead_controller_leader", "1 while this replica leads.")
        self.decide_seconds = histogram(
            "fairlead_controller_decide_seconds", "Time of one decision over all gangs.", buckets=SECONDS
        )
        self.commit_seconds = histogram(
            "fairlead_controller_commit_seconds",
            "Time from a gang's decision to the release of its last pod.",
            buckets=SECONDS,
        )
        self.admissions = counter("fairlead_controller_admissions_total", "Gangs admitted, by outcome.", ["outcome"])
        self.recoveries = counter(
            "fairlead_controller_recoveries_total", "Interrupted or late admissions recovered, by step.", ["step"]
        )
        self.orphaned_claims = counter("fairlead_controller_orphaned_claims_total", "Orphaned allocations cleared.")
        self.evictions = counter(
            "fairlead_controller_evictions_total",
            "Evictions of gangs or of their surplus, by kind and outcome.",
            ["kind", "outcome"],
        )
        self.reclaimed_devices = counter(
            "fairlead_controller_reclaimed_devices_total", "Devices freed by evictions.", ["kind"]
        )
        self.moved_gpu_seconds = counter(
            "fairlead_controller_moved_gpu_seconds_total",
            "What moves cost, as it was when they were decided: work since the last checkpoint, and the restart; for room, or for a node that goes.",
            ["cause"],
        )
        self.moves = counter(
            "fairlead_controller_moves_total",
            "Places held for gangs that move, by what became of them: used, or expired.",
            ["outcome"],
        )
        self.preemptor_admission_seconds = histogram(
            "fairlead_controller_preemptor_admission_duration_seconds",
            "Time from the first eviction for a gang to its release.",
            buckets=(*SECONDS, 60.0, 300.0, 1800.0),
        )
        self.gangs = gauge("fairlead_controller_gangs", "Gangs by phase.", ["phase"])
        self._phases = {phase: self.gangs.labels(phase) for phase in get_args(Phase)}
        self.queues = QueueSeries(self.failures)
        self.claims = ClaimSeries(self.failures)
        self.registry.register(self.queues)
        self.registry.register(self.claims)
        self.queue_wait_seconds = histogram(
            "fairlead_queue_wait_seconds",
            "How long gangs waited from their creation until they were released, or were gone.",
            ["queue", "flavor", "outcome"],
            buckets=WAITS_S,
        )
        self.queue_budget = gauge(
            "fairlead_queue_budget_spent_ratio",
            "What a queue has spent of its budget in the period of now, as a part of it; not there where that is not known.",
            ["queue"],
        )
        self.forecast_seconds = histogram(
            "fairlead_forecast_seconds", "CPU time of one forecast of all waiting gangs.", buckets=SECONDS
        )
        self.forecasts = counter(
            "fairlead_forecasts_total",
            "Forecasts of all waiting gangs, by outcome: made, or why there is none.",
            ["outcome"],
        )
        self.forecast_memory_bytes = gauge(
            "fairlead_forecast_memory_bytes", "Memory that the process of the last forecast had of its own."
        )
        self.forecast_error_seconds = histogram(
            "fairlead_forecast_error_seconds",
            "Of each gang that had to wait: time between its start and the p50 of its first forecast.",
            buckets=(10.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0, 86400.0),
        )
        self.forecast_starts = counter(
            "fairlead_forecast_starts_total",
            "Starts of gangs whose first forecast had a p90, by whether they came before it.",
            ["before_p90"],
        )
        self.recording = gauge("fairlead_controller_recording", "1 while decisions are recorded (--record).")
        self.recorded_decisions = counter(
            "fairlead_controller_recorded_decisions_total",
            "Decisions recorded, and missed by the recording.",
            ["outcome"],
        )
        self.recorded_bytes = counter("fairlead_controller_recorded_bytes_total", "Bytes written by the recording.")
        self.ledger_intervals = counter(
            "fairlead_controller_ledger_intervals_total", "Intervals written into the ledger."
        )
        self.ledger_failures = counter("fairlead_controller_ledger_failures_total", "Writes of the ledger that failed.")
        self.ledger_gaps = counter(
            "fairlead_controller_ledger_gaps_total", "Times of which the ledger does not know all."
        )
        self.ledger_pending = gauge(
            "fairlead_controller_ledger_pending_intervals", "Intervals that wait for the ledger's store."
        )
        self.ledger_as_of = gauge(
            "fairlead_controller_ledger_as_of_timestamp_seconds", "Until when the ledger is written; 0 without one."
        )
        self.scale_up_seconds = histogram(
            "fairlead_autoscaling_scale_up_seconds",
            "Of gangs that started on devices that came after nodes were asked for: time since they were.",
            ["flavor"],
            buckets=WAITS_S,
        )
        self.node_demand = gauge(
            "fairlead_autoscaling_gangs",
            "Gangs that lack devices of a flavor which scales, by flavor, mode and state: Asked, Rests or AtMax.",
            ["flavor", "mode", "state"],
        )
        self.node_demand_amount = gauge(
            "fairlead_autoscaling_demand",
            "What gangs for which nodes are asked for need of a flavor, in its measure.",
            ["flavor"],
        )
        self.node_request_failures = counter(
            "fairlead_autoscaling_failures_total",
            "What was asked of an autoscaler and refused, or could not be written, by mode; the Gang's status says why.",
            ["mode"],
        )
        self.cluster_devices = gauge(
            "fairlead_cluster_devices",
            "Whole devices by flavor and by what they are now: the parts of those that several claims have are added up.",
            ["flavor", "state"],
        )
        self.ignored_slices = gauge(
            "fairlead_controller_ignored_slices",
            "What is published and does not count: slices that name another node's pool, pools of more devices than a node has.",
        )
        self._flavors: set[str] = set()  # that have series of devices

    def begin(self, caches: Caches, queues: Callable[[], QueueFacts], *, wall: Clock) -> None:
        """This replica leads: it has the series of the cluster until `end`."""
        self.leader.set(1)
        self.queues.facts = queues
        self.claims.begin(caches, wall=wall)

    def end(self) -> None:
        self.leader.set(0)
        self.queues.facts = None
        self.claims.end()
        self.queue_budget.clear()
        self.note_node_demand(())
        self.note_phases({})

    def note_phases(self, counts: Mapping[str, int]) -> None:
        """`counts`: gangs by phase."""
        for phase, gauge in self._phases.items():
            gauge.set(counts.get(phase, 0))

    def note_scale_up(self, flavor: str, took_s: float) -> None:
        self.scale_up_seconds.labels(flavor).observe(took_s)

    def note_node_demand(self, demand: Iterable[NodeDemand]) -> None:
        """All of it; what was there before and is not any more has no series."""
        self.node_demand.clear()
        self.node_demand_amount.clear()
        for each in demand:
            self.node_demand.labels(each.flavor, each.mode, each.state).inc()
            for flavor, amount in each.amounts if each.state == "Asked" else ():
                self.node_demand_amount.labels(flavor).inc(float(amount))

    def note_devices(self, shares: Mapping[tuple[Bucket, str], int]) -> None:
        """`shares`: in millionths of a device. A flavor that was there has all states, so that what ended is 0."""
        flavors = {flavor for _, flavor in shares}
        if not self._flavors <= flavors:
            self.cluster_devices.clear()
        self._flavors = flavors
        for flavor in flavors:
            for state in BUCKETS:
                self.cluster_devices.labels(flavor, state).set(shares.get((state, flavor), 0) / WHOLE_PPM)

    def note_budgets(self, budgets: Mapping[str, BudgetNow]) -> None:
        self.queue_budget.clear()
        for name, now in budgets.items():
            if now.spent is not None:
                self.queue_budget.labels(name).set(float(now.spent / now.budget.limit))
