"""Which gangs a page shows, and in which order."""

import pytest

from fairlead.api import names
from fairlead.ui.model import gangs as gangs_of
from fairlead.ui.model import plain_pods
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gang_devices import Held
from fairlead.ui.model.gang_list import PAGE_SIZE, Choice, LineMemory, gang_list
from fairlead.ui.serve import pages
from tests.support import ui

from .markup import check

GANGS = [
    ui.gang("b", "x", queue="q", position=2, size=4, queuedTime="2027-01-15T06:00:00Z"),
    ui.gang("a", "y", queue="r", position=1, message="too large"),
    ui.gang("c", "x", phase="Running", queue="q", size=2),
]


HELD = {"x/c": Held(16, 4), "y/a": Held(2, 2)}


def listed(lines, choice, *, now=ui.NOW):
    return gang_list(lines, choice, now=now, held=lambda gangs: {each: HELD[each] for each in HELD.keys() & gangs})


def test_a_gang_that_waits_shows_what_it_asks_for():
    facts = Facts(at=ui.NOW, gangs=(ui.gang("b", "x", asks=["8 × gpu.nvidia.com"]), GANGS[2]))
    text = " ".join(check(pages.gangs(facts, {}, json=False).text).text.split())
    assert "asks for 8 × gpu.nvidia.com" in text
    one = " ".join(check(pages.one_gang(facts, "x", "b", json=False).text).text.split())
    assert "8 × gpu.nvidia.com asked for" in one


