"""The page of time: what becomes a run, what is drawn, what is folded, and how it is said where nothing is known of the past."""

import itertools
import json

import pytest

from fairlead.kube import timestamps
from fairlead.ui.model.facts import Past
from fairlead.ui.model.runs import runs
from fairlead.ui.model.scope import EVERYTHING, Scope, restrict
from fairlead.ui.model.time_chart import Choice, as_json, time_chart
from fairlead.ui.pages import gantt
from fairlead.ui.serve import pages
from tests.support import ui
from tests.support.pasts import HOUR, a_past, busy, span
from tests.support.ui import NOW

from .markup import check


def found(facts, past, hours=24, **options):
    return {run.gang: run for run in runs(facts, past, since=NOW - hours * HOUR, **options)}


async def test_claims_of_a_gang_that_overlap_are_one_run_and_a_break_makes_two():
    facts = await ui.facts(ui.empty())
    past = a_past(
        span("train", 5, 4, claim="a"),
        span("train", 4.5, 3, claim="b", node="node-001"),
        span("train", 3 - 1 / 3600, 2.5, claim="d"),  # a second later: times of claims are whole seconds
        span("train", 2, 1, claim="c", ended_by="Evicted", lost=True),
    )
    first, second = runs(facts, past, since=NOW - 24 * HOUR)
    assert (first.start, first.end, first.devices, first.nodes) == (
        NOW - 5 * HOUR,
        NOW - 2.5 * HOUR,
        2,
        ("node-000", "node-001"),
    )
    assert (second.start, second.end, second.devices, second.ended, second.lost) == (
        NOW - 2 * HOUR,
        NOW - HOUR,
        1,
        "Evicted",
        True,
    )
    assert {first.state, second.state} == {"ran"}
    assert [run.end for run in runs(facts, past, since=NOW - 1.5 * HOUR)] == [NOW - HOUR], "the first ended before"


async def test_what_runs_begins_in_the_ledger_and_goes_on_until_now():
    facts = await ui.facts(ui.a_cluster(1, waiting=0))  # run-0 of team-0 holds eight devices since 800 s
    known = found(facts, a_past(*(span("run-0", 7, None, claim=f"run-0-{at}-gpu") for at in range(8))))["team-0/run-0"]
    assert (known.state, known.start, known.end, known.devices) == ("runs", NOW - 7 * HOUR, NOW, 8)
    unknown = found(facts, Past(missing="no ledger"))["team-0/run-0"]
    assert (unknown.state, unknown.start, unknown.end, unknown.devices) == ("runs", NOW - 800, NOW, 8)
    before = [each for each in runs(facts, a_past(span("run-0", 5, 4)), since=NOW - 9 * HOUR) if each.state != "waits"]
    assert [(each.state, each.start) for each in before] == [("ran", NOW - 5 * HOUR), ("runs", NOW - 800)]


async def test_what_the_ledger_saw_last_has_ended_where_no_claim_holds_it_now():
    facts = await ui.facts(ui.a_cluster(1, waiting=0))
    assert found(facts, a_past(span("gone", 3, None)))["team-0/gone"].state == "ran"
    away = await ui.facts(ui.a_cluster(1, waiting=0), refused=["resourceclaims"])
    assert found(away, a_past(span("gone", 3, None)))["team-0/gone"].state == "runs", "claims are not read"
    by_status = found(away, Past())["team-0/run-0"]
    assert (by_status.state, by_status.start, by_status.devices) == ("runs", NOW - 900, None)


async def test_a_gang_that_waits_has_its_forecast_and_begins_when_it_was_evicted():
    lists = ui.a_cluster(1, waiting=2)
    first, second = (raw for raw in lists["gangs"] if raw["status"]["phase"] == "Waiting")
    first["status"]["conditions"] = [
        {"type": "Evicted", "status": "True", "lastTransitionTime": timestamps.seconds(NOW - 60)}
    ]
    second["status"]["forecast"] = {"never": True, "because": "too large"}
    facts = await ui.facts(lists)
    waits = found(facts, Past())
    evicted, never = waits["team-0/wait-00000"], waits["team-1/wait-00001"]
    assert (evicted.state, evicted.start, evicted.end, evicted.p90) == ("waits", NOW - 60, NOW + 600, NOW + 3600)
    assert (never.start, never.end, never.never) == (NOW - 900, None, True)
    assert "cannot start on this cluster" in gantt.words(never, NOW)
    assert gantt.words(evicted, NOW) == (
        "gang team-0/wait-00000, queue queue-0, position 1: waits for 60s, forecast to start in 10m, with nine chances in ten in 60m"
    )


async def test_by_node_each_node_has_its_part_and_nothing_waits():
    facts = await ui.facts(ui.a_cluster(3, waiting=4))
    past = a_past(span("wide", 3, 2, claim="a"), span("wide", 3, 1, claim="b", node="node-001"))
    chart = time_chart(facts, past, Choice(by="node"))
    assert [group.name for group in chart.groups] == ["node-000", "node-001", "node-002"]
    ends = {group.name: [run.end for run in group.runs if run.gang == "team-0/wide"] for group in chart.groups}
    assert ends == {"node-000": [NOW - 2 * HOUR], "node-001": [NOW - HOUR], "node-002": []}
    assert not any(group.of("waits") for group in chart.groups)


