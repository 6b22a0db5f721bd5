"""Of one cluster at one moment all views say the same: statuses, Events, the command line, the pages, series, forecast and what-if.

`facts` lists each fact, and how each view shows it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.engine.examples import examples
from tests.support.views import ask
from tests.support.views_cluster import NOW, ClusterMade, GangMade, Held, NoRoomError

from .facts import differences


def busy(made: ClusterMade) -> None:
    """Two nodes whose GPUs are all held, by gangs of two queues."""
    for name in ("n1", "n2"):
        made.node(name)
    made.queue("a", 8)
    made.queue("b", 8)
    made.gang(GangMade(name="first", size=4, gpus=2, run=4, queue="a"))
    made.gang(GangMade(name="second", size=4, gpus=2, run=4, queue="b"))


def waiting_ones(made: ClusterMade) -> None:
    busy(made)
    made.gang(GangMade(name="fits", gpus=2, waits=1, queue="a"))
    made.gang(GangMade(name="borrows", size=2, gpus=8, waits=2, queue="a", age_s=500.0))
    made.gang(GangMade(name="huge", gpus=12, waits=1, queue="a", age_s=400.0))
    made.gang(GangMade(name="typo", waits=1, queue="b", selector={"pool": "not-existing"}))
    made.gang(GangMade(name="held", size=2, waits=2, queue="b", hold=Held(by="ben", since=NOW - 50)))
    made.gang(GangMade(name="short", size=4, waits=2, queue="b"))
    made.gang(GangMade(name="nowhere", waits=1, queue="not-existing"))


def queues_on_hold(made: ClusterMade) -> None:
    busy(made)
    made.queue("h", 8, hold=Held(by="ann", since=NOW - 100))
    made.gang(GangMade(name="of-held-queue", waits=1, queue="h"))
    made.gang(GangMade(name="of-another", waits=1, queue="a"))


def limits(made: ClusterMade) -> None:
    made.node("n1")
    made.queue("a", 4, limit=4)
    made.gang(GangMade(name="runs", gpus=4, run=1, queue="a"))
    made.gang(GangMade(name="over", gpus=8, waits=1, queue="a"))
    made.gang(GangMade(name="alone", gpus=1, run=1, queue="a", plain=True))
    made.gang(GangMade(name="next", gpus=2, waits=1, queue="a", age_s=100.0))


def evicting(made: ClusterMade) -> None:
    busy(made)
    made.node("n3")
    made.gang(GangMade(name="victim", gpus=8, run=1, queue="b", evicted_in_s=300.0, beneficiary="ml/owner"))
    made.gang(GangMade(name="owner", gpus=8, waits=1, queue="a", priority=10))


def leaving(made: ClusterMade) -> None:
    busy(made)
    made.node("n3")
    made.gang(GangMade(name="goes", gpus=8, run=1, queue="b", leaving=True))
    made.gang(GangMade(name="comes", gpus=8, waits=1, queue="a"))
    made.node("n4", drained=(7,))
    made.gang(GangMade(name="again", size=1, gpus=7, run=1, waits=1, queue="b", leaving=True))


def nodes_away(made: ClusterMade) -> None:
    made.node("n1", cordoned=True)
    made.node("n2", drained=(0, 1, 2))
    made.queue("a", 16)
    made.gang(GangMade(name="large", gpus=8, waits=1, queue="a"))
    made.gang(GangMade(name="both", size=2, gpus=8, waits=2, queue="a", age_s=100.0))
    made.gang(GangMade(name="holds", gpus=2, run=1, queue="a"))


def members(made: ClusterMade) -> None:
    made.node("n1")
    made.node("n2")
    made.node("n3")
    made.queue("a", 16)
    made.gang(GangMade(name="elastic", size=2, run=3, waits=1, gpus=4, queue="a"))
    made.gang(GangMade(name="one-only", gpus=8, waits=1, queue="a", age_s=100.0))
    made.gang(GangMade(name="replaced", size=3, run=1, waits=2, gpus=4, queue="a"))
    made.gang(GangMade(name="ending", size=4, run=1, done=3, queue="a", deadline_s=9_000.0))
    made.gang(GangMade(name="ended", size=2, done=2, queue="a"))


def deadlines(made: ClusterMade) -> None:
    busy(made)
    made.gang(GangMade(name="soon", gpus=8, waits=1, queue="a", age_s=10.0, deadline_s=60.0))
    made.gang(GangMade(name="ends", gpus=8, waits=1, queue="b", age_s=10.0, deadline_s=90_000.0))


def parts(made: ClusterMade) -> None:
    made.node("n1", 2)
    made.node("m1", 2, mig=True)
    made.queue("a", 4)
    made.gang(GangMade(name="of-parts", size=3, run=3, part=True, queue="a"))
    made.gang(GangMade(name="whole", gpus=2, run=1, queue="a"))
    made.gang(GangMade(name="another-part", waits=1, part=True, queue="a"))
    made.gang(GangMade(name="too-large", gpus=2, waits=1, queue="a"))
    made.gang(GangMade(name="watches", gpus=1, run=1, admin=True, queue="a"))


SCENARIOS = (waiting_ones, queues_on_hold, limits, evicting, leaving, nodes_away, members, deadlines, parts)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
def test_all_views_say_the_same(scenario: Callable[[ClusterMade], None], tmp_path: Path) -> None:
    made = ClusterMade(NOW)
    scenario(made)
    assert "\n".join(differences(ask(made, tmp_path))) == ""


@pytest.mark.parametrize(
    "scenario", [waiting_ones, queues_on_hold, evicting, deadlines], ids=lambda each: each.__name__
)
def test_what_is_known_now_rules_out_the_times_of_an_older_forecast_in_all_views(
    scenario: Callable[[ClusterMade], None], tmp_path: Path
) -> None:
    made = ClusterMade(NOW)
    scenario(made)
    assert "\n".join(differences(ask(made, tmp_path, old=True))) == ""


@st.composite
def clusters(draw: st.DrawFn) -> ClusterMade:
    made = ClusterMade(NOW)
    for number in range(draw(st.integers(1, 3))):
        kept_back = draw(st.sampled_from(["", "", "cordoned", "drained"]))
        made.node(f"n{number}", cordoned=kept_back == "cordoned", drained=(0, 3) if kept_back == "drained" else ())
    made.node("m0", 2, mig=True)
    made.queue("a", draw(st.sampled_from([0, 8, 16])))
    made.queue("b", 8, limit=draw(st.sampled_from([8, 12])))
    made.queue("h", 0, hold=Held(by="ann", since=NOW - 100) if draw(st.booleans()) else None)
    for number in range(draw(st.integers(3, 9))):
        each = draw(gangs(f"g{number}"))
        with contextlib.suppress(NoRoomError):
            made.gang(each)
    return made


@st.composite
def gangs(draw: st.DrawFn, name: str) -> GangMade:
    runs, part = draw(st.booleans()), draw(st.sampled_from([False, False, False, True]))
    size = draw(st.integers(1, 3))
    waits = draw(st.integers(0, 1)) if runs else draw(st.integers(1, size))
    # Of a gang that gathers anew while pods of before leave, the queue counts what these hold as running.
    leaving = runs and waits in {0, size} and draw(st.sampled_from([False, False, True]))
    return GangMade(
        name=name,
        size=size,
        gpus=draw(st.sampled_from([1, 2, 4, 8, 12])),
        run=draw(st.integers(1, size + 1)) if runs else 0,
        waits=waits,
        queue=draw(st.sampled_from(["a", "a", "b", "h"])),
        age_s=float(draw(st.integers(10, 5_000))),
        part=part,
        admin=not part and draw(st.sampled_from([False, False, False, True])),
        selector=draw(st.sampled_from([{}, {}, {"pool": "whole"}, {"pool": "not-existing"}])) if not runs else {},
        hold=draw(st.sampled_from([None, None, Held(by="ben", since=NOW - 50)])),
        priority=draw(st.sampled_from([0, 0, 10])),
        evicted_in_s=draw(st.sampled_from([None, 120.0])) if runs else None,
        beneficiary="ml/g0",
        leaving=leaving,
        deadline_s=draw(st.sampled_from([None, None, 6_000.0, 90_000.0])),
    )


@settings(
    max_examples=examples(5),
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(made=clusters())
def test_all_views_say_the_same_of_drawn_clusters(made: ClusterMade, tmp_path: Path) -> None:
    assert "\n".join(differences(ask(made, tmp_path))) == ""
