"""Which pods count as members of a gang, and which are placed next: a table by workload kind.

Each row shows a gang at one moment. One letter a pod, in order of creation: S succeeded, F failed, R runs, T on the way out,
G gated, "-" does not exist. Then what the engine admits on a cluster with room for all, and what the Gang says if nothing.
"""

from typing import Any

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.admission import requests
from fairlead.controller.report.gang_phase import summarize
from fairlead.kube import batch, timestamps
from tests.controller.gang_views import NOW, Objects, claim, pod, template, view
from tests.support.engine.objects import gpu
from tests.support.engine.world import World

JOB_UID = "job-1"
GONE = {"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}}


def job(**given):
    """A Job of gang g; `status` apart, the fields are those of its spec."""
    status = given.pop("status", {})
    uid = given.pop("uid", JOB_UID)
    labelled = {"metadata": {"annotations": {names.GANG: "g"}}}
    body = {
        "metadata": {"name": uid, "namespace": "ml", "uid": uid},
        "spec": {"template": labelled} | given,
        "status": status,
    }
    return msgspec.convert(body, batch.Job)


def condition(kind, reason):
    return {"conditions": [{"type": kind, "status": "True", "reason": reason}]}


def members(shown, *, size, owner=("Job", JOB_UID), indexed=False, first=0):
    """Pods and their claims."""
    owners = [{"kind": owner[0], "name": owner[1], "uid": owner[1], "controller": True}] if owner else []
    pods, held = [], []
    for number, letter in enumerate(shown, first):
        if letter == "-":
            continue
        name = f"p{number:02}"
        annotations = {names.GANG: "g", names.GANG_SIZE: str(size)}
        if indexed:
            annotations["batch.kubernetes.io/job-completion-index"] = str(number)
        more = {"deletionTimestamp": "2027-01-15T08:00:00Z"} if letter == "T" else {}
        phase = {"S": "Succeeded", "F": "Failed", "R": "Running", "T": "Running", "G": "Pending"}[letter]
        pods.append(
            pod(
                name,
                gated=letter == "G",
                node="" if letter == "G" else "n0",
                claim="" if letter == "G" else f"c-{name}",
                phase=phase,
                annotations=annotations,
                ownerReferences=owners,
                **more,
            )
        )
        if letter in "RT":
            held.append(claim(f"c-{name}", name, node="n0", reserved=[name]))
    return pods, held


def gang(pods, held, jobs):
    objects = Objects(held, jobs=list(jobs), templates={"t": template(device_class=names.GPU_CLASS)})
    objects.classes[names.GPU_CLASS] = objects.classes["gpu"]
    return view(*pods, objects=objects)


def placed(shown_gang):
    """Names of the pods that the engine admits, or the problem's code."""
    problem = requests.blocking_problem(shown_gang)
    if problem is not None:
        return problem.code.value
    world = World()
    world.add_node("n0", [gpu(minor) for minor in range(16)])
    world.now = NOW
    request = requests.gang_request(shown_gang, requests.GangRecord(), {})
    assert request is not None
    plan = world.decide(request)
    return " ".join(sorted(assigned.pod.name for each in plan.admissions for assigned in each.assignments))


INDEXED = {"completionMode": "Indexed"}
WAVES = {"parallelism": 3, "completions": 8}
SIX_BY_TWO = {"parallelism": 2, "completions": 6, **INDEXED}
EIGHT = {"parallelism": 8, "completions": 8, **INDEXED}
ELASTIC = {"parallelism": 8, "completions": 8}

JOBS: dict[str, tuple[int, Any, Any, str, str]] = {
    # size, spec of the Job, its status, pods, what is placed
    "a new Job": (3, WAVES, {}, "GGG", "p00 p01 p02"),
    "not all created yet": (3, WAVES, {}, "GG", "Gathering"),
    "second wave of three": (3, WAVES, {"succeeded": 3}, "SSSGGG", "p03 p04 p05"),
    "second wave, the Job's status is late": (3, WAVES, {}, "SSSGGG", "p03 p04 p05"),
    "second wave, the pods are collected": (3, WAVES, {"succeeded": 3}, "GGG", "p00 p01 p02"),
    "second wave, two of three created": (3, WAVES, {"succeeded": 3}, "SSSGG", "Gathering"),
    "one finished, its successor joins": (3, WAVES, {"succeeded": 1}, "SRRG", "p03"),
    "last wave is of two": (3, WAVES, {"succeeded": 6}, "SSSSSSGG", "p06 p07"),
    "last wave, not yet in the status": (
        3,
        WAVES,
        {"succeeded": 3, "uncountedTerminatedPods": {"succeeded": ["a", "b", "c"]}},
        "SSSSSSGG",
        "p06 p07",
    ),
    "indexed 2/6, third wave": (2, SIX_BY_TWO, {"completedIndexes": "0-3"}, "SSSSGG", "p04 p05"),
    "indexed 2/6, last index": (2, SIX_BY_TWO, {"completedIndexes": "0-4"}, "SSSSSG", "p05"),
    "evicted when three had completed": (8, EIGHT, {"completedIndexes": "1-3"}, "G---GGGG", "p00 p04 p05 p06 p07"),
    "the same, one not yet back": (8, EIGHT, {"completedIndexes": "1-3"}, "----GGGG", "Gathering"),
    "the same, completed pods only seen as pods": (8, EIGHT, {}, "GSSSGGGG", "p00 p04 p05 p06 p07"),
    "one replaced when eleven had succeeded": (
        12,
        {"parallelism": 12, "completions": 12, **INDEXED},
        {"completedIndexes": "0-10"},
        "SSSSSSSSSSSG",
        "p11",
    ),
    "one failed, the others run on": (8, EIGHT, {}, "RRRRRRRF", ""),
    "its replacement joins at once": (8, EIGHT, {}, "RRRRRRRG", "p07"),
    "two failed, one is back": (8, EIGHT, {}, "RRRRRRFG", "p07"),
    "one is evicted, its replacement is there": (8, EIGHT, {}, "RRRRRRRTG", "p08"),
    "an index has failed for good": (8, EIGHT, {"failedIndexes": "7"}, "GGGGGGG", "p00 p01 p02 p03 p04 p05 p06"),
    "suspended and resumed": (8, EIGHT, {"completedIndexes": "0"}, "SGGGGGGG", "p01 p02 p03 p04 p05 p06 p07"),
    "elastic, starts with its size": (4, ELASTIC, {}, "GGGGGGGG", "p00 p01 p02 p03"),
    "elastic, grows one by one": (4, ELASTIC, {}, "RRRRGGGG", "p04"),
    "elastic, three completions left": (4, ELASTIC, {"succeeded": 5}, "SSSSSGGG", "p05 p06 p07"),
    "elastic, made smaller than its size": (4, {"parallelism": 2, "completions": 8}, {}, "GG", "Gathering"),
    "without completions, first pods": (3, {"parallelism": 3}, {}, "GGG", "p00 p01 p02"),
    "without completions, after one success": (3, {"parallelism": 3}, {"succeeded": 1}, "SGG", "p01 p02"),
    "failed": (3, WAVES, condition("Failed", "BackoffLimitExceeded"), "G", "NoMorePods"),
    "about to fail": (3, WAVES, condition("FailureTarget", "DeadlineExceeded"), "GG", "NoMorePods"),
}


@pytest.mark.parametrize("row", JOBS)
def test_of_a_job(row):
    size, spec, status, shown, wanted = JOBS[row]
    pods, held = members(shown, size=size, indexed=spec.get("completionMode") == "Indexed")
    assert placed_or_nothing(gang(pods, held, [job(**spec, status=status)])) == wanted


def placed_or_nothing(shown_gang):
    if requests.blocking_problem(shown_gang) is None and not requests.members_to_place(shown_gang):
        return ""
    return placed(shown_gang)


OTHERS = {
    "StatefulSet, all there": (3, "StatefulSet", "GGG", "p00 p01 p02"),
    "StatefulSet, one replaced": (3, "StatefulSet", "RRG", "p02"),
    "LeaderWorkerSet, recreated whole": (3, "StatefulSet", "TTTGGG", "p03 p04 p05"),
    "LeaderWorkerSet, half recreated": (3, "StatefulSet", "TTTGG", "Gathering"),
    "Deployment, rolling update": (3, "ReplicaSet", "RRRG", "p03"),
    "Deployment, one of the old goes first": (3, "ReplicaSet", "RRTG", "p03"),
    "RayCluster, one worker died": (4, "RayCluster", "RRRFG", "p04"),
    "PyTorchJob, some have succeeded": (4, "PyTorchJob", "SSGG", "p02 p03"),
    "bare pods": (3, "", "GGG", "p00 p01 p02"),
    "bare pods, one missing": (3, "", "GG", "Gathering"),
    "bare pods, one created again": (3, "", "RRFG", "p03"),
}


@pytest.mark.parametrize("row", OTHERS)
def test_of_other_workloads(row):
    size, kind, shown, wanted = OTHERS[row]
    pods, held = members(shown, size=size, owner=(kind, "owner") if kind else None)
    assert placed_or_nothing(gang(pods, held, ())) == wanted


JOB_SETS: dict[str, tuple[Any, Any, str, str, str]] = {
    # of two Jobs of four pods each: status of the first, of the second, pods of the first, of the second, what is placed
    "both new": ({}, {}, "GGGG", "GGGG", "p00 p01 p02 p03 p10 p11 p12 p13"),
    "the second is not created yet": ({}, None, "GGGG", "", "Gathering"),
    "the first is complete": ({"completedIndexes": "0-3"}, {}, "SSSS", "GGGG", "p10 p11 p12 p13"),
    "the first is complete, its pods are gone": (
        {"completedIndexes": "0-3"} | condition("Complete", "CompletionsReached"),
        {},
        "",
        "GGGG",
        "p10 p11 p12 p13",
    ),
    "the first failed": (condition("Failed", "BackoffLimitExceeded"), {}, "", "GGGG", "NoMorePods"),
    "one of the second is replaced": ({}, {}, "RRRR", "RRRG", "p13"),
}


@pytest.mark.parametrize("row", JOB_SETS)
def test_of_a_jobset(row):
    first, second, shown, others, wanted = JOB_SETS[row]
    spec = {"parallelism": 4, "completions": 4, **INDEXED}
    jobs = [job(uid="job-1", status=first, **spec)]
    pods, held = members(shown, size=8, owner=("Job", "job-1"), indexed=True)
    if second is not None:
        jobs.append(job(uid="job-2", status=second, **spec))
        more, claims = members(others, size=8, owner=("Job", "job-2"), indexed=False, first=10)
        pods, held = pods + more, held + claims
    assert placed_or_nothing(gang(pods, held, jobs)) == wanted


def test_a_gang_whose_job_has_failed_names_it_and_what_to_do():
    pods, held = members("G", size=3)
    problem = requests.blocking_problem(
        gang(pods, held, [job(**WAVES, status=condition("Failed", "PodFailurePolicy"))])
    )
    assert problem is not None
    assert problem.message == (
        "Job ml/job-1 failed: PodFailurePolicy; it makes no more pods: 1 of 3 members exist; delete it and create it again"
    )


def test_a_gang_that_its_job_can_never_make_says_how_many_pods_it_runs():
    pods, held = members("GG", size=4)
    problem = requests.blocking_problem(gang(pods, held, [job(parallelism=2, completions=8)]))
    assert problem is not None
    assert problem.message == (
        "2 of 4 members exist; 2 members are still to be created (of its Jobs ml/job-1 runs 2 pods at once: raise "
        "parallelism, or lower the size, unless others make the rest)"
    )


@pytest.mark.parametrize(
    ("size", "shown", "jobs", "phase", "reason", "text"),
    [
        (3, "SSSRRR", [job(**WAVES, status={"succeeded": 3})], "Running", "MembersRun", "3 of 3 members run"),
        (3, "SSSRRG", [job(**WAVES, status={"succeeded": 3})], "Running", "Replacing", "2 of 3 members run; 1 is being replaced"),
        (8, "SSSRRRRR", [job(**EIGHT, status={"completedIndexes": "0-2"})], "Running", "MembersRun", "8 of 8 members run"),
        (8, "RRRRRRFF", [job(**EIGHT)], "Running", "Replacing", "6 of 8 members run; 2 are being replaced"),
        (2, "RRG", [job(parallelism=3)], "Running", "MembersRun", "2 of 2 members run; 1 more wait"),
        (3, "RRF", [job(parallelism=3, completions=3, **INDEXED, status={"failedIndexes": "2"})], "Running", "MembersRun", "2 of 3 members run, 1 has failed for good"),
        (8, "RRRRRRFF", [job(**EIGHT, status={"failedIndexes": "6,7"})], "Running", "MembersRun", "6 of 8 members run, 2 have failed for good"),
        (8, "RRRRSSFG", [job(**EIGHT, status={"completedIndexes": "4-5", "failedIndexes": "6"})], "Running", "Replacing", "6 of 8 members run, 1 has failed for good; 1 is being replaced"),
        (3, "SSS", [job(**EIGHT)], "Finished", "PodsSucceeded", "all pods have ended well"),
    ],
)  # fmt: skip
def test_what_its_status_says(size, shown, jobs, phase, reason, text):
    pods, held = members(shown, size=size)
    summary = summarize(gang(pods, held, jobs), SchedulingState())
    assert (summary.phase, summary.reason, summary.message) == (phase, reason, text)


def test_bare_pods_are_not_said_to_be_replaced():
    pods, held = members("RRF", size=3, owner=None)
    summary = summarize(gang(pods, held, ()), SchedulingState())
    assert summary.message == (
        "2 of 3 members run; 1 is missing, and nothing is known to make others: the rest runs on"
    )


def test_a_statefulset_that_makes_its_pods_in_order_is_told_to_make_them_at_once():
    pods, held = members("G", size=3, owner=("StatefulSet", "s"))
    problem = requests.blocking_problem(gang(pods, held, ()))
    assert problem is not None
    assert problem.message.endswith("set podManagementPolicy: Parallel)")


@pytest.mark.parametrize(
    ("shown", "said"), [("GG", ""), ("TG", " (pod p00 of before is leaving still: its controller may wait for that)")]
)
def test_a_statefulset_that_makes_its_pods_at_once_is_told_nothing_of_that(shown, said):
    pods, held = members(shown, size=3, owner=("StatefulSet", "s"))
    problem = requests.blocking_problem(gang(pods, held, ()))
    assert problem is not None
    assert problem.message.endswith(f"still to be created{said}")


def test_members_that_leave_are_not_said_to_be_replaced():
    pods, held = members("RRT", size=3)
    summary = summarize(gang(pods, held, ()), SchedulingState())
    assert summary.message == "2 of 3 members run; 1 is leaving"


@pytest.mark.parametrize("ended", ["Failed", "Complete"])
def test_a_job_of_an_earlier_run_under_the_gangs_name_does_not_matter(ended):
    earlier = job(uid="job-0", **WAVES, status={"succeeded": 8} | condition(ended, "Whatever"))
    pods, held = members("GGG", size=3)
    assert placed(gang(pods, held, [earlier, job(**WAVES)])) == "p00 p01 p02"
    pods, held = members("SSSSSSGG", size=3)
    assert placed(gang(pods, held, [earlier, job(**WAVES, status={"succeeded": 6})])) == "p06 p07"


def test_claims_of_the_claim_controller_are_awaited_for_a_moment():
    """Not those that the webhook named, nor for a pod that is older; the youngest member counts."""
    young = timestamps.seconds(NOW - 1)
    without, old = pod("p", creationTimestamp=young), pod("q", creationTimestamp=timestamps.seconds(NOW - 60))
    assert requests.claims_awaited_until(view(without)) == NOW + 1
    assert requests.claims_awaited_until(view(old)) == NOW - 58
    made = pod("p", claim="c", creationTimestamp=young)
    assert requests.claims_awaited_until(view(made, objects=Objects([claim("c", "p")]))) == 0
