"""The span of a bill: what users write, in UTC, and the part of it that is known."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.history.cost.window import CostError, Window, days, known_part, month_of, parse
from fairlead.kube.timestamps import DAY_US
from tests.support.ledger_in_memory import day

NOW_S = day("2026-03-05", 9.5) / 1e6


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("30d", day("2026-02-03", 9.5), day("2026-03-05", 9.5)),
        ("12h", day("2026-03-04", 21.5), day("2026-03-05", 9.5)),
        ("month", day("2026-03-01"), day("2026-03-05", 9.5)),
        ("last-month", day("2026-02-01"), day("2026-03-01")),
        ("2026-01-01..2026-02-01", day("2026-01-01"), day("2026-02-01")),
        ("2026-03-01..2026-04-01", day("2026-03-01"), day("2026-04-01")),
        ("2026-01-01T06:00:00+01:00..2026-01-02", day("2026-01-01", 5), day("2026-01-02")),
    ],
)
def test_a_window_is_a_duration_a_range_or_a_month(text: str, since: int, until: int) -> None:
    assert parse(text, NOW_S) == Window(since, until)


@pytest.mark.parametrize(
    "text", ["", "..", "2026-01-01..", "1", "-1d", "0s", "2026-01-01...2026-01-02", "x" * 10_000, "9999-99-99..month"]
)
def test_what_is_no_window_is_an_error_of_one_line(text: str) -> None:
    with pytest.raises(CostError) as found:
        parse(text, NOW_S)
    assert "--window" in str(found.value) and len(str(found.value)) < 300 and "\n" not in str(found.value)


def test_the_part_that_is_known_is_in_whole_seconds_and_what_is_missing_is_said() -> None:
    whole = Window(day("2026-01-01"), day("2026-02-01"))
    part = known_part(whole, (day("2026-01-10") + 1, day("2026-03-01") + 1))
    assert part.window == Window(day("2026-01-10") + 1_000_000, day("2026-02-01"))
    assert part.missing == (
        "of 2026-01-01T00:00:00Z to 2026-02-01T00:00:00Z the ledger covers 2026-01-10T00:00:01Z to 2026-02-01T00:00:00Z; "
        "the figures are of that part alone"
    )
    assert known_part(whole, (0, day("2026-03-01"))).missing == ""
    assert known_part(whole, (0, day("2026-01-20"))).window == Window(day("2026-01-01"), day("2026-01-20"))


@given(st.integers(0, 4 * 10**15), st.integers(1, 40 * DAY_US))
def test_days_cover_a_window_without_holes(since: int, lasts: int) -> None:
    found = days(Window(since, since + lasts))
    assert (found[0].since_us, found[-1].until_us) == (since, since + lasts)
    assert all(
        before.until_us == after.since_us and after.since_us % DAY_US == 0
        for before, after in itertools.pairwise(found)
    )


@given(st.integers(0, 4 * 10**15))
def test_a_month_has_the_moment_and_28_to_31_days(time_us: int) -> None:
    found = month_of(time_us)
    assert found.since_us <= time_us < found.until_us
    assert 28 <= (found.until_us - found.since_us) / DAY_US <= 31


def test_a_ledger_of_less_than_a_second_says_that_it_has_only_begun():
    begins = day("2026-01-10") + 400_000
    with pytest.raises(
        CostError, match=r"began at 2026-01-10T00:00:00Z and holds no whole second yet: ask again in a minute"
    ):
        known_part(Window(day("2026-01-01"), day("2026-02-01")), (begins, begins + 500_000))
