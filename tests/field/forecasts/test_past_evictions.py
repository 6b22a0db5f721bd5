"""Of several evictions of a gang the last is told, with the age of the first."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec

from fairlead.api import names
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark
from fairlead.controller.gangs.evictions.past_evictions import PastEviction
from fairlead.controller.report import gang_phase
from fairlead.controller.watch.lookup import GangRecords
from fairlead.kube import core
from tests.controller.gang_views import NOW, pod, view


def past(at: float, why: str, since: float) -> PastEviction:
    return PastEviction(at=at, queued_since=since, mark="reclaimed for gang ml/x", why=why, until=NOW + 900.0)


def failed(name: str, at: float, why: str) -> core.Pod:
    mark = EvictionMark(kind="Reclaim", at=at, whole=True, beneficiary="ml/x", why=why)
    marked = {**mark.annotations(), names.GANG: "g", names.GANG_SIZE: "2"}
    made: core.Pod = pod(name, gang="g", size=2, gated=False, phase="Failed", node="n1")
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=marked))


def test_a_pod_whose_predecessors_were_evicted_says_the_last_reason_and_keeps_the_age():
    known = [past(NOW - 600.0, "an old reason", NOW - 900.0), past(NOW - 5.0, "a new reason", NOW - 300.0)]
    records = SimpleNamespace(past_evictions=lambda gang, now: known)
    found = GangRecords.past_eviction(records, view(pod("a")), NOW)  # type: ignore[arg-type]
    assert found is not None
    assert (found.why, found.waits_since, found.queued_since) == ("a new reason", NOW - 5.0, NOW - 900.0)
    known.clear()
    assert GangRecords.past_eviction(records, view(pod("a")), NOW) is None  # type: ignore[arg-type]


def test_pods_that_failed_in_an_earlier_eviction_do_not_say_why_the_last_one_was():
    gang = view(failed("a", NOW - 600.0, "an old reason"), failed("b", NOW - 5.0, "a new reason"))
    message = gang_phase.summarize(gang, SchedulingState()).message
    assert "a new reason" in message
    assert "an old reason" not in message
