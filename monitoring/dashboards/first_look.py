"""Fairlead / First look: the tiles of the pages' overview, a day of the GPUs, and what needs attention."""

from __future__ import annotations

from typing import Final

from monitoring.dashboards.common import FINAL, PRICE, TO_GANG, UTILISED
from monitoring.grafana import BLUE, RED, Dashboard, Query, graph, stat, table

_IN_USE: Final = "used|idle|starting"
_FREE: Final = "free|nominated|fragmented"
_UNAVAILABLE: Final = "drained|broken"


def _gpus(states: str) -> str:
    return f'sum(fairlead_cluster_devices{{state=~"{states}"}})'


DASHBOARD: Final = Dashboard(
    uid="fairlead-first-look",
    title="Fairlead / First look",
    question="What do the GPUs do, what waits, and what needs attention? The tiles are those of the pages' overview (`fairlead ui`).",
    variables=(PRICE,),
    span="now-24h",
    rows=(
        (
            "Now",
            (
                stat("GPUs in use", "How many GPUs do claims hold?", Query(_gpus(_IN_USE)), base=BLUE, width=3),
                stat(
                    "Busy",
                    "How busy are the GPUs in use, on average? MIG devices, of which NVML does not tell, do not count.",
                    Query("avg(max by (uuid) (fairlead:device_utilization:ratio))"),
                    **UTILISED,
                    width=3,
                ),
                stat(
                    "Idle",
                    "How many GPUs do claims hold that their driver reports idle?",
                    Query(_gpus("idle")),
                    base=BLUE,
                    width=3,
                ),
                stat(
                    "Idle, per hour",
                    "What do the idle GPUs cost an hour, at the price above?",
                    Query(f"{_gpus('idle')} * $price"),
                    base=BLUE,
                    width=3,
                ),
                stat(
                    "Free",
                    "How many GPUs does no claim hold, those kept for a gang and fragmented ones among them?",
                    Query(_gpus(_FREE)),
                    base=BLUE,
                    width=3,
                ),
                stat(
                    "Unavailable",
                    "How many GPUs does no claim hold and get no claim: drained, on a cordoned node, or broken?",
                    Query(_gpus(_UNAVAILABLE)),
                    steps=((1, RED),),
                    width=3,
                ),
                stat(
                    "Waiting gangs",
                    "How many gangs wait?",
                    Query("sum(fairlead_gangs_waiting) or vector(0)"),
                    base=BLUE,
                    width=3,
                ),
                stat(
                    "Longest wait",
                    "How long has the gang waited that has waited longest?",
                    Query("max(fairlead_queue_oldest_wait_seconds)"),
                    unit="s",
                    base=BLUE,
                    width=3,
                ),
            ),
        ),
        (
            "A day",
            (
                graph(
                    "GPUs by what they do",
                    "How many GPUs were used, idle, starting, free and unavailable?",
                    *(
                        Query(_gpus(states), name)
                        for name, states in (
                            ("used", "used"),
                            ("idle", "idle"),
                            ("starting", "starting"),
                            ("free", _FREE),
                            ("unavailable", _UNAVAILABLE),
                        )
                    ),
                    stacked=True,
                    least=0,
                    width=24,
                ),
            ),
        ),
        (
            "Needs attention",
            (
                table(
                    "Alerts",
                    "Which alerts fire, and for which gang, queue and node?",
                    {
                        "alertname": "Alert",
                        "severity": "Severity",
                        "namespace": "Namespace",
                        "gang": "Gang",
                        "queue": "Queue",
                        "node": "Node",
                    },
                    Query('ALERTS{alertname=~"Fairlead.+", alertstate="firing"}', "Firing"),
                    width=12,
                ),
                table(
                    "Gangs that cannot start as they are",
                    "Of each queue and reason, which gang has waited longest that needs a change before it can start?",
                    {"namespace": "Namespace", "gang": "Gang", "queue": "Queue", "reason": "Reason"},
                    Query(f'fairlead_longest_waiting_gang_seconds{{reason=~"{FINAL}"}}', "Waited", unit="s"),
                    width=12,
                ),
                table(
                    "Idle longest",
                    "Which gangs hold GPUs and used less than 5 % of them in the last hour?",
                    {"namespace": "Namespace", "gang": "Gang", "queue": "Queue"},
                    Query(
                        "avg by (namespace, gang, queue) (avg_over_time(fairlead:device_utilization:ratio[1h])) < 0.05",
                        "Utilised",
                        unit="percentunit",
                    ),
                    drill_down=TO_GANG,
                    width=12,
                ),
                table(
                    "Nodes with devices that are not healthy",
                    "On which nodes has the driver tainted devices?",
                    {"node": "Node"},
                    Query("max by (node) (fairlead_driver_devices_tainted) > 0", "Devices"),
                    width=12,
                ),
            ),
        ),
    ),
)
