"""The overview: its figures are those of the map, of `fairlead top` and of bills; what needs attention; the next starts; a day of all devices."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from fairlead.cli.operate.top import Drawing
from fairlead.history.cost import bill as bills
from fairlead.history.cost.window import Known, Window
from fairlead.history.ledger.entries import BUCKETS, WHOLE_PPM
from fairlead.history.ledger.store.place import UnavailableError
from fairlead.history.prices import PriceBook
from fairlead.kube import timestamps
from fairlead.ui.model import day as days
from fairlead.ui.model.cluster import cluster
from fairlead.ui.model.overview import OF_KIND_MAX, STARTS, OverviewMemory, day_for
from fairlead.ui.model.scope import EVERYTHING, Scope, restrict
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.serve import pages
from tests.support import ui
from tests.support.ledger_in_memory import Ledger as InMemory
from tests.support.ledger_in_memory import interval
from tests.support.pasts import us
from tests.support.ui_ledger import PRICE
from tests.support.ui_ledger import day as intervals
from tests.ui.test_scope import OTHERS, OWN, shared

from .markup import check


async def seen(lists, **options):
    facts = await ui.facts(lists, **options)
    assert facts.hardware is not None
    return OverviewMemory().of(facts, cluster(facts.hardware))


def waits(name, **status):
    return ui.gang(name, "team-0", queue="queue-0", **{"position": 1, **status})


def condition(kind, message):
    return [{"type": kind, "status": "True", "message": message}]


async def test_its_gpus_are_those_of_the_map_and_of_the_command_line():
    facts = await ui.facts(ui.a_cluster(12, waiting=7))
    gpus = json.loads(pages.overview(facts, json=True).text)["gpus"]
    on_map = json.loads(pages.map_(facts, {}, json=True).text)
    assert gpus["states"] == on_map["counts"]
    assert gpus["total"] == sum(len(node["gpus"]) for node in on_map["nodes"]) == 96
    assert gpus["inUse"] + gpus["free"] + gpus["unavailable"] == gpus["total"]
    said = "".join(cell.text for cell in Drawing().lines(facts)[0])
    for state, count in gpus["states"].items():
        assert (f"{count} {state} [" in said) == bool(count)
    assert "gangs: 7 waiting" in said
    assert json.loads(pages.overview(facts, json=True).text)["waiting"] == 7


async def test_busy_is_the_mean_load_of_the_devices_in_use_that_report_one():
    lists = ui.empty()
    lists["nodes"] = [ui.node("n")]
    lists["resourceslices"] = ui.a_cluster(1)["resourceslices"]
    lists["resourceslices"][0]["spec"]["nodeName"] = "n"
    lists["resourceslices"][0]["spec"]["pool"]["name"] = "n"
    assert (await seen(lists)).gpus.busy_percent is None
    ui.hold(lists, "a", 0, "n", ["gpu-0", "gpu-1"])
    ui.hold(lists, "b", 0, "n", ["gpu-2"], idle=True)
    found = await seen(lists)
    assert (found.gpus.in_use, found.gpus.busy_percent, found.gpus.counts["idle"]) == (3, 60, 1)


@pytest.mark.parametrize(
    ("raw", "kind", "text"),
    [
        (waits("a", forecast={"never": True}, why={"message": "no such GPU"}), "never fits", "no such GPU"),
        (
            {**waits("a"), "status": {"phase": "Waiting", "reason": "NeverFits", "message": "too large"}},
            "never fits",
            "too large",
        ),
        (
            {**waits("a"), "status": {"phase": "Waiting", "reason": "UnknownQueue", "message": "no queue x"}},
            "unknown queue",
            "no queue x",
        ),
        (waits("a", phase="Running", conditions=condition("Idle", "idle for 2h")), "idle too long", "idle for 2h"),
        (waits("a", phase="Running", conditions=condition("Evicting", "at 09:00")), "evicting", "at 09:00"),
    ],
    ids=["forecast", "reason", "queue", "idle", "evicting"],
)
async def test_a_gang_that_needs_attention_is_named_with_the_reason(raw, kind, text):
    lists = ui.empty()
    lists["gangs"] = [raw, ui.gang("fine", "team-0", position=2)]
    (found,) = (await seen(lists)).attention
    assert (found.kind, found.gang, found.text) == (kind, "team-0/a", text)
    lists["gangs"] = [{**raw, "status": {**raw["status"], "phase": "Finished", "conditions": []}}]
    assert (await seen(lists)).attention == ()


async def test_a_node_is_named_once_for_gpus_that_are_broken_and_once_for_those_that_are_drained():
    lists = ui.a_cluster(6, mig_every=0)
    lists["nodes"][0]["spec"]["unschedulable"] = True
    lists["devicetaintrules"] = [ui.drained("node-001", "gpu-0")]
    found = (await seen(lists, rules="v1")).attention
    assert [(each.kind, each.node) for each in found] == [
        ("broken", "node-001"),
        ("drained", "node-000"),
        ("drained", "node-001"),
    ]
    assert found[1].text == "8 of 8 GPUs: the node is cordoned", "held or not"
    assert found[2].text == "1 of 8 GPUs: drained; see fairlead device list"


async def test_of_many_of_a_kind_the_first_are_named_and_all_are_counted():
    lists = ui.empty()
    lists["gangs"] = [waits(f"never-{at:02}", forecast={"never": True}) for at in range(40)]
    found = await seen(lists)
    assert [each.gang for each in found.attention] == [f"team-0/never-{at:02}" for at in range(OF_KIND_MAX)]
    assert found.found == {"never fits": 40}
    page = check(pages.overview(await ui.facts(lists), json=False).text)
    assert f"first {OF_KIND_MAX} of 40" in page.text


async def test_the_next_starts_are_the_soonest_and_the_longest_wait_is_the_oldest():
    lists = ui.empty()
    for at in (7, 3, 9, 1, 5, 8):
        forecast = {"p50": timestamps.seconds(ui.NOW + at * 60), "p90": timestamps.seconds(ui.NOW + at * 120)}
        lists["gangs"].append(waits(f"in-{at}", forecast=forecast))
    lists["gangs"].append(waits("old", queuedTime=timestamps.seconds(ui.NOW - 9000)))
    found = await seen(lists)
    assert [run.gang for run in found.starts] == [f"team-0/in-{at}" for at in (1, 3, 5, 7, 8)]
    assert len(found.starts) == STARTS
    assert (found.waiting, found.longest.gang, found.longest.since) == (7, "team-0/old", ui.NOW - 9000)
    page = check(pages.overview(await ui.facts(lists), json=False).text)
    assert "2027-01-15T08:01:00Z" in [each.attributes["datetime"] for each in page.every("time")]


async def test_an_overview_is_the_same_with_the_memory_of_the_last_one():
    apiserver, times = ui.Apiserver(ui.a_cluster(6)), ui.Times()
    source, memory = ui.source(apiserver, times), OverviewMemory()
    for change in range(4):
        if change == 1:
            apiserver.put("gangs", waits("wait-00000", forecast={"never": True}))
        if change == 2:
            apiserver.put("nodes", ui.node("node-002", ready=False))
        if change == 3:
            apiserver.delete("gangs", waits("wait-00000"))
        times.now += 200
        facts, fresh = await source.facts(), await ui.source(apiserver, times).facts()
        assert facts.hardware is not None
        assert fresh.hardware is not None
        assert memory.of(facts, cluster(facts.hardware)) == OverviewMemory().of(fresh, cluster(fresh.hardware))


async def test_a_gang_that_cannot_be_read_hides_no_other():
    lists = ui.empty()
    lists["gangs"] = [waits("bad", conditions=[7]), waits("never", forecast={"never": True})]
    assert [each.gang for each in (await seen(lists)).attention] == ["team-0/never"]


def of(store, now=ui.NOW, **options):
    return Ledger("day", open_=lambda where: store, wall=lambda: now, **options)


async def test_the_areas_of_a_day_are_the_device_time_of_its_bill():
    now = ui.NOW - days.BIN_S / 2  # within a part
    store = InMemory(intervals())
    day = await of(store, now).day()
    since, until = round(day.since * 1e6), round(now * 1e6)
    bill = bills.make(store, PriceBook.of(()), bills.Asked(), Known(Window(since, until)))
    lasts = [days.BIN_S * 1e6] * (days.BINS - 1) + [until - days.window_us(day.since, days.BINS - 1)[0]]
    weighed: Counter[str] = Counter()
    for part, wide in zip(day.parts, lasts, strict=True):
        for bucket, mean in part.items():
            weighed[bucket] += mean * wide * WHOLE_PPM
    assert sum(weighed.values()) > 0
    for bucket, weight in bill.conservation.weighed.items():
        assert weighed[bucket] == pytest.approx(weight, rel=1e-6), bucket


async def test_every_bucket_of_the_ledger_is_in_one_area():
    grouped = [bucket for group in days.GROUPS.values() for bucket in group]
    assert sorted(grouped) == sorted(BUCKETS)


async def test_idle_devices_cost_what_the_bill_of_the_last_hour_says():
    store = InMemory([interval(0, "idle", us(1.5), us(0), claim=None, node="node-000"), *intervals()])

    async def flavors():
        return [PRICE]

    day = await of(store, flavors=flavors).day()
    assert day.idle_cost_for(EVERYTHING) == {"EUR": 3}
    assert day.idle_cost_for(OWN) == {}, "of another namespace"


async def test_parts_that_are_over_are_read_once():
    asked: Counter[int] = Counter()

    class Counting(InMemory):
        def sums(self, since_us, until_us, by):
            asked[since_us] += not by
            return super().sums(since_us, until_us, by)

    now = [ui.NOW - 3600.0]
    store, times = Counting(intervals()), ui.Times()
    made = Ledger("day", open_=lambda where: store, clock=times, wall=lambda: now[0])
    first = await made.day()
    for _ in range(3):
        now[0] += days.BIN_S / 2
        times.now += 1000
        again = await made.day()
    assert first.parts[4:40] == again.parts[3:39]
    assert {asked[days.window_us(first.since, place)[0]] for place in range(4, 40)} == {1}


async def test_a_ledger_that_fails_is_said_and_not_asked_at_each_look():
    opened = []

    def away(where):
        opened.append(where)
        raise UnavailableError("here", "it does not answer")

    made = Ledger("here", open_=away, clock=ui.Times(), wall=lambda: ui.NOW)
    for _ in range(3):
        assert "of the past nothing is known" in (await made.day()).missing
    assert len(opened) == 1
    nothing = of(InMemory(()))
    assert "the ledger holds nothing yet" in (await nothing.day()).missing


async def test_the_page_shows_the_day_since_when_it_is_known_and_what_to_do_without_a_ledger():
    lists = ui.a_cluster(6)
    facts = await ui.facts(lists)
    day = await of(InMemory(intervals(), known=(us(3), us(0)))).day()
    page = check(pages.overview(facts, day=day, json=False).text)
    assert "History begins 2027-01-15 05:00:00 UTC" in page.text
    (picture,) = [each for each in page.every("svg") if each.attributes.get("class") == "day"]
    assert "GPUs over the last day, " in picture.attributes["aria-label"]
    page = check(pages.overview(facts, json=False).text)
    assert "fairlead ui --ledger DIR|URL" in page.text
    found = json.loads(pages.overview(facts, day=day, json=True).text)["day"]
    assert (found["knownFrom"], len(found["devices"])) == ("2027-01-15T05:00:00Z", days.BINS)


@pytest.mark.parametrize("json_", [False, True])
async def test_a_viewer_of_one_namespace_sees_nothing_of_others_on_the_overview(json_):
    lists = shared()
    for team in (0, 1, 2):
        hidden = ui.gang(f"bad-{team}", f"team-{team}", queue=f"queue-{team}", forecast={"never": True})
        hidden["status"]["why"] = {"message": "cannot start beside team-2/secret"}
        lists["gangs"].append(hidden)
        lists["gangs"].append(
            ui.gang(
                f"idle-{team}", f"team-{team}", phase="Running", conditions=condition("Idle", "as team-1/secret (queue queue-1)")
            )
        )  # fmt: skip
    facts = await ui.facts(lists)
    priced = InMemory([*intervals()], known=(us(24), us(0)))
    day = await of(priced).day()
    day = replace(day, idle_cost={f"team-{team}": {"EUR": 10**team} for team in range(5)})
    whole = pages.overview(facts, day=day, json=json_).text
    assert {"team-1", "team-2"} <= set(OTHERS.findall(whole))
    for scope in (OWN, replace(OWN, queues=False), replace(OWN, cluster=False)):
        text = pages.overview(restrict(facts, scope), day=day, scope=scope, json=json_).text
        assert not OTHERS.findall(text), scope
        assert "team-0/bad-0" in text
        assert "team-0/idle-0" in text
        assert ("1.00 EUR" in text) == (scope.cluster and not json_)
        assert "11111" not in text
        assert day_for(day, scope).parts == ()
        assert "what all devices did" in text.lower()
    nothing = Scope(namespaces=frozenset(), cluster=False, queues=False)
    text = pages.overview(restrict(facts, nothing), day=day, scope=nothing, json=json_).text
    assert "team-" not in text
