"""What a gang does and what comes next, in one or two sentences: the first that `fairlead explain` and a gang's page say."""

import pytest

from fairlead.kube import timestamps
from fairlead.ui.model.explanations import gang_explanation
from fairlead.ui.model.scope import Redaction
from tests.support import ui
from tests.support.ui import NOW  # 08:00:00 UTC


def at(later_s):
    return timestamps.seconds(NOW + later_s)


def holds(kind, message="", *, ago_s=0.0):
    return {"type": kind, "status": "True", "message": message, "lastTransitionTime": at(-ago_s)}


FORECAST = {"p50": at(159), "p90": at(3600), "because": "32 samples; starts when ml/sweep ends in 30 of them"}
SWEEP = holds("Preempting", "being evicted for it: ml/sweep")
EVICTION = {"kind": "Reclaim", "at": at(240), "beneficiary": "ml/x"}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "Waits 15m. When it starts is not forecast."),
        ({"forecast": FORECAST}, "Waits 15m. Starts about 08:02:39 UTC (in 2m), when ml/sweep ends."),
        (
            {"forecast": FORECAST, "conditions": [SWEEP]},
            "Waits 15m. Starts about 08:02:39 UTC (in 2m), when ml/sweep is evicted for it.",
        ),
        ({"conditions": [SWEEP]}, "Waits 15m. Starts when ml/sweep is evicted for it."),
        (
            {"conditions": [holds("Preempting", "being evicted for it: ml/a, ml/b and 3 more")]},
            "Waits 15m. Starts when ml/a, ml/b and 3 more are evicted for it.",
        ),
        ({"forecast": {"p50": at(-30)}}, "Waits 15m. Starts about now."),
        ({"forecast": {"p50": at(86_400)}}, "Waits 15m. Starts about 2027-01-16 08:00 UTC (in 24h)."),
        ({"forecast": {"never": True}}, "Waits 15m. It cannot start on this cluster as it is."),
        ({"conditions": [holds("OnHold")]}, "Waits 15m. It does not start before its hold is removed."),
        ({"nodesAwaited": {"expected": at(120)}}, "Waits 15m. Nodes for it are expected about 08:02:00 UTC (in 2m)."),
        ({"conditions": [holds("Evicted", ago_s=60)]}, "Waits 60s. When it starts is not forecast."),
        ({"phase": "Gathering", "members": 3}, "Gathers its pods for 15m: 3 of 8 exist."),
        (
            {"phase": "Evicted", "conditions": [holds("Evicted", ago_s=60)], "lastEviction": {"what": "reclaimed for gang ml/x"}},
            "Was evicted 60s ago, reclaimed for gang ml/x; its pods are to be made again.",
        ),
        (
            {"phase": "Admitted", "admittedTime": at(-12), "waitSeconds": 300.0, "ready": 3},
            "Got its devices 12s ago, after 5m of waiting; 3 of 8 pods run.",
        ),
        ({"phase": "Running", "admittedTime": at(-7200), "waitSeconds": 300.0}, "Runs 2h, after 5m of waiting."),
        ({"phase": "Running", "evictions": [EVICTION]}, "Runs. It is evicted at 08:04:00 UTC (in 4m), for gang ml/x."),
        (
            {"phase": "Running", "evictions": [{"kind": "Idle", "at": at(240)}]},
            "Runs. It is stopped as idle at 08:04:00 UTC (in 4m).",
        ),
        ({"phase": "Finished"}, "Has ended: its pods have succeeded."),
        ({"phase": "Failed"}, "Has failed."),
        ({"phase": "of a later version"}, ""),
    ],
    ids=str,
)  # fmt: skip
def test_what_it_does_and_what_comes_next_in_one_or_two_sentences(status, said):
    raw = ui.gang("train", "ml")
    raw["status"] |= status
    assert gang_explanation(raw, now=NOW).summary == said


def test_names_of_other_namespaces_are_hidden_in_it_as_in_all_texts():
    hides = Redaction(namespaces=frozenset({"ml"}), hidden=frozenset({"secret"}))
    said = {
        "waits": {"forecast": FORECAST | {"because": "starts when secret/a ends in 9 of them"}},
        "evicts": {"conditions": [holds("Preempting", "being evicted for it: secret/a")]},
        "is evicted": {"phase": "Running", "evictions": [EVICTION | {"beneficiary": "secret/a"}]},
    }
    for status in said.values():
        raw = ui.gang("train", "ml")
        raw["status"] |= status
        assert "secret/a" in gang_explanation(raw, now=NOW).summary
        assert "a gang of another namespace" in gang_explanation(hides.object(raw), now=NOW).summary
        assert "secret" not in gang_explanation(hides.object(raw), now=NOW).summary
