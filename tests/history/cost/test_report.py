"""Reports: what a fleet was used for, advice on sizes, waits, and a page that no name can break out of."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli.cost.report import size_tables
from fairlead.history.cost import page, written
from fairlead.history.cost.report import Report, make, nearest_rank, wait_targets
from fairlead.history.cost.usage import hours
from fairlead.history.cost.window import Known, Window
from fairlead.history.cost.written import report_json
from fairlead.history.ledger.entries import Gap, Interval, Wait
from fairlead.kube.timestamps import DAY_US
from tests.support.costs import BOOK, D1, DAY, WHOLE, at, lives
from tests.support.ledger_in_memory import Ledger, allocation, interval

GB, MIB = 10**9, 2**20
H100 = 81559 * MIB
HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;"


def report(intervals: list[Interval], **settings: object) -> Report:
    ledger = Ledger(intervals, waits=settings.pop("waits", ()), gaps=settings.pop("gaps", ()))  # type: ignore[arg-type]
    targets: dict[str, float] = settings.pop("targets_s", {})  # type: ignore[assignment]
    return make(ledger, BOOK, Known(Window(D1, D1 + DAY_US)), tables=size_tables(), targets_s=targets)


def held(
    gpu: int,
    busy: float,
    peak: int,
    *,
    gang: str = "train",
    ppm: int = 1_000_000,
    memory: int = H100,
    lasts: float = 24,
) -> Interval:
    claim = allocation(f"c{gpu}", gang=gang)
    return interval(gpu, "used", at(0), at(lasts), claim=claim, busy=busy, peak=peak, memory=memory, ppm=ppm)


def advised(*intervals: Interval) -> list[tuple[str, int]]:
    return [(each.size, each.devices) for each in report(list(intervals)).sizing]


def test_the_figures_are_parts_of_what_is_known() -> None:
    life = [*DAY, interval(2, "unknown", at(0), at(24)), interval(3, "fragmented", at(0), at(24))]
    found = report(life)
    assert found.utilisation == Fraction(4 + 24, 72), (
        "half of 8 hours busy, 24 without samples, of three devices that were seen"
    )
    assert (found.idle, found.unsampled) == (Fraction(2, 34), Fraction(24, 34))
    assert found.figures.money(buckets=("fragmented",)) == {"EUR": 84}
    (holder,) = found.holders
    assert (holder.gang, hours(holder.idle), holder.cost) == ("train", Fraction(2), {"EUR": Fraction(8)})


def test_what_there_was_none_of_has_no_cost_rather_than_no_price() -> None:
    rows = {what: (time, cost) for what, time, cost in written.losses(report([*DAY]))}
    assert (
        rows["fragmented"]
        == rows["drained"]
        == rows["broken"]
        == rows["lost to evictions (a part of used)"]
        == ("0.0 h", "-")
    )
    assert rows["idle"] == ("2.0 h", "8.00 EUR")


def test_time_in_which_an_operator_kept_a_device_back_is_a_line_of_its_own() -> None:
    found = report([*DAY, interval(2, "drained", at(0), at(24)), interval(3, "broken", at(0), at(6))])
    rows = {what: (time, cost) for what, time, cost in written.losses(found)}
    assert (rows["drained"], rows["broken"]) == (("24.0 h", "84.00 EUR"), ("6.0 h", "18.00 EUR"))
    assert "kept back by an operator" in page.html(found)


PART = held(0, 0.1, 2 * GB, ppm=500_000, memory=40448 * MIB)


@pytest.mark.parametrize(
    ("life", "advice"),
    [
        ([held(0, 0.3, 25 * GB)], [("3g.40gb", 1)]),
        ([held(0, 0.05, 2 * GB)], [("1g.10gb", 1)]),
        ([held(0, 0.95, 2 * GB)], []),
        ([held(0, 0.5, 2 * GB)], [("4g.40gb", 1)]),
        ([held(0, 0.05, 2 * GB), held(1, 0.05, 25 * GB)], [("3g.40gb", 2)]),
        ([PART, interval(0, "free", at(0), at(24), ppm=500_000)], [("1g.10gb", 1)]),
    ],
    ids=["memory", "little of both", "a busy one", "its compute counts", "the largest member of a gang", "a partition"],
)
def test_what_would_do_is_the_smallest_size_with_the_memory_and_the_compute(
    life: list[Interval], advice: list[tuple[str, int]]
) -> None:
    assert advised(*life) == advice


def test_advice_says_what_it_saves() -> None:
    (sizing,) = report([held(0, 0.05, 2 * GB)]).sizing
    assert sizing.saved_cost == {"EUR": 84 * Fraction(6, 7)}
    assert abs(hours(sizing.saved) - 24 * Fraction(6, 7)) < Fraction(1, 10**9)


@pytest.mark.parametrize(
    "of",
    [
        held(0, 0.1, 60 * GB),  # not even the next smaller has room
        held(0, 0.1, 2 * GB, memory=46068 * MIB),  # an L40S has no MIG
        held(0, 0.1, 2 * GB, lasts=0.5),  # too short to judge
        interval(0, "used", at(0), at(24), claim=allocation("c"), busy=0.1),  # memory is not reported
        interval(0, "used", at(0), at(24), claim=allocation("c")),  # no samples
    ],
)
def test_there_is_no_advice_where_nothing_smaller_is_known_to_do(of: Interval) -> None:
    assert advised(of) == []


def test_waits_are_nearest_ranks_against_the_targets_of_queues() -> None:
    waits = [
        Wait(queue="ml", namespace="n", gang=f"g{n}", queued_us=D1, admitted_us=D1 + n * 60_000_000)
        for n in range(1, 21)
    ]
    (found,) = report(DAY, waits=waits, targets_s={"ml": 600.0}).waiting
    assert (found.gangs, found.p50_s, found.p95_s, found.met) == (20, 600, 1140, False)


def test_targets_of_queues_are_read_where_they_are_there() -> None:
    queues: list[dict[str, Any]] = [
        {"metadata": {"name": "a"}, "spec": {"waitTarget": "2h"}},
        {"metadata": {"name": "b"}, "spec": {"waitTarget": "soon"}},
        {"metadata": {"name": "c"}, "spec": {"waitTarget": 7}},
        {"metadata": {"name": "d"}},
    ]
    assert wait_targets(queues) == {"a": 7200}


@given(st.lists(st.floats(0, 1e6), min_size=1).map(sorted), st.integers(1, 100))
def test_a_nearest_rank_is_a_value_that_so_many_percent_do_not_exceed(values: list[float], percent: int) -> None:
    found = nearest_rank(values, percent)
    assert found in values
    assert sum(each <= found for each in values) * 100 >= percent * len(values)


# -- the page --------------------------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags = list[str]()
        self.attributes = list[tuple[str, str | None]]()
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def test_no_name_breaks_out_of_the_page() -> None:
    claim = allocation("c", gang=HOSTILE, queue=HOSTILE, namespace=HOSTILE)
    life = [
        interval(0, "idle", at(0), at(12), claim=claim, busy=0.01, peak=GB, memory=H100),
        interval(0, "used", at(12), at(24), claim=claim, busy=0.01, peak=GB, memory=H100),
    ]
    wait = Wait(queue=HOSTILE, namespace="n", gang="g", queued_us=D1, admitted_us=D1 + 1)
    gap = Gap(start_us=D1, end_us=D1 + 1, reason=HOSTILE)
    made = report(life, waits=[wait], gaps=[gap])
    assert made.holders and made.sizing and made.waiting
    read = Tags()
    read.feed(page.html(made))
    assert not {"script", "img", "link", "iframe", "a", "object"} & set(read.tags)
    assert not [name for name, _ in read.attributes if name.startswith("on") or name in {"src", "href"}]
    assert read.text.count(HOSTILE) >= 5


def drawn(text: str) -> None:
    """The page needs nothing else, and its pictures are well formed and within their boxes."""
    assert "default-src 'none'" in text
    assert not re.search(r"http://(?!www\.w3\.org/2000/svg)|https://|url\(|@import", text)
    for picture in re.findall("<svg.*?</svg>", text, re.DOTALL):
        root = ET.fromstring(picture)
        _, _, wide, high = map(float, root.attrib["viewBox"].split())
        for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
            x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            assert x >= 0 and x + w <= wide + 0.1 and y >= -0.1 and y + h <= high + 0.1


@given(lives())
def test_every_life_can_be_reported(life: list[Interval]) -> None:
    made = make(Ledger(life), BOOK, Known(WHOLE), tables=size_tables(), targets_s={})
    json.dumps(report_json(made))
    drawn(page.html(made))
    assert all(part is None or 0 <= part <= 1 for part in (made.utilisation, made.idle, made.unsampled, made.memory))


def test_an_empty_window_is_reported_as_such() -> None:
    made = make(Ledger([], known=(D1, D1 + DAY_US)), BOOK, Known(Window(D1, D1 + DAY_US)), targets_s={})
    assert made.utilisation is None
    assert "not known" in page.html(made)
