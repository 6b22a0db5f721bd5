"""The map of many nodes: what stands together, what colours mean, marks of gangs, names across cells; from a picture of each GPU to racks."""

import gzip
import json
import re
from collections import Counter

import pytest

from fairlead.ui.model.cluster import NodeView, cluster
from fairlead.ui.model.node_groups import DENSE, RACKS, TOGETHER, MapChoice, node_groups
from fairlead.ui.model.scope import restrict
from fairlead.ui.pages import render
from fairlead.ui.pages.colours import NONE
from fairlead.ui.pages.node_map import Look, bar, gang_key, load_class, node_map
from fairlead.ui.reading.watched import NEWER_S
from fairlead.ui.serve import pages
from tests.support import ui
from tests.support.kube import VirtualTime
from tests.ui.test_scope import OTHERS, OWN, shared

from .markup import check

PAGE_MAX = 100_000


def racked(nodes, *, of=4, label="example.com/rack", waiting=4, **options):
    lists = ui.a_cluster(nodes, waiting=waiting, **options)
    for number, raw in enumerate(lists["nodes"]):
        raw["metadata"]["labels"][label] = f"r{number // of}"
    return lists


def evicted(lists, name, message="at 09:00"):
    """The gang of that name, now being evicted."""
    (raw,) = [each for each in lists["gangs"] if each["metadata"]["name"] == name]
    raw["status"]["conditions"] = [{"type": "Evicting", "status": "True", "message": message}]
    return raw


async def drawn(lists, scope=None, **options):
    facts = await ui.facts(lists, **options)
    facts = facts if scope is None else restrict(facts, scope)
    assert facts.hardware is not None
    return cluster(facts.hardware)


def look(*, by="queue", dense=False, **colours):
    return Look(choice=MapChoice(by=by), colours=colours, dense=dense)


async def page(lists, path="", **options):
    async with ui.pages(lists, **options) as reader:
        status, _, text = await reader.get(f"/map{path}")
        assert status == 200
        return check(text)


async def test_nodes_stand_by_model_and_rack_each_once_and_racks_in_their_order():
    lists = racked(25, of=2)
    groups = node_groups(await drawn(lists))
    assert [(each.model, each.rack) for each in groups][:3] == [
        ("A100-SXM4-80GB", "r2"),
        ("A100-SXM4-80GB", "r4"),
        ("A100-SXM4-80GB", "r7"),
    ]
    h100 = [each.rack for each in groups if each.model == "H100 80GB HBM3"]
    assert h100 == [f"r{at}" for at in range(12)], "r10 after r9; r12 is of the last node, which is an A100"
    names = [node.name for each in groups for node in each.nodes]
    assert sorted(names) == [f"node-{at:03}" for at in range(25)]
    assert sum(each.gpus for each in groups) == 200


@pytest.mark.parametrize(
    ("labels", "rack"),
    [
        ({"example.com/rack": "a", "topology.kubernetes.io/zone": "z"}, "a"),
        ({"topology.kubernetes.io/zone": "z"}, "z"),
        ({"nvidia.com/gpu.clique": "c", "topology.kubernetes.io/zone": "z"}, "c"),
        ({"rack": "plain"}, "plain"),
        ({"example.com/rack": ""}, ""),
        ({}, ""),
    ],
    ids=str,
)
async def test_the_rack_is_the_nearest_of_the_labels_that_a_node_has(labels, rack):
    lists = ui.a_cluster(1)
    lists["nodes"][0]["metadata"]["labels"] = labels
    assert (await drawn(lists)).nodes[0].rack == rack


async def test_nodes_without_a_rack_are_one_group_or_many_of_their_names_where_there_are_many():
    (a100, h100) = node_groups(await drawn(ui.a_cluster(10)))
    assert [each.rack for each in (a100, h100)] == ["", ""]
    many = [NodeView(name=f"n{at:04}", gpus=a100.nodes[0].gpus) for at in range(RACKS + 1)]
    view = type(await drawn(ui.a_cluster(1)))(nodes=tuple(many), counts={}, queues=())
    groups = node_groups(view)
    assert groups[0].rack == f"n0000 to n{TOGETHER - 1:04}"
    assert sum(len(each.nodes) for each in groups) == len(many)


async def test_a_gangs_name_is_written_across_its_cells_and_those_of_another_namespace_bear_none():
    lists = ui.a_cluster(1)
    node = node_map((await drawn(lists)).nodes[0], look())
    (label,) = node.labels
    assert (label.text, label.gang) == ("run-0", gang_key("team-0/run-0"))
    assert 'x="3"' in label.box
    assert {cell.gang for cell in node.cells} == {label.gang}
    other = node_map((await drawn(shared(), OWN)).nodes[1], look())
    assert (other.labels, {cell.gang for cell in other.cells}) == ((), {""})
    lists["gangs"][0]["metadata"]["name"] = "a-name-that-is-longer-than-eight-cells-are-wide-by-far"
    for raw in lists["pods"]:
        raw["metadata"]["annotations"]["fairlead.dev/gang"] = lists["gangs"][0]["metadata"]["name"]
    (label,) = node_map((await drawn(lists)).nodes[0], look()).labels
    assert label.text.startswith("a-name-that-is-longer")
    assert label.text.endswith("…")


