"""What an evicted gang's Gang object says until its pods are back, and how long it is kept. Pure."""

import dataclasses

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.evictions import past_evictions
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark
from fairlead.controller.gangs.membership.jobs import job_pods
from fairlead.controller.report import gang_status
from fairlead.controller.report.gang_phase import summarize
from tests.controller.gang_views import NOW, Objects, pod, view
from tests.controller.gangs.test_membership import EIGHT, condition, job, members

MARK = EvictionMark(kind="Reclaim", at=NOW, whole=True, beneficiary="ml/new", why="because")
UNTIL = NOW + 930


def past(maker="Job"):
    return past_evictions.PastEviction(
        at=NOW, queued_since=NOW - 100, mark=str(MARK), why="because", until=UNTIL, maker=maker
    )


def outlook(maker="Job", jobs=(), *, after_s=60.0, without_job_s=None):
    since = None if without_job_s is None else NOW + after_s - without_job_s
    return past_evictions.outlook(
        past(maker), [job_pods(each, ()) for each in jobs], now=NOW + after_s, without_job_since=since
    )


@pytest.mark.parametrize(("grace_s", "kept_s"), [(None, 930.0), (0, 900.0), (3600, 4500.0)])
def test_the_age_is_kept_longer_than_the_longest_back_off_of_a_job_after_its_last_pod_has_ended(grace_s, kept_s):
    plain = pod("a", gang="g", size=1, gated=False, phase="Running")
    plain = msgspec.structs.replace(
        plain, spec=msgspec.structs.replace(plain.spec, termination_grace_period_seconds=grace_s)
    )
    gang = view(pod("b", gang="g", size=1))
    member = dataclasses.replace(gang.members[0], pod=plain)
    made = past_evictions.eviction_of(gang, [member], MARK, queue="q", at=NOW, queued_since=NOW - 100)
    assert made.until - NOW == kept_s
    assert kept_s >= (30 if grace_s is None else grace_s) + past_evictions.JOB_BACKOFF_MAX_S + 60
    assert past_evictions.past_eviction({"status": made.status()}, NOW) == made


def test_while_its_job_makes_pods_again_it_says_so_and_is_kept():
    found = outlook(jobs=[job(**EIGHT)])
    assert (found.until, found.ended) == (UNTIL, False)
    assert found.text == (
        "Job ml/job-1 makes its pods again after its back-off; its age is kept until 2027-01-15T08:15:30Z"
    )
    assert outlook(jobs=[job(**EIGHT)], after_s=931).until is None


def test_a_job_that_has_failed_makes_no_more_pods():
    found = outlook(jobs=[job(**EIGHT, status=condition("Failed", "BackoffLimitExceeded"))])
    assert found.ended
    status = gang_status.evicted_status(past(), found, {}, NOW)
    assert (status["phase"], status["reason"]) == ("Failed", "NoMorePods")
    assert status["message"].startswith("Job ml/job-1 failed: BackoffLimitExceeded; it makes no more pods")


def test_without_its_job_or_with_a_complete_one_the_gang_is_forgotten():
    assert outlook(jobs=[job(**EIGHT, status=condition("Complete", "CompletionsReached"))]).until is None
    assert outlook(without_job_s=0).until is None, "who creates the Job again submits another gang"


def test_the_job_of_a_jobset_that_restarts_is_waited_for():
    assert outlook("JobSet", without_job_s=1).until == NOW + 60 - 1 + past_evictions.JOB_GONE_S
    assert outlook("JobSet", without_job_s=past_evictions.JOB_GONE_S).until is None
    assert "makes its pods again after its back-off" in outlook("JobSet", [job(**EIGHT)]).text
    owner = {"kind": "Job", "name": "j", "uid": "j", "controller": True}
    for labels, maker in (({}, "Job"), ({names.JOBSET_JOB: "worker"}, "JobSet")):
        gang = view(pod("a", gang="g", size=1, ownerReferences=[owner], labels=labels))
        made = past_evictions.eviction_of(gang, gang.members, MARK, queue="q", at=NOW, queued_since=NOW)
        assert made.maker == maker


def test_bare_pods_are_not_waited_for_but_their_place_is_kept():
    assert "its pods have no controller: create them again" in outlook(maker="").text
    assert "waits until a ReplicaSet makes its pods again" in outlook(maker="ReplicaSet").text


def evicted(jobs=()):
    """All eight pods of a gang, ended after they were marked and evicted."""
    pods, _ = members("FFFFFFFF", size=8, indexed=True)
    marked = [
        msgspec.structs.replace(
            each,
            metadata=msgspec.structs.replace(
                each.metadata, annotations={**each.metadata.annotations, **MARK.annotations()}
            ),
        )
        for each in pods
    ]
    return view(*marked, objects=Objects(jobs=list(jobs)))


def test_an_evicted_gang_whose_pods_have_ended_is_not_reported_as_failed():
    summary = summarize(evicted([job(**EIGHT)]), SchedulingState())
    assert (summary.phase, summary.reason) == ("Evicted", "Evicted")
    failed = summarize(evicted([job(**EIGHT, status=condition("Failed", "DeadlineExceeded"))]), SchedulingState())
    assert (failed.phase, failed.reason, failed.message) == (
        "Failed",
        "PodsFailed",
        "Job ml/job-1 failed: DeadlineExceeded",
    )


def test_failed_pods_that_their_job_replaces_are_not_the_end_of_the_gang():
    pods, _ = members("FFFFFFFF", size=8)
    summary = summarize(view(*pods, objects=Objects(jobs=[job(**EIGHT)])), SchedulingState())
    assert summary.phase == "Gathering"
    assert summary.message == "8 of 8 pods failed; Job ml/job-1 makes others after its back-off"
