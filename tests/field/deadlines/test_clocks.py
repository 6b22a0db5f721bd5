"""Deadlines that run while pods wait at the gate: each is warned about where it is written, and its cure is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fairlead.api import names
from fairlead.api.clocks import CLOCKS, Clock, running_out
from fairlead.webhook.offline import RESOURCES, judge, world_of
from tests.support.commands import invoke

ROOT = Path(__file__).resolve().parents[3]
Json = dict[str, Any]
RUNNING = [each for each in CLOCKS if each.waits]
IDS = [f"{each.kind}-{each.field}" for each in CLOCKS]

POD: Json = {
    "restartPolicy": "Never",
    "containers": [{"name": "main", "image": "busybox", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
}
TEMPLATE: Json = {"metadata": {"labels": {"app": "a"}}, "spec": POD}
BATCH: Json = {"parallelism": 1, "completions": 1, "completionMode": "Indexed", "template": TEMPLATE}
REPLICAS: Json = {"replicas": 1, "template": TEMPLATE}
RAY: Json = {
    "entrypoint": "python train.py",
    "rayClusterSpec": {"headGroupSpec": {"template": TEMPLATE}, "workerGroupSpecs": []},
}
STEP: Json = {"steps": [{"name": "s", "image": "busybox", "computeResources": {"limits": {"nvidia.com/gpu": 1}}}]}
ARGO: Json = {"templates": [{"name": "t", "container": {"image": "b", "resources": {"limits": {"nvidia.com/gpu": 1}}}}]}
STRATEGY: Json = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
SPECS: dict[str, tuple[str, Json]] = {
    "Pod": ("v1", POD),
    "Job": ("batch/v1", BATCH),
    "CronJob": ("batch/v1", {"schedule": "0 2 * * *", "jobTemplate": {"spec": BATCH}}),
    "JobSet": ("jobset.x-k8s.io/v1alpha2", {"replicatedJobs": [{"name": "w", "template": {"spec": BATCH}}]}),
    "Deployment": ("apps/v1", {**REPLICAS, "selector": {"matchLabels": {"app": "a"}}, "strategy": STRATEGY}),
    "PyTorchJob": ("kubeflow.org/v1", {"pytorchReplicaSpecs": {"Worker": REPLICAS}}),
    "MPIJob": ("kubeflow.org/v2beta1", {"mpiReplicaSpecs": {"Launcher": REPLICAS, "Worker": REPLICAS}}),
    "RayJob": ("ray.io/v1", RAY),
    "Workflow": ("argoproj.io/v1alpha1", ARGO),
    "TaskRun": ("tekton.dev/v1", {"timeout": "0s", "taskSpec": STEP}),
    "PipelineRun": (
        "tekton.dev/v1",
        {"timeouts": {"pipeline": "0s"}, "pipelineSpec": {"tasks": [{"name": "a", "taskSpec": STEP}]}},
    ),
}


def manifest(clock: Clock, value: Any) -> Json:
    version, spec = SPECS[clock.kind]
    made: Json = json.loads(json.dumps({"apiVersion": version, "kind": clock.kind, "spec": spec}))
    made["metadata"] = {"name": "x", "namespace": "ml"}
    holder: Any = made
    *path, last = clock.field.split(".")
    for step in path:
        holder = holder.setdefault(step.removesuffix("[]"), {}) if isinstance(holder, dict) else holder
        holder = holder[0] if step.endswith("[]") else holder
    holder[last] = value
    return made


def said(document: Json) -> list[str]:
    """What `fairlead check` says of it, in warnings of the webhook and in traps."""
    path = Path(document["metadata"].pop("path"))
    path.write_text(json.dumps(document))
    result = invoke(["check", "-o", "json", str(path)])
    found = [entry for entry in json.loads(result.stdout) if not entry.get("source")]
    texts = [f"{trap['field']}: {trap['message']}" for entry in found for trap in entry.get("traps", ())]
    return texts + [text for entry in found for text in entry.get("warnings", ())]


def about(clock: Clock) -> str:
    return clock.field.replace("[]", "[0]")


@pytest.mark.parametrize("clock", CLOCKS, ids=IDS)
def test_a_deadline_that_counts_while_pods_wait_is_warned_about_and_no_other(clock: Clock, tmp_path: Path):
    value = "25m" if "timeout" in clock.field else 500
    document = manifest(clock, value)
    document["metadata"]["path"] = str(tmp_path / "manifest.json")
    found = [text for text in said(document) if text.startswith(f"{about(clock)}: ")]
    assert len(found) == int(clock.waits)
    if clock.waits:
        assert f"{value} counts while the pods wait" in found[0]
        assert f"write {clock.instead}" in found[0]


def test_each_kind_with_pods_that_is_judged_is_in_the_table_or_has_no_deadline():
    without = {
        "LeaderWorkerSet", "RayCluster", "TrainJob", "DaemonSet", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "Queue",
        "Flavor", "TenancyPolicy", "Namespace",
    }  # fmt: skip
    assert set(RESOURCES) - {each.kind for each in CLOCKS} == without


def test_a_job_that_kueue_would_have_held_suspended_is_warned_that_its_clock_runs_now():
    spec = {**BATCH, "suspend": True, "activeDeadlineSeconds": 25}
    document: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "deadline", "namespace": "ml", "labels": {names.KUEUE_QUEUE: "teams"}},
        "spec": spec,
    }
    result = next(judge(document, world_of([document])))
    assert result.object["spec"]["suspend"] is False
    assert any(text.startswith("spec.suspend: true waits for Kueue") for text in result.warnings)
    (warned,) = [text for text in result.warnings if text.startswith("spec.activeDeadlineSeconds: 25 counts")]
    assert "write spec.template.spec.activeDeadlineSeconds" in warned


@pytest.mark.parametrize("value", [None, "", "soon", True, -5, 0, 10**9, "0s", "1..5h", {"a": 1}, "9" * 400 + "h"])
def test_what_is_no_deadline_or_none_that_a_queue_makes_run_out_is_passed_over(value: Any):
    assert list(running_out("TaskRun", {"spec": {"timeout": value}})) == []


def test_the_page_has_the_table():
    page = (ROOT / "docs" / "deadlines.md").read_text(encoding="utf-8")
    for each in CLOCKS:
        runs = "**yes**" if each.waits else "no"
        instead = each.instead.replace("|", "\\|") or "-"
        assert f"| {each.kind} | `{each.field}` | {runs} | {each.counts} | {instead} |" in page
