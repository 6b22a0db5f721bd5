"""What rules, drivers and nodes keep from new claims, on the map: as broken where it is free, and as held, crossed, where a gang goes on."""

import json

import pytest

from fairlead.kube.resources import DEVICE_TAINT_RULE_VERSIONS
from fairlead.ui.model.cluster import Memory, cluster
from fairlead.ui.pages.pictures import node_map, summary
from fairlead.ui.reading.live import FRESH_S
from fairlead.ui.reading.watched import NEWER_S
from tests.support import ui
from tests.support.engine.objects import gpu, slice_of
from tests.support.kube import VirtualTime

from .markup import check


def one_node(*devices, **node):
    lists = ui.empty()
    lists["nodes"] = [ui.node("n", **node)]
    lists["resourceslices"] = slice_of("n", list(devices))
    return lists


def seen(facts, memory=None):
    assert facts.hardware is not None
    return cluster(facts.hardware, memory).nodes[0]


def told(node):
    return [(each.state, each.note) for each in node.gpus]


DRAINED = "drained; see fairlead device list"


@pytest.mark.parametrize("version", DEVICE_TAINT_RULE_VERSIONS)
async def test_a_gpu_that_a_rule_drains_is_not_shown_as_free_by_lists(version):
    apiserver, times = ui.Apiserver(one_node(gpu(0), gpu(1)), rules=version), ui.Times()
    rule = apiserver.put("devicetaintrules", ui.drained("n", "gpu-1"))
    source, memory = ui.source(apiserver, times), Memory()
    assert told(seen(await source.facts(), memory)) == [("free", ""), ("drained", DRAINED)]
    apiserver.delete("devicetaintrules", rule)
    times.now += FRESH_S
    assert told(seen(await source.facts(), memory)) == [("free", ""), ("free", "")]


async def test_a_gpu_that_a_rule_drains_is_not_shown_as_free_by_watches():
    apiserver, time = ui.Apiserver(one_node(gpu(0), gpu(1)), rules="v1"), VirtualTime(ui.NOW)
    rule = apiserver.put("devicetaintrules", ui.drained("n", "gpu-0"))
    memory = Memory()
    async with ui.watched(apiserver, time) as source:
        assert told(seen(await source.facts(), memory)) == [("drained", DRAINED), ("free", "")]
        apiserver.put("devicetaintrules", ui.drained("n", "gpu-1"))
        apiserver.delete("devicetaintrules", rule)
        await time.advance(NEWER_S)
        assert told(seen(await source.facts(), memory)) == [("free", ""), ("drained", DRAINED)]


async def test_without_the_right_to_list_rules_the_map_says_what_it_lacks():
    apiserver = ui.Apiserver(one_node(gpu(0)), rules="v1", refused=["devicetaintrules"])
    apiserver.put("devicetaintrules", ui.drained("n", "gpu-0"))
    async with ui.reader(ui.source(apiserver)) as reader:
        status, _, text = await reader.get("/map")
        assert status == 200
        assert "you may not list devicetaintrules.resource.k8s.io" in check(text).text
    async with ui.watched(apiserver) as source:
        facts = await source.facts()
        assert told(seen(facts)) == [("free", "")]
        assert "is shown as one without it" in facts.refused["devicetaintrules"]


@pytest.mark.parametrize("idle", [False, True])
async def test_a_gang_goes_on_on_a_gpu_that_is_drained_and_the_map_shows_both(idle):
    lists = one_node(gpu(0), gpu(1))
    ui.hold(lists, "a", 0, "n", ["gpu-0"], idle=idle)
    lists["devicetaintrules"] = [ui.drained("n", "gpu-0"), ui.drained("n", "gpu-1")]
    source, state = ui.source(ui.Apiserver(lists, rules="v1")), "idle" if idle else "held"
    node = seen(await source.facts())
    assert told(node) == [(state, DRAINED), ("drained", DRAINED)]
    assert summary(node) == f"n: 2 GPUs, 1 {state}, 1 drained"
    drawn = node_map(node, {"queue-0": "q0"}, cell=16)
    assert [(cell.css, cell.pattern) for cell in drawn.cells] == [(f"q0 {state}", "broken"), ("drained", "drained")]
    assert drawn.cells[0].title.startswith(f"gpu-0: {state}, gang team-0/a (queue queue-0), claim team-0/a-0-gpu")
    assert drawn.cells[0].title.endswith(f"; {DRAINED}")
    assert drawn.cells[1].title == f"gpu-1: drained, {DRAINED}"
    async with ui.reader(source) as reader:
        page = check((await reader.get("/map?node=n"))[2]).text
        assert "cross over a colour held, and takes no new claim" in page
        counts = json.loads((await reader.get("/map?format=json"))[2])["counts"]
        assert (counts[state], counts["drained"], counts["free"]) == (1, 1, 0)


async def test_on_a_node_that_is_cordoned_what_is_held_is_held():
    lists = one_node(gpu(0), gpu(1))
    lists["nodes"][0]["spec"]["unschedulable"] = True
    ui.hold(lists, "a", 0, "n", ["gpu-0"])
    node = seen(await ui.facts(lists))
    assert told(node) == [("held", "the node is cordoned"), ("drained", "the node is cordoned")]
