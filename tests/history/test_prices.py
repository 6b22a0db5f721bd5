"""Charges are exact: however time is split, parts add up to the whole, also across changes of price."""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.api.flavor import Flavor
from fairlead.history.prices import Charge, PriceBook, rounded
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


def test_a_charge_is_split_where_the_price_changes() -> None:
    found = book(("2.50", 0, None), ("3", 10, None), ("1", 12, "spot"))
    assert found.charge("h100", None, us(8), us(11)) == Charge(Fraction(8), "EUR", 0)
    assert found.charge("h100", "spot", us(8), us(13), 2) == Charge(Fraction(2 * 12), "EUR", 0)
    assert found.charge("h100", None, us(0), us(1), Fraction(1, 7)) == Charge(Fraction("2.50") / 7, "EUR", 0)
    assert found.charge("h100", None, us(0), us(0) + 1).amount == Fraction(5, 2 * HOUR_US), "a microsecond"


def test_time_without_a_price_is_said_and_not_guessed() -> None:
    found = book(("2.50", 0, None))
    assert found.charge("h100", None, us(-2), us(2)) == Charge(Fraction(5), "EUR", 2 * HOUR_US)
    assert found.charge("h100", None, us(-2), us(-1)) == Charge(Fraction(0), "EUR", HOUR_US)
    assert found.charge("a100", None, us(0), us(1)) == Charge(Fraction(0), "", HOUR_US)
    assert found.charge("h100", None, us(1), us(1)) == Charge(Fraction(0), "EUR", 0)


def test_what_cannot_be_charged_is_refused() -> None:
    found = book(("2.50", 0, None))
    with pytest.raises(ValueError, match="charge of h100: it ends 1 µs before it starts"):
        found.charge("h100", None, us(1), us(1) - 1)
    with pytest.raises(ValueError, match="share: -1 is negative"):
        found.charge("h100", None, us(1), us(2), -1)


amounts = st.decimals(0, 1000, allow_nan=False, allow_infinity=False, places=6).map(lambda value: f"{value:f}")
begins = st.none() | st.integers(-48, 48)
kinds = st.sampled_from([None, "spot", "on-demand"])
books = st.lists(st.tuples(amounts, begins, kinds), max_size=8, unique_by=lambda entry: entry[1:]).map(
    lambda all_: book(*all_)
)
moments = st.integers(us(-60), us(60))
shares = st.integers(0, 10**12) | st.fractions(0, 8)


@given(books, kinds, st.lists(moments, min_size=2, max_size=8), shares)
def test_the_parts_of_a_span_add_up_to_the_whole(
    found: PriceBook, kind: str | None, cuts: list[int], share: int | Fraction
) -> None:
    cuts.sort()
    whole = found.charge("h100", kind, cuts[0], cuts[-1], share)
    parts = [found.charge("h100", kind, start, end, share) for start, end in itertools.pairwise(cuts)]
    assert sum(part.amount for part in parts) == whole.amount
    assert sum(part.unpriced_us for part in parts) == whole.unpriced_us
    assert {part.currency for part in parts} == {whole.currency}
    assert whole.amount >= 0


@given(books, kinds, moments, st.integers(1, 10 * HOUR_US), shares, shares)
def test_shares_of_a_device_add_up_to_it(
    found: PriceBook, kind: str | None, start: int, length: int, one: int | Fraction, other: int | Fraction
) -> None:
    both = found.charge("h100", kind, start, start + length, one + other).amount
    assert found.charge("h100", kind, start, start + length, one).amount + found.charge(
        "h100", kind, start, start + length, other
    ).amount == both  # fmt: skip


@given(books, kinds, moments)
def test_a_moments_charge_is_by_the_price_at_it(found: PriceBook, kind: str | None, at: int) -> None:
    price = found.price_at("h100", kind, at)
    charge = found.charge("h100", kind, at, at + 1)
    assert charge.amount * HOUR_US == (0 if price is None else Fraction(price.per_hour))
    assert charge.unpriced_us == (price is None)


def test_rounding_is_half_to_even_and_does_not_depend_on_the_context() -> None:
    with localcontext(prec=1):
        assert str(rounded(Fraction("12345.675"))) == "12345.68"
        assert str(rounded(Fraction("12345.665"))) == "12345.66"
        assert str(rounded(Fraction(-1, 3), 4)) == "-0.3333"
        assert rounded(Fraction(7), 0) == Decimal(7)
    with pytest.raises(ValueError, match="places: 19 is not between 0 and 18"):
        rounded(Fraction(1), 19)
