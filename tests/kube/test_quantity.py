"""Quantities read, print, compare and add as k8s.io/apimachinery's do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.kube.quantity import Quantity, QuantityError, parse


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"), ("-0", "0"), ("0Gi", "0"), ("+1", "+1"), ("1.5", "1500m"), ("1.5Gi", "1536Mi"), ("1024Ki", "1Mi"),
        ("1000k", "1M"), ("1e3", "1e3"), ("1E3", "1E3"), ("100e2", "10e3"), ("0.1m", "100u"), ("0.1n", "1n"),
        ("1Ei", "1Ei"), ("100Ei", "9223372036854775807"), ("12E", "12E"), ("0.5Ki", "512"), ("0.5Mi", "512Ki"), ("80Gi", "80Gi"),
        ("1.0", "1"), ("1.", "1."), (".5", "500m"), ("-1.5Gi", "-1536Mi"), ("1023Mi", "1023Mi"), ("512Mi", "512Mi"),
        ("0.1Ki", "102400m"), ("12.3Ki", "12595200m"), ("9223372036854775808", "9223372036854775808"), ("1000000n", "1m"),
    ],
)  # fmt: skip
def test_the_canonical_text_is_go_s(text: Any, canonical: Any) -> None:
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1gi",
        "1i",
        "aoeu",
        "1.1.M",
        "1+1.0M",
        "0.1mi",
        ".5i",
        "-3.01e-",
        "1 Gi",
        "1KiB",
        "e",
        "1e99999999999999999999",
    ],
)
def test_nonsense_is_no_quantity(text: Any) -> None:
    with pytest.raises(QuantityError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1Ki", 1024),
        ("80Gi", 80 * 2**30),
        ("5", 5),
        ("1e3", 1000),
        ("1.5Gi", None),
        ("1.0", None),
        ("500m", None),
        ("12E", None),
        ("9E", 9 * 10**18),
    ],
)
def test_whether_it_is_an_integer_depends_on_how_it_was_written(text: Any, value: Any) -> None:
    assert Quantity.parse(text).exact_int == value


def test_sums_keep_the_first_format_and_zero_takes_the_other_one() -> None:
    assert str(Quantity.parse("1Gi") + Quantity.parse("1G")) == "2073741824"
    assert str(Quantity.parse("1Gi") + Quantity.parse("1Gi")) == "2Gi"
    assert str(Quantity.of(0) + Quantity.parse("1Gi")) == "1Gi"
    assert str(Quantity.parse("1Gi") - Quantity.parse("1Gi")) == "0"
    assert (Quantity.parse("9223372036854775807") + Quantity.of(1)).exact_int is None


def test_an_absurd_exponent_costs_neither_time_nor_memory() -> None:
    huge = Quantity.parse("1e999999999")
    assert huge > Quantity.parse("1Ei")
    with pytest.raises(QuantityError):
        _ = huge + Quantity.of(1)


amounts = st.builds(
    lambda number, suffix: f"{number}{suffix}",
    st.integers(-(10**20), 10**20),
    st.sampled_from(["", "m", "u", "n", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "e-2"]),
)


@given(amounts)
def test_canonical_text_means_the_same_value(text: Any) -> None:
    quantity = Quantity.parse(text)
    assert Quantity.parse(str(quantity)) == quantity or _beyond_suffixes(quantity)


def _beyond_suffixes(quantity: Quantity) -> bool:
    """Go prints 10**21 as `1`: it has no decimal suffix above E. We print the same."""
    return abs(int(quantity)) >= 10**21


@given(amounts, amounts)
def test_order_agrees_with_exact_arithmetic(left: Any, right: Any) -> None:
    a, b = Quantity.parse(left), Quantity.parse(right)
    assert (a < b) == ((a - b).sign < 0)
    assert a + b == b + a
    assert (a + b) - b == a
