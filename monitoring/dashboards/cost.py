"""Fairlead / Cost: where did the GPU time go, and roughly what did it cost? Bills are made from the ledger, not from here."""

from __future__ import annotations

from typing import Final

from monitoring.dashboards.common import BUDGET_SPENT, FLAVOR, PRICE, QUEUE, TO_GANG, UTILISED
from monitoring.grafana import BLUE, RED, YELLOW, Dashboard, Query, bars, graph, stat, table

_OF: Final = 'queue=~"$queue", flavor=~"$flavor"'
_UNUSED: Final = "idle|starting|nominated|fragmented|free|drained|broken|unknown"


def _hours(expression: str) -> str:
    """Device-hours of the chosen time, from an expression that counts devices, one sample a minute."""
    return f"sum_over_time(({expression})[$__range:1m]) / 60"


_USED: Final = f"sum by (queue) (fairlead_queue_used{{{_OF}}})"
_BUSY: Final = f"sum by (queue) (fairlead:device_utilization:ratio{{{_OF}}})"
_MEASURED: Final = f"count by (queue) (fairlead:device_utilization:ratio{{{_OF}}})"
_IDLE: Final = f"count by (queue) (fairlead:device_utilization:ratio{{{_OF}}} < 0.05)"
# A queue's figure contains those of the queues below it, so the sum over all queues would count some use twice.
_HELD: Final = 'sum(fairlead_cluster_devices{flavor=~"$flavor", state=~"used|idle|starting"})'
_STATES: Final = 'sum by (state) (fairlead_cluster_devices{flavor=~"$flavor"})'

DASHBOARD: Final = Dashboard(
    uid="fairlead-cost",
    title="Fairlead / Cost",
    question="Where did the device time go, by queue, and roughly what did it cost? A bill comes from the ledger: `fairlead cost`.",
    variables=(QUEUE, FLAVOR, PRICE),
    span="now-24h",
    rows=(
        (
            "The chosen time",
            (
                stat(
                    "Device-hours allocated",
                    "For how many device-hours did the claims of all queues hold devices?",
                    Query(_hours(_HELD)),
                    base=BLUE,
                ),
                stat(
                    "Charges", "What do these cost at the price above?", Query(f"{_hours(_HELD)} * $price"), base=BLUE
                ),
                stat(
                    "Utilised",
                    "Which part of the device-hours in claims was computing? 65 to 85 % of the fleet is the usual target.",
                    Query(f"sum({_hours(_BUSY)}) / sum({_hours(_MEASURED)})"),
                    **UTILISED,
                ),
                stat(
                    "Idle device-hours in claims",
                    "For how many device-hours were devices in claims less than 5 % busy?",
                    Query(f"sum({_hours(_IDLE)}) or vector(0)"),
                    base=BLUE,
                ),
                stat(
                    "Devices freed by evictions",
                    "How many devices did evictions free? What their jobs had computed since a checkpoint was lost: `fairlead cost`.",
                    Query("sum(increase(fairlead_controller_reclaimed_devices_total[$__range])) or vector(0)"),
                    base=BLUE,
                ),
                stat(
                    "Ledger written until",
                    "How far behind is the ledger from which bills are made?",
                    Query("time() - max(fairlead_controller_ledger_as_of_timestamp_seconds > 0)"),
                    unit="s",
                    steps=((300, YELLOW), (600, RED)),
                ),
            ),
        ),
        (
            "By queue",
            (
                bars(
                    "Device-hours by queue",
                    "How many device-hours did each queue, with the queues below it, hold, in the measures of its flavors?",
                    Query(_hours(_USED), "{{queue}}"),
                    base=BLUE,
                ),
                bars(
                    "Charges by queue",
                    "What does the use of each queue, with the queues below it, cost at the price above?",
                    Query(f"{_hours(_USED)} * $price", "{{queue}}"),
                    base=BLUE,
                ),
                bars(
                    "Utilised by queue",
                    "Which part of its device-hours did each queue compute?",
                    Query(f"{_hours(_BUSY)} / {_hours(_MEASURED)}", "{{queue}}"),
                    **UTILISED,
                    least=0,
                    most=1,
                ),
                bars(
                    "Idle cost by queue",
                    "What did devices cost that a queue held and did not use, at the price above?",
                    Query(f"{_hours(_IDLE)} * $price", "{{queue}}"),
                    base=BLUE,
                ),
                BUDGET_SPENT,
                graph("Use over time", "When did which queue use how much?", Query(_USED, "{{queue}}"), least=0),
            ),
        ),
        (
            "What no gang computed with",
            (
                bars(
                    "Device-hours by state",
                    "Where did the device-hours of the fleet go: used, idle in a claim, starting, nominated, fragmented, free, drained, broken, unknown?",
                    Query(_hours(_STATES), "{{state}}"),
                    base=BLUE,
                    width=12,
                ),
                graph(
                    "Unused devices by state",
                    "When were devices not used, and why?",
                    Query(
                        f'sum by (state) (fairlead_cluster_devices{{flavor=~"$flavor", state=~"{_UNUSED}"}})',
                        "{{state}}",
                    ),
                    stacked=True,
                    width=12,
                ),
                table(
                    "Candidates for a smaller device",
                    "Which gangs never filled more than 35 % of a device's memory, so that a MIG device or a shared GPU would do?",
                    {"gang": "Gang", "namespace": "Namespace", "queue": "Queue", "flavor": "Flavor"},
                    Query(
                        "max by (namespace, gang, queue, flavor) "
                        f"(max_over_time(fairlead:device_memory:ratio{{{_OF}}}[$__range])) < 0.35",
                        "Peak memory",
                        unit="percentunit",
                    ),
                    drill_down=TO_GANG,
                ),
            ),
        ),
    ),
)
