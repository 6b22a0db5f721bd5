"""Every page: well formed, reachable by keyboard, without a script; and names from the cluster are text whatever they hold."""

import copy
import json
from dataclasses import asdict
from urllib.parse import unquote, urlsplit

import pytest

from fairlead.ui.model import explanations, gangs, plain_pods, queues
from fairlead.ui.model.time_chart import Choice
from fairlead.ui.pages import render
from fairlead.ui.serve import pages
from tests.support import ui
from tests.support.pasts import a_past, span, wait

from .markup import Page, check

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "</title></svg></textarea><b>",
    "&lt;b&gt;&#x3c;i>",
    "../../etc/passwd?x=1#y",
    "//evil.example/",
    "a\u202eb\u2066c\u200fd",
]


def every_page(facts, gang=("team-0", "wait-00000"), node="node-004", queue="queue-0"):
    namespace, name = gang
    past = a_past(
        span(name, 5, 1, namespace=namespace, queue=queue, node=node), waits=(wait(name, 6, 5, namespace=namespace),)
    )
    return {
        "time": pages.time(facts, past, Choice(), json=False),
        "queue": pages.one_queue(facts, facts, past, queue, "24h", json=False),
        "past": pages.one_gang(facts, *gang, json=False, past=past),
        "overview": pages.overview(facts, json=False),
        "map": pages.map_(facts, {}, json=False),
        "node": pages.map_(facts, {"node": node}, json=False),
        "no node": pages.map_(facts, {"node": "none"}, json=False),
        "queues": pages.queue_tree(facts, {}, json=False),
        "gangs": pages.gangs(facts, {}, json=False),
        "chosen": pages.gangs(facts, {"queue": "queue-1", "text": "wait", "page": "1"}, json=False),
        "gang": pages.one_gang(facts, *gang, json=False),
        "no gang": pages.one_gang(facts, "team-0", "wait-0000", json=False),
        "wrong": pages.gangs(facts, {"sort": "x"}, json=False),
        "away": pages.away("the cluster does not answer", json=False),
    }


async def test_every_page_is_well_formed_and_each_control_has_a_name():
    facts = await ui.facts(ui.a_cluster(12, waiting=250))
    status = {name: shown.status for name, shown in every_page(facts).items()}
    assert status == dict.fromkeys(status, 200) | {"no gang": 404, "wrong": 400, "away": 503}
    for name, shown in every_page(facts).items():
        page = check(shown.text)
        assert "<" not in page.text, f"{name}: markup is shown as text"


async def test_no_page_shows_a_mark_of_its_live_elements():
    """What a macro returns has lost them: they would be shown, and the elements not replaced one by one."""
    for where, shown in every_page(await ui.facts(ui.a_cluster(6, waiting=4))).items():
        assert "\N{REPLACEMENT CHARACTER}" not in shown.text, where


async def test_an_empty_cluster_has_pages_that_say_what_to_do():
    facts = await ui.facts(ui.empty())
    found = {name: check(shown.text).text for name, shown in every_page(facts).items()}
    assert "No devices are published" in found["map"]
    assert "No queues: every gang waits in one line" in found["queues"]
    assert "No gangs: no pod that you may see asks for devices" in found["gangs"]


def hostile(name):
    """A cluster in which everything is called that."""
    lists = ui.a_cluster(5, waiting=2)
    made = copy.deepcopy(lists)
    made["queues"] = [ui.queue(name), ui.queue(f"{name}2", parent=name)]
    for kind in ("gangs", "pods", "resourceclaims"):
        for raw in made[kind]:
            raw["metadata"]["namespace"] = name
    for raw in made["gangs"]:
        raw["status"] |= {"queue": name, "nodes": [name], "reservedNodes": [name], "reason": name, "message": name}
        if raw["status"].get("phase") == "Waiting":
            raw["status"]["asks"] = [name]
        if "why" in raw["status"]:
            raw["status"]["why"] |= {"message": name, "advice": name, "details": [name], "blockers": [name]}
            raw["status"]["why"]["holders"] = [{"gang": f"{name}/{name}", "queue": name, "devices": 1}]
    made["gangs"].append(ui.gang(name, name, queue=name))
    made["nodes"][0]["metadata"]["name"] = name
    for raw in made["resourceslices"]:
        if raw["spec"]["nodeName"] == "node-000":
            raw["spec"]["nodeName"] = name
        for device in raw["spec"].get("devices", ()):
            device["attributes"]["productName"] = {"string": name}
    made["queues"][0]["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": name}]
    return made


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
async def test_names_are_text_whatever_they_hold(name):
    usual = every_page(await ui.facts(ui.a_cluster(5, waiting=2)))
    tags = {each.tag for shown in usual.values() for each in Page(shown.text).elements}
    facts = await ui.facts(hostile(name))
    shown_pages = every_page(facts, gang=(name, "wait-00000"), node=name, queue=name) | {
        "itself": pages.one_gang(facts, name, name, json=False),
        "searched": pages.gangs(facts, {"text": name, "queue": name, "namespace": name}, json=False),
        "not there": pages.one_gang(facts, "x", name, json=False),
        "said": pages.away(name, json=False),
    }
    shown_name = render.visible(name)
    for where, shown in shown_pages.items():
        page = check(shown.text)
        assert {each.tag for each in page.elements} <= tags | {"bdi"}, where
        assert not any(hidden in shown.text for hidden in "\u202e\u2066\u200f"), where
    assert shown_name in check(shown_pages["gang"].text).text
    assert shown_name in check(shown_pages["queues"].text).text
    links = [address for address in check(shown_pages["gang"].text).links if address.startswith("/gangs/")]
    assert [unquote(urlsplit(address).path) for address in links] == [f"/gangs/{name}/{name}"]
    assert all(not urlsplit(address).netloc for address in links)


async def test_the_json_of_queues_gangs_and_a_gang_is_what_the_command_line_prints():
    lists = ui.a_cluster(6, waiting=4)
    facts = await ui.facts(lists)
    of_cli = [
        *(gangs.line(raw, now=ui.NOW) for raw in lists["gangs"]),
        *plain_pods.lines(lists["pods"], lists["gangs"], now=ui.NOW),
    ]
    assert (
        pages.gangs(facts, {}, json=True).text
        == json.dumps([asdict(each) for each in gangs.order(of_cli)], indent=2) + "\n"
    )
    tree = [asdict(each) for each in queues.tree(lists["queues"])]
    assert pages.queue_tree(facts, {}, json=True).text == json.dumps(tree, indent=2) + "\n"
    (raw,) = [raw for raw in lists["gangs"] if raw["metadata"]["name"] == "wait-00002"]
    explained = asdict(explanations.gang_explanation(raw, now=ui.NOW))
    assert pages.one_gang(facts, "team-2", "wait-00002", json=True).text == json.dumps(explained, indent=2) + "\n"


async def test_a_gangs_page_says_first_what_it_does_then_what_blocks_it_and_folds_the_rest():
    page = check(pages.one_gang(await ui.facts(ui.a_cluster(2)), "team-0", "wait-00000", json=False).text)
    first = next(each.text for each in page.every("p") if each.attributes.get("id") == "summary")
    assert first == "Waits 15m. Starts about 08:10:00 UTC (in 10m)."
    titles = [each.text for each in page.every("h2")]
    assert titles[:3] == ["What blocks it", "What would change it", "Devices it could use are held by"]
    assert [each.text for each in page.every("summary")] == ["In detail", "Why nothing is evicted for it"]
    assert {"Pods", "Waited"} <= {each.text for each in page.every("dt")}
