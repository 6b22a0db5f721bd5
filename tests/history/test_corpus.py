"""Recorded days decide today as they did: a change that alters a decision fails here and names which.

Where the change is meant: `python -m tests.support.days`, and say in the commit which decisions changed and why.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import os
import re
import shutil
import sys
import types
from pathlib import Path

import pytest

from fairlead.history.recording.compact import lines, moment, side_by_side
from fairlead.history.recording.reader import Reader
from fairlead.history.recording.verify import Counts, differences
from tests.support.days import CORPUS, SHAPES, SimulatedDay, drawn
from tests.support.history import record

SHOWN_MAX = 20
REPLAYED = int(os.environ.get("REPLAYED", "500"))
"""Decisions of simulated days; `make replays` takes 100,000."""
PARTS = 4  # so that they can run side by side


def altered(directory: Path, most: int | None = None) -> tuple[list[str], int]:
    """The decisions that differ, up to so many, the first with both plans; and how many there are in all."""
    counts, found = Counts(), []
    for each in itertools.islice(differences(Reader([directory]), counts), most):
        found.append(f"decision {each.number} of {directory.name} at {moment(each.at)}")
        if len(found) == 1:
            rows = side_by_side(lines(each.recorded), lines(each.now))
            found += [
                f"    {mark} recorded: {one}\n    {mark} now:      {other}" for mark, one, other in rows if mark == "≠"
            ]
    return found, counts.decisions


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SHAPES)
def test_recorded_days_decide_as_they_did(name: str):
    found, count = altered(CORPUS / name)
    assert count >= 50
    assert not found, "\n".join(["these recorded decisions are others now:", *found[:SHOWN_MAX]])


def test_the_corpus_has_what_decisions_are_made_of():
    """Admissions, evictions, gangs that wait, nodes that go: else nothing here could change."""
    seen: set[str] = set()
    for name in SHAPES:
        for read in Reader([CORPUS / name]):
            plan = getattr(read.record, "plan", None) or {}
            seen |= {part for part in ("admissions", "evictions", "reservations", "reasons") if plan.get(part)}
            seen |= {
                "node gone"
                for gone in getattr(getattr(read.record, "facts", None), "nodes", {}).values()
                if gone is None
            }
    assert seen == {"admissions", "evictions", "reservations", "reasons", "node gone"}


EDITS = {
    "the youngest of a queue first": ("queues.gangs", "PendingGang.__init__", "gang.created, gang.uid)", "-gang.created, gang.uid)"),
    "low priority first": ("queues.gangs", "Order._key", " -gang.priority,\n", " gang.priority,\n"),
    "the larger share first": ("queues.gangs", "Order._key", "self._share(queue, head),", "-self._share(queue, head),"),
    "minimum run times do not protect": (
        "reclaim.eviction_policy", "VictimPolicy.refusal", "if unit in self.candidates.protected:", "if False:",
    ),
}  # fmt: skip
"""What it does, and the one line of the engine that does it: module, function, its text, and the other one."""


@pytest.mark.parametrize("what", EDITS)
def test_a_change_of_one_line_of_policy_is_found_and_named(what: str, monkeypatch: pytest.MonkeyPatch):
    name, function, text, other = EDITS[what]
    module = importlib.import_module(f"fairlead.engine.{name}")
    source = inspect.getsource(module)
    assert source.count(text) == 1, "the line reads otherwise by now: change it here, too"
    edited = types.ModuleType(module.__name__)
    monkeypatch.setitem(sys.modules, module.__name__, edited)  # where dataclasses look for their annotations
    exec(compile(source.replace(text, other), "edited", "exec"), edited.__dict__)
    owner, _, method = function.partition(".")
    monkeypatch.setattr(getattr(module, owner), method, getattr(getattr(edited, owner), method))
    found = next((named for name in SHAPES if (named := altered(CORPUS / name, most=1)[0])), None)
    assert found is not None, "no recorded decision rests on this line"
    head, *rows = found
    assert re.fullmatch(r"decision \d+ of \w+ at 2026-\S+Z", head)
    assert any("recorded: " in row and "now: " in row for row in rows)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_simulated_decisions_replay_exactly(part: int, tmp_path: Path):
    """Days of other seeds and sizes, until there are enough."""
    decisions = days = 0
    for seed in itertools.count(2000 + part, PARTS):
        if decisions >= REPLAYED / PARTS:
            break
        shape = drawn(seed)
        (directory,) = record(SimulatedDay(shape).run, tmp_path / str(seed))
        found, count = altered(directory)
        assert not found, (shape, found[:SHOWN_MAX])
        shutil.rmtree(directory)
        decisions, days = decisions + count, days + 1
    print(f"{decisions} decisions of {days} days replayed")
