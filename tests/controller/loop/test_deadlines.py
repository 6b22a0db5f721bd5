"""Deadlines of gangs, against a plain dict."""

from random import Random

from fairlead.controller import deadlines
from fairlead.controller.book.book import Book
from fairlead.controller.deadlines import Deadlines


def test_what_is_due_is_what_a_dict_of_all_would_say(monkeypatch):
    monkeypatch.setattr(deadlines, "OUTDATED_MAX", 20)
    random, found = Random(1), Deadlines(Book())
    known: dict[tuple[str, str], float] = {}
    for now in range(2000):
        gang_id = ("ml", f"g{random.randrange(40)}")
        match random.randrange(4):
            case 0:
                found.drop(gang_id)
                known.pop(gang_id, None)
            case 1:
                due = sorted(each for each, at in known.items() if at <= now)
                assert sorted(found.take_due(now)) == due
                for each in due:
                    del known[each]
            case _:
                at = now + random.randrange(1, 200)
                found.set(gang_id, at)
                known[gang_id] = min(at, known.get(gang_id, at))
        assert found.next() == min(known.values(), default=None)


def test_outdated_entries_do_not_pile_up():
    found = Deadlines(Book())
    for at in range(10_000):
        found.drop(("ml", "a"))
        found.set(("ml", "a"), at)
    assert len(found._heap) <= deadlines.OUTDATED_MAX + 2
