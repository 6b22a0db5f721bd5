"""Kubeflow Trainer 2.3.0: a TrainJob's JobSet, made of its runtime.

The runtime's template is taken as it is; the job with the label `trainer.kubeflow.org/trainjob-ancestor-step: trainer` runs `numNodes`
pods, and its container `node` gets image, command, args, env and resourcesPerNode of the TrainJob: limits and requests, no claims.
What `runtimePatches` say of the template's metadata lies on the JobSet; TrainJobs have had no `spec.annotations` since 2.2.
With `mlPolicy.torch` and numProcPerNode "auto", PET_NPROC_PER_NODE stays "auto" where a GPU is among the limits, and is the number
of CPUs otherwise.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, child, with_env

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def jobset(train_job: Obj, lookup: Lookup) -> Iterator[Obj]:
    metadata, reference = train_job["metadata"], train_job["spec"]["runtimeRef"]
    kind = reference.get("kind", "ClusterTrainingRuntime")
    runtime = lookup(kind, metadata["namespace"] if kind == "TrainingRuntime" else "", reference["name"])
    template, policy = copy.deepcopy(runtime["spec"]["template"]), runtime["spec"].get("mlPolicy") or {}
    said: dict[str, dict[str, str]] = {
        key: dict((template.get("metadata") or {}).get(key) or {}) for key in ("labels", "annotations")
    }
    for patch in train_job["spec"].get("runtimePatches") or ():
        patched = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("metadata") or {}
        said = {key: {**words, **(patched.get(key) or {})} for key, words in said.items()}
    for job in template["spec"]["replicatedJobs"]:
        job.setdefault("groupName", "default")
        labels = (job["template"].get("metadata") or {}).get("labels") or {}
        if labels.get(STEP) == "trainer":
            _train(job, train_job, policy)
    template["spec"]["suspend"] = bool(train_job["spec"].get("suspend"))
    name = metadata["name"]
    yield child(train_job, "jobset.x-k8s.io/v1alpha2", "JobSet", name, template["spec"], **said)


def _train(job: Obj, train_job: Obj, policy: Obj) -> None:
    trainer: Obj = train_job["spec"].get("trainer") or {}
    nodes = trainer.get("numNodes", policy.get("numNodes", 1))
    job["replicas"] = 1
    job["template"]["spec"] |= {"parallelism": nodes, "completions": nodes}
    container: Any
    for container in job["template"]["spec"]["template"]["spec"]["containers"]:
        if container["name"] != "node":
            continue
        for key in ("image", "command", "args"):
            if key in trainer:
                container[key] = trainer[key]
        with_env(container, **{each["name"]: each["value"] for each in trainer.get("env") or ()})
        per_node = trainer.get("resourcesPerNode") or {}
        resources = container.get("resources") or {}
        if per_node:
            merged = {
                key: {**(resources.get(key) or {}), **(per_node.get(key) or {})} for key in ("limits", "requests")
            }
            container["resources"] = {key: value for key, value in merged.items() if value}
        if "torch" in policy:
            name = f"{train_job['metadata']['name']}-node-0-0.{train_job['metadata']['name']}"
            processes = str(trainer.get("numProcPerNode", "auto"))
            if processes == "auto":
                processes = _processes(container.get("resources") or {})
            with_env(container, PET_NNODES=str(nodes), PET_NPROC_PER_NODE=processes, PET_MASTER_ADDR=name)


def _processes(resources: Obj) -> str:
    limits = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    if any("gpu" in key.lower() and int(value) > 0 for key, value in limits.items()):
        return "auto"
    return str(max(1, int(limits.get("cpu", 0))))


TRAINER = Controller(
    name="Kubeflow Trainer (TrainJob)",
    version="2.3.0",
    sources=(
        "https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/core/trainingruntime.go",
        "https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/jobset/jobset.go",
        "https://github.com/kubeflow/trainer/blob/v2.3.0/pkg/runtime/framework/plugins/torch/torch.go",
    ),
    account="system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager",
    kinds=(
        Kind(api_version="trainer.kubeflow.org/v1alpha1", kind="TrainJob", plural="trainjobs"),
        Kind(api_version="trainer.kubeflow.org/v1alpha1", kind="TrainingRuntime", plural="trainingruntimes"),
        Kind(
            api_version="trainer.kubeflow.org/v1alpha1",
            kind="ClusterTrainingRuntime",
            plural="clustertrainingruntimes",
            namespaced=False,
        ),
    ),
    shapes={"TrainJob": jobset},
)
