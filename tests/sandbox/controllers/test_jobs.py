"""The Job controller's decisions: a small world applies them until nothing is left to do."""

import itertools
from typing import Any

import pytest

from fairlead.kube import timestamps
from fairlead.sandbox.controllers import job_pods, jobs
from fairlead.sandbox.controllers.job_pods import BackoffRecord
from fairlead.sandbox.objects import condition, is_deleting, is_true, phase_of, status_of

Obj = dict[str, Any]
NOW_S = 1_800_000_000.0
GPU = {"name": "main", "image": "busybox"}


def job(**spec: Any) -> Obj:
    template: Obj = {"metadata": {"annotations": {"a": "b"}}, "spec": {"restartPolicy": "Never", "containers": [GPU]}}
    return {
        "metadata": {"name": "train", "namespace": "ml", "uid": "job-1"},
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, "template": template, **spec},
        "status": {},
    }


class World:
    """Applies JobWork as the rim and the apiserver would; pods end when a test says so."""

    def __init__(self, subject: Obj) -> None:
        self.job = subject
        self.pods: dict[str, Obj] = {}
        self.now_s = NOW_S
        self.serial = itertools.count()
        self.backoff = BackoffRecord()

    def settle(self) -> jobs.JobWork:
        for _ in range(20):
            work = jobs.job_work(self.job, self.pods.values(), now_s=self.now_s, backoff_s=10.0, backoff=self.backoff)
            self.backoff = work.backoff
            if work.status is None and not (work.releases or work.deletes or work.creates):
                return work
            if work.status is not None:
                self.job["status"] = work.status
            for name in work.releases:
                self.pods[name]["metadata"]["finalizers"] = []
                self._reap(name)
            for name in work.deletes:
                self.delete(name)
            for pod in work.creates:
                self.create(pod)
        raise AssertionError("the Job controller does not settle")

    def create(self, pod: Obj) -> None:
        serial = next(self.serial)
        name = f"{pod['metadata']['generateName']}{serial:05}"
        pod["metadata"] |= {"name": name, "uid": f"pod-{serial}"}
        pod["status"] = {"phase": "Running"}
        self.pods[name] = pod

    def delete(self, name: str) -> None:
        self.pods[name]["metadata"]["deletionTimestamp"] = timestamps.seconds(self.now_s)
        self._reap(name)

    def _reap(self, name: str) -> None:
        if is_deleting(self.pods[name]) and not self.pods[name]["metadata"].get("finalizers"):
            del self.pods[name]

    def end(self, phase: str, *names: str, **status: Any) -> None:
        for name in names or [each for each in self.pods if phase_of(self.pods[each]) == "Running"]:
            ended = {"terminated": {"exitCode": 1, "finishedAt": timestamps.seconds(self.now_s)}}
            containers = [{"name": "main", "state": ended}]
            self.pods[name]["status"] = {"phase": phase, "containerStatuses": containers, **status}
        self.settle()

    @property
    def running(self) -> list[str]:
        return [name for name, pod in self.pods.items() if phase_of(pod) == "Running" and not is_deleting(pod)]


def world(**spec: Any) -> World:
    made = World(job(**spec))
    made.settle()
    return made


