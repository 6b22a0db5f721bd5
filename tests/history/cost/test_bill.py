"""Bills: what is charged to whom, and that nothing is lost, doubled or spread in silence."""

from __future__ import annotations

import csv
import io
import itertools
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.history.cost.bill import BASES, IDLES, Asked, Bill, conserve, make, percentages
from fairlead.history.cost.usage import PodTime, add_money, hours
from fairlead.history.cost.window import ConservationError, CostError, Known, Window, parse_by, parse_where
from fairlead.history.cost.written import bill_csv, bill_json, unpriced_pods
from fairlead.history.ledger.entries import BUCKETS, Bucket, Interval
from fairlead.history.ledger.pod_entries import PodInterval
from fairlead.kube.timestamps import DAY_US, HOUR_US
from tests.support.costs import BOOK, D1, DAY, TRAIN, WHOLE, accounted, at, bill, lives, pod, pod_lives, price_of
from tests.support.ledger_in_memory import Ledger, allocation, interval


def charges(found: Bill) -> dict[tuple[str, ...], dict[str, Fraction]]:
    return {(line.kind, *line.keys): accounted(line) for line in found.lines}


def test_a_charge_is_time_times_price_with_the_window_cut_where_the_price_changes() -> None:
    found = charges(bill(DAY, Asked()))
    assert found["use", "ml"] == {"EUR": 6 * 3 + 4 * 4}
    assert found["use", "web"] == {"EUR": 12 * 3 + 12 * 4}


def test_time_that_no_claim_holds_is_a_line_of_its_own() -> None:
    assert charges(bill(DAY, Asked()))["free", ""] == {"EUR": 6 * 3 + 8 * 4}


def test_on_the_utilised_basis_what_was_not_utilised_is_a_line_of_its_own() -> None:
    found = charges(bill(DAY, Asked(basis="utilised")))
    assert found["use", "ml"] == {"EUR": Fraction(6 * 3 + 2 * 4, 2)}
    assert found["use", "web"] == {"EUR": 12 * 3 + 12 * 4}, "time without samples counts as busy"
    assert found["not utilised", ""] == {"EUR": Fraction(6 * 3 + 2 * 4, 2) + 2 * 4}


def test_idle_time_is_charged_to_the_holder_to_its_queue_or_to_all_by_their_use() -> None:
    to_queue = bill(DAY, Asked(idle="queue"))
    assert charges(to_queue)["use", "ml"] == {"EUR": 6 * 3 + 2 * 4}
    assert charges(to_queue)["idle", "ml"] == {"EUR": 8}
    shared = charges(bill(DAY, Asked(idle="shared")))
    assert shared["use", "ml"] == {"EUR": 26 + 8 * Fraction(26, 26 + 84)}
    assert shared["use", "web"] == {"EUR": 84 + 8 * Fraction(84, 26 + 84)}


def test_a_filter_changes_no_lines_charge() -> None:
    every = charges(bill(DAY, Asked(by=("queue", "namespace", "gang"), idle="shared")))
    one = bill(DAY, Asked(by=("namespace", "gang"), where=(("queue", "ml"),), idle="shared"))
    assert charges(one) == {("use", "vision", "train"): every["use", "ml", "vision", "train"]}


def test_currencies_are_never_added_and_unpriced_time_is_counted_as_such() -> None:
    own = [
        interval(0, "used", at(0), at(1), claim=TRAIN, flavor="a100"),
        interval(1, "used", at(0), at(1), claim=TRAIN),
        interval(2, "used", at(0), at(1), claim=TRAIN, flavor="l40s"),
    ]
    (line,) = bill(own, Asked(), until=at(1)).lines
    assert line.charged == {"EUR": 3, "USD": Fraction("1.7")}
    assert hours(line.figures.unpriced) == 1


def test_idle_in_a_currency_in_which_nothing_was_used_is_a_line_of_its_own() -> None:
    own = [
        interval(0, "idle", at(0), at(1), claim=TRAIN, flavor="a100", busy=0),
        interval(1, "used", at(0), at(1), claim=TRAIN),
    ]
    found = charges(bill(own, Asked(idle="shared"), until=at(1)))
    assert found == {("use", "ml"): {"EUR": 3}, ("idle", ""): {"USD": Fraction("1.7")}}


def test_gangs_of_one_name_in_two_namespaces_are_two_lines() -> None:
    assert parse_by(["gang, queue", "gang"]) == ("namespace", "gang", "queue")


