"""Finding a gang, a queue or a node by a part of its name: to the one thing that is meant, or a list of what may be."""

import json
from urllib.parse import quote

import pytest

from fairlead.ui.model.scope import Scope, restrict
from fairlead.ui.model.search import SHOWN_MAX
from fairlead.ui.serve import pages
from tests.support import ui

from .markup import check
from .test_scope import OTHERS, shared

OWN = Scope(namespaces=frozenset({"team-0"}), cluster=True, queues=True)
NARROW = Scope(namespaces=frozenset({"team-0"}), cluster=False, queues=False)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("team-0/wait-00000", "/gangs/team-0/wait-00000"),
        (" Wait-00000 ", "/gangs/team-0/wait-00000"),
        ("00003", "/gangs/team-3/wait-00003"),
        ("run-1", "/gangs/team-1/run-1"),  # and run-10, run-11
        ("queue-3", "/queues/queue-3"),
        ("all", "/queues/all"),
        ("node-004", "/map?node=node-004#node"),
    ],
)
async def test_what_alone_is_meant_is_led_to(text, address):
    async with ui.pages(ui.a_cluster(12, waiting=6)) as reader:
        status, headers, _ = await reader.get(f"/search?q={quote(text)}")
        assert (status, headers["Location"], headers["Cache-Control"]) == (303, address, "no-store")


async def test_of_several_there_is_a_list_and_of_none_a_sentence():
    async with ui.pages(ui.a_cluster(12, waiting=6)) as reader:
        status, _, text = await reader.get("/search?q=0")
        page = check(text)
        assert status == 200
        assert [each.text for each in page.every("h2")] == ["Gangs", "Queues", "Nodes"]
        assert {"/gangs/team-0/run-10", "/queues/queue-0", "/map?node=node-010#node"} <= set(page.links)
        status, _, text = await reader.get("/search?q=%3Cb%3Enothing")
        assert (status, "No gang, queue or node that you may see has <b>nothing" in check(text).text) == (200, True)
        for path in ("/search", "/search?q=", "/search?q=%20"):
            status, _, text = await reader.get(path)
            assert (status, "Write a part of a name" in check(text).text) == (200, True)
        status, headers, text = await reader.get("/search?q=run-1&format=json")
        assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
        assert json.loads(text)["only"] == ["gang", "team-1/run-1"]
        assert json.loads(text)["hits"][0]["names"][0] == "team-1/run-1"


async def test_a_long_list_says_how_many_more_there_are():
    lists = ui.empty()
    lists["gangs"] = [ui.gang(f"g-{at}", "x") for at in range(SHOWN_MAX + 7)]
    shown = pages.search(await ui.facts(lists), "g-", json=False)
    assert not isinstance(shown, str)
    assert "7 more: write more of the name" in check(shown.text).text


@pytest.mark.parametrize("scope", [OWN, NARROW], ids=["with nodes and queues", "namespace alone"])
async def test_a_viewer_of_one_namespace_finds_nothing_of_another(scope):
    facts = await ui.facts(shared())
    seen = restrict(facts, scope)
    assert pages.search(facts, "secret-gang", json=False) == "/gangs/team-3/secret-gang"
    for text in ("secret", "team-3", "run-1", "mig", "0", "-"):
        for as_json in (False, True):
            shown = pages.search(seen, text, json=as_json)
            said = shown if isinstance(shown, str) else shown.text
            said = said.replace(text, "") if len(text) > 1 else said  # what the address itself holds
            assert not OTHERS.findall(said)
            if not scope.queues:
                assert "queue-1" not in said
                assert "node-001" not in said