def shown(found=GANGS, **query):
    chosen = listed(LineMemory().of(Facts(at=ui.NOW, gangs=tuple(found))), Choice.of(query))
    return [each.name for each in chosen.lines]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["a", "b", "c"]),
        ({"namespace": "x"}, ["b", "c"]),
        ({"queue": "q", "phase": "Waiting"}, ["b"]),
        ({"text": "TOO LARGE"}, ["a"]),
        ({"text": "no such"}, []),
        ({"sort": "name"}, ["b", "c", "a"]),
        ({"sort": "size"}, ["a", "b", "c"]),
        ({"sort": "queue"}, ["b", "c", "a"]),
        ({"sort": "gpus"}, ["c", "a", "b"]),
        ({"sort": "-gpus"}, ["b", "a", "c"]),
        ({"sort": "idle"}, ["c", "a", "b"]),
        ({"sort": "waited"}, ["b", "a", "c"]),
        ({"sort": "-line"}, ["c", "b", "a"]),
        ({"page": "9"}, ["a", "b", "c"]),
    ],
    ids=str,
)
def test_gangs_are_chosen_and_ordered(query, names):
    assert shown(**query) == names


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"sort": "colour"}, "sort: 'colour'"),
        ({"sort": "--age"}, "sort: '--age'"),
        ({"phase": "x"}, "phase: 'x'"),
        ({"page": "0"}, "page: '0'"),
        ({"page": "9" * 5000}, "page: '9"),
        ({"page": "²"}, "page: '²'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_query_that_is_not_right_names_its_field(query, said):
    with pytest.raises(ValueError, match=r"there is|a number") as error:
        Choice.of(query)
    assert str(error.value).startswith(said)


def test_ten_thousand_gangs_have_pages():
    many = [ui.gang(f"g{at:05}", "x", position=at + 1) for at in range(10_000)]
    every = LineMemory().of(Facts(at=ui.NOW, gangs=tuple(many)))
    found = listed(every, Choice.of({"page": "7"}))
    assert (found.pages, found.first, len(found.lines), found.lines[0].position) == (100, 601, PAGE_SIZE, 601)
    assert len(found.found) == found.total == 10_000


def test_a_choice_survives_its_own_address():
    choice = Choice(namespace="a b", queue="q&r", phase="Waiting", text='"<x>', sort="age", page=3)
    assert choice.query() == "?namespace=a+b&queue=q%26r&phase=Waiting&text=%22%3Cx%3E&sort=age&page=3"
    assert Choice().query() == ""


def test_a_header_sorts_by_its_column_and_then_the_other_way_round():
    first = Choice(queue="q", page=3)
    assert first.turned("age") == "?queue=q&sort=age"
    by_age = Choice.of({"queue": "q", "sort": "age"})
    assert by_age.turned("age") == "?queue=q&sort=-age"
    assert Choice.of({"queue": "q", "sort": "-age"}).turned("age") == "?queue=q&sort=age"
    assert [by_age.direction(each) for each in ("age", "name")] == ["descending", ""]
    assert Choice.of({"sort": "-age"}).direction("age") == "ascending"
    assert Choice.of({"sort": "name"}).direction("name") == "ascending"


def test_finished_gangs_are_a_list_of_their_own_unless_they_were_chosen():
    gangs = [*GANGS, *(ui.gang(f"done-{at:03}", "x", phase="Finished") for at in range(PAGE_SIZE + 20))]
    every = LineMemory().of(Facts(at=ui.NOW, gangs=tuple(gangs)))
    found = listed(every, Choice())
    assert [each.name for each in found.lines] == ["a", "b", "c"]
    assert (found.listed, found.pages, len(found.finished), found.ended) == (3, 1, PAGE_SIZE, PAGE_SIZE + 20)
    assert len(list(found.all_fresh())) == len(gangs), "JSON has all"
    chosen = listed(every, Choice(phase="Finished"))
    assert (len(chosen.lines), chosen.pages, chosen.ended) == (PAGE_SIZE, 2, 0)


def test_an_eviction_that_is_set_is_said_with_the_time_left():
    at = [{"at": "2027-01-15T08:04:00Z"}, {"at": "2027-01-15T08:09:00Z"}]
    raw = ui.gang("c", "x", phase="Running", evictions=at)
    said = [gangs_of.evicts(gangs_of.line(raw, now=ui.NOW), now=now) for now in (ui.NOW, ui.NOW + 300)]
    assert said == ["evicting in 4m", "evicting"]
    for over in (GANGS[0], ui.gang("c", "x", evictions=at)):
        assert gangs_of.evicts(gangs_of.line(over, now=ui.NOW), now=ui.NOW) == ""


def test_lines_that_are_kept_are_those_that_are_made_anew():
    memory, plain = LineMemory(), ui.a_cluster(4, waiting=3)
    pods = [
        pod | {"metadata": {**pod["metadata"], "annotations": {names.CLAIM_SOURCES: "{}"}}} for pod in plain["pods"]
    ]
    named = ui.gang(pods[0]["metadata"]["name"], pods[0]["metadata"]["namespace"], phase="Running")
    gangs = [*plain["gangs"], named]
    for later in range(5):
        facts = Facts(at=ui.NOW + 100 * later, gangs=tuple(gangs), pods=tuple(pods))
        found = listed(memory.of(facts), Choice(), now=facts.at)
        anew = [*(gangs_of.line(raw, now=facts.at) for raw in gangs), *plain_pods.lines(pods, gangs, now=facts.at)]
        assert list(found.all_fresh()) == gangs_of.order(anew)
        assert gangs_of.order([*found.lines, *found.finished]) == gangs_of.order(anew)
        if later == 1:
            gangs[0] = gangs[0] | {"status": gangs[0]["status"] | {"phase": "Failed"}}
        elif later == 2:
            gangs.remove(named)
        elif later == 3:
            pods[1] = pods[1] | {"status": {"phase": "Succeeded"}}


def test_what_did_not_change_is_not_made_again():
    memory, gangs = LineMemory(), tuple(GANGS)
    first = memory.of(Facts(at=ui.NOW, gangs=gangs))
    assert memory.of(Facts(at=ui.NOW + 9, gangs=gangs)) is first
    other = memory.of(Facts(at=ui.NOW, gangs=(*gangs[:2], ui.gang("c", "x", phase="Failed"))))
    assert other.every[0] is first.every[0]
    assert (first.phases, other.phases) == ({"Waiting": 2, "Running": 1}, {"Waiting": 2, "Failed": 1})
