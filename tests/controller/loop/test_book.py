"""The book of gangs: what is known of each, in one place, and forgotten at once."""

from __future__ import annotations

import ast
from pathlib import Path

import fairlead.controller
from fairlead.controller.book.book import FIELDS, LAPSE, Attempts, Backoff, Book, GangState

A, B = ("ml", "a"), ("ml", "b")


def test_what_is_written_of_one_gang_is_not_of_another():
    book = Book()
    book[A].backoff = Backoff(why="no room")
    assert book[A].backoff == Backoff(why="no room")
    assert book[B].backoff is None


def test_the_book_tells_which_gangs_have_a_field_in_the_order_in_which_they_got_it():
    book = Book()
    deadlines = book.all(GangState.deadline)
    book[B].deadline, book[A].deadline = 2.0, 1.0
    book[B].deadline = 3.0
    assert list(deadlines.items()) == [(B, 3.0), (A, 1.0)]
    book[B].deadline = None
    assert list(deadlines) == [A]
    book.replace(GangState.deadline, {B: 4.0})
    assert dict(deadlines) == {B: 4.0}


def test_a_gang_whose_members_are_gone_loses_what_is_theirs_and_keeps_what_outlives_them():
    book = Book()
    state = book[A]
    state.attempts, state.backoff = Attempts(failures=2), Backoff(failures=2)
    book[B].attempts = Attempts(failures=1)
    book.forget(A)
    assert book[A].attempts is None
    assert book[A].backoff == Backoff(failures=2)
    assert book[B].attempts == Attempts(failures=1)


def test_every_field_of_a_gang_is_in_the_book():
    assert {name for name, each in vars(GangState).items() if each in FIELDS} >= {"request", "backoff", "move", "trace"}
    assert set(LAPSE) < set(FIELDS)


KEYED_BY_GANG = {
    "informers.py: self.gangs",  # what the cluster shows, which outlives the term
    "feed.py: self._holding",  # an index over claims
    "feed.py: self._last",  # told to the ledger, and bounded by its number
    "pods.py: self._told",  # told to the ledger, which is still to hear that it ended
    "pods.py: self._looked",  # as of which it was told
    "triggers.py: self._new",  # a queue
}


def test_nothing_else_in_the_controller_is_kept_by_gang():
    """So that one call forgets a gang, and one list says what is known of it."""
    found = set()
    for path in Path(fairlead.controller.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                kind, _, key = ast.unparse(node.annotation).partition("[")
                if kind.lower() in {"dict", "defaultdict", "ordereddict"} and key.startswith("GangId"):
                    found.add(f"{path.name}: {ast.unparse(node.target)}")
    assert found == KEYED_BY_GANG
