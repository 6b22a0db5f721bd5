"""The page of costs: the command's figures, as a page, JSON and CSV; what a viewer of some namespaces gets; bad questions."""

import csv
import io
import json
from fractions import Fraction

import pytest

from fairlead.cli.cost import reading
from fairlead.history.cost import bill as bills
from fairlead.history.cost.bill import Asked
from fairlead.history.cost.window import CostError, Known, Window
from fairlead.kube.timestamps import DAY_US
from fairlead.ui.model import costs
from fairlead.ui.model.scope import EVERYTHING, Scope, restrict
from fairlead.ui.reading.cluster import NotReadError
from fairlead.ui.reading.ledger import Ledger
from fairlead.ui.serve import pages
from tests.support import ui
from tests.support.commands import invoke
from tests.support.costs import BOOK, D1, DAY, at, price_of
from tests.support.ledger_in_memory import Ledger as InMemory
from tests.support.ledger_in_memory import allocation, interval

from .markup import check

DAY_1 = "2026-11-01..2026-11-02"
FLAVORS = [
    {
        "apiVersion": "fairlead.dev/v1alpha1",
        "kind": "Flavor",
        "metadata": {"name": "h100"},
        "spec": {
            "deviceSelector": "true",
            "price": [
                {"perHour": "3.00", "currency": "EUR"},
                {"perHour": "4.00", "currency": "EUR", "from": "2026-11-01T12:00:00Z"},
            ],
        },
    }
]
VISION = Scope(namespaces=frozenset({"vision"}), cluster=True, queues=True)


async def flavors():
    return FLAVORS


def ledger(intervals=DAY, prices=flavors):
    return Ledger("day", open_=lambda where: InMemory(intervals), flavors=prices, wall=lambda: (D1 + 2 * DAY_US) / 1e6)


def served(**options):
    return ui.reader(ui.source(ui.Apiserver(ui.a_cluster())), ledger(**options))


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"by": "gang,claim,day"},
        {"by": "namespace", "where": "queue=ml"},
        {"basis": "utilised", "idle": "queue"},
        {"idle": "shared", "by": "user"},
    ],
)
async def test_the_json_and_the_csv_are_those_of_the_command(asked, monkeypatch, tmp_path):
    file = tmp_path / "flavors.json"
    file.write_text(json.dumps({"items": FLAVORS}))
    monkeypatch.setattr(reading, "open_reader", lambda where: InMemory(DAY))
    monkeypatch.setattr(reading, "now_s", lambda: (D1 + 2 * DAY_US) / 1e6)
    words = [word for name, value in asked.items() for word in (f"--{name}", value)]
    common = ["cost", "--window", DAY_1, "--flavors", str(file), "--ledger", "day", *words]
    query = "&".join(f"{name}={value}" for name, value in {"window": DAY_1, **asked}.items())
    async with served() as reader:
        printed = invoke([*common, "-o", "json"]).stdout
        assert (await reader.get(f"/cost?{query}", Accept="application/json"))[2] == printed
        status, headers, text = await reader.get(f"/cost?{query}&format=csv")
        assert (status, headers["Content-Type"]) == (200, "text/csv; charset=utf-8")
        assert text == invoke([*common, "-o", "csv"]).stdout


async def test_the_page_has_the_lines_of_the_bill_and_their_total():
    async with served() as reader:
        status, _, text = await reader.get(f"/cost?window={DAY_1}")
        page = check(text)
        assert status == 200
        rows = ["".join(each.text.split()) for each in page.every("tr")]
        assert any(row.startswith("webwhatitismadeof24.023.00.01.00.024.084.00EUR84.00EUR") for row in rows)
        assert "(free)14.050.00EUR50.00EUR" in rows
        cells = [each.attributes.get("data-name") for each in page.every("td") if each.text == "50.00 EUR"]
        assert cells == ["allocated cost", "uncharged", "uncharged"], "of the line, and in the total"
        assert any(row.startswith("Total48.0") and row.endswith("168.00EUR118.00EUR50.00EUR") for row in rows)
        assert "nobody is charged" in page.text
        assert "used 64.6 %, idle 4.2 %" in page.text
        assert "/queues/ml" in page.links
        assert "/cost?by=namespace&window=2026-11-01..2026-11-02&where=queue%3Dml" in page.links


