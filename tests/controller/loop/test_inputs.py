"""Every input of a decision wakes it, and every field of a status is compared: a new field is in one of the declared lists."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlead.api.bounds import Bound, Bounds
from fairlead.controller import holding
from fairlead.controller.book import shown
from fairlead.controller.book.shown import SchedulingState
from fairlead.engine.types.gangs import Hold, RunningGang

GANG = RunningGang(namespace="ml", name="sweep", uid="g", queue="red", claims=("c",))
OTHERWISE: dict[str, Any] = {
    "queue": "blue",
    "priority": 7,
    "size": 2,
    "min_runtime_s": 60.0,
    "checkpoint_grace_s": 60.0,
    "ends_by": 1.0,
    "bounds": Bounds(min_runtime=Bound(1.0, "Queue red")),
    "movable": True,
    "hold": Hold(evict=True),
}


def names(kind: type) -> set[str]:
    return set(kind.__annotations__)


def test_each_field_of_a_running_gang_wakes_a_decision_or_says_why_not() -> None:
    assert set(holding.WAKES) | holding.RESTS.keys() == names(RunningGang)
    assert not set(holding.WAKES) & holding.RESTS.keys()
    assert all(holding.RESTS.values())


@pytest.mark.parametrize("name", holding.WAKES)
def test_a_change_of_it_wakes(name: str) -> None:
    changed = replace(GANG, **{name: OTHERWISE[name]})
    assert holding.wakes(GANG, changed)
    assert not holding.wakes(changed, replace(changed, restart_s=3.0, claims=()))
    assert not holding.wakes(None, changed)


def test_each_field_that_a_status_shows_is_compared() -> None:
    listed = (*shown.SHOWN_SOON, *shown.APPEARS_SOON, *shown.SHOWN_LATER)
    assert sorted(listed) == sorted(names(SchedulingState))
