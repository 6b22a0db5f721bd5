"""A queue's page: what it used and what was requested of it over time, and its explanation as the command has it."""

import json

import pytest

from fairlead.ui.model.facts import Past
from fairlead.ui.model.queue_history import POINTS, as_json, queue_history
from fairlead.ui.model.scope import Scope, restrict
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.serve import pages
from tests.support import ui
from tests.support.pasts import HOUR, a_past, busy, span, wait

from .markup import check


def lists(*queues, gangs=()):
    found = ui.empty()
    found["queues"] = list(queues)
    found["gangs"] = list(gangs)
    return found


def of(facts, past, name="queue-0", hours=12.0):
    raw = next(raw for raw in facts.queues if raw["metadata"]["name"] == name)
    return queue_history(facts, past, raw, lasts_s=hours * HOUR)


def at(values, hours_ago, hours=12.0):
    return values[int((hours - hours_ago) / hours * POINTS)]


async def test_use_is_what_its_claims_held_and_those_of_the_queues_below_it():
    facts = await ui.facts(
        lists(
            ui.queue("all", used=0),
            ui.queue("queue-0", parent="all", used=0),
            ui.queue("queue-1", parent="queue-0", used=0),
        )
    )
    past = a_past(
        span("a", 10, 6, amount=2),
        span("b", 8, 2, queue="queue-1", amount=3),
        span("c", 8, 2, queue="other", amount=100),
    )
    (series,) = of(facts, past).series
    assert [at(series.used, hour) for hour in (11, 9, 7, 4, 1)] == pytest.approx([0, 2, 5, 3, 0])
    assert sum(series.used) * 12 / POINTS == pytest.approx(2 * 4 + 3 * 6)
    assert [at(each.used, 7) for each in of(facts, past, "queue-1").series] == pytest.approx([3])
    assert [at(each.used, 7) for each in of(facts, past, "all").series] == pytest.approx([5])


async def test_what_was_admitted_had_been_requested_since_it_was_queued():
    facts = await ui.facts(lists(ui.queue("queue-0", used=0)))
    facts.queues[0]["status"]["usage"][0]["demand"] = 0
    past = a_past(span("a", 6, 3, amount=4), span("a", 2, 1, amount=9), waits=(wait("a", 9, 6), wait("unknown", 9, 6)))
    (series,) = of(facts, past).series
    assert [at(series.requested, hour) for hour in (10, 8, 5, 2.5, 1.5)] == pytest.approx([0, 4, 4, 0, 9])


async def test_a_gang_that_was_evicted_again_and_again_asked_for_no_more_than_its_size_at_any_time():
    """It keeps its age, so each of its waits was counted from its first submission on: 90 of a queue that never asked for more than 16."""
    facts = await ui.facts(lists(ui.queue("queue-0", used=0)))
    facts.queues[0]["status"]["usage"][0]["demand"] = 0
    runs = [span("a", 9 - 2 * n, 8 - 2 * n, amount=16) for n in range(4)]
    past = a_past(*runs, waits=tuple(wait("a", 10, 9 - 2 * n) for n in range(4)))
    (series,) = of(facts, past).series
    assert max(series.requested) == pytest.approx(16)
    assert [at(series.requested, hour) for hour in (9.5, 8.5, 7.5, 2.5, 1.5)] == pytest.approx([16, 16, 16, 16, 0])


async def test_an_admission_that_was_undone_and_followed_by_another_asked_once():
    """Both were within the time in which claims follow an admission, and each counted the claims of both."""
    facts = await ui.facts(lists(ui.queue("queue-0", used=0)))
    facts.queues[0]["status"]["usage"][0]["demand"] = 0
    minute = 1 / 60
    undone, kept = span("a", 6, 6 - minute / 2, amount=8, claim="x"), span("a", 6 - minute, 3, amount=8, claim="y")
    past = a_past(undone, kept, waits=(wait("a", 9, 6), wait("a", 9, 6 - minute)))
    (series,) = of(facts, past).series
    assert max(series.requested) == pytest.approx(8)
    assert sum(series.requested) * 12 / POINTS == pytest.approx(8 * 6, rel=0.01)


