"""`fairlead check FILE…`: the same verdicts as the webhook's, for CI."""

import json
from pathlib import Path

import pytest

from fairlead.api import names
from tests.support.commands import invoke

ROOT = Path(__file__).resolve().parents[2]
POD = """
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: dev}
spec:
  containers: [{name: main, image: busybox, resources: {limits: {nvidia.com/gpu: COUNT}}}]
---
apiVersion: v1
kind: Namespace
metadata: {name: dev, labels: {fairlead.dev/tier: dev}}
"""


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    path = tmp_path / "pod.yaml"
    path.write_text(POD.replace("COUNT", "2"))
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    result = invoke(["check", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_what_is_admitted_says_what_becomes_of_it(pod: Path) -> None:
    status, out, _ = run(pod)
    assert status == 0
    assert "patched   Pod dev/train" in out
    assert "2 objects, 1 judged, 0 verdicts refused" in out


def test_a_policy_from_a_file_refuses_with_the_webhooks_words(pod: Path) -> None:
    status, out, _ = run(pod, "--policies", ROOT / "manifests" / "policies" / "dev-mig-only.yaml")
    assert status == 1
    assert (
        "Pod dev/train: TenancyPolicy dev-mig-only (wholeGpus): spec.containers[0].resources.limits[nvidia.com/gpu]"
        in out
    )


JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: dev}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def gangs(*arguments: object) -> list[dict[str, object]]:
    return [entry["gang"] for entry in json.loads(run("-o", "json", *arguments)[1]) if entry["gang"]]


@pytest.mark.parametrize(
    ("folder", "name", "size"),
    [
        ("02-indexed-job", "pretrain", 4),
        ("09-jobset", "llama", 8),
        ("10-leaderworkerset", "serve-0", 2),
        ("12-ray", "explore", 2),
        ("19-elastic-and-priorities", "elastic", 4),
    ],
)
def test_it_says_which_pods_become_which_gang(folder: str, name: str, size: int) -> None:
    _, out, _ = run(ROOT / "examples" / folder)
    assert f"  gang {name} of {size}\n" in out
    assert {"name": name, "size": size, "queue": None, "models": None} in gangs(ROOT / "examples" / folder)


def test_a_pod_alone_and_one_with_a_queue_and_a_podgroup_say_so(tmp_path: Path, pod: Path) -> None:
    assert "  a gang of this pod alone\n" in run(pod)[1]
    assert gangs(pod) == [{"name": None, "size": 1, "queue": None, "models": None}]
    of_group = tmp_path / "member.yaml"
    annotations = "annotations: {scheduling.k8s.io/group-name: train, fairlead.dev/queue: research}"
    of_group.write_text(POD.replace("COUNT", "1").replace("namespace: dev}", f"namespace: dev, {annotations}}}", 1))
    assert "  gang train, whose size its PodGroup says, queue research\n" in run(of_group)[1]


def test_one_line_says_which_way_a_workloads_claims_go(tmp_path: Path, pod: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB)
    _, out, _ = run(job)
    assert out.count("  claims named: Job train owns the pod\n") == 1
    job.write_text(JOB.replace("namespace: dev", "namespace: dev, annotations: {fairlead.dev/claim-names: generated}"))
    _, out, _ = run(job)
    assert "  claims generated: metadata.annotations[fairlead.dev/claim-names]: generated\n" in out
    _, out, _ = run("-o", "json", pod)
    assert json.loads(out)[0]["claims"] == "generated: no controller owns the pod"


def test_json_holds_verdict_finding_and_patch(pod: Path) -> None:
    status, out, _ = run("-o", "json", pod, "--policies", ROOT / "manifests" / "policies" / "claims-first.yaml")
    (result,) = json.loads(out)
    assert (status, result["verdict"], result["findings"][0]["policy"]) == (0, "patched", "claims-first")
    assert {"op": "remove", "path": "/spec/containers/0/resources/limits/nvidia.com~1gpu"} in result["patch"]


def test_kinds_of_others_are_not_taken_for_ours_of_the_same_name(tmp_path: Path) -> None:
    """Volcano has a Job and a Queue, too."""
    (tmp_path / "volcano.yaml").write_text(
        """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: team}
spec: {weight: 1, reclaimable: false}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train}
spec: {minAvailable: 2, queue: team, tasks: [{name: worker, replicas: 2, template: {spec: {containers: []}}}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: sample, labels: {kueue.x-k8s.io/queue-name: team}}
spec: {template: {spec: {containers: [{name: a, image: b, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {kueue.x-k8s.io/queue-name: team}}
spec: {containers: [{name: a, image: b}]}
"""
    )
    status, out, err = run(tmp_path)
    assert (status, err) == (0, "")
    assert "patched   Job default/sample" in out
    assert "Job default/train" not in out
    assert "untouched Pod default/web" in out
    assert "4 objects, 2 judged, 0 verdicts refused" in out


def test_a_jobs_pods_are_judged_too() -> None:
    status, out, _ = run(ROOT / "examples" / "02-indexed-job")
    assert status == 0
    assert "Pod language/pretrain-0-* (of Job language/pretrain)" in out


def test_the_examples_pass_the_ready_policies() -> None:
    managed = [f"--managed-driver={each}" for each in (names.DRIVER, "dra.net", "dra.cpu")]
    status, out, err = run(ROOT / "examples", *managed, "--policies", str(ROOT / "manifests" / "policies"))
    assert (status, err) == (0, "")
    assert "0 verdicts refused" in out


def test_a_template_for_devices_of_two_drivers_is_refused_where_one_is_not_managed() -> None:
    status, out, _ = run(ROOT / "examples" / "23-gpu-and-nic")
    assert status == 1
    assert "ResourceClaimTemplate vision/gpu-and-nic: spec.spec.devices.requests[1]: DeviceClass dranet.net" in out
    assert "add dra.net to managedDrivers of the chart (--managed-driver)" in out
    status, out, _ = run(ROOT / "examples" / "23-gpu-and-nic", "--shared-claim-driver=dra.net")
    assert (status, "0 verdicts refused" in out) == (0, True)


@pytest.mark.parametrize("text", ["a: [", "- 1", "3"])
def test_a_file_that_holds_no_objects_is_status_2(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    status, _, err = run(path)
    assert status == 2
    assert str(path) in err


def test_a_missing_file_is_status_2(tmp_path: Path) -> None:
    assert run(tmp_path / "none.yaml")[0] == 2


def test_a_policy_that_cannot_be_read_is_said(tmp_path: Path, pod: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        "{apiVersion: fairlead.dev/v1alpha1, kind: TenancyPolicy, metadata: {name: p}, spec: {mode: Perhaps}}"
    )
    _, _, err = run(pod, "--policies", path)
    assert "TenancyPolicy p: cannot be read" in err
