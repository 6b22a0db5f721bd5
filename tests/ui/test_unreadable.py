"""A gang, queue, pod or claim that cannot be read: it is named where it can be, and every page, list and JSON has all others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlead.cli.views import gangs as gang_list
from fairlead.cli.views import queues as queue_list
from fairlead.ui.model import gangs, holders, plain_pods, queues, runs
from fairlead.ui.model.explanations import queue_explanation
from fairlead.ui.model.facts import Facts, Holder, Past
from fairlead.ui.model.scope import Redaction, Scope, restrict
from tests.controller.report.series import allocated
from tests.support import ui

from .markup import check

SAID = "it cannot be shown (TypeError: unhashable type: 'dict'); the others are"


def failing(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, bad: str) -> None:
    """That function raises for an object that is called so."""
    true = getattr(where, name)

    def broken(*arguments: Any, **more: Any) -> Any:
        metadata = [
            each["metadata"]["name"] if isinstance(each, dict) else getattr(getattr(each, "metadata", None), "name", "")
            for each in arguments
        ]
        if bad in metadata:
            raise TypeError("unhashable type: 'dict'")
        return true(*arguments, **more)

    monkeypatch.setattr(where, name, broken)


def gang(name: str, **status: Any) -> dict[str, Any]:
    meta = {
        "namespace": "ml",
        "name": name,
        "uid": name,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": meta, "spec": {"size": 1}, "status": {"phase": "Waiting", "queue": "team", **status}}


async def test_every_page_shows_the_others_and_names_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    apiserver = ui.Apiserver(ui.a_cluster())
    names = [raw["metadata"]["name"] for raw in apiserver.lists["gangs"]]
    bad, *others = names
    queue_names = [raw["metadata"]["name"] for raw in apiserver.lists["queues"]]
    failing(monkeypatch, gangs, "_line", bad)
    failing(monkeypatch, runs, "_waiting", bad)
    failing(monkeypatch, queues, "_line", queue_names[0])
    async with ui.reader(ui.source(apiserver)) as reader:
        for path in ("/", "/map", "/queues", "/gangs", "/time", *(f"/queues/{name}" for name in queue_names[1:])):
            status, _, text = await reader.get(path)
            assert status == 200, path
            check(text)
        listed = {each["name"]: each for each in json.loads((await reader.get("/gangs?format=json"))[2])}
        assert set(names) <= listed.keys()
        assert (listed[bad]["phase"], listed[bad]["why"]) == ("Unknown", SAID)
        assert all(listed[name]["phase"] != "Unknown" for name in others)
        assert bad in check((await reader.get("/gangs"))[2]).text
        tree = {each["name"]: each for each in json.loads((await reader.get("/queues?format=json"))[2])}
        assert tree.keys() == set(queue_names)
        assert [name for name, each in tree.items() if each["problem"] == SAID] == [queue_names[0]]


def test_lists_of_the_command_line_print_the_others_and_name_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, gangs, "_line", "bad")
    failing(monkeypatch, plain_pods, "_line", "bad-pod")
    lines = [gangs.line(gang(name), now=0.0) for name in ("a", "bad", "c")]
    lines.append(plain_pods.line({"metadata": {"namespace": "ml", "name": "bad-pod"}}, now=0.0))
    cells = [[cell.text for cell in row] for row in gang_list.rows(gangs.order(lines))]
    assert [row[1] for row in cells] == ["a", "c", "bad", "bad-pod"]
    assert [row[-1] for row in cells[2:]] == [f"CannotBeShown: {SAID}"] * 2
    failing(monkeypatch, queues, "_line", "broken")
    tree = queues.tree([{"metadata": {"name": name}} for name in ("broken", "fine")])
    assert [row[0].text for row in queue_list.rows(tree)] == ["broken", "fine"]
    explained = queue_explanation({"metadata": {"name": "team"}}, [gang(name) for name in ("a", "bad", "c")], now=0.0)
    assert [each.lines for each in explained.parts if each.title == "Waiting, in order"] == [
        ("-. ml/a (): ", "-. ml/c (): ")
    ]


def test_times_and_holders_have_the_others_and_the_one_without_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, runs, "_waiting", "bad")
    found = list(runs.waiting([gang("a"), gang("bad"), gang("c")], at=5.0))
    assert [(each.gang, each.queue, each.end) for each in found] == [
        ("ml/a", "team", None),
        ("ml/bad", "", None),
        ("ml/c", "team", None),
    ]
    claims = tuple(allocated(number) for number in range(3))
    failing(monkeypatch, holders, "holder", "c1")
    held = holders.holders(claims, (), ())
    assert held == {"u0": Holder(), "u1": Holder(), "u2": Holder()}
    failing(monkeypatch, runs, "_pieces_of", "c1")
    now = runs.runs(Facts(at=5.0, claims=claims), Past(), since=0.0)
    assert sorted(each.gang for each in now) == ["ml/c0", "ml/c1", "ml/c2"]


def test_of_what_cannot_be_redacted_no_text_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, Redaction, "object", "bad")
    scope = Scope(namespaces=frozenset({"ml"}), cluster=False, queues=False)
    shown = restrict(Facts(at=0.0, gangs=(gang("a", message="x"), gang("bad", message="held by blue/secret"))), scope)
    assert [raw["status"] for raw in shown.gangs] == [{"phase": "Waiting", "queue": "team", "message": "x"}, {}]