def test_a_label_that_no_claim_has_is_an_error_that_lists_those_there_are() -> None:
    own = [interval(0, "used", at(0), at(1), claim=allocation("a", team="vision"))]
    assert charges(bill(own, Asked(by=("label=team",)), until=at(1)))["use", "vision"]
    with pytest.raises(CostError, match=r"label=tem: no claim .* those of its claims have team"):
        bill(own, Asked(by=("label=tem",)), until=at(1))


@pytest.mark.parametrize("text", ["quue", "", "label=", "label=a b"])
def test_an_unknown_group_is_an_error_that_lists_those_there_are(text: str) -> None:
    with pytest.raises(CostError, match=r"did you mean queue|there are queue|is no label's name"):
        parse_by([text])


def test_a_store_that_cannot_tell_claims_apart_makes_no_bill_of_claims() -> None:
    class Coarse(Ledger):
        def sums(self, since_us, until_us, by):
            place = by.index("claim") if "claim" in by else len(by)
            return [
                replace(each, keys=(*each.keys[:place], "", *each.keys[place + 1 :])[: len(by)])
                for each in super().sums(since_us, until_us, by)
            ]

    with pytest.raises(CostError, match="time without a claim"):
        make(Coarse(DAY), BOOK, Asked(by=("namespace", "claim")), Known(Window(D1, D1 + DAY_US)))


def test_filters_are_keys_and_values() -> None:
    assert parse_where(["queue=ml", "label=team=a=b"]) == (("queue", "ml"), ("label=team", "a=b"))
    with pytest.raises(CostError, match="write KEY=VALUE"):
        parse_where(["queue"])


def test_a_unit_whose_time_is_not_accounted_for_is_named_with_its_day() -> None:
    ledger = Ledger([interval(0, "free", at(0), at(20)), interval(0, "free", at(21), at(24))])
    with pytest.raises(
        ConservationError, match=r"gpu\.fairlead\.dev/node-a/gpu-0 on 2026-11-01: .* 82800\.0+ s of the 86400"
    ):
        conserve(ledger, Window(D1, D1 + DAY_US))


def test_sums_that_differ_from_the_units_days_are_found_by_unit_and_day() -> None:
    class Forgetful(Ledger):
        def sums(self, since_us, until_us, by):
            return [each for each in super().sums(since_us, until_us, by) if each.bucket != "idle"]

    with pytest.raises(ConservationError, match=r"gpu-0 on 2026-11-01: .* accounts for 79200"):
        conserve(Forgetful(DAY), Window(D1, D1 + DAY_US))


# -- what pods requested -------------------------------------------------------------------------------------------

PODS = [
    pod("cpu", Fraction(7, 2), at(6), at(16), of=TRAIN),
    pod("memory", 32, at(6), at(16), of=TRAIN),
    pod("pods", 1, at(6), at(16.5), of=TRAIN),
    pod("cpu", 2, at(10), at(11), of=TRAIN, uid="q"),  # the gang grew for an hour
]


def test_what_pods_requested_is_charged_to_their_queue_beside_their_devices() -> None:
    """35 and 2 cpu-hours at 0.10, 32 GiB for six hours at 0.01 and four at 0.02; pods have no price."""
    found = bill(DAY, Asked(), pods=PODS)
    (ml,) = (line for line in found.lines if line.keys == ("ml",))
    of_pods = Fraction("3.7") + 32 * (Fraction("0.06") + Fraction("0.08"))
    assert ml.charged == {"EUR": 6 * 3 + 4 * 4 + of_pods}
    assert ml.figures.pods == {
        "cpu": PodTime("cpu-hours", Fraction(37)),
        "memory": PodTime("GiB-hours", Fraction(320)),
        "pods": PodTime("pod-hours", Fraction(21, 2), Fraction(21, 2)),
    }
    assert unpriced_pods(found) == ["10.5 pod-hours of flavor pods"]
    assert charges(bill(DAY, Asked(), pods=PODS))["use", "web"] == charges(bill(DAY, Asked()))["use", "web"]


def test_by_flavor_what_pods_requested_has_lines_of_its_own_and_by_node_it_has_none_to_name() -> None:
    found = charges(bill(DAY, Asked(by=("flavor",), where=(("queue", "ml"),)), pods=PODS))
    assert found["use", "cpu"] == {"EUR": Fraction("3.7")}
    assert found["use", "pods"] == {}, "shown, and charged nothing"
    assert ("use", "") in charges(bill(DAY, Asked(by=("node",)), pods=PODS))
    assert {line.keys for line in bill(DAY, Asked(where=(("node", "node-a"),)), pods=PODS).lines} == {("ml",), ("web",), ("",)}  # fmt: skip
    assert not bill(DAY, Asked(where=(("node", "node-a"),)), pods=PODS).figures.pods


