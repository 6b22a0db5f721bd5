"""Prices in Flavors: what is refused, and which capacity type a node's labels say."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from fairlead.api.base import ManifestError
from fairlead.api.capacity_types import EKS, GKE_SPOT, KARPENTER, capacity_type
from fairlead.api.flavor import PRICES_MAX, Flavor


def flavor(*price: Any) -> dict[str, Any]:
    return {
        "kind": "Flavor",
        "metadata": {"name": "h100"},
        "spec": {"deviceSelector": "true", "price": list(price)},
    }


def price(per_hour: Any = "2.50", **fields: Any) -> dict[str, Any]:
    return {"perHour": per_hour, "currency": "EUR"} | fields


@pytest.mark.parametrize("text", ["0", "2.50", "0.000000000123456789", "999999999999"])
def test_a_price_is_exact(text: str) -> None:
    (found,) = Flavor.read(flavor(price(text))).spec.price
    assert (found.amount, str(found.amount).lower()) == (Decimal(text), str(Decimal(text)).lower())


@pytest.mark.parametrize(
    ("written", "instant"),
    [
        ("2026-01-01T00:00:00Z", 1767225600_000000),
        ("2026-01-01T01:00:00+01:00", 1767225600_000000),
        ("2025-12-31t23:59:59.999999z", 1767225599_999999),
        (datetime(2026, 1, 1, tzinfo=UTC), 1767225600_000000),
        (None, None),
    ],
)
def test_from_is_a_moment(written: Any, instant: int | None) -> None:
    (found,) = Flavor.stored(flavor(price(**{"from": written}))).spec.price
    assert found.from_us == instant


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ([price(2.5)], "spec.price[0].perHour: 2.5 is no text: write '2.50', in quotes, so that no digit is lost"),
        ([price("-1")], "spec.price[0].perHour: '-1' is negative: write 0 or more"),
        ([price("1e3")], "spec.price[0].perHour: '1e3' is no price: write digits"),
        ([price("2,50")], "is no price"),
        ([price("NaN")], "is no price"),
        ([price("١")], "is no price"),
        ([price(currency="Euro")], "spec.price[0].currency: 'Euro' is no currency: write its ISO 4217 code"),
        ([price(currency="eur")], "is no currency"),
        ([price(**{"from": "2026-01-01"})], "spec.price[0].from: '2026-01-01' is no time: write RFC 3339 with a zone"),
        ([price(**{"from": "2026-01-01T00:00:00"})], "is no time"),
        ([price(**{"from": "2026-02-30T00:00:00Z"})], "is no time: day is out of range"),
        ([price(capacityType="cheap")], "spec.price[0].capacityType: 'cheap' is none of 'on-demand', 'spot' or 'reserved'"),
        ([{"currency": "EUR"}], "spec.price[0].perHour: is required"),
        ([price(), price(currency="USD", capacityType="spot")], "spec: price[1].currency: USD is not the EUR of price[0]"),
        ([price(), price("3")], "spec: price[1]: is of any capacity type without from, as price[0] is: remove one"),
        (
            [
                price(capacityType="spot", **{"from": "2026-01-01T00:00:00Z"}),
                price("3", capacityType="spot", **{"from": "2026-01-01T01:00:00+01:00"}),
            ],
            "spec: price[1]: is of spot from 2026-01-01T01:00:00+01:00, as price[0] is",
        ),
        ([price(**{"from": f"20{10 + n // 12}-{n % 12 + 1:02}-01T00:00:00Z"}) for n in range(PRICES_MAX + 1)], "spec.price"),
    ],
)  # fmt: skip
def test_a_price_that_is_wrong_is_refused_by_its_path(prices: list[Any], said: str) -> None:
    with pytest.raises(ManifestError) as raised:
        Flavor.read(flavor(*prices))
    assert str(raised.value).startswith("Flavor h100: spec")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({KARPENTER: "spot"}, "spot"),
        ({KARPENTER: "on-demand"}, "on-demand"),
        ({KARPENTER: "reserved"}, "reserved"),
        ({EKS: "SPOT"}, "spot"),
        ({EKS: "ON_DEMAND"}, "on-demand"),
        ({EKS: "CAPACITY_BLOCK"}, "reserved"),
        ({GKE_SPOT: "true"}, "spot"),
        ({GKE_SPOT: "false"}, None),
        ({KARPENTER: "later", EKS: "SPOT"}, "spot"),
        ({KARPENTER: "on-demand", EKS: "SPOT"}, "on-demand"),
        ({}, None),
    ],
)
def test_the_capacity_type_is_what_the_labels_say(labels: dict[str, str], found: str | None) -> None:
    assert capacity_type(labels) == found
