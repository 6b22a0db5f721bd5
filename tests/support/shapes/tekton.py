"""Tekton Pipelines 1.15.0: a TaskRun's pod.

The pod is <taskrun>-pod, one container step-<name> for each step; annotations and labels of the TaskRun lie on it. `podTemplate` gives
scheduling fields, and has no resourceClaims; a step has computeResources. Tekton's own init containers are left out: they end
before the steps begin, and hold no device.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, pod

FROM_TEMPLATE = ("nodeSelector", "tolerations", "affinity", "schedulerName", "priorityClassName", "runtimeClassName")


def pods(task_run: Obj, lookup: Lookup) -> Iterator[Obj]:
    metadata, spec = task_run["metadata"], task_run["spec"]
    steps = []
    for step in spec["taskSpec"]["steps"]:
        kept = {key: step[key] for key in ("image", "command", "args", "env") if key in step}
        steps.append({"name": f"step-{step['name']}", **kept, "resources": step.get("computeResources") or {}})
    template = spec.get("podTemplate") or {}
    found: Obj = {"restartPolicy": "Never", "containers": steps, "activeDeadlineSeconds": 5400}
    found |= {key: template[key] for key in FROM_TEMPLATE if key in template}
    labels = {
        **(metadata.get("labels") or {}),
        "tekton.dev/taskRun": metadata["name"],
        "tekton.dev/taskRunUID": metadata.get("uid", ""),
        "app.kubernetes.io/managed-by": "tekton-pipelines",
    }
    said = dict(metadata.get("annotations") or {})
    yield pod(task_run, {"spec": found}, name=f"{metadata['name']}-pod", labels=labels, **said)


TEKTON = Controller(
    name="Tekton Pipelines",
    version="1.15.0",
    sources=(
        "https://github.com/tektoncd/pipeline/blob/v1.15.0/pkg/pod/pod.go",
        "https://github.com/tektoncd/pipeline/blob/v1.15.0/pkg/apis/pipeline/pod/template.go",
    ),
    account="system:serviceaccount:tekton-pipelines:tekton-pipelines-controller",
    kinds=(Kind(api_version="tekton.dev/v1", kind="TaskRun", plural="taskruns"),),
    shapes={"TaskRun": pods},
)