async def test_what_waits_now_and_held_devices_before_asks_again_from_then_on():
    """It keeps its age, and what it held until it was evicted is in what was used."""
    gangs = [ui.gang("a", "team-0", queue="queue-0", queuedTime="2027-01-15T00:00:00Z")]
    facts = await ui.facts(lists(ui.queue("queue-0", used=0), gangs=gangs))
    facts.queues[0]["status"]["usage"][0]["demand"] = 8
    (series,) = of(facts, a_past(span("a", 7, 4, amount=8, ended_by="Evicted"))).series
    assert [at(series.requested, hour) for hour in (7.5, 6, 2)] == pytest.approx([0, 8, 8])
    assert max(series.requested) == pytest.approx(8)


async def test_what_waits_now_is_in_what_is_requested_since_each_gang_waits():
    gangs = [ui.gang("x", "team-0", queue="queue-0", size=6), ui.gang("y", "team-0", queue="queue-0", size=2)]
    gangs[0]["metadata"]["creationTimestamp"] = "2027-01-15T02:00:00Z"  # six hours ago; the other fifteen minutes
    facts = await ui.facts(lists(ui.queue("queue-0", used=0), gangs=gangs))
    facts.queues[0]["status"]["usage"][0]["demand"] = 16
    (series,) = of(facts, Past()).series
    assert at(series.requested, 3) == pytest.approx(12)
    assert series.requested[-1] == pytest.approx(16)
    assert at(series.requested, 7) == 0


async def test_the_page_the_explanation_and_the_series():
    past = a_past(*busy(60, queues=5))
    facts = await ui.facts(ui.a_cluster(6, waiting=10))
    shown = pages.one_queue(facts, facts, past, "queue-1", "24h", json=False)
    page = check(shown.text)
    assert shown.status == 200
    assert "queue queue-1, below all: 2 running, 1 waiting" in page.text
    assert any("used on average" in each.attributes.get("aria-label", "") for each in page.every("svg"))
    for link in ("/gangs?queue=queue-1", "/time?only=queue-1"):
        assert link in page.links
    as_ = json.loads(pages.one_queue(facts, facts, past, "queue-1", "24h", json=True).text)
    assert (as_["kind"], as_["name"]) == ("queue", "queue-1")
    series = json.loads(pages.history_of_queue(facts, facts, past, "queue-1", "24h").text)
    raw = next(raw for raw in facts.queues if raw["metadata"]["name"] == "queue-1")
    assert series == as_json(queue_history(facts, past, raw, lasts_s=24 * HOUR))
    assert len(series["flavors"][0]["used"]) == POINTS
    assert sum(series["flavors"][0]["used"]) > 0


async def test_addresses_that_are_wrong_and_a_ledger_that_is_missing():
    async with ui.reader(ui.source(ui.Apiserver(ui.a_cluster())), Ledger("")) as reader:
        status, _, text = await reader.get("/queues/queue-0")
        assert (status, "no ledger is named" in check(text).text.lower()) == (200, True)
        status, _, text = await reader.get("/queues/none")
        assert (status, "no queue is called none" in check(text).text) == (404, True)
        status, _, text = await reader.get("/queues/queue-0?window=2y")
        assert (status, "there is 1h, 6h, 24h, 7d" in check(text).text) == (400, True)
        status, headers, _ = await reader.get("/queues/queue-0/history")
        assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")


async def test_a_viewer_sees_the_use_of_a_queue_and_no_gang_of_others():
    facts = await ui.facts(ui.a_cluster(6, waiting=10))
    scope = Scope(namespaces=frozenset({"team-1"}), cluster=False, queues=True)
    past = a_past(span("secret", 9, 5, namespace="hid"))
    text = pages.one_queue(restrict(facts, scope), facts, past, "queue-0", "24h", json=False).text
    assert "secret" not in text
    assert "team-0/" not in text
    assert 'class="own"' in text
    blind = Scope(namespaces=None, cluster=True, queues=False)
    assert pages.one_queue(restrict(facts, blind), facts, past, "queue-0", "24h", json=False).status == 403


async def test_what_the_ledger_does_not_know_is_not_pictured_as_nothing_used():
    """Of cpu, which pods request, it has no spans."""
    held = ui.queue("queue-0", used=0)
    held["status"]["usage"].append({"flavor": "cpu", "allocated": "64", "demand": "64", "fairShare": "64"})
    facts = await ui.facts(lists(held))
    assert [each.flavor for each in of(facts, a_past(span("a", 6, 3, amount=4))).series] == ["h100"]
