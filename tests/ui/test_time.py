"""The page of time: what becomes a run, what is drawn, what is folded, and how it is said where nothing is known of the past."""

import itertools
import json
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest

from fairlead.history.ledger.entries import ENDS
from fairlead.kube import timestamps
from fairlead.ui.model.facts import Past
from fairlead.ui.model.runs import runs
from fairlead.ui.model.scope import EVERYTHING, Scope, restrict
from fairlead.ui.model.time_chart import BYS, Choice, TimeChart, as_json, time_chart
from fairlead.ui.pages import gantt
from fairlead.ui.serve import pages
from tests.support import ui
from tests.support.pasts import HOUR, a_past, busy, span, us
from tests.support.ui import NOW
from tests.support.ui_ledger import ledger

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


@pytest.mark.one_in(4)
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
    for by, until, as_ in itertools.product(BYS, (None, NOW - HOUR), (True, False)):
        text = pages.time(facts, past, Choice(by=by, until=until), json=as_, scope=scope).text
        assert "team-1/" in text
        for other in ("secret", "elsewhere-9", "team-0/", "team-2/", "team-3/", "team-4/"):
            assert other not in text, (by, until, other)
    assert "elsewhere-9/secret" in pages.time(everything, past, Choice(), json=False, scope=EVERYTHING).text
    blind = Scope(namespaces=None, cluster=False, queues=True)
    shown = pages.time(restrict(everything, blind), past, Choice(by="node"), json=False, scope=blind)
    assert shown.status == 403
    assert "you may not list them" in check(shown.text).text


