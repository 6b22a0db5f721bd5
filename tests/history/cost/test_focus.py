"""FOCUS 1.2: columns, types and the rules of nulls, read from the specification; and that a file sums to the bill."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import defaultdict
from datetime import datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.history.cost.bill import Asked, Basis, Idle, make
from fairlead.history.cost.focus import COLUMNS, lines, rows
from fairlead.history.cost.window import CostError, Known, Window
from fairlead.history.prices import rounded
from fairlead.kube.timestamps import DAY_US
from tests.support.costs import BOOK, DAY, TRAIN, WHOLE, accounted, at, lives, pod, pod_lives, price_of
from tests.support.engine.examples import examples
from tests.support.ledger_in_memory import Ledger, allocation, day, interval

MANDATORY = {
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost",
    "InvoiceIssuerName", "ListCost", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory",
    "ServiceName",
}  # fmt: skip
NULLABLE = {
    "CapacityReservationId", "CapacityReservationStatus", "ChargeClass", "ResourceName", "SubAccountId", "SubAccountName", "Tags",
}  # fmt: skip
DECIMAL = [
    "BilledCost", "ConsumedQuantity", "ContractedCost", "ContractedUnitPrice", "EffectiveCost", "ListCost", "ListUnitPrice", "PricingQuantity",
]  # fmt: skip
TIMES = ["BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart"]
D1 = day("2026-11-01")
MONTHS_END = Known(Window(day("2026-10-31"), day("2026-11-03")))
LIFE = [
    *DAY,
    interval(2, "free", day("2026-10-31"), day("2026-11-02")),
    interval(3, "used", D1, D1 + DAY_US, claim=allocation("c", user="=cmd()", team="vision", tier="gold"), flavor="l40s"),
    interval(4, "used", D1, D1 + DAY_US, claim=allocation("d", queue=""), flavor="", busy=0.25, capacity_type="spot", lost=True),
]  # fmt: skip

PODS = [
    pod("memory", 32, at(6), at(16), of=TRAIN),
    pod("pods", 1, at(20), at(26), of=allocation("c", team="vision")),
]


def written(basis: Basis = "allocated", idle: Idle = "holder") -> list[dict[str, str]]:
    text = "".join(
        lines(
            Ledger(LIFE, pods=PODS),
            BOOK,
            Asked(basis=basis, idle=idle),
            MONTHS_END,
            account="cluster-1",
            units={"h100": "GPU-Hours"},
        )
    )
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("basis", ["allocated", "utilised"])
@pytest.mark.parametrize("idle", ["holder", "queue"])
def test_columns_types_and_nulls_are_those_of_the_specification(basis: Basis, idle: Idle) -> None:
    found = written(basis, idle)
    assert found and found[0].keys() >= MANDATORY
    assert all(re.fullmatch(r"x_[A-Z][A-Za-z]*|[A-Z][A-Za-z]*", name) for name in COLUMNS)
    for row in found:
        empty = {name for name, value in row.items() if not value and not name.startswith("x_")}
        assert empty <= NULLABLE
        assert all(re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", row[name]) for name in DECIMAL)
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[name]) for name in TIMES)
        assert re.fullmatch("[A-Z]{3}", row["BillingCurrency"])
        assert (row["ChargeCategory"], row["ChargeClass"]) == ("Usage", "")
        assert row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
        assert (
            datetime.fromisoformat(row["BillingPeriodStart"]).day
            == datetime.fromisoformat(row["BillingPeriodEnd"]).day
            == 1
        )
        assert bool(row["CapacityReservationId"]) == bool(row["CapacityReservationStatus"])
        assert row["CapacityReservationStatus"] in {"", "Used", "Unused"}
        assert bool(row["SubAccountId"]) == bool(row["SubAccountName"])
        assert row["ResourceId"] and row["ResourceType"] and row["SkuId"] and row["SkuPriceId"]
        assert row["PricingCategory"] in {"Standard", "Dynamic"}
        costs = {row[name] for name in ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")}
        assert len(costs) == 1
        product = Decimal(row["ListUnitPrice"]) * Decimal(row["PricingQuantity"])
        assert abs(product - Decimal(row["ListCost"])) < Decimal("1e-10")
        if row["Tags"]:
            assert all(isinstance(value, str) for value in json.loads(row["Tags"]).values())


def test_idle_is_the_unused_part_of_a_reservation_and_free_time_is_none() -> None:
    found = [row for row in written() if row["ServiceName"] == "GPU"]
    assert {(row["x_Bucket"], row["CapacityReservationStatus"]) for row in found} == {
        ("used", "Used"), ("starting", "Used"), ("idle", "Unused"), ("free", ""),
    }  # fmt: skip
    assert all(not row["SubAccountId"] for row in found if row["x_Bucket"] == "free")


def test_labels_are_tags_and_names_are_not_changed() -> None:
    row = next(row for row in written() if row["x_Claim"] == "c")
    assert json.loads(row["Tags"]) == {"team": "vision", "tier": "gold"}
    assert (row["x_User"], row["x_Unpriced"], row["BillingCurrency"]) == ("=cmd()", "true", "XXX")


def test_a_charge_period_ends_with_the_day_and_where_a_price_changes() -> None:
    of_two = [row for row in written() if row["x_Unit"].endswith("gpu-2")]
    assert [(row["ChargePeriodStart"], row["BilledCost"]) for row in of_two] == [
        ("2026-10-31T00:00:00Z", "72.0"),
        ("2026-11-01T00:00:00Z", "36.0"),
        ("2026-11-01T12:00:00Z", "48.0"),
    ]


def test_what_pods_requested_is_charged_by_gang_day_and_price_in_its_own_unit() -> None:
    memory, later, *pods = [row for row in written() if row["ServiceName"] == "Pods"]
    assert (memory["BilledCost"], memory["PricingQuantity"], memory["PricingUnit"]) == ("1.92", "192.0", "GiB-Hours")
    assert (later["ListUnitPrice"], later["BilledCost"]) == ("0.02", "2.56")
    assert (memory["ResourceId"], memory["SubAccountId"], memory["SkuId"]) == ("vision/train", "ml", "memory")
    assert [(row["ConsumedQuantity"], row["x_Unpriced"], row["Tags"]) for row in pods] == [
        ("4.0", "true", '{"team": "vision"}'), ("2.0", "true", '{"team": "vision"}'),
    ]  # fmt: skip


def test_idle_that_is_shared_is_refused() -> None:
    with pytest.raises(CostError, match="--idle shared"):
        written(idle="shared")


@settings(max_examples=examples(50))
@given(lives(), pod_lives(), st.sampled_from(["allocated", "utilised"]), st.sampled_from(["holder", "queue"]))
def test_a_file_sums_to_the_bill_exactly_and_its_sub_accounts_to_their_queues(life, pods, basis, idle) -> None:
    asked, known = Asked(basis=basis, idle=idle), Known(WHOLE)
    bill = make(Ledger(life, pods=pods), BOOK, asked, known)
    total: dict[str, Decimal] = defaultdict(Decimal)
    queues: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for row in rows(Ledger(life, pods=pods), BOOK, asked, known, "c", {}):
        total[row["BillingCurrency"]] += Decimal(row["BilledCost"])
        if row["x_ChargedTo"] != "none":
            queues[row["SubAccountId"], row["BillingCurrency"]] += Decimal(row["BilledCost"])
    assert {key: value for key, value in total.items() if value} == {
        currency: rounded(amount, 12) for currency, amount in price_of(bill).items() if rounded(amount, 12)
    }
    charged: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for line in bill.lines:
        if line.kind in {"use", "idle"}:
            for currency, amount in accounted(line).items():
                charged[line.keys[0], currency] += amount
    for key in charged.keys() | queues.keys():
        assert abs(Fraction(queues[key]) - charged[key]) < Fraction(1, 10**9)
