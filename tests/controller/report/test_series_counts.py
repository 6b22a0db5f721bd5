"""How many series the leader has, as the documentation states it, at 4,000 GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import get_args

from fairlead.controller.gangs.admission import recovery
from fairlead.controller.report.metrics import Metrics
from fairlead.controller.report.queue_series import QueueFacts
from fairlead.engine.types.plan import FlavorUse, QueueUse
from fairlead.engine.types.reasons import Code
from fairlead.kube import probes
from tests.controller.report.series import claim_caches, scraped, waiting
from tests.support.stated_series import PAGE, counted, stated

QUEUES_N, FLAVORS_N, CLAIMS_N = 50, 4, 4000
EVICTED = ("Reclaim", "Preempt", "Replace", "Idle", "Move")
LOOPS = "cycle decision forecast history ledger reconcile recorder report series status task"
CLOSED: dict[str, tuple[tuple[str, ...], ...]] = {
    "admissions": (("admitted", "failed"),),
    "recoveries": (tuple(step.__name__ for step in get_args(recovery.Step)),),
    "evictions": (EVICTED, ("begun", "evicted", "cancelled", "refused", "failed", "budget_overridden")),
    "reclaimed_devices": (EVICTED,),
    "forecasts": (("made", "no_memory", "memory", "late", "died"),),
    "forecast_starts": (("true", "false"),),
    "recorded_decisions": (("recorded", "missed"),),
    "moves": (("used", "expired"),),
    "moved_gpu_seconds": (("room", "node"),),
    "node_request_failures": (("Visible", "ProvisioningRequest", "Placeholder"),),
    "errors": (tuple(LOOPS.split()),),
}


def full() -> Metrics:
    """A leader's metrics where every label has every value."""
    metrics = Metrics()
    queues, flavors = [f"q{n}" for n in range(QUEUES_N)], [f"f{n}" for n in range(FLAVORS_N)]
    uses = tuple(
        QueueUse(
            name=queue,
            flavors=tuple(
                FlavorUse(flavor=each, used=1, demand=1, fair_share=1, deserved=1, limit=1) for each in flavors
            ),
            waiting=1,
            admitted=1,
        )
        for queue in queues
    )
    gangs = [waiting("g", queue, code, **dict.fromkeys(flavors, 1)) for queue in queues for code in Code]
    known = QueueFacts(uses=uses, waiting=gangs, waits={}, targets_s=dict.fromkeys(queues, 60.0), wall=0.0)
    metrics.begin(claim_caches(CLAIMS_N), lambda: known, wall=lambda: 0.0)
    metrics.note_devices({("used", flavor): 1 for flavor in (*flavors, "")})
    for flavor in flavors:
        metrics.note_scale_up(flavor, 60.0)
        metrics.node_demand_amount.labels(flavor).inc()
        for state in ("Asked", "Rests", "AtMax"):
            metrics.node_demand.labels(flavor, "Visible", state).inc()
    for queue in queues:
        metrics.queue_budget.labels(queue).set(0.5)
        metrics.queue_wait_seconds.labels(queue, "", "withdrawn").observe(1)
        for flavor_ in (*flavors, ""):
            metrics.queue_wait_seconds.labels(queue, flavor_, "admitted").observe(1)
    for name, labels in CLOSED.items():
        for chosen in itertools.product(*labels):
            getattr(metrics, name).labels(*chosen).inc()
    return metrics


def test_metrics_have_as_many_series_as_is_stated_and_no_more_at_four_thousand_gpus() -> None:
    found = counted(full().registry)
    assert found == stated("Controller", {"Q": QUEUES_N, "F": FLAVORS_N, "C": CLAIMS_N})
    text = PAGE.read_text()
    assert f"at most {sum(found.values()):,} series" in " ".join(text.split())


async def test_a_scrape_has_no_times_of_creation(free_port: Callable[[], int]) -> None:
    """One more series for each counter and histogram, of use only to other formats."""
    port, metrics = free_port(), Metrics()
    metrics.admissions.labels("admitted").inc()
    async with probes.serve(f"127.0.0.1:{port}", registry=metrics.registry):
        assert not [family.name for family in await scraped(port) if family.name.endswith("_created")]
