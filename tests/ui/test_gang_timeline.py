"""What has happened to a gang: events, status, ledger and forecast as one list; and a gang that is not there any more."""

from fairlead.history.ledger.entries import Decision
from fairlead.kube import timestamps
from fairlead.ui.model.facts import Past
from fairlead.ui.model.gang import events_of, spread, timeline
from fairlead.ui.model.scope import EVERYTHING, Scope, ScopedFacts
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.serve import pages
from fairlead.ui.serve.views import Address, Views
from tests.support import ui
from tests.support.ledger_in_memory import Ledger as InMemory
from tests.support.pasts import a_past, span, wait
from tests.support.ui import NOW

from .markup import check


async def read(lists=None):
    return await ui.facts(lists or ui.a_cluster(1, waiting=1))


def of(facts, name):
    return next(raw for raw in facts.gangs if raw["metadata"]["name"] == name)


async def test_what_every_witness_says_is_one_list_newest_first():
    lists = ui.a_cluster(1, waiting=1)
    raw = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == "wait-00000")
    raw["status"]["conditions"] = [
        {
            "type": "Evicted",
            "status": "True",
            "message": "for team-1/x",
            "lastTransitionTime": timestamps.seconds(NOW - 300),
        }
    ]
    facts = await read(lists)
    events = events_of(
        [ui.event(raw, "NoDevices", "8 wanted", ago_s=100, count=3)], kind="Gang", namespace="team-0", name="wait-00000"
    )
    past = a_past(
        span("wait-00000", 5, 1, ended_by="Evicted", lost=True, claim="a"),
        span("wait-00000", 5, 1, ended_by="Evicted", claim="b"),
        span("other", 5, 1),
        waits=(wait("wait-00000", 6, 5), wait("other", 9, 5)),
    )
    found = [
        (each.source, each.what, each.text, None if each.at is None else round((NOW - each.at) / 60))
        for each in timeline(facts, past, of(facts, "wait-00000"), events)
    ]
    assert found == [
        ("Event", "NoDevices", "8 wanted (3 times)", 2),
        ("Status", "Evicted", "for team-1/x", 5),
        ("Status", "Created", "the Gang was created", 15),
        ("Ledger", "Devices free", "after 4h: it was evicted; its work was lost", 60),
        ("Ledger", "Admitted", "after 60m in queue queue-0", 300),
        ("Ledger", "Devices allocated", "2 devices on node-000", 300),
        ("Ledger", "Queued", "in queue queue-0", 360),
    ]


async def test_the_timeline_repeats_no_paragraph_and_has_the_first_sentence_of_a_long_reason():
    facts = await read()
    raw = of(facts, "wait-00000")
    rest = " Request gpu of claim team-0/wait-00000-gpu wants 1: of 40 devices these do not serve: 10." * 3
    events = events_of(
        [
            ui.event(raw, "NoDevices", f"8 wanted, 3 free.{rest}", ago_s=10),  # what the page says above
            ui.event(raw, "OverFairShare", f"9 wanted, v1.2 of h100 free.{rest}", ago_s=20),
            ui.event(raw, "Gathering", "2 of 8 members exist. Others are to come.", ago_s=30),
        ],
        kind="Gang",
        namespace="team-0",
        name="wait-00000",
    )
    found = [(each.what, each.text) for each in timeline(facts, Past(), raw, events)]
    assert found[:3] == [
        ("NoDevices", ""),
        ("OverFairShare", "9 wanted, v1.2 of h100 free."),
        ("Gathering", "2 of 8 members exist. Others are to come."),
    ]


async def test_what_the_ledger_has_of_an_event_stands_there_once():
    facts = await read()
    raw = of(facts, "wait-00000")
    events = events_of(
        [ui.event(raw, "NoDevices", "8 wanted", ago_s=100), ui.event(raw, "Forecast", "soon", ago_s=50)],
        kind="Gang",
        namespace="team-0",
        name="wait-00000",
    )
    decisions = [
        Decision(namespace="team-0", gang="wait-00000", at_us=int((NOW - 100) * 1e6), what="NoDevices", text="8 wanted"),
        Decision(namespace="team-0", gang="wait-00000", at_us=int((NOW - 9000) * 1e6), what="Evicted", text="for x", warning=True),
    ]  # fmt: skip
    found = timeline(facts, Past(), raw, events, decisions)
    assert [(each.source, each.what, each.warning) for each in found if each.source in {"Event", "Ledger"}] == [
        ("Event", "Forecast", False),
        ("Ledger", "NoDevices", False),
        ("Ledger", "Evicted", True),
    ]


