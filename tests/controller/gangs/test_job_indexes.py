"""The indexes in a Job's status, found by fuzzing: a range is counted no further than the Job goes, and odd digits are none."""

import msgspec
import pytest

from fairlead.controller.gangs.membership.jobs import job_pods
from fairlead.kube import batch
from tests.support import cpu


def at_once(text, completions=4):
    spec = {"parallelism": 4, "completions": completions, "completionMode": "Indexed"}
    status = {"completedIndexes": text, "failedIndexes": text}
    return job_pods(msgspec.convert({"spec": spec, "status": status}, batch.Job), ()).at_once


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("0,2-3", 1),
        ("0-99999999999", 4),  # no index has so many digits
        ("0-9999999999", 0),
        ("\u00b2", 4),
        ("\u0661", 4),
        ("9" * 5000, 4),
        ("3-0", 4),
        ("0-,-1,x", 4),
    ],
)
def test_indexes_that_cannot_be_counted_cost_nothing(text, left):
    with cpu.at_most(1.0):
        assert at_once(text) == left
        assert at_once(text, completions=2**31 - 1) <= 4
