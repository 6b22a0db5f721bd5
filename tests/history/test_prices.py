"""Which price counts when, and that amounts are rounded once."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.flavor import Flavor
from fairlead.history.prices import PriceBook, rounded
from fairlead.kube import timestamps
from fairlead.kube.timestamps import HOUR_US

T0 = 1767225600  # 2026-01-01T00:00:00Z


def book(*prices: tuple[str, int | None, str | None]) -> PriceBook:
    """Of flavor `h100`; (per hour, from in hours after T0, capacity type)."""
    entries: list[dict[str, Any]] = []
    for per_hour, hours, kind in prices:
        since = None if hours is None else timestamps.seconds(T0 + hours * 3600)
        entries.append({"perHour": per_hour, "currency": "EUR", "from": since, "capacityType": kind})
    spec = {"deviceSelector": "true", "price": entries}
    return PriceBook.of([Flavor.stored({"kind": "Flavor", "metadata": {"name": "h100"}, "spec": spec})])


def us(hours: float) -> int:
    return T0 * 1_000_000 + round(hours * HOUR_US)


def per_hour(found: PriceBook, hours: float, kind: str | None = None) -> str | None:
    price = found.price_at("h100", kind, us(hours))
    return None if price is None else str(price.per_hour)


def test_the_price_is_that_of_the_entry_that_began_last() -> None:
    found = book(("3", 10, None), ("2", None, None), ("4", 20, None))
    assert [per_hour(found, hours) for hours in (-1e5, 9.9, 10, 19.9, 20, 1e5)] == ["2", "2", "3", "3", "4", "4"]
    assert found.price_at("h100", None, us(10) - 1) != found.price_at("h100", None, us(10))


def test_a_capacity_types_own_entries_count_from_the_first_of_them_on() -> None:
    found = book(("3", None, None), ("1", 10, "spot"), ("4", 20, None))
    assert [per_hour(found, hours, "spot") for hours in (0, 10, 30)] == ["3", "1", "1"]
    assert [per_hour(found, hours, "on-demand") for hours in (0, 10, 30)] == ["3", "3", "4"]
    assert [per_hour(found, hours, None) for hours in (0, 10, 30)] == ["3", "3", "4"]
    only_spot = book(("1", None, "spot"))
    assert (per_hour(only_spot, 0, "spot"), per_hour(only_spot, 0, "reserved"), per_hour(only_spot, 0)) == (
        "1",
        None,
        None,
    )


def test_what_no_entry_covers_has_no_price_and_a_flavor_its_currency() -> None:
    found = book(("2.50", 0, None), ("1", 12, "spot"))
    assert per_hour(found, -1) is None
    assert found.price_at("a100", None, us(1)) is None
    assert [found.currency(flavor) for flavor in ("h100", "a100")] == ["EUR", ""]


amounts = st.decimals(0, 1000, allow_nan=False, allow_infinity=False, places=6).map(lambda value: f"{value:f}")
kinds = st.sampled_from([None, "spot", "on-demand"])
entries = st.tuples(amounts, st.none() | st.integers(-48, 48), kinds)
moments = st.integers(us(-60), us(60))


@given(st.lists(entries, max_size=8, unique_by=lambda entry: entry[1:]), kinds, moments, moments)
def test_between_changes_a_price_is_the_same_at_every_moment(
    prices: list[tuple[str, int | None, str | None]], kind: str | None, one: int, other: int
) -> None:
    found = book(*prices)
    start, end = sorted((one, other))
    edges = [start, *found.changes(start, end)]
    assert all(start < edge < end for edge in edges[1:])
    for edge, following in itertools.pairwise((*edges, end)):
        assert found.price_at("h100", kind, max(edge, following - 1)) == found.price_at("h100", kind, edge)


def test_rounding_is_half_to_even_and_does_not_depend_on_the_context() -> None:
    with localcontext(prec=1):
        assert str(rounded(Fraction("12345.675"))) == "12345.68"
        assert str(rounded(Fraction("12345.665"))) == "12345.66"
        assert str(rounded(Fraction(-1, 3), 4)) == "-0.3333"
        assert rounded(Fraction(7), 0) == Decimal(7)
    with pytest.raises(ValueError, match="places: 19 is not between 0 and 18"):
        rounded(Fraction(1), 19)