async def test_a_gangs_page_asks_the_ledger_and_hides_names_of_others():
    decision = Decision(
        namespace="team-0", gang="wait-00000", at_us=int((NOW - 9000) * 1e6), what="Evicted", text="for gang team-9/secret"
    )  # fmt: skip
    past = Ledger("here", open_=lambda where: InMemory((), decisions=[decision]), wall=lambda: NOW)
    source = ui.source(ui.Apiserver(ui.a_cluster(1, waiting=1)))
    address = Address.of("/gangs/team-0/wait-00000", ())
    views = Views(source, ScopedFacts(), past)
    for scope, text in ((EVERYTHING, "for gang team-9/secret"), (Scope(namespaces=frozenset({"team-0"}), cluster=False, queues=False), "for a gang of another namespace")):  # fmt: skip
        shown = await views.shown(await views.facts(), address, scope, json=False)
        assert text in check(shown.text).text
    hidden = await views.shown(
        await views.facts(), address, Scope(namespaces=frozenset({"team-1"}), cluster=False, queues=False), json=False
    )
    assert "secret" not in hidden.text


async def test_the_page_shows_it_and_the_spread_of_the_forecast():
    facts = await read()
    past = a_past(span("wait-00000", 5, 1), waits=(wait("wait-00000", 6, 5),))
    text = pages.one_gang(facts, "team-0", "wait-00000", json=False, past=past).text
    page = check(text)
    (picture,) = (each for each in page.every("svg") if each.attributes.get("class") == "gantt")
    assert (
        picture.attributes["aria-label"]
        == "waits for 15m; starts in 10m with 50 % probability, in 60m with 90 % probability"
    )
    assert "after 4h: its pods completed" in page.text
    found = spread(facts, of(facts, "wait-00000"))
    assert found is not None
    assert (found.queued, found.p50, found.p90) == (NOW - 900, NOW + 600, NOW + 3600)
    assert spread(facts, of(facts, "run-0")) is None
    assert "with 50 % probability" not in pages.one_gang(facts, "team-0", "run-0", json=False).text
    assert not [each for each in page.every("td") if each.text == "with 50 % probability"], "said once"


async def test_a_gang_that_ended_is_known_by_its_runs():
    facts = await read()
    past = a_past(span("gone", 5, 4, ended_by="Failed"), span("gone", 3, 2))
    shown = pages.one_gang(facts, "team-0", "gone", json=False, past=past)
    text = check(shown.text).text
    assert shown.status == 404
    assert text.index("2027-01-15T05:00:00Z to 2027-01-15T06:00:00Z") < text.index("on 1 device: a pod failed.")
    hidden = pages.one_gang(
        facts, "team-0", "gone", json=False, past=past, scope=Scope(namespaces=frozenset({"team-1"}), cluster=True, queues=True)
    )  # fmt: skip
    assert "a pod failed" not in hidden.text


async def test_a_condition_that_never_held_is_no_moment_and_one_that_ceased_says_nothing_of_now():
    lists = ui.a_cluster(1, waiting=1)
    raw = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == "wait-00000")
    created = NOW - 900
    for held_until, told in ((created + 1, []), (NOW - 60, ["no longer", "no longer"])):
        raw["status"]["conditions"] = [
            {
                "type": kind,
                "status": "False",
                "reason": "NoDevices",
                "message": "16 wanted, 15 free now",
                "lastTransitionTime": timestamps.seconds(held_until),
            }
            for kind in ("Admitted", "Running")
        ]
        found = timeline(await read(lists), Past(), raw, ())
        assert [each.text for each in found if each.what in {"Admitted", "Running"}] == told
        assert not any("16 wanted" in each.text for each in found)