async def test_colours_are_of_queues_gangs_or_utilisation_as_chosen():
    nodes = (await drawn(ui.a_cluster(3))).nodes
    by_queue = [node_map(node, look(**{"queue-0": "q4"})) for node in nodes]
    assert by_queue[0].cells[0].css == "q4 held"
    assert by_queue[1].cells[0].css == f"{NONE} held", "of a queue without a colour"
    by_gang = {node_map(node, look(by="gang")).cells[0].css for node in nodes}
    assert by_gang <= {f"q{at} {state}" for at in range(10) for state in ("held", "idle")}
    by_use = [node_map(node, look(by="utilisation")) for node in nodes]
    assert [each.cells[0].css for each in by_use] == ["load4 held", "load4 held", "load0 idle"]
    assert [load_class(percent) for percent in (None, 0, 19, 20, 99, 100)] == [NONE, "load0", "load0", "load1", "load4", "load4"]  # fmt: skip


async def test_the_page_links_each_colour_keeps_it_and_refuses_others():
    lists = ui.a_cluster(3)
    found = await page(lists, "?by=utilisation")
    chosen = [each.attributes["href"] for each in found.every("a") if each.attributes.get("aria-current") == "true"]
    assert chosen == ["/map?by=utilisation"]
    assert "80 to 100 %" in found.text
    assert {"/map", "/map?by=gang", "/map?by=utilisation&node=node-000#node"} <= set(found.links)
    assert "/gangs/team-0/run-0" in (await page(lists, "?by=gang")).links
    async with ui.pages(lists) as reader:
        status, _, text = await reader.get("/map?by=colour")
        assert status == 400
        assert "by: 'colour': there is queue, gang, utilisation" in check(text).text


async def test_a_gang_that_is_being_evicted_is_marked_on_each_of_its_cells_and_named_so():
    lists = ui.a_cluster(3)
    evicted(lists, "run-0")
    nodes = (await drawn(lists)).nodes
    marked = [[cell.pattern for cell in node_map(node, look()).cells] for node in nodes]
    assert marked[0] == ["evicting"] * 8
    assert "evicting" not in marked[1] + marked[2]
    assert "is being evicted" in node_map(nodes[0], look()).cells[0].title
    found = await page(lists, "?node=node-000")
    assert "held by a gang that is being evicted" in found.text
    assert "is being evicted" in next(each.text for each in found.every("table"))
    assert "is being evicted" not in (await page(ui.a_cluster(3))).text


async def test_a_mark_comes_and_goes_on_a_cluster_that_is_watched():
    lists = ui.a_cluster(3)
    (raw,) = [each for each in lists["gangs"] if each["metadata"]["name"] == "run-0"]
    calm = json.loads(json.dumps(raw))
    apiserver, time, memory = ui.Apiserver(lists), VirtualTime(ui.NOW), pages.Kept.new().memory
    async with ui.watched(apiserver, time) as source:
        for now, marks in ((calm, False), (evicted(lists, "run-0"), True), (calm, False)):
            apiserver.put("gangs", now)
            await time.advance(NEWER_S)
            facts = await source.facts()
            assert facts.hardware is not None
            for view in (cluster(facts.hardware, memory), cluster(facts.hardware)):
                assert view.nodes[0].gpus[0].holds[0].evicting is marks


