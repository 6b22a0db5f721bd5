"""What several dashboards share: variables, links from a row to another dashboard, a panel, and forms of queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from monitoring.grafana import GREEN, RED, YELLOW, Query, Variable, bars

RATIO: Final = {"unit": "percentunit", "least": 0, "most": 1}
SECONDS: Final = {"unit": "s", "least": 0}
UTILISED: Final = {"unit": "percentunit", "base": RED, "steps": ((0.4, YELLOW), (0.65, GREEN))}
BUSY: Final = {"unit": "percentunit", "base": RED, "steps": ((0.2, YELLOW), (0.5, GREEN))}

QUEUE: Final = Variable("queue", "Queue", "label_values(fairlead_queue_gangs, queue)")
FLAVOR: Final = Variable("flavor", "Flavor", "label_values(fairlead_queue_used, flavor)")
NODE: Final = Variable("node", "Node", "label_values(fairlead_driver_devices, node)")
NAMESPACE: Final = Variable("namespace", "Namespace", "label_values(fairlead:device_holder:info, namespace)")
GANG: Final = Variable(
    "gang", "Gang", 'label_values(fairlead:device_holder:info{namespace=~"$namespace", queue=~"$queue"}, gang)'
)

PRICE: Final = Variable("price", "Price of a device-hour", text="2.50")
FINAL: Final = (
    "NeverFits|NoSuitableNode|WaitsForOwnPredecessor|NoMorePods|InvalidRequest|UnknownQueue|QueueNotForNamespace|QueueNotLeaf"
    "|SelectorError"
)
"""Reasons of gangs that start only once their manifest, their queue or the cluster is changed."""

_RANGE: Final = "${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}"
TO_GANG: Final = (
    "/d/fairlead-gang?var-namespace=${__data.fields.Namespace}&var-gang=${__data.fields.Gang}&var-queue=$__all&"
    + _RANGE
)
TO_QUEUE: Final = "/d/fairlead-queues?var-queue=${__data.fields.Queue}&" + _RANGE

BUDGET_SPENT: Final = bars(
    "Budget spent",
    "Which part of its GPU-hours has each queue with a budget spent in the period of now?",
    Query('max by (queue) (fairlead_queue_budget_spent_ratio{queue=~"$queue"})', "{{queue}}"),
    **RATIO,
    steps=((0.8, YELLOW), (1, RED)),
)


def quantile(q: float, metric: str, *, by: str = "", where: str = "", window: str = "$__rate_interval") -> str:
    """A quantile of a histogram, over the window, for each value of the labels `by`."""
    labels = f"le, {by}" if by else "le"
    chosen = f"{{{where}}}" if where else ""
    return f"histogram_quantile({q:g}, sum by ({labels}) (rate({metric}_bucket{chosen}[{window}])))"


def quantiles(
    metric: str, *, by: str = "", where: str = "", window: str = "$__rate_interval", high: int = 99
) -> Iterator[Query]:
    """Median and a high percentile, each named by the labels `by`."""
    labels = "".join(f"{{{{{label}}}}} " for label in by.split(", ") if label)
    for percent in (50, high):
        yield Query(quantile(percent / 100, metric, by=by, where=where, window=window), f"{labels}p{percent}")


def events(metric: str, *, by: str, where: str = "") -> str:
    """Increases of a counter of rare events, of which each has labels of its own: the first, with which a series is born, counts."""
    chosen = f"{metric}{{{where}}}" if where else metric
    born = f"{chosen} unless count_over_time({metric}[1h] offset $__rate_interval)"
    return f"sum by ({by}) (({born}) or increase({chosen}[$__rate_interval]))"


def increases(metric: str, *, by: str, where: str = "", window: str = "$__rate_interval") -> str:
    chosen = f"{{{where}}}" if where else ""
    return f"sum by ({by}) (increase({metric}{chosen}[{window}]))"
