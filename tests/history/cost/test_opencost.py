"""OpenCost's shapes: `GET /allocation` and the series that a stock OpenCost charges claims by."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.history.cost.opencost import Container, HeldClaim, allocation, lines
from fairlead.history.ledger.entries import Interval
from tests.support.costs import BOOK, D1, DAY, TRAIN, at
from tests.support.ledger_in_memory import Ledger, interval

NOW = D1 / 1e6 + 90_000  # an hour after the day
WINDOW = "2026-11-01T00:00:00Z,2026-11-02T00:00:00Z"
# Of core/pkg/opencost/allocation_json.go: what a client of devices reads.
FIELDS = {
    "name", "properties", "window", "start", "end", "minutes", "gpuCount", "gpuRequestAverage", "gpuUsageAverage", "gpuHours", "gpuCost",
    "gpuCostAdjustment", "gpuCostIdle", "gpuEfficiency", "cpuCost", "ramCost", "pvCost", "networkCost", "sharedCost", "externalCost",
    "totalCost", "totalEfficiency",
}  # fmt: skip


def ask(intervals: list[Interval] = DAY, **query: Any) -> tuple[int, dict[str, Any]]:
    return allocation({"window": WINDOW, **query}, Ledger(intervals), BOOK, now_s=NOW, cluster="c1")


def test_an_allocation_has_the_fields_and_the_figures() -> None:
    status, body = ask(aggregate="namespace")
    assert (status, body["code"], body["status"]) == (200, 200, "success")
    (found,) = body["data"]
    assert set(found) == {"vision", "shop"}
    vision = found["vision"]
    assert vision.keys() >= FIELDS
    assert vision["properties"] == {"cluster": "c1", "namespace": "vision"}
    assert vision["window"] == {"start": "2026-11-01T00:00:00Z", "end": "2026-11-02T00:00:00Z"}
    assert (vision["minutes"], vision["gpuHours"], vision["gpuCost"], vision["totalCost"]) == (1440, 10, 34, 34)
    assert (vision["gpuCostIdle"], vision["gpuCount"]) == (8, round(10 / 24, 5))
    assert vision["gpuUsageAverage"] == round(4 / 24, 5)
    assert vision["gpuEfficiency"] == 0.4


def test_steps_are_sets_and_their_costs_sum_to_the_window() -> None:
    _, body = ask(aggregate="queue", step="6h")
    assert len(body["data"]) == 4
    assert sum(each.get("ml", {}).get("gpuCost", 0) for each in body["data"]) == 34
    assert body["data"][0].keys() == {"web"}


def test_idle_is_its_own_allocation_or_shared_by_cost() -> None:
    _, body = ask(aggregate="queue", includeIdle="true")
    assert body["data"][0]["__idle__"]["gpuCost"] == 50
    _, body = ask(aggregate="queue", includeIdle="true", shareIdle="true")
    assert body["data"][0].keys() == {"ml", "web"}
    assert sum(each["gpuCost"] for each in body["data"][0].values()) == 168
    assert body["data"][0]["ml"]["gpuCost"] == round(34 + 50 * 34 / 118, 5)


def test_names_are_joined_and_what_is_absent_is_unallocated() -> None:
    _, body = ask()
    assert set(body["data"][0]) == {"c1/node-a/vision/a", "c1/node-a/shop/b"}
    _, body = ask(aggregate="controller,label:team")
    assert set(body["data"][0]) == {"train/__unallocated__", "serve/__unallocated__"}
    _, body = ask(aggregate="all")
    assert set(body["data"][0]) == {"c1"}


@pytest.mark.parametrize(
    "window",
    ["today", "yesterday", "week", "lastweek", "month", "lastmonth", "2d", "1w", "90m", "1793491200,1793577600"],
)
def test_every_form_of_window_is_read(window: str) -> None:
    assert ask(window=window)[0] == 200


def test_a_window_of_days_has_today_whole() -> None:
    _, body = ask(window="2d", aggregate="queue")
    assert body["data"][0]["ml"]["window"] == {"start": "2026-11-01T00:00:00Z", "end": "2026-11-03T00:00:00Z"}
    assert body["data"][0]["ml"]["end"] == "2026-11-02T00:00:00Z"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"window": ""}, "Invalid 'window' parameter"),
        ({"window": "2026-11-01,2026-11-02"}, "Invalid 'window' parameter"),
        ({"window": "2026-11-02T00:00:00Z,2026-11-01T00:00:00Z"}, "illegal window"),
        ({"step": "soon"}, "step: 'soon' is no duration"),
        ({"step": "0h"}, "step: '0h' is no duration"),
        ({"step": "1m"}, "more than 1000 sets"),
        ({"aggregate": "pod"}, "the ledger has no 'pod'"),
        ({"includeIdle": "maybe"}, "includeIdle: 'maybe'"),
    ],
)
def test_errors_are_as_opencost_gives_them(query: dict[str, Any], message: str) -> None:
    status, body = ask(**query)
    assert (status, body["code"], body["data"]) == (400, 400, None)
    assert body["message"].startswith("Error: ") and message in body["message"]


def test_two_currencies_are_an_error() -> None:
    status, body = ask([*DAY, interval(2, "used", at(0), at(24), claim=TRAIN, flavor="a100")])
    assert status == 400
    assert "EUR and USD" in body["message"]


def test_nothing_is_known_before_the_ledger_began() -> None:
    _, body = ask(window="2026-10-01T00:00:00Z,2026-10-02T00:00:00Z")
    assert body["data"] == [{}]
    assert allocation({"window": "1d"}, Ledger(), BOOK, now_s=NOW)[1]["data"] == [{}]


def test_the_series_has_opencosts_labels_and_divides_what_is_shared() -> None:
    held = [
        HeldClaim(namespace="ml", node="n1", gpus=Fraction(1), containers=(Container("p-0", "main"),)),
        HeldClaim(namespace="ml", node="n1", gpus=Fraction(3, 7), containers=(Container("p-0", "main"),)),
        HeldClaim(
            namespace="ml", node="n2", gpus=Fraction(1), containers=(Container("a", "x"), Container("b", 'y"\\\n'))
        ),
        HeldClaim(namespace="ml", node="", gpus=Fraction(1), containers=(Container("c", "x"),)),
        HeldClaim(namespace="ml", node="n2", gpus=Fraction(1)),
    ]
    (family,) = text_string_to_metric_families("\n".join(lines(held)) + "\n")
    assert (family.name, family.type) == ("container_gpu_allocation", "gauge")
    assert all(set(sample.labels) == {"container", "pod", "namespace", "node"} for sample in family.samples)
    assert {(sample.labels["pod"], sample.labels["container"]): sample.value for sample in family.samples} == {
        ("p-0", "main"): float(Fraction(10, 7)),
        ("a", "x"): 0.5,
        ("b", 'y"\\\n'): 0.5,
    }