async def test_from_many_nodes_on_neighbours_that_look_the_same_are_one_and_marks_stay():
    lists = ui.a_cluster(2, mig_every=0)
    nodes = (await drawn(lists)).nodes
    whole, part = (node_map(node, look(dense=True)) for node in nodes)
    assert [cell.css for cell in whole.cells] == [f"{NONE} held"]
    assert [(cell.css, cell.pattern) for cell in part.cells] == [(f"{NONE} held", ""), ("free", ""), ("broken", "broken")]  # fmt: skip
    assert (whole.labels, whole.outlines) == ((), ())
    assert all(f"node-{at:03}: 8 GPUs" in each.label for at, each in enumerate((whole, part)))
    lists = ui.empty() | {kind: ui.a_cluster(1)[kind] for kind in ("nodes", "resourceslices")}
    for at, name in enumerate(("a", "b")):
        ui.hold(lists, name, 0, "node-000", [f"gpu-{2 * at}", f"gpu-{2 * at + 1}"])
    of_two = node_map((await drawn(lists)).nodes[0], look(dense=True)).cells
    assert [cell.gang for cell in of_two] == [gang_key("team-0/a"), gang_key("team-0/b"), ""], "gangs stay apart"
    few, many = await page(racked(DENSE, mig_every=0)), await page(racked(DENSE + 1, mig_every=0))
    for found, dense in ((few, False), (many, True)):
        lists_of = [each for each in found.every("ul") if "nodes" in each.attributes.get("class", "").split()]
        assert {"dense" in each.attributes["class"] for each in lists_of} == {dense}
        assert len(lists_of) == -(-(DENSE + dense) // 4)


async def test_a_bar_of_a_rack_has_all_its_gpus_by_colour():
    view = await drawn(ui.a_cluster(5))
    parts = bar(view.nodes, look(**{f"queue-{at}": f"q{at}" for at in range(5)}))
    counts = Counter({str(css): round(percent * 40 / 100) for css, percent in parts})
    assert sum(counts.values()) == 40
    assert (counts["q0 held"], counts["broken"]) == (8, 1)
    assert sum(percent for _, percent in parts) == pytest.approx(100, abs=0.1)
    assert [css for css, _ in parts][-2:] == ["broken", "free"], "what is held stands first"


@pytest.fixture(scope="module")
def thousands():
    return racked(RACKS + 1, of=20, waiting=0)


@pytest.mark.slow
async def test_at_thousands_of_nodes_the_map_is_an_overview_by_rack_and_a_rack_opens(thousands):
    async with ui.pages(thousands) as reader:
        _, _, text = await reader.get("/map")
        found = check(text)
        racks = [address for address in found.links if "group=" in address]
        assert len(racks) == 2 * (RACKS // 20) + 1, "each rack of each model"
        assert not [address for address in found.links if "node=" in address]
        assert f"{8 * (RACKS + 1)} GPUs on {RACKS + 1} nodes" in found.text
        opened = check((await reader.get(racks[0]))[2])
        nodes = [address for address in opened.links if "node=" in address]
        assert 0 < len(nodes) <= 20
        assert all("group=" in address for address in nodes), "it stays open"
        assert "/map" in opened.links
        gone = check((await reader.get("/map?group=none%2Fnone"))[2])
        assert "No nodes stand together as none/none now" in gone.text


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", "?by=gang", "?by=utilisation"])
async def test_a_map_of_500_nodes_is_small(query):
    lists = racked(500, of=16, waiting=0)
    async with ui.pages(lists) as reader:
        _, _, text = await reader.get(f"/map{query}")
    assert len(gzip.compress(text.encode(), 6)) < PAGE_MAX / 4, "and as much again for all that it loads"
    check(text)


@pytest.mark.parametrize("query", [{}, {"by": "gang"}, {"by": "utilisation"}, {"node": "node-001", "by": "gang"}])
async def test_a_viewer_of_one_namespace_sees_nothing_of_others_on_the_map(query):
    lists = shared()
    evicted(lists, "run-1", "for team-2/secret")
    evicted(lists, "run-0")
    facts = await ui.facts(lists)
    assert "team-1/run-1" in pages.map_(facts, query, json=False).text
    for json_ in (False, True):
        text = pages.map_(restrict(facts, OWN), query, json=json_).text
        assert not OTHERS.findall(text)
        assert gang_key("team-1/run-1") not in text
        assert ("run-0" in text) or json_
    del next(raw for raw in lists["gangs"] if raw["metadata"]["name"] == "run-0")["status"]["conditions"]
    calm = await ui.facts(lists)
    legend = "held by a gang that is being evicted"
    assert legend in pages.map_(calm, query, json=False).text
    assert legend not in pages.map_(restrict(calm, OWN), query, json=False).text
    evicted(lists, "run-0")
    view = await drawn(lists, OWN)
    marks = {node.name for node in view.nodes for gpu in node.gpus for hold in gpu.holds if hold.evicting}
    assert marks == {"node-000"}, "not that another's gang is being evicted"


@pytest.mark.parametrize("racks", [RACKS, 2], ids=["nodes", "racks"])
async def test_the_map_is_the_same_with_what_was_kept_of_the_last_one(monkeypatch, racks):
    monkeypatch.setattr(render, "RACKS", racks)
    apiserver, times, kept = ui.Apiserver(racked(6)), ui.Times(), pages.Kept.new()
    source = ui.source(apiserver, times)
    for change in range(3):
        if change:
            apiserver.put("nodes", ui.node(f"node-00{change}", ready=False))
        times.now += 10
        facts = await source.facts()
        fresh = await ui.source(apiserver, times).facts()
        for query in ({}, {"by": "gang"}, {"node": "node-001"}, {"group": "H100 80GB HBM3/r0"}):
            shown, other = pages.map_(facts, query, json=False, kept=kept), pages.map_(fresh, query, json=False)
            assert re.sub(r"\s+", " ", shown.text) == re.sub(r"\s+", " ", other.text)