async def test_a_wrong_question_is_answered_with_what_may_stand_there():
    async with ui.pages() as reader:
        for query, said in (
            ("by=colour", "by: 'colour': there is queue, node"),
            ("window=9h", "window: '9h': there is 10m, 1h, 6h, 24h, 7d"),
            ("until=soon", "until: 'soon': a time such as 2026-11-25T20:30:00Z"),
            ("until=1960-01-01T00:00:00Z", "until: '1960-01-01T00:00:00Z': a time such as"),
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


async def test_the_picture_begins_with_the_first_data():
    facts = await ui.facts(ui.empty())
    young = replace(a_past(span("first", 0.4, 0.2)), known_us=(us(0.5), us(0)))
    chart = time_chart(facts, young, Choice(window="24h"))
    assert (chart.since, chart.begins, chart.missing) == (NOW - 0.5 * HOUR, NOW - 0.5 * HOUR, "")
    assert chart.earlier is None, "there is nothing before"
    shown = check(pages.time(facts, young, Choice(window="24h"), json=False).text)
    assert "History begins 2027-01-15 07:30:00 UTC." in shown.text
    alone = time_chart(await ui.facts(ui.a_cluster(1, waiting=0)), Past(missing="no ledger"), Choice())
    assert alone.since == NOW - 800, "since when the claims are held"
    assert alone.earlier is None
    assert time_chart(facts, Past(missing="no ledger"), Choice()).since == NOW - 6 * HOUR, "there is nothing at all"
    old = a_past(span("first", 0.4, 0.2))
    assert time_chart(facts, old, Choice()).since == NOW - 6 * HOUR, "nothing was held before, and that is known"


async def test_a_window_of_the_past_shows_what_the_ledger_saw_then():
    facts = await ui.facts(ui.a_cluster(2, waiting=3))
    past = a_past(span("before", 9, 7), span("then", 6, 4), span("on", 5, None), span("run-0", 30, 28))
    choice = Choice(window="6h", until=NOW - 3 * HOUR)
    chart = time_chart(facts, past, choice)
    assert (chart.since, chart.end, chart.until, chart.now) == (NOW - 9 * HOUR, NOW - 3 * HOUR, NOW - 3 * HOUR, NOW)
    found = {run.gang: run.state for group in chart.groups for run in group.runs}
    assert found == {"team-0/before": "ran", "team-0/then": "ran", "team-0/on": "runs"}, (
        "neither claims nor forecasts of now"
    )
    page = check(pages.time(facts, past, choice, json=False).text)
    assert "the line is now" not in page.text
    assert not [each for each in page.every("rect") if each.attributes.get("class") == "now"]


async def test_a_run_that_began_before_the_window_says_since_when():
    facts = await ui.facts(ui.empty())
    whole = span("long", 30, 1)
    cut = whole._replace(start_us=us(6))
    (run,) = runs(facts, a_past(cut), since=NOW - 6 * HOUR)
    assert gantt.words(run, NOW) == "gang team-0/long, queue queue-0, 1 device, on node-000: ran for 29h, completed"


def test_one_moves_in_time_by_halves_of_a_window_and_zooms_around_its_middle():
    chart = TimeChart(choice=Choice(window="6h"), since=NOW - 6 * HOUR, now=NOW, end=NOW, until=NOW, groups=(), total=0, pages=1, older=True)  # fmt: skip
    assert chart.later is None
    assert chart.closer == Choice(window="1h"), "up to now, as before"
    assert chart.farther == Choice(window="24h")
    assert chart.earlier == Choice(window="6h", until=NOW - 3 * HOUR)
    there = replace(chart, choice=chart.earlier, end=NOW - 3 * HOUR)
    assert there.later == Choice(window="6h"), "the end is now again"
    assert there.earlier == Choice(window="6h", until=NOW - 6 * HOUR)
    assert there.closer == Choice(window="1h", until=NOW - 5.5 * HOUR)
    assert there.farther == Choice(window="24h"), "12 h around the middle reach beyond now"
    assert there.around(NOW - 8 * HOUR) == Choice(window="1h", until=NOW - 7.5 * HOUR)
    assert replace(there, choice=Choice(window="10m")).closer is None
    assert replace(there, choice=Choice(window="7d")).farther is None
    assert Choice.of(dict(parse_qsl(there.closer.query()[1:]))) == there.closer, "an address says it all"


async def test_the_links_of_the_page_lead_there():
    async with ui.reader(ui.source(ui.Apiserver(ui.a_cluster())), ledger()) as reader:
        _, _, text = await reader.get("/time?window=6h")
        page = check(text)
        assert "/time?until=2027-01-15T05%3A00%3A00Z" in page.links
        (title,) = {each.text for each in page.every("title")[:1]}
        assert title.startswith("Time")
        status, _, text = await reader.get("/time?until=2027-01-15T05%3A00%3A00Z")
        there = check(text)
        assert status == 200
        assert "2027-01-14 23:00:00 UTC to 2027-01-15 05:00:00 UTC." in there.text
        assert "wait-00000" not in there.text
        assert "cut-0" in there.text
        found = json.loads((await reader.get("/time?until=2027-01-15T05%3A00%3A00Z&format=json"))[2])
        assert found["window"] == {"from": "2027-01-14T23:00:00Z", "to": "2027-01-15T05:00:00Z"}
        _, _, text = await reader.get("/time?until=2099-01-01T00:00:00Z")
        assert "the line is now" in check(text).text


async def test_each_cause_of_an_end_has_a_mark_and_what_ended_well_has_none():
    facts = await ui.facts(ui.empty())
    ends = {"Completed": "completed", "Failed": "failed", "Evicted": "evicted", "Deleted": "deleted", "NodeGone": "its node went away", "Unknown": "ended"}  # fmt: skip
    past = a_past(*(span(f"g-{end.lower()}", 3, 2, ended_by=end) for end in ends))
    assert set(ends) == set(ENDS)
    (group,) = gantt.picture(time_chart(facts, past, Choice()), {}).groups
    causes = {bar.run.ended: bar.cause for bar in group.bars}
    assert causes == {end: end if end in gantt.ENDS else "" for end in ends}
    for bar in group.bars:
        assert bar.title.endswith(f"ran for 60m, {ends[bar.run.ended]}")
        left, _, wide = _place(bar.box)
        assert not bar.end or f'x="{left + wide:.2f}%"' in bar.end, "where the bar ends"
    page = check(pages.time(facts, past, Choice(), json=False).text)
    marks = {each.attributes["id"] for each in page.every("path")}
    used = [each.attributes["href"] for each in page.every("use")]
    assert sorted(used) == sorted(2 * [f"#end-{end}" for end in gantt.ENDS]), "once in the legend, once at the bar"
    assert {each[1:] for each in used} <= marks
    few = check(pages.time(facts, a_past(span("g", 3, 2)), Choice(), json=False).text)
    assert not few.every("use"), "the legend has what the picture has"


async def test_each_lane_has_a_name_in_the_gutter():
    facts = await ui.facts(ui.a_cluster(1, waiting=1))
    past = a_past(span("first", 5, 4), span("second", 3, 2), *(span("wide", 4.5, 1, claim=f"c{at}") for at in range(3)))
    (group,) = gantt.picture(time_chart(facts, past, Choice()), {}).groups
    assert [(lane.label, lane.more) for lane in group.lanes] == [("run-0 ×8", 2), ("wide ×3", 0), ("wait-00000", 0)]
    assert len(group.lanes) * gantt.LANE + 2 == group.height
    assert {bar.run.gang: bar.label for bar in group.bars} == {
        "team-0/first": "first ×1", "team-0/second": "second ×1", "team-0/run-0": "", "team-0/wide": "", "team-0/wait-00000": "",
    }, "a bar that is alone in its lane is named beside it"  # fmt: skip
    page = check(pages.time(facts, past, Choice(), json=False).text)
    (names,) = [each for each in page.every("ul") if each.attributes.get("class") == "lanes"]
    assert names.text.split() == ["run-0", "×8", "and", "2", "wide", "×3", "wait-00000"]