@pytest.mark.parametrize("by", ["queue", "node"])
@pytest.mark.parametrize("window", ["1h", "7d"])
async def test_a_thousand_gangs_are_a_page_that_can_be_read(by, window):
    facts = await ui.facts(ui.a_cluster(12, waiting=300))
    past = a_past(*busy(1000, nodes=12))
    choice = Choice(by=by, window=window)
    shown = pages.time(facts, past, choice, json=False)
    page = check(shown.text)
    assert shown.status == 200
    assert "now" in page.text
    picture = gantt.picture(time_chart(facts, past, choice), {})
    assert sum(len(each.bars) for each in picture.groups) <= gantt.BARS + gantt.LINES + 4 * len(picture.groups)
    for each in picture.groups:
        drawn = len(each.bars)
        folded = sum(int(text.split()[0]) for text in each.folded for text in text.split(" and "))
        assert drawn + folded == len(each.group.runs), "each is drawn, or said to be folded"
        boxes = sorted((_place(bar.box) for bar in each.bars), key=lambda box: (box[1], box[0]))
        for (left, y, wide), (following, same, _) in itertools.pairwise(boxes):
            assert y != same or left + wide <= following + 0.02, "bars of a lane do not overlap"
        assert all(left >= 0 and left + wide <= 100.01 for left, _, wide in boxes)


def _place(box):
    numbers = {part.split("=")[0]: float(part.split('"')[1].rstrip("%")) for part in str(box).split(" ")}
    return numbers["x"], numbers["y"], numbers["width"]


async def test_what_is_folded_is_drawn_as_the_devices_that_it_held():
    facts = await ui.facts(ui.empty())
    many = [span(f"g{number}", 4, 2, claim=f"c{number}") for number in range(gantt.LANES + 20)]
    (group,) = gantt.picture(time_chart(facts, a_past(*many), Choice(window="6h")), {}).groups
    assert (len(group.bars), group.folded[0].split()[0]) == (gantt.LANES, "20")
    lefts = [_place(box)[0] for box in group.area]
    chart = time_chart(facts, a_past(*many), Choice(window="6h"))
    share = 6 * HOUR / (chart.until - chart.since) * 100
    assert min(lefts) == pytest.approx(share / 3, abs=0.01)
    assert max(lefts) == pytest.approx(share * 2 / 3 - share / gantt.BINS, abs=0.01)


async def test_the_json_has_every_run_of_the_page_with_times():
    facts = await ui.facts(ui.a_cluster(2, waiting=1))
    past = a_past(span("gone", 3, 2, ended_by="Failed"), span("", 3, 2, claim="alone"))
    made = as_json(time_chart(facts, past, Choice()))
    every = {run["gang"] or run["claim"]: run for group in made["groups"] for run in group["runs"]}
    assert set(every) == {"team-0/run-0", "team-1/run-1", "team-0/wait-00000", "team-0/gone", "team-0/alone"}
    assert every["team-0/gone"] == {
        "gang": "team-0/gone", "claim": "", "queue": "queue-0", "state": "ran", "from": "2027-01-15T05:00:00Z",
        "to": "2027-01-15T06:00:00Z", "devices": 1, "nodes": ["node-000"], "ended": "Failed", "lost": False,
        "position": None, "p50": None, "p90": None, "never": False,
    }  # fmt: skip
    assert every["team-0/wait-00000"]["p50"] == "2027-01-15T08:10:00Z"
    assert every["team-0/wait-00000"]["to"] is None
    assert json.loads(pages.time(facts, past, Choice(), json=True).text) == made


async def test_runs_of_other_namespaces_are_absent():
    everything = await ui.facts(ui.a_cluster(6, waiting=10))
    past = a_past(*busy(50), span("secret", 3, 2, namespace="elsewhere-9", queue="queue-9"))
    scope = Scope(namespaces=frozenset({"team-1"}), cluster=True, queues=True)
    facts = restrict(everything, scope)
    for by in ("queue", "node"):
        for as_ in (True, False):
            text = pages.time(facts, past, Choice(by=by), json=as_, scope=scope).text
            assert "team-1/" in text
            for other in ("secret", "elsewhere-9", "team-0/", "team-2/", "team-3/", "team-4/"):
                assert other not in text, (by, other)
    assert "elsewhere-9/secret" in pages.time(everything, past, Choice(), json=False, scope=EVERYTHING).text
    blind = Scope(namespaces=None, cluster=False, queues=True)
    shown = pages.time(restrict(everything, blind), past, Choice(by="node"), json=False, scope=blind)
    assert shown.status == 403
    assert "you may not list them" in check(shown.text).text


async def test_a_wrong_question_is_answered_with_what_may_stand_there():
    async with ui.pages() as reader:
        for query, said in (
            ("by=colour", "by: 'colour': there is queue, node"),
            ("window=9h", "window: '9h': there is 1h, 6h, 24h, 7d"),
            ("page=0", "page: '0': a number from 1 up"),
        ):
            status, _, text = await reader.get(f"/time?{query}")
            assert (status, said in check(text).text) == (400, True)


async def test_without_a_ledger_the_page_says_what_to_do_and_shows_now_and_the_forecasts():
    async with ui.pages() as reader:
        status, _, text = await reader.get("/time")
        page = check(text)
        assert status == 200
        assert "no ledger is named" in page.text
        assert "--ledger DIR|URL" in page.text
        assert "/gangs/team-0/wait-00000" in page.links
        assert "/gangs/team-0/run-0" in page.links
