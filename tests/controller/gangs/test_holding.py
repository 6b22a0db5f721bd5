"""The gangs that hold devices, in order, without sorting all of them for each decision."""

from __future__ import annotations

from random import Random

from fairlead.controller.book.book import Book
from fairlead.controller.holding import Holding
from fairlead.engine.types.gangs import RunningGang


def running(name: str, priority: int = 0) -> RunningGang:
    return RunningGang(namespace="ml", name=name, uid=name, queue=None, claims=(name,), priority=priority)


def test_all_is_in_order_of_ids_after_any_changes():
    random, holding = Random(1), Holding(Book())
    known: dict[str, RunningGang] = {}
    before = holding.all({})
    for _ in range(500):
        name = f"g{random.randrange(60)}"
        if random.random() < 0.4:
            known.pop(name, None)
            holding.set(("ml", name), None)
        else:
            known[name] = running(name, random.randrange(3))
            holding.set(("ml", name), known[name])
        instead = {("ml", each): running(each, 9) for each in random.sample(["g1", "g2", "x"], random.randrange(3))}
        expected = known | {each.name: each for each in instead.values()}
        found = holding.all(instead)
        assert found == tuple(sorted(expected.values(), key=lambda each: each.id))
        if found is not before:
            assert found.since is before.version
            assert set(map(id, found.gone)) == set(map(id, before)) - set(map(id, found))
            assert set(map(id, found.new)) == set(map(id, found)) - set(map(id, before))
        before = found
        assert holding.get(("ml", name)) == known.get(name)


def test_what_holds_the_same_stays_the_same_object():
    holding, first = Holding(Book()), running("a")
    holding.set(("ml", "a"), first)
    before = holding.all({})
    holding.set(("ml", "a"), running("a"))
    assert holding.get(("ml", "a")) is first
    assert holding.all({}) is before