async def test_a_line_is_opened_down_to_its_claims():
    async with served() as reader:
        path, seen = f"/cost?window={DAY_1}", []
        while path:
            _, _, text = await reader.get(path)
            page = check(text)
            seen.append(path)
            path = next((each.attributes["href"] for each in page.every("a") if each.text == "what it is made of"), "")
        assert len(seen) == 4
        assert seen[-1].startswith("/cost?by=claim&")
        assert "b" in [" ".join(each.text.split()) for each in page.every("td")]


async def test_a_viewer_of_one_namespace_gets_its_lines_and_no_name_of_another():
    intervals = [*DAY, interval(2, "used", at(0), at(2), claim=allocation("secret", gang="spy", namespace="hid", queue="q9", user="eve", tier="x"))]  # fmt: skip
    for by in ("queue", "namespace", "user", "gang", "claim", "flavor", "node", "device", "day"):
        choice = costs.Choice.of([("by", by), ("idle", "shared")], VISION)
        made = bills.make(InMemory(intervals), BOOK, choice.asked, Known(Window(D1, D1 + DAY_US)))
        whole = bills.make(
            InMemory(intervals), BOOK, Asked(by=choice.asked.by, idle="shared"), Known(Window(D1, D1 + DAY_US))
        )
        assert made.lines
        assert sum(price_of(made).values()) < sum(price_of(whole).values())
        facts = await ui.facts(ui.empty())
        texts = [pages.cost(facts, made, choice, json=as_).text for as_ in (True, False)]
        for text in texts:
            for other in ("secret", "spy", "hid/", ">hid<", '"hid"', "q9", "eve", "web", "shop", "serve"):
                assert other not in text, (by, other)
        assert "deviceTime" not in texts[0]
        assert "All device time" not in texts[1]
    with pytest.raises(CostError, match=r"no claim of the window has that label; its claims have none"):
        bills.make(
            InMemory(intervals),
            BOOK,
            Asked(by=("label=tier",), namespaces=VISION.namespaces),
            Known(Window(D1, D1 + DAY_US)),
        )


async def test_a_charge_does_not_depend_on_who_looks():
    whole = bills.make(InMemory(DAY), BOOK, Asked(idle="shared"), Known(Window(D1, D1 + DAY_US)))
    part = bills.make(
        InMemory(DAY), BOOK, Asked(idle="shared", namespaces=frozenset({"vision"})), Known(Window(D1, D1 + DAY_US))
    )
    charged = {line.keys: line.charged for line in whole.lines}
    assert [line.charged for line in part.lines] == [charged["ml",]]
    assert part.charged["EUR"] < whole.charged["EUR"] == Fraction(118)
    assert (part.uncharged, whole.uncharged) == ({}, {"EUR": Fraction(50)})


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("by=colour", "no such group"),
        ("window=soon", "it is no window"),
        ("window=dates&from=2026-11-01", "from, to: choose both dates, or another window"),
        ("window=dates&from=2026-11-02&to=2026-11-01", "it ends before it begins"),
        ("where=ml", "write KEY=VALUE"),
        ("basis=x", "--basis x: there is allocated, utilised"),
        ("by=label=none", "no claim of the window has that label"),
        ("window=2020-01-01..2020-02-01", "the ledger has nothing of"),
        ("window=900d", "a page shows 100 days at most"),
    ],
)
async def test_a_bad_question_has_one_clear_answer(query, said):
    async with served() as reader:
        status, _, text = await reader.get(f"/cost?{query}")
        assert (status, said in check(text).text) == (400, True)
        status, _, text = await reader.get(f"/cost?{query}", Accept="application/json")
        assert status == 400
        assert said in json.loads(text)["message"]


