"""Which pods count as members of a gang, and which are placed next: a table by workload kind.

Each row of `membership.yaml` shows a gang at one moment. One letter a pod, in order of creation: S succeeded, F failed, R runs, T on
the way out, G gated, "-" does not exist. Then what the engine admits on a cluster with room for all, and what the Gang says if nothing.
"""

from pathlib import Path

import msgspec
import pytest

from fairlead.api import names
from fairlead.controller.book.shown import SchedulingState
from fairlead.controller.gangs.admission import requests
from fairlead.controller.report.gang_phase import summarize
from fairlead.kube import batch, timestamps
from tests.controller.gang_views import NOW, Objects, asked, claim, pod, problem_of, template, view
from tests.support import quick_yaml
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
    request = asked(shown_gang)
    plan = world.decide(request)
    return " ".join(sorted(assigned.pod.name for each in plan.admissions for assigned in each.assignments))


INDEXED = {"completionMode": "Indexed"}
WAVES = {"parallelism": 3, "completions": 8}
SIX_BY_TWO = {"parallelism": 2, "completions": 6, **INDEXED}
EIGHT = {"parallelism": 8, "completions": 8, **INDEXED}
ELASTIC = {"parallelism": 8, "completions": 8}

TABLES = quick_yaml.load((Path(__file__).parent / "membership.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", TABLES["jobs"].values(), ids=TABLES["jobs"])
def test_of_a_job(row):
    spec = row["job"]
    pods, held = members(row["pods"], size=row["size"], indexed=spec.get("completionMode") == "Indexed")
    assert placed_or_nothing(gang(pods, held, [job(**spec, status=row.get("status", {}))])) == row["placed"]


def placed_or_nothing(shown_gang):
    if requests.blocking_problem(shown_gang) is None and not requests.members_to_place(shown_gang):
        return ""
    return placed(shown_gang)


@pytest.mark.parametrize("row", TABLES["others"].values(), ids=TABLES["others"])
def test_of_other_workloads(row):
    kind = row["kind"]
    pods, held = members(row["pods"], size=row["size"], owner=(kind, "owner") if kind else None)
    assert placed_or_nothing(gang(pods, held, ())) == row["placed"]


@pytest.mark.parametrize("row", TABLES["jobsets"].values(), ids=TABLES["jobsets"])
def test_of_a_jobset(row):
    spec = {"parallelism": 4, "completions": 4, **INDEXED}
    (first, second), (shown, others) = row["statuses"], row["pods"]
    jobs = [job(uid="job-1", status=first, **spec)]
    pods, held = members(shown, size=8, owner=("Job", "job-1"), indexed=True)
    if second is not None:
        jobs.append(job(uid="job-2", status=second, **spec))
        more, claims = members(others, size=8, owner=("Job", "job-2"), indexed=False, first=10)
        pods, held = pods + more, held + claims
    assert placed_or_nothing(gang(pods, held, jobs)) == row["placed"]


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
    assert problem_of(gang(pods, held, [job(parallelism=2, completions=8)])) == (
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
    assert problem_of(gang(pods, held, ())).endswith("set podManagementPolicy: Parallel)")


@pytest.mark.parametrize(
    ("shown", "said"), [("GG", ""), ("TG", " (pod p00 of before is leaving still: its controller may wait for that)")]
)
def test_a_statefulset_that_makes_its_pods_at_once_is_told_nothing_of_that(shown, said):
    pods, held = members(shown, size=3, owner=("StatefulSet", "s"))
    assert problem_of(gang(pods, held, ())).endswith(f"still to be created{said}")


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
