"""Which gangs a page shows, and in which order."""

import pytest

from fairlead.api import names
from fairlead.ui.model import gangs as gangs_of
from fairlead.ui.model import plain_pods
from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gang_list import PAGE_SIZE, Choice, LineMemory, gang_list
from tests.support import ui

GANGS = [
    ui.gang("b", "x", queue="q", position=2, size=4),
    ui.gang("a", "y", queue="r", position=1, message="too large"),
    ui.gang("c", "x", phase="Running", queue="q", size=2),
]


def shown(found=GANGS, **query):
    chosen = gang_list(LineMemory().of(Facts(at=ui.NOW, gangs=tuple(found))), Choice.of(query), now=ui.NOW)
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
    found = gang_list(every, Choice.of({"page": "7"}), now=ui.NOW)
    assert (found.pages, found.first, len(found.lines), found.lines[0].position) == (100, 601, PAGE_SIZE, 601)
    assert len(found.found) == found.total == 10_000


def test_a_choice_survives_its_own_address():
    choice = Choice(namespace="a b", queue="q&r", phase="Waiting", text='"<x>', sort="age", page=3)
    assert choice.query() == "?namespace=a+b&queue=q%26r&phase=Waiting&text=%22%3Cx%3E&sort=age&page=3"
    assert Choice().query() == ""


def test_lines_that_are_kept_are_those_that_are_made_anew():
    memory, plain = LineMemory(), ui.a_cluster(4, waiting=3)
    pods = [
        pod | {"metadata": {**pod["metadata"], "annotations": {names.CLAIM_SOURCES: "{}"}}} for pod in plain["pods"]
    ]
    named = ui.gang(pods[0]["metadata"]["name"], pods[0]["metadata"]["namespace"], phase="Running")
    gangs = [*plain["gangs"], named]
    for later in range(5):
        facts = Facts(at=ui.NOW + 100 * later, gangs=tuple(gangs), pods=tuple(pods))
        found = gang_list(memory.of(facts), Choice(), now=facts.at)
        anew = [*(gangs_of.line(raw, now=facts.at) for raw in gangs), *plain_pods.lines(pods, gangs, now=facts.at)]
        assert list(found.lines) == list(found.all_fresh()) == gangs_of.order(anew)
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
