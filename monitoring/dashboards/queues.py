"""Fairlead / Queues: does every queue get what it deserves, and keep its promise?"""

from __future__ import annotations

from typing import Final

from monitoring.dashboards.common import BUDGET_SPENT, FLAVOR, QUEUE, SECONDS, increases, quantiles
from monitoring.grafana import RED, Dashboard, Query, graph, table

_OF: Final = 'queue=~"$queue", flavor=~"$flavor"'
_BY: Final = "{{queue}} {{flavor}}"

DASHBOARD: Final = Dashboard(
    uid="fairlead-queues",
    title="Fairlead / Queues",
    question="Does every queue get what it deserves, and keep the wait that its owner promised?",
    variables=(QUEUE, FLAVOR),
    rows=(
        (
            "Shares",
            (
                graph(
                    "Used",
                    "How much of each flavor do the admitted gangs of a queue, and of the queues below it, hold?",
                    Query(f"sum by (queue, flavor) (fairlead_queue_used{{{_OF}}})", _BY),
                    least=0,
                    width=12,
                ),
                graph(
                    "Requested by waiting gangs",
                    "How much more would the waiting gangs of a queue take, and what would let them start: free devices, share, quota, nodes?",
                    Query(
                        f"sum by (queue, flavor, because) (fairlead_queue_demand{{{_OF}}})", f"{_BY} ({{{{because}}}})"
                    ),
                    stacked=True,
                    width=12,
                ),
                graph(
                    "Used against fair share",
                    "Does a queue with waiting gangs use its fair share? Below 1 it has less than its share, above 1 it borrows.",
                    Query(
                        f"sum by (queue, flavor) (fairlead_queue_used{{{_OF}}}) "
                        f"/ (sum by (queue, flavor) (fairlead_queue_fair_share{{{_OF}}}) > 0)",
                        _BY,
                    ),
                    unit="percentunit",
                    least=0,
                    width=12,
                ),
                table(
                    "Shares now",
                    "What does each queue use, deserve, get as fair share, and how much may it have at most?",
                    {"queue": "Queue", "flavor": "Flavor"},
                    Query(f"sum by (queue, flavor) (fairlead_queue_used{{{_OF}}})", "Used"),
                    Query(f"sum by (queue, flavor) (fairlead_queue_deserved{{{_OF}}})", "Deserved"),
                    Query(f"sum by (queue, flavor) (fairlead_queue_fair_share{{{_OF}}})", "Fair share"),
                    Query(f"sum by (queue, flavor) (fairlead_queue_limit{{{_OF}}})", "Limit"),
                    width=12,
                ),
            ),
        ),
        (
            "Waits",
            (
                graph(
                    "Wait for devices, p50 and p95",
                    "How long did the gangs wait that were admitted in the last hour?",
                    *quantiles(
                        "fairlead_queue_wait_seconds",
                        by="queue",
                        where=f'{_OF}, outcome="admitted"',
                        window="1h",
                        high=95,
                    ),
                    **SECONDS,
                ),
                graph(
                    "p95 wait against the target",
                    "Does the queue keep the wait that its waitTarget states? Above 1 it does not, and FairleadQueueWaitSLO fires.",
                    Query(
                        'fairlead:queue_wait_seconds:p95_6h{queue=~"$queue"} '
                        '/ on (queue) max by (queue) (fairlead_queue_wait_target_seconds{queue=~"$queue"})',
                        "{{queue}}",
                    ),
                    unit="percentunit",
                    least=0,
                    steps=((1, RED),),
                ),
                graph(
                    "Longest wait of those that wait now",
                    "How long has the oldest waiting gang of each queue waited?",
                    Query('max by (queue) (fairlead_queue_oldest_wait_seconds{queue=~"$queue"})', "{{queue}}"),
                    **SECONDS,
                ),
            ),
        ),
        (
            "Gangs and budgets",
            (
                graph(
                    "Gangs by state",
                    "How many gangs of each queue wait, and how many are admitted?",
                    Query('sum by (queue, state) (fairlead_queue_gangs{queue=~"$queue"})', "{{queue}} {{state}}"),
                ),
                graph(
                    "Ends of waits",
                    "How many gangs of each queue got their devices, and how many were withdrawn before?",
                    Query(
                        increases("fairlead_queue_wait_seconds_count", by="queue, outcome", where=_OF),
                        "{{queue}} {{outcome}}",
                    ),
                ),
                BUDGET_SPENT,
            ),
        ),
    ),
)
