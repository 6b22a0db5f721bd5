"""The tree of queues: one scale, the use of a day, holds, and links to what waits; and the gangs of a queue's page."""

import re

import pytest

from fairlead.ui.model.facts import Past
from fairlead.ui.model.queue_history import SPARK_POINTS, day_of_use
from fairlead.ui.model.queues import tree
from fairlead.ui.model.scope import Scope, restrict
from fairlead.ui.pages.pictures import ROOM, SPARK_HEIGHT, WIDTH, bars, sparks
from fairlead.ui.serve import pages
from tests.support import ui
from tests.support.pasts import a_past, busy, span

from .markup import check
from .test_scope import OTHERS, shared

OWN = Scope(namespaces=frozenset({"team-0"}), cluster=True, queues=True)
NARROW = Scope(namespaces=frozenset({"team-0"}), cluster=False, queues=False)


def some():
    found = [
        ui.queue("all", deserved=40, used=20),
        ui.queue("a", parent="all", deserved=8, used=16),
        ui.queue("b", parent="a", deserved=4),
    ]
    found[1]["spec"]["flavors"][0]["limit"] = 24
    return found


def test_all_queues_have_one_scale():
    made = bars(tree(some()))
    whole, a, b = (made[name, "h100"] for name in ("all", "a", "b"))
    scale = WIDTH / (41 * ROOM)  # the fair share of the root is the most that there is
    assert (whole.fair, whole.deserved, whole.own) == pytest.approx((41 * scale, 40 * scale, 20 * scale), abs=0.01)
    assert (a.own, a.borrowed, a.deserved, a.limit) == pytest.approx(
        (8 * scale, 8 * scale, 8 * scale, 24 * scale), abs=0.01
    )
    assert b.deserved == pytest.approx(4 * scale, abs=0.01)
    assert whole.limit is None, "beyond the scale"


def test_the_use_of_a_day_is_that_of_the_queue_and_of_those_below_it():
    past = a_past(
        span("x", 24, 12, queue="b", amount=6),
        span("y", 12, None, queue="a", amount=2),
        span("z", 6, 3, queue="gone", flavor="mig"),
    )
    found = day_of_use(some(), past)
    half = SPARK_POINTS // 2
    assert {key: (used[0], used[half], used[-1]) for key, used in found.items()} == {
        ("all", "h100"): pytest.approx((6, 2, 2)),
        ("a", "h100"): pytest.approx((6, 2, 2)),
        ("b", "h100"): pytest.approx((6, 0, 0)),
        ("gone", "mig"): pytest.approx((0, 0, 0)),
    }
    assert day_of_use(some(), past) is found, "made once for an answer of the ledger"
    drawn = sparks(tree(some()), found)
    assert drawn.keys() == {("all", "h100"), ("a", "h100"), ("b", "h100")}
    assert drawn["b", "h100"].label == "the last day: 3 used on average, 6 at most; deserved 4"
    scale = SPARK_HEIGHT / (6 * ROOM)
    assert drawn["b", "h100"].path == f"M0 20V{20 - 6 * scale:.1f}H24V20H48V20Z"
    assert drawn["b", "h100"].deserved == round(20 - 4 * scale, 1)
    assert day_of_use(some(), Past(missing="no ledger is named")) == {}


def test_queues_in_a_cycle_and_a_day_without_use_are_drawn():
    circle = [ui.queue("a", parent="b", deserved=0), ui.queue("b", parent="a", deserved=0)]
    found = day_of_use(circle, a_past(span("x", 2, 1, queue="a", amount=0)))
    assert sparks(tree(circle), found)["a", "h100"].path == "M0 20V20H48V20Z"


async def test_the_page_says_what_is_held_and_links_what_waits():
    lists = ui.a_cluster(6, waiting=6)
    hold = {"type": "OnHold", "status": "True", "message": "on hold by ada since 2027-01-15T07:00:00Z: maintenance"}
    lists["queues"][1]["status"]["conditions"] = [hold]
    lists["queues"][2]["status"]["waiting"] = 0
    facts = await ui.facts(lists)
    page = check(pages.queue_tree(facts, {}, json=False, past=a_past(*busy(40))).text)
    assert [each.text for each in page.every("span") if each.attributes.get("class") == "badge"] == ["on hold"]
    assert "On hold: on hold by ada" in page.text
    links = [link for link in page.links if link.startswith("/gangs?")]
    assert links == [
        f"/gangs?queue={name}&phase=Waiting" for name in ("all", "queue-0", "queue-2", "queue-3", "queue-4")
    ]
    rows = check(pages.gangs(facts, {"queue": "queue-0", "phase": "Waiting"}, json=False).text).every("tr")
    assert [re.findall(r"team-\d/[-\w]+", each.text) for each in rows[1:]] == [
        ["team-0/wait-00000"],
        ["team-0/wait-00005"],
    ]
    assert sum("the last day" in each.attributes.get("aria-label", "") for each in page.every("svg")) == 6
    assert "the last day" not in pages.queue_tree(facts, {}, json=False).text
    # A limit is drawn over what waits, which may ask for more: of all but the root, whose own lies beyond the scale.
    assert sum(each.attributes.get("class") == "limit" for each in page.every("path")) == 1 + 5
    assert "on hold" in check(pages.one_queue(facts, facts, Past(), "queue-0", "24h", json=False).text).text


async def test_a_queues_page_leads_to_its_gangs():
    facts = await ui.facts(ui.a_cluster(6, waiting=6))
    page = check(pages.one_queue(facts, facts, Past(), "queue-0", "24h", json=False).text)
    assert {"/gangs/team-0/wait-00000", "/gangs/team-0/run-0"} <= set(page.links)


@pytest.mark.parametrize("scope", [OWN, NARROW], ids=["with queues", "namespace alone"])
async def test_a_viewer_of_one_namespace_is_shown_no_gang_of_others_among_queues(scope):
    facts = await ui.facts(shared())
    past = a_past(*busy(60), span("secret", 5, 1, namespace="team-3", queue="queue-0"))
    seen = restrict(facts, scope)
    for shown in (
        pages.queue_tree(seen, {}, json=False, past=past),
        *(pages.one_queue(seen, facts, past, f"queue-{at}", "24h", json=False) for at in range(5)),
    ):
        page = check(shown.text)
        assert not OTHERS.findall(page.text)
        assert not [link for link in page.links if OTHERS.search(link)]
        assert scope.queues or "queue-1" not in page.text.replace("no queue is called queue-1", "")