def test_an_indexed_job_gives_each_pod_its_index_by_annotation_label_env_and_hostname() -> None:
    made = world(completionMode="Indexed", parallelism=3, completions=3)
    assert sorted(job_pods.index_of(pod) or 0 for pod in made.pods.values()) == [0, 1, 2]
    pod = next(pod for pod in made.pods.values() if job_pods.index_of(pod) == 2)
    assert pod["metadata"]["generateName"] == "train-2-"
    assert pod["metadata"]["labels"][job_pods.INDEX] == "2"
    assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "train"
    assert pod["metadata"]["annotations"]["a"] == "b"
    assert pod["spec"]["hostname"] == "train-2"
    assert pod["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert GPU == {"name": "main", "image": "busybox"}


def test_a_job_completes_when_all_its_indexes_succeeded() -> None:
    made = world(completionMode="Indexed", parallelism=2, completions=3)
    assert len(made.running) == 2
    made.end("Succeeded")
    assert len(made.running) == 1
    made.end("Succeeded")
    assert status_of(made.job)["completedIndexes"] == "0-2"
    assert status_of(made.job)["succeeded"] == 3
    assert is_true(made.job, "Complete") and is_true(made.job, "SuccessCriteriaMet")
    assert status_of(made.job)["completionTime"]
    assert status_of(made.job)["uncountedTerminatedPods"] == {}


def test_a_job_without_completions_ends_with_its_last_pod_after_one_success() -> None:
    made = world(parallelism=3, completions=None)
    made.end("Succeeded", made.running[0])
    assert len(made.running) == 2
    assert not jobs.is_finished(made.job)
    made.end("Succeeded")
    assert is_true(made.job, "Complete")


def test_a_failed_pod_is_replaced_after_a_back_off_and_its_index_kept() -> None:
    made = world(completionMode="Indexed", parallelism=2, completions=2)
    victim = next(name for name, pod in made.pods.items() if job_pods.index_of(pod) == 1)
    ended = {"terminated": {"exitCode": 1, "finishedAt": "2027-01-15T08:00:00Z"}}
    made.end("Failed", victim, containerStatuses=[{"name": "main", "state": ended}])
    assert len(made.running) == 1
    assert made.settle().again_after_s == pytest.approx(10.0)
    made.now_s += 10
    made.settle()
    assert sorted(job_pods.index_of(made.pods[name]) or 0 for name in made.running) == [0, 1]
    assert status_of(made.job)["failed"] == 1


def test_more_failures_than_the_back_off_limit_fail_the_job_and_stop_its_pods() -> None:
    made = world(parallelism=3, completions=3, backoffLimit=0)
    made.end("Failed", made.running[0])
    assert made.running == []
    found = condition(made.job, "Failed")
    assert found is not None and found["reason"] == "BackoffLimitExceeded"
    assert status_of(made.job).get("active", 0) == 0
    assert status_of(made.job)["failed"] == 3


def test_a_disruption_that_the_failure_policy_ignores_is_not_counted() -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    made = world(backoffLimit=0, podFailurePolicy={"rules": [rule]})
    made.end("Failed", conditions=[{"type": "DisruptionTarget", "status": "True"}])
    assert not any(job_pods.is_tracked(pod) for pod in made.pods.values() if phase_of(pod) == "Failed")
    made.now_s += 10
    made.settle()
    assert len(made.running) == 1
    assert status_of(made.job).get("failed", 0) == 0


def test_an_exit_code_can_fail_the_job_at_once() -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    made = world(podFailurePolicy={"rules": [rule]})
    made.end("Failed", containerStatuses=[{"name": "main", "state": {"terminated": {"exitCode": 42}}}])
    found = condition(made.job, "Failed")
    assert found is not None and found["reason"] == "PodFailurePolicy"


def test_a_suspended_job_has_no_pods_and_resumes() -> None:
    made = world(parallelism=2, completions=2)
    made.job["spec"]["suspend"] = True
    made.settle()
    assert made.pods == {}
    assert is_true(made.job, "Suspended")
    assert status_of(made.job).get("failed", 0) == 0
    made.job["spec"]["suspend"] = False
    made.settle()
    assert len(made.running) == 2
    assert not is_true(made.job, "Suspended")


IGNORE = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]


@pytest.mark.parametrize(
    ("spec", "wait_s", "ended"),
    [
        ({}, 0.0, "BackoffLimitExceeded"),
        ({"podFailurePolicy": IGNORE}, 600.0, ""),
        ({"backoffLimit": 100}, 600.0, ""),
        ({"backoffLimitPerIndex": 3, "backoffLimit": 2**31 - 1}, 10.0, ""),
        ({"backoffLimitPerIndex": 3, "podFailurePolicy": IGNORE}, 10.0, ""),
        ({"backoffLimitPerIndex": 3}, 0.0, "BackoffLimitExceeded"),
        ({"completionMode": "NonIndexed", "podFailurePolicy": IGNORE}, 600.0, ""),
    ],
)
def test_eight_pods_that_are_evicted_at_once(spec: Obj, wait_s: float, ended: str) -> None:
    """As seen on 1.36.2: ignored failures count for the back-off, and only back-off by index begins at 10 s."""
    made = world(**{"completionMode": "Indexed", "parallelism": 8, "completions": 8, **spec})
    made.end("Failed", conditions=DISRUPTED)
    failed = condition(made.job, "Failed")
    assert (failed["reason"] if failed else "") == ended
    if ended:
        return
    assert made.running == []
    made.now_s += wait_s - 0.5
    made.settle()
    assert made.running == []
    made.now_s += 0.5
    made.settle()
    assert len(made.running) == 8


