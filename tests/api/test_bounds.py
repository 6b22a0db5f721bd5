"""Durations that users write have an end, and bounds from several places add up to the tightest."""

import pytest

from fairlead.api import names
from fairlead.api.base import ManifestError
from fairlead.api.bounds import DEFAULTS, NO_BOUNDS, Bound, Bounds, read_bounds, tightest
from fairlead.api.durations import DURATION_MAX_S, duration_s
from fairlead.api.intent import IntentError, read_intent
from fairlead.api.queue import Queue


@pytest.mark.parametrize("text", ["9999999999d", "36500d", "9" * 31 + "d", "9" * 15 + "h" + "9" * 15 + "d"])
def test_a_duration_is_ten_years_at_most(text: str) -> None:
    assert duration_s(text) == DURATION_MAX_S == 3650 * 86400


def test_where_the_pod_exists_an_unreadable_duration_counts_as_absent() -> None:
    annotations = {names.MIN_RUNTIME: "-5m", names.CHECKPOINT_GRACE: "30s", names.QUEUE: "ml"}
    with pytest.raises(IntentError, match="'-5m' is no duration"):
        read_intent(annotations)
    found = read_intent(annotations, lenient=True)
    assert (found.min_runtime_s, found.checkpoint_grace_s, found.queue) == (None, 30.0, "ml")
    (note,) = found.notes
    assert note.startswith("metadata.annotations[fairlead.dev/min-runtime]: '-5m' is no duration")
    assert note.endswith("the queue's default counts")
    with pytest.raises(IntentError, match="is no gang size"):
        read_intent(annotations | {names.GANG_SIZE: "x"}, lenient=True)


def bound(seconds: float, source: str = "x") -> Bounds:
    return Bounds(min_runtime=Bound(seconds, source))


def test_the_tightest_counts_and_says_where_it_comes_from() -> None:
    found = tightest([bound(60, "Queue red"), NO_BOUNDS, bound(30, "TenancyPolicy p"), bound(30, "Queue org")])
    assert found.min_runtime == Bound(30, "TenancyPolicy p")
    assert found.checkpoint_grace_s == DEFAULTS.checkpoint_grace_s
    assert found.termination_grace_s == DEFAULTS.termination_grace_s


@pytest.mark.parametrize(
    ("bounds", "asked_s", "queue_s", "counts_s"),
    [
        (NO_BOUNDS, None, 0, 0),
        (NO_BOUNDS, DURATION_MAX_S, 0, 3600),
        (NO_BOUNDS, DURATION_MAX_S, 1, 3600),
        (NO_BOUNDS, DURATION_MAX_S, 7200, 7200),
        (NO_BOUNDS, None, 7200, 7200),
        (NO_BOUNDS, 5, 7200, 5),
        (bound(60), DURATION_MAX_S, 0, 60),
        (bound(60), None, 7200, 60),
        (bound(86400), 80000, 0, 80000),
        (bound(0), 5, 5, 0),
    ],
)
def test_min_runtime(bounds: Bounds, asked_s: float | None, queue_s: float, counts_s: float) -> None:
    assert bounds.min_runtime_of(asked_s, queue_s) == counts_s


def test_a_queue_says_its_bounds_and_not_more_than_they_allow() -> None:
    spec = {"maxMinRuntime": "2h", "maxTerminationGrace": "90s", "minRuntime": "1h"}
    queue = Queue.read({"metadata": {"name": "red"}, "spec": spec})
    found = read_bounds(queue.spec, "Queue red")
    assert found.min_runtime == Bound(7200, "maxMinRuntime of Queue red")
    assert (found.termination_grace_s, found.checkpoint_grace) == (90, None)
    with pytest.raises(ManifestError, match="minRuntime 3h is beyond maxMinRuntime 2h: raise maxMinRuntime"):
        Queue.read({"metadata": {"name": "red"}, "spec": spec | {"minRuntime": "3h"}})