async def test_nodes_need_the_right_to_list_them():
    with pytest.raises(CostError, match="--by node: nodes: you may not list them"):
        costs.Choice.of([("by", "node")], Scope(namespaces=None, cluster=False, queues=True))
    assert costs.Choice.of([("by", "node")], EVERYTHING).asked.by == ("node",)


async def test_without_a_ledger_the_page_says_what_to_do():
    async with ui.pages() as reader:
        status, _, text = await reader.get("/cost")
        assert status == 200
        assert "fairlead ui --ledger DIR|URL" in check(text).text
        assert (await reader.get("/cost?format=json"))[0] == 404


async def test_prices_that_cannot_be_read_are_said():
    async def refused():
        raise NotReadError("you may not list flavors.fairlead.dev")

    async with served(prices=refused) as reader:
        status, _, text = await reader.get("/cost")
        assert (status, "you may not list flavors.fairlead.dev" in check(text).text) == (503, True)


async def test_names_are_text_and_no_formula():
    name = '=<script>alert("x")</script>'
    held = interval(0, "used", at(0), at(24), claim=allocation(name, gang=name, queue=name, namespace=name, user=name))
    for by in ("queue", "gang", "claim", "user", "namespace"):
        async with served(intervals=[held]) as reader:
            _, _, text = await reader.get(f"/cost?by={by}&window={DAY_1}")
            check(text)
            assert "<script>alert" not in text
            rows = csv.DictReader(io.StringIO((await reader.get(f"/cost?by={by}&window={DAY_1}&format=csv"))[2]))
            assert [row[by] for row in rows] == [f"'{name}"]


async def test_a_bill_is_chosen_from_lists():
    async with served() as reader:
        _, _, text = await reader.get(f"/cost?window={DAY_1}&by=gang&by=day&basis=utilised&where=queue%3Dml")
        page = check(text)
        assert {each.attributes.get("type") for each in page.every("input")} == {"date", "hidden"}, "nothing is typed"
        options = page.every("option")
        chosen = [each.text for each in options if "selected" in each.attributes]
        assert chosen == ["gang", "day", "from … to …", "utilised time", "its holder"]
        assert [each.attributes["value"] for each in page.every("input")] == ["2026-11-01", "2026-11-02", "queue=ml"]
        assert [each.attributes.get("value") for each in options if each.attributes.get("value", "").startswith("queue=")] == [
                "queue=all", *(f"queue=queue-{number}" for number in range(5)),
        ]  # fmt: skip
        assert "namespace=team-0" in [each.attributes.get("value") for each in options]
        sent = "/cost?by=queue&by=&window=dates&from=2026-11-01&to=2026-11-02&basis=allocated&idle=holder&where="
        status, _, form = await reader.get(sent)
        assert (status, check(form).text) == (200, check((await reader.get(f"/cost?window={DAY_1}"))[2]).text)
        _, _, text = await reader.get("/cost?window=2026-11-01T06:00:00Z..2026-11-01T12:00:00Z&by=queue")
        chosen = [each.text for each in check(text).every("option") if "selected" in each.attributes]
        assert chosen[1] == "2026-11-01T06:00:00Z..2026-11-01T12:00:00Z", "what an address asks for stays"


async def test_the_form_offers_nothing_that_the_viewer_may_not_see():
    choice = costs.Choice.of([("by", "queue")], VISION)
    everything = await ui.facts(ui.a_cluster())
    scope = Scope(namespaces=frozenset({"team-1"}), cluster=False, queues=True)
    made = bills.make(InMemory(DAY), BOOK, choice.asked, Known(Window(D1, D1 + DAY_US)))
    page = check(pages.cost(restrict(everything, scope), made, choice, json=False).text)
    values = {each.attributes.get("value", each.text) for each in page.every("option")}
    assert "namespace=team-1" in values
    assert not values & {"namespace=team-0", "node", "device", "unit"}
