"""Fairlead / Waiting: why do gangs wait, for how long, and did the forecasts say so?"""

from __future__ import annotations

from typing import Final

from monitoring.dashboards.common import FINAL, QUEUE, SECONDS, events, increases, quantile, quantiles
from monitoring.grafana import BLUE, GREEN, RED, YELLOW, Dashboard, Query, bars, graph, heatmap, stat, table

DASHBOARD: Final = Dashboard(
    uid="fairlead-waiting",
    title="Fairlead / Waiting",
    question="Why do gangs wait, for how long, and did the forecasts say so?",
    variables=(QUEUE,),
    rows=(
        (
            "Now",
            (
                stat(
                    "Waiting gangs",
                    "How many gangs wait, for any reason?",
                    Query('sum(fairlead_gangs_waiting{queue=~"$queue"}) or vector(0)'),
                    base=BLUE,
                ),
                stat(
                    "Cannot start as they are",
                    "How many of them need a change of their manifest or of a queue before they can start?",
                    Query(f'sum(fairlead_gangs_waiting{{queue=~"$queue", reason=~"{FINAL}"}}) or vector(0)'),
                    steps=((1, RED),),
                ),
                stat(
                    "Longest wait",
                    "How long has the oldest waiting gang waited?",
                    Query('max(fairlead_queue_oldest_wait_seconds{queue=~"$queue"})'),
                    unit="s",
                    base=BLUE,
                ),
                stat(
                    "Devices they wait for",
                    "How many devices, in the measures of their flavors, would the waiting gangs take?",
                    Query('sum(fairlead_queue_demand{queue=~"$queue"}) or vector(0)'),
                    base=BLUE,
                ),
                stat(
                    "Free devices",
                    "How many devices are free at the same time? Free devices, fragmented ones among them, beside waiting gangs mean that their shape, "
                    "quota or node is in the way.",
                    Query('sum(fairlead_cluster_devices{state=~"free|fragmented"})'),
                    base=BLUE,
                ),
                stat(
                    "Starts before the forecast's p90",
                    "Of the gangs that started in the last day, how many came before the p90 of their first forecast? Nine of ten should.",
                    Query(
                        '1 - (sum(increase(fairlead_forecast_starts_total{before_p90="false"}[1d])) or vector(0)) '
                        "/ (sum(increase(fairlead_forecast_starts_total[1d])) > 0)"
                    ),
                    unit="percentunit",
                    base=RED,
                    steps=((0.75, YELLOW), (0.88, GREEN)),
                ),
            ),
        ),
        (
            "Reasons",
            (
                graph(
                    "Waiting gangs by reason",
                    "What stands in the way of the waiting gangs?",
                    Query('sum by (reason) (fairlead_gangs_waiting{queue=~"$queue"})', "{{reason}}"),
                    stacked=True,
                    width=12,
                ),
                graph(
                    "Requested devices by what stands in the way",
                    "Would more devices help, or is it share, quota or nodes? Never: not on these nodes.",
                    Query('sum by (because) (fairlead_queue_demand{queue=~"$queue"})', "{{because}}"),
                    stacked=True,
                    width=12,
                ),
                table(
                    "By queue and reason",
                    "Which queue's gangs wait for which reason? What each reason means is in docs/gangs.md.",
                    {"queue": "Queue", "reason": "Reason"},
                    Query('sum by (queue, reason) (fairlead_gangs_waiting{queue=~"$queue"}) > 0', "Gangs"),
                    width=12,
                ),
                bars(
                    "Longest wait by queue",
                    "In which queue does a gang wait longest?",
                    Query('max by (queue) (fairlead_queue_oldest_wait_seconds{queue=~"$queue"})', "{{queue}}"),
                    **SECONDS,
                    base=BLUE,
                    width=12,
                ),
            ),
        ),
        (
            "Nodes on demand",
            (
                graph(
                    "Gangs that lack nodes",
                    "For how many gangs is an autoscaler asked for nodes (Asked), for how many not again yet (Rests), for how many not "
                    "since their flavor is at its max (AtMax)?",
                    Query("sum by (flavor, state) (fairlead_autoscaling_gangs)", "{{flavor}} {{state}}"),
                    stacked=True,
                    width=12,
                ),
                graph(
                    "Asked of autoscalers",
                    "How much of each flavor do the gangs need for which nodes are asked?",
                    Query("sum by (flavor) (fairlead_autoscaling_demand)", "{{flavor}}"),
                    stacked=True,
                    width=12,
                ),
                graph(
                    "From the request for nodes to the start, p50 and p95",
                    "How long did nodes take to come, for the gangs that started on them in the last six hours?",
                    *quantiles("fairlead_autoscaling_scale_up_seconds", by="flavor", window="6h", high=95),
                    **SECONDS,
                    width=12,
                ),
                graph(
                    "Requests for nodes that failed",
                    "How many requests did an autoscaler's API refuse, or could not be written? The Gang's status says why.",
                    Query(events("fairlead_autoscaling_failures_total", by="mode"), "{{mode}}"),
                    width=12,
                ),
            ),
        ),
        (
            "Waits that ended",
            (
                heatmap(
                    "Waits of admitted gangs",
                    "How are the waits of the admitted gangs distributed?",
                    Query(
                        increases(
                            "fairlead_queue_wait_seconds_bucket", by="le", where='queue=~"$queue", outcome="admitted"'
                        ),
                        "{{le}}",
                    ),
                    width=12,
                ),
                graph(
                    "Waits by outcome, p95",
                    "How long did gangs wait that were admitted, and that were withdrawn, in the last hour?",
                    Query(
                        quantile(
                            0.95, "fairlead_queue_wait_seconds", by="outcome", where='queue=~"$queue"', window="1h"
                        ),
                        "{{outcome}}",
                    ),
                    **SECONDS,
                    width=12,
                ),
                graph(
                    "Error of forecasts, p50 and p90",
                    "How far from its actual start was the p50 of a gang's first forecast, in the last six hours?",
                    *quantiles("fairlead_forecast_error_seconds", window="6h", high=90),
                    **SECONDS,
                    width=12,
                ),
                graph(
                    "From the first eviction to the start, p95",
                    "How long does a gang for which others are evicted wait until it starts?",
                    Query(
                        quantile(0.95, "fairlead_controller_preemptor_admission_duration_seconds", window="1h"), "p95"
                    ),
                    **SECONDS,
                    width=12,
                ),
            ),
        ),
    ),
)