def test_each_further_failure_doubles_the_wait_and_a_success_ends_it() -> None:
    made = world(parallelism=2, completions=4, backoffLimit=100)
    waits = []
    for _ in range(8):
        made.end("Failed", made.running[0])
        waits.append(made.settle().again_after_s)
        made.now_s += waits[-1] or 0.0
        made.settle()
    assert waits == [10, 20, 40, 80, 160, 320, 600, 600]
    made.now_s += 1
    made.end("Succeeded", made.running[0])
    assert len(made.running) == 2


def test_more_failed_indexes_than_allowed_fail_the_job() -> None:
    made = world(
        completionMode="Indexed",
        parallelism=4,
        completions=4,
        backoffLimit=99,
        backoffLimitPerIndex=0,
        maxFailedIndexes=1,
    )
    made.end("Failed", *made.running[:1])
    assert not jobs.is_finished(made.job)
    made.end("Failed", *made.running[:1])
    found = condition(made.job, "Failed")
    assert found is not None and found["reason"] == "MaxFailedIndexesExceeded"
    assert made.running == []


def test_an_elastic_indexed_job_loses_its_highest_indexes_and_gets_them_back() -> None:
    made = world(completionMode="Indexed", parallelism=4, completions=4)
    made.job["spec"] |= {"parallelism": 2, "completions": 2}
    made.settle()
    assert sorted(job_pods.index_of(made.pods[name]) or 0 for name in made.running) == [0, 1]
    made.job["spec"] |= {"parallelism": 3, "completions": 3}
    made.settle()
    assert sorted(job_pods.index_of(made.pods[name]) or 0 for name in made.running) == [0, 1, 2]
    assert status_of(made.job).get("failed", 0) == 0


@pytest.mark.parametrize("policy", ["TerminatingOrFailed", "Failed"])
def test_a_terminating_pod_is_replaced_at_once_or_when_it_has_ended(policy: str) -> None:
    made = world(podReplacementPolicy=policy, backoffLimit=9)
    (victim,) = made.running
    made.delete(victim)
    made.now_s += 10
    made.settle()
    assert len(made.running) == (policy == "TerminatingOrFailed")
    if policy == "Failed":
        made.end("Failed", victim)
        made.now_s += 10
        made.settle()
        assert len(made.running) == 1


@pytest.mark.parametrize("text", ["", "0", "0,1", "0-2", "1,3-5,7"])
def test_completed_indexes_are_written_as_kubernetes_writes_them(text: str) -> None:
    assert job_pods.format_indexes(job_pods.parse_indexes(text)) == text


def test_a_deadline_fails_the_job() -> None:
    made = world(activeDeadlineSeconds=10)
    assert made.settle().again_after_s == pytest.approx(10)
    made.now_s += 11
    made.settle()
    found = condition(made.job, "Failed")
    assert found is not None and found["reason"] == "DeadlineExceeded"


def test_an_index_waits_for_its_own_failures_only_and_fails_after_its_limit() -> None:
    made = world(completionMode="Indexed", parallelism=2, completions=2, backoffLimit=99, backoffLimitPerIndex=1)
    for wait_s in (10, None):
        (victim,) = (name for name in made.running if job_pods.index_of(made.pods[name]) == 1)
        made.end("Failed", victim)
        assert made.settle().again_after_s == wait_s
        made.now_s += 10
        made.settle()
    assert status_of(made.job)["failedIndexes"] == "1"
    assert status_of(made.job)["failed"] == 2
    made.end("Succeeded")
    found = condition(made.job, "Failed")
    assert found is not None and found["reason"] == "FailedIndexes"


def test_pods_that_the_job_itself_stops_are_no_failures() -> None:
    made = world(parallelism=4, completions=8, backoffLimit=0)
    made.job["spec"]["parallelism"] = 2
    made.settle()
    made.job["spec"]["suspend"] = True
    made.settle()
    made.job["spec"]["suspend"] = False
    made.settle()
    assert len(made.running) == 2
    assert status_of(made.job).get("failed", 0) == 0