def test_it_counts_as_used_whatever_the_basis_is() -> None:
    utilised, whole = (bill(DAY, Asked(basis="utilised"), pods=of) for of in ((), PODS))
    assert whole.charged["EUR"] - utilised.charged["EUR"] == Fraction("8.18")
    assert whole.uncharged == utilised.uncharged


def test_tables_have_a_column_for_each_flavor_that_names_its_unit() -> None:
    head, *rows = csv.reader(io.StringIO(bill_csv(bill(DAY, Asked(), pods=PODS))))
    assert head[-3:] == ["cpu cpu-hours", "memory GiB-hours", "pods pod-hours"]
    assert {row[1]: row[-3:] for row in rows} == {"ml": ["37", "320", "10.5"], "web": ["", "", ""], "": ["", "", ""]}
    line = bill_json(bill(DAY, Asked(where=(("queue", "ml"),)), pods=PODS))["lines"][0]
    assert line["resources"]["pods"] == {"unit": "pod-hours", "hours": "10.5", "unpricedHours": "10.5"}


# -- properties ------------------------------------------------------------------------------------

GROUPS = st.lists(
    st.sampled_from(["queue", "namespace", "gang", "user", "flavor", "node", "claim", "day", "unit"]), max_size=4
).map(tuple)
ASKED = st.builds(Asked, by=GROUPS, basis=st.sampled_from(BASES), idle=st.sampled_from(IDLES))


def without_zeros(lines: dict[tuple[str, ...], Any]) -> dict[Any, Fraction]:
    return {(key, currency): amount for key, money in lines.items() for currency, amount in money.items() if amount}


@given(lives(), pod_lives(), ASKED)
def test_whatever_is_asked_the_lines_sum_to_the_price_of_all_device_time_and_of_what_pods_requested(
    life: list[Interval], pods: list[PodInterval], asked: Asked
) -> None:
    expected: dict[str, Fraction] = {}
    for each in life:
        assert each.end_us is not None
        edges = [each.start_us, *BOOK.changes(each.start_us, each.end_us), each.end_us]
        for start_us, end_us in itertools.pairwise(edges):
            price = BOOK.price_at(each.measure.flavor, None, start_us)
            if price is not None and price.per_hour:
                amount = Fraction(price.per_hour) * each.measure.amount * (end_us - start_us) / HOUR_US
                add_money(expected, {price.currency: amount})
    for of in pods:
        assert of.end_us is not None
        edges = [of.start_us, *BOOK.changes(of.start_us, of.end_us), of.end_us]
        for start_us, end_us in itertools.pairwise(edges):
            price = BOOK.price_at(of.amount.flavor, None, start_us)
            if price is not None and end_us > start_us:
                cost = Fraction(price.per_hour) * of.amount.amount * (end_us - start_us) / HOUR_US
                add_money(expected, {price.currency: cost})
    found = make(Ledger(life, pods=pods), BOOK, asked, Known(WHOLE))
    assert {currency: amount for currency, amount in price_of(found).items() if amount} == expected
    assert sum(found.conservation.percent.values()) == Decimal("100.0")
    assert sum(found.figures.weighed.values()) == found.conservation.total


@given(lives(), pod_lives(), st.builds(Asked, by=GROUPS, basis=st.sampled_from(BASES), idle=st.sampled_from(["holder", "queue"])),
       st.integers(1, 3 * DAY_US - 1))  # fmt: skip
def test_two_windows_side_by_side_cost_what_the_whole_costs(
    life: list[Interval], pods: list[PodInterval], asked: Asked, cut: int
) -> None:
    parts: dict[tuple[str, ...], dict[str, Fraction]] = {}
    for window in (Window(WHOLE.since_us, WHOLE.since_us + cut), Window(WHOLE.since_us + cut, WHOLE.until_us)):
        for line in make(Ledger(life, pods=pods), BOOK, asked, Known(window)).lines:
            add_money(parts.setdefault((line.kind, line.queue, *line.keys), {}), accounted(line))
    whole = make(Ledger(life, pods=pods), BOOK, asked, Known(WHOLE))
    lines = {(line.kind, line.queue, *line.keys): accounted(line) for line in whole.lines}
    assert without_zeros(parts) == without_zeros(lines)


@given(st.dictionaries(st.sampled_from(BUCKETS), st.integers(0, 10**18), min_size=1))
def test_percentages_sum_to_a_hundred_and_are_within_a_tenth(parts: dict[Bucket, int]) -> None:
    found, total = percentages(parts), sum(parts.values())
    assert sum(found.values()) == (Decimal("100.0") if total else 0)
    assert all(
        abs(Fraction(found[name]) - Fraction(100 * part, total or 1)) < Fraction(1, 10) for name, part in parts.items()
    )
