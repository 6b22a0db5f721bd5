"""How many devices a gang holds, how many of them are idle, how busy each was over its life, and what is known of the ends of those that hold."""

import pytest

from fairlead.history.ledger.entries import Stretch
from fairlead.kube import timestamps
from fairlead.ui.model import gang
from fairlead.ui.model.gang_devices import SHOWN_MAX, Held, held, lives
from fairlead.ui.model.scope import Scope, ScopedFacts, restrict
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.serve import pages
from fairlead.ui.serve.views import Address, Views
from tests.support import ui
from tests.support.ledger_in_memory import Ledger as InMemory
from tests.support.ledger_in_memory import allocation, interval
from tests.support.pasts import us
from tests.support.ui import NOW

from .markup import check
from .test_scope import OTHERS, shared

OWN = Scope(namespaces=frozenset({"team-0"}), cluster=True, queues=True)
NARROW = Scope(namespaces=frozenset({"team-0"}), cluster=False, queues=False)


def stretch(device, bucket, begin_h, end_h, busy=None):
    """Hours before `NOW`. `busy`: 0 to 1, of all of it."""
    lasts = us(end_h) - us(begin_h)
    sampled = (0, 0) if busy is None else (lasts, round(lasts * busy))
    return Stretch("node-000", device, bucket, us(begin_h), us(end_h), *sampled)


@pytest.mark.parametrize("scope", [None, OWN, NARROW], ids=["everything", "with nodes", "namespace alone"])
async def test_devices_are_counted_with_those_that_are_idle(scope):
    facts = await ui.facts(ui.a_cluster(8))
    seen = facts if scope is None else restrict(facts, scope)
    every = {"team-0/run-0", "team-2/run-2", "team-0/none", "team-3/run-3"}
    expected = {"team-0/run-0": (8, 0), "team-2/run-2": (6, 6), "team-3/run-3": (4, 0)}
    assert held(seen, every) == {
        name: Held(count, idle, () if scope is NARROW else (f"{count} × NVIDIA H100 80GB HBM3",))
        for name, (count, idle) in expected.items()
        if scope is None or name.startswith("team-0/")
    }


async def test_parts_of_a_gpu_are_counted_apart_from_gpus():
    facts = await ui.facts(ui.a_cluster(5))
    found = held(facts, {"team-4/mig-4"})["team-4/mig-4"]
    assert found.models == (
        "1 × NVIDIA A100-SXM4-80GB",
        "1 × NVIDIA A100-SXM4-80GB 1g.10gb",
        "1 × NVIDIA A100-SXM4-80GB 3g.40gb",
    )
    (row,) = (each.text for each in check(pages.gangs(facts, {}, json=False).text).every("tr") if "mig-4" in each.text)
    assert "1 × A100-SXM4-80GB, 1 × A100-SXM4-80GB 1g.10gb, 1 × A100-SXM4-80GB 3g.40gb\n0 of 3" in row


async def test_what_no_driver_said_is_not_idle_and_not_busy():
    lists = ui.a_cluster(1)
    for claim in lists["resourceclaims"]:
        del claim["status"]["devices"]
    assert held(await ui.facts(lists), {"team-0/run-0"}) == {
        "team-0/run-0": Held(8, None, ("8 × NVIDIA H100 80GB HBM3",))
    }
    page = check(pages.one_gang(await ui.facts(lists), "team-0", "run-0", json=False).text)
    assert "No driver wrote how busy they are" in page.text
    assert not [each for each in page.every("svg") if "life" in each.attributes.get("class", "")]


async def test_a_life_is_what_the_ledger_has_and_then_what_the_driver_wrote_last():
    facts = await ui.facts(ui.a_cluster(1))
    kept = [
        stretch("gpu-0", "starting", 3, 2.75),
        stretch("gpu-0", "used", 2.75, 1, busy=0.5),
        stretch("gpu-0", "idle", 1, 0.25, busy=0.0),
        stretch("gpu-9", "used", 3, 2),  # that it held before
    ]
    found = lives(facts, "team-0/run-0", kept)
    assert found is not None
    first, *_, last = found.devices
    assert (first.device, last.device, len(found.devices), found.more) == ("gpu-0", "gpu-9", 9, 0)
    assert [(each.state, each.busy) for each in first.stretches] == [
        ("starting", None), ("used", 0.5), ("idle", 0.0), ("used", 0.9)
    ]  # fmt: skip
    # The claims' 800 s begin before the ledger ends: only what follows that end is taken of them.
    assert first.stretches[-1].start == NOW - 800
    assert first.idle_s == 0.75 * 3600
    assert first.busy == pytest.approx((1.75 * 0.5 + 800 / 3600 * 0.9) / (1.75 + 0.75 + 800 / 3600))
    assert last.busy is None
    assert (found.since, found.until, found.from_ledger) == (NOW - 3 * 3600, NOW, True)


async def test_what_is_idle_now_was_held_before_and_of_that_nothing_is_known():
    facts = await ui.facts(ui.a_cluster(3))
    found = lives(facts, "team-2/run-2")
    assert found is not None
    assert {(each.idle_s, each.busy) for each in found.devices} == {(800.0, 0.0)}, "idle since before it was allocated"
    assert not found.from_ledger
    page = check(pages.one_gang(facts, "team-2", "run-2", json=False).text)
    assert "the last sample of the driver stands for all of the time" in page.text
    assert lives(facts, "team-0/wait-00000") is None


