"""Which gangs a page shows, and in which order."""

import pytest

from fairlead.ui.model.facts import Facts
from fairlead.ui.model.gang_list import PAGE_SIZE, Choice, gang_list, lines
from tests.support import ui

GANGS = [
    ui.gang("b", "x", queue="q", position=2, size=4),
    ui.gang("a", "y", queue="r", position=1, message="too large"),
    ui.gang("c", "x", phase="Running", queue="q", size=2),
]


def shown(found=GANGS, **query):
    chosen = gang_list(lines(Facts(at=ui.NOW, gangs=tuple(found))), Choice.of(query))
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
    every = lines(Facts(at=ui.NOW, gangs=tuple(many)))
    found = gang_list(every, Choice.of({"page": "7"}))
    assert (found.pages, found.first, len(found.lines), found.lines[0].position) == (100, 601, PAGE_SIZE, 601)
    assert len(found.found) == found.total == 10_000


def test_a_choice_survives_its_own_address():
    choice = Choice(namespace="a b", queue="q&r", phase="Waiting", text='"<x>', sort="age", page=3)
    assert choice.query() == "?namespace=a+b&queue=q%26r&phase=Waiting&text=%22%3Cx%3E&sort=age&page=3"
    assert Choice().query() == ""
