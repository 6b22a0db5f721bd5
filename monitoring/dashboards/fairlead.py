"""Fairlead / Fairlead itself: do controller, webhook and drivers work, and how fast?"""

from __future__ import annotations

from typing import Final

from monitoring.dashboards.common import SECONDS, events, increases, quantile, quantiles
from monitoring.grafana import BLUE, GREEN, RED, YELLOW, Dashboard, Query, graph, stat

_HALF: Final = {"width": 12}

DASHBOARD: Final = Dashboard(
    uid="fairlead-itself",
    title="Fairlead / Fairlead itself",
    question="Do controller, webhook and drivers work, and how fast?",
    variables=(),
    rows=(
        (
            "Now",
            (
                stat(
                    "Leaders",
                    "Does exactly one controller lead?",
                    Query("sum(fairlead_controller_leader) or vector(0)"),
                    base=RED,
                    steps=((1, GREEN), (2, RED)),
                ),
                stat(
                    "Webhooks that answer",
                    "How many webhooks answer?",
                    Query('sum(up{job="fairlead-webhook"}) or vector(0)'),
                    base=RED,
                    steps=((1, YELLOW), (2, GREEN)),
                ),
                stat(
                    "Drivers down",
                    "On how many nodes does the driver not answer?",
                    Query('count(up{job="fairlead-driver"} == 0) or vector(0)'),
                    steps=((1, RED),),
                ),
                stat(
                    "Certificate",
                    "How long is the webhook's certificate valid?",
                    Query("min(fairlead_webhook_certificate_expiry_timestamp_seconds > 0) - time()"),
                    unit="s",
                    base=RED,
                    steps=((7 * 86400, GREEN),),
                ),
                stat(
                    "Oldest slices",
                    "How long ago did the driver that is furthest behind see its ResourceSlices as its devices?",
                    Query("time() - min(fairlead_driver_slices_synced_timestamp_seconds > 0)"),
                    unit="s",
                    steps=((300, YELLOW), (600, RED)),
                ),
                stat(
                    "Ledger written until",
                    "How far behind is the ledger?",
                    Query("time() - max(fairlead_controller_ledger_as_of_timestamp_seconds > 0)"),
                    unit="s",
                    steps=((300, YELLOW), (600, RED)),
                ),
            ),
        ),
        (
            "Controller",
            (
                graph(
                    "Leader",
                    "Which replica leads, and when did it change?",
                    Query("max by (pod) (fairlead_controller_leader)", "{{pod}}"),
                    least=0,
                    most=1,
                ),
                graph(
                    "Time of a decision",
                    "How long does one decision over all gangs take?",
                    *quantiles("fairlead_controller_decide_seconds"),
                    **SECONDS,
                    steps=((2.5, RED),),
                ),
                graph(
                    "From decision to release",
                    "How long does it take to write what was decided, until the last pod of a gang is released?",
                    *quantiles("fairlead_controller_commit_seconds"),
                    **SECONDS,
                ),
                graph(
                    "Errors and recoveries",
                    "Does the controller meet errors, and does it recover admissions or clear orphaned claims?",
                    Query(events("fairlead_controller_errors_total", by="where"), "error in {{where}}"),
                    Query(events("fairlead_controller_recoveries_total", by="step"), "{{step}}"),
                    Query(
                        "sum(increase(fairlead_controller_orphaned_claims_total[$__rate_interval]))", "orphaned claims"
                    ),
                ),
                graph(
                    "Recorded decisions",
                    "Are decisions recorded, for replay?",
                    Query(increases("fairlead_controller_recorded_decisions_total", by="outcome"), "{{outcome}}"),
                ),
                graph(
                    "Ledger",
                    "Is the ledger written, and what waits for its store?",
                    Query("sum(increase(fairlead_controller_ledger_intervals_total[$__rate_interval]))", "written"),
                    Query("sum(increase(fairlead_controller_ledger_failures_total[$__rate_interval]))", "failed"),
                    Query("sum(increase(fairlead_controller_ledger_gaps_total[$__rate_interval]))", "gaps"),
                    Query("sum(fairlead_controller_ledger_pending_intervals)", "waiting"),
                ),
                graph(
                    "Forecasts",
                    "Are forecasts made, or why not?",
                    Query(increases("fairlead_forecasts_total", by="outcome"), "{{outcome}}"),
                    **_HALF,
                ),
                graph(
                    "Time of a forecast",
                    "How much CPU time does one forecast of all waiting gangs take?",
                    Query(quantile(0.95, "fairlead_forecast_seconds", window="1h"), "p95"),
                    **SECONDS,
                    **_HALF,
                ),
            ),
        ),
        (
            "Webhook",
            (
                graph(
                    "Reviews",
                    "How many objects does the webhook judge, with which verdict?",
                    Query("sum by (verdict) (rate(fairlead_webhook_reviews_total[$__rate_interval]))", "{{verdict}}"),
                    unit="reqps",
                ),
                graph(
                    "Time of a review",
                    "How long does a review take? The apiserver gives up after five seconds.",
                    *quantiles("fairlead_webhook_review_seconds"),
                    **SECONDS,
                    steps=((0.5, RED),),
                ),
                graph(
                    "Denials by cause",
                    "What do users do that is refused?",
                    Query(
                        increases("fairlead_webhook_reviews_total", by="cause", where='verdict="denied"'), "{{cause}}"
                    ),
                ),
                graph(
                    "Requests that could not be judged",
                    "Does the webhook refuse requests, because they are none or because it cannot judge them?",
                    Query(events("fairlead_webhook_bad_requests_total", by="status"), "{{status}}"),
                ),
                graph(
                    "Connections",
                    "Who holds connections to the webhook: apiservers that send reviews (proven), or others?",
                    Query("sum by (state) (fairlead_webhook_connections)", "{{state}}"),
                ),
                graph(
                    "Findings of tenancy policies",
                    "Which rules of tenancy policies are broken, and what became of the objects?",
                    Query(
                        events("fairlead_webhook_policy_findings_total", by="policy, rule, verdict"),
                        "{{policy}} {{rule}} {{verdict}}",
                    ),
                ),
            ),
        ),
        (
            "Drivers",
            (
                graph(
                    "Claims by result",
                    "Do drivers prepare and unprepare claims, or do they fail?",
                    Query(
                        increases("fairlead_driver_claims_total", by="operation, result"), "{{operation}} {{result}}"
                    ),
                ),
                graph(
                    "Time to prepare a claim",
                    "How long does kubelet wait for a claim?",
                    *quantiles("fairlead_driver_claim_duration_seconds", by="operation"),
                    **SECONDS,
                ),
                graph(
                    "Leftovers",
                    "What of ended claims could not be cleaned up yet?",
                    Query("sum by (kind) (fairlead_driver_leftovers)", "{{kind}}"),
                    steps=((1, YELLOW),),
                ),
                graph(
                    "Writes of ResourceSlices",
                    "Do drivers publish their devices, or are they refused?",
                    Query(
                        increases("fairlead_driver_resourceslice_writes_total", by="verb, result"),
                        "{{verb}} {{result}}",
                    ),
                ),
                graph(
                    "Writes of device usage",
                    "Do drivers write into claims how busy their devices are?",
                    Query(increases("fairlead_driver_usage_writes_total", by="result"), "{{result}}"),
                ),
                graph(
                    "Claims on nodes",
                    "How many claims do the drivers hold, and in which state?",
                    Query("sum by (state) (fairlead_driver_claims_held)", "{{state}}"),
                    base=BLUE,
                ),
            ),
        ),
    ),
)