async def test_a_gang_of_many_devices_lists_some_and_says_how_many_more():
    facts = await ui.facts(ui.empty())
    found = lives(facts, "x/y", [stretch(f"gpu-{at}", "used", 2, 1, busy=1.0) for at in range(SHOWN_MAX + 5)])
    assert found is not None
    assert (len(found.devices), found.more, found.devices[10].device) == (SHOWN_MAX, 5, "gpu-10")


def served(scope=None):
    past = [
        interval(at, "used", us(3), us(1), claim=allocation(f"run-0-{at}", gang="run-0", namespace=space), busy=0.5)
        for at, space in enumerate(("team-0", "team-1"))
    ]
    ledger = Ledger("here", open_=lambda where: InMemory(past), wall=lambda: NOW)
    return Views(ui.source(ui.Apiserver(ui.a_cluster(2))), ScopedFacts(), ledger)


async def test_the_page_draws_what_the_ledger_has_and_nothing_of_another_namespace():
    views = served()
    address, other = Address.of("/gangs/team-0/run-0", ()), Address.of("/gangs/team-1/run-0", ())
    shown = await views.shown(await views.facts(), address, OWN, json=False)
    page = check(shown.text)
    rows = [each.text for each in page.every("tr")]
    assert any("node-a/gpu-050%–2h" in row for row in rows), rows
    assert "the last sample of the driver" not in page.text
    assert not any("node-a/gpu-1" in row for row in rows), "of the other namespace's gang of the same name"
    assert (await views.shown(await views.facts(), other, OWN, json=False)).status == 404


async def test_a_holder_says_since_when_it_holds_and_what_is_known_of_its_end():
    lists = ui.a_cluster(2)
    own = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == "wait-00000")
    holder = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == "run-0")
    holder["status"]["admittedTime"] = timestamps.seconds(NOW - 7200)

    async def cards():
        facts = await ui.facts(lists)
        found = gang.find(facts, "team-0", "wait-00000")
        assert found is not None
        text = check(pages.one_gang(facts, "team-0", "wait-00000", json=False).text).text
        assert all(each.text in text and each.end in text for each in found.holders)
        return [(each.gang, each.text, each.runs, each.end) for each in found.holders]

    run_0 = ("team-0/run-0", "team-0/run-0 (queue queue-0) holds 8", "for 2h")
    unknown = ("", "claims outside any gang hold 2", "", "")
    assert await cards() == [(*run_0, "when it ends is not known"), unknown]
    own["status"]["forecast"]["because"] = "32 samples; starts when team-0/run-0 ends in 30 of them"
    assert await cards() == [(*run_0, "this gang is forecast to start when it ends"), unknown]
    eviction = {"kind": "Reclaim", "at": timestamps.seconds(NOW + 240), "beneficiary": "team-0/wait-00000"}
    holder["status"]["evictions"] = [eviction]
    assert await cards() == [(*run_0, "is evicted for this gang at 08:04:00 UTC (in 4m)"), unknown]
    eviction["beneficiary"] = "team-1/other"
    assert await cards() == [(*run_0, "is evicted for gang team-1/other at 08:04:00 UTC (in 4m)"), unknown]


@pytest.mark.parametrize("scope", [OWN, NARROW], ids=["with nodes", "namespace alone"])
async def test_the_page_of_gangs_of_a_viewer_of_one_namespace_counts_what_its_gangs_hold_alone(scope):
    lists = shared()
    for name in ("run-0", "run-1"):
        raw = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == name)
        raw["status"]["evictions"] = [
            {"kind": "Reclaim", "at": timestamps.seconds(NOW + 240), "beneficiary": "team-3/x"}
        ]
    lists["gangs"].append(ui.gang("secret-done", "team-3", phase="Finished"))
    lists["gangs"].append(ui.gang("done", "team-0", phase="Finished"))
    seen = restrict(await ui.facts(lists), scope)
    for query in ({}, {"sort": "gpus"}, {"sort": "-idle"}, {"sort": "waited"}, {"phase": "Finished"}):
        page = check(pages.gangs(seen, query, json=False).text)
        assert not OTHERS.findall(page.text), query
        assert not [link for link in page.links if OTHERS.search(link)], query
    page = check(pages.gangs(seen, {}, json=False).text)
    assert [each.text for each in page.every("span") if each.attributes.get("class") == "badge"] == ["evicting in 4m"]
    (row,) = (each.text for each in page.every("tr") if "team-0/run-0" in each.text)
    assert "0 of 8" in row


async def test_no_card_summary_or_timeline_of_a_viewer_of_one_namespace_names_a_gang_of_another():
    lists = shared()
    own = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == "wait-00000")
    own["status"]["forecast"]["because"] = "32 samples; starts when team-1/run-1 ends in 30 of them"
    own["status"]["conditions"] = []
    for name in ("run-0", "run-1"):
        raw = next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == name)
        at = timestamps.seconds(NOW + 240)
        raw["status"]["evictions"] = [{"kind": "Reclaim", "at": at, "beneficiary": "team-3/secret-gang"}]
    facts = await ui.facts(lists)
    whole = check(pages.one_gang(facts, "team-0", "wait-00000", json=False).text)
    assert "when team-1/run-1 ends" in whole.text
    assert "/gangs/team-1/run-1" in whole.links
    for scope in (OWN, NARROW):
        page = check(pages.one_gang(restrict(facts, scope), "team-0", "wait-00000", json=False).text)
        assert not OTHERS.findall(page.text)
        assert not [link for link in page.links if OTHERS.search(link)]
        assert "when a gang of another namespace ends" in page.text
        assert "is evicted for a gang of another namespace at 08:04:00 UTC (in 4m)" in page.text
