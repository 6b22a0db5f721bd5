"""Deadlines of the kinds that people run: which of them count while pods wait at the gate, and what to write instead.

A gated pod has not started, so what kubelet counts does not count yet; what another controller counts from the object's creation
does. One table, CLOCKS: docs/deadlines.md has the same rows, and the webhook and `fairlead check` warn by it.

Example: a Job with activeDeadlineSeconds: 3600 that waits for an hour fails as DeadlineExceeded and never ran;
spec.template.spec.activeDeadlineSeconds begins when kubelet starts the pod.
Sources: k8s.io/api batch/v1, apps/v1 and core/v1; kubernetes pkg/controller/job (syncJob, status.startTime) and pkg/kubelet/active_deadline.go;
kubeflow/trainer v1 and mpi-operator runPolicy; kuberay ray.io/v1 RayJob; argoproj/argo-workflows workflow_types.go; tektoncd/pipeline
docs/taskruns.md and docs/pipelineruns.md; knative.dev/serving progress-deadline; kueue docs, maximumExecutionTimeSeconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Json = Mapping[str, Any]

_POD = "spec.template.spec.activeDeadlineSeconds, which begins when the pod starts"
_FAILED = "the Job is then DeadlineExceeded and its pods are deleted, also those that never ran"
_ENDED = "it then fails, also if nothing of it ever ran"


@dataclass(frozen=True, kw_only=True)
class Clock:
    """One field of one kind. `waits`: whether it counts while pods wait. `instead`: what to write; "" where nothing is needed.

    `field`: from the object, with [] for each entry of a list.
    """

    kind: str
    field: str
    waits: bool
    counts: str  # from when, and what happens at its end
    instead: str = ""


CLOCKS: Final[tuple[Clock, ...]] = (
    Clock(kind="Pod", field="spec.activeDeadlineSeconds", waits=False, counts="kubelet, from when it starts the pod"),
    Clock(
        kind="Job",
        field="spec.activeDeadlineSeconds",
        waits=True,
        counts=f"from status.startTime, when the Job was created or resumed; {_FAILED}",
        instead=_POD,
    ),
    Clock(kind="Job", field="spec.backoffLimit", waits=False, counts="pods that failed: one that waits does not fail"),
    Clock(kind="Job", field="spec.ttlSecondsAfterFinished", waits=False, counts="from when the Job has finished"),
    Clock(
        kind="CronJob",
        field="spec.jobTemplate.spec.activeDeadlineSeconds",
        waits=True,
        counts=f"from status.startTime of each of its Jobs; {_FAILED}",
        instead="spec.jobTemplate.spec.template.spec.activeDeadlineSeconds, which begins when the pod starts",
    ),
    Clock(
        kind="CronJob",
        field="spec.startingDeadlineSeconds",
        waits=False,
        counts="until the Job is created; with concurrencyPolicy Forbid a Job that waits keeps the next from being created",
    ),
    Clock(
        kind="JobSet",
        field="spec.replicatedJobs[].template.spec.activeDeadlineSeconds",
        waits=True,
        counts=f"from status.startTime of each Job; {_FAILED}, and the JobSet fails or restarts",
        instead="template.spec.template.spec.activeDeadlineSeconds, which begins when the pod starts",
    ),
    Clock(kind="JobSet", field="spec.ttlSecondsAfterFinished", waits=False, counts="from when the JobSet has finished"),
    Clock(
        kind="Deployment",
        field="spec.progressDeadlineSeconds",
        waits=True,
        counts="from when the rollout last went on; it is then reported as failed (kubectl rollout status, Helm, Argo CD), its pods wait on",
        instead="how long a GPU may take to come free and a model to load, such as 7200",
    ),
    Clock(
        kind="PyTorchJob",
        field="spec.runPolicy.activeDeadlineSeconds",
        waits=True,
        counts=f"from status.startTime, when the job was first seen; {_ENDED}",
        instead="activeDeadlineSeconds in the pod templates' spec, which begins when a pod starts",
    ),
    Clock(kind="PyTorchJob", field="spec.runPolicy.backoffLimit", waits=False, counts="restarts of pods that ran"),
    Clock(
        kind="PyTorchJob",
        field="spec.runPolicy.ttlSecondsAfterFinished",
        waits=False,
        counts="from when it has finished",
    ),
    Clock(
        kind="MPIJob",
        field="spec.runPolicy.activeDeadlineSeconds",
        waits=True,
        counts=f"by the launcher's Job, from its start; {_ENDED}",
        instead="activeDeadlineSeconds in the pod templates' spec, which begins when a pod starts",
    ),
    Clock(
        kind="RayJob",
        field="spec.activeDeadlineSeconds",
        waits=True,
        counts=f"from status.startTime, before the cluster has a pod; {_ENDED}",
        instead="a timeout of the entrypoint itself, such as `timeout 2h python train.py`",
    ),
    Clock(
        kind="RayJob",
        field="spec.preRunningDeadlineSeconds",
        waits=True,
        counts=f"from the creation until the job runs; {_ENDED}",
        instead="no such deadline, or how long GPUs may take to come free",
    ),
    Clock(kind="RayJob", field="spec.ttlSecondsAfterFinished", waits=False, counts="from when it has finished"),
    Clock(
        kind="Workflow",
        field="spec.activeDeadlineSeconds",
        waits=True,
        counts=f"from when the workflow started; {_ENDED}",
        instead="activeDeadlineSeconds of the template that asks for devices, which Argo writes into its pod",
    ),
    Clock(
        kind="Workflow",
        field="spec.templates[].timeout",
        waits=True,
        counts="from when the node was created, Pending included; the node then fails",
        instead="activeDeadlineSeconds of the template, which begins when the pod starts",
    ),
    Clock(
        kind="Workflow",
        field="spec.templates[].activeDeadlineSeconds",
        waits=False,
        counts="kubelet, from when it starts the pod",
    ),
    Clock(
        kind="TaskRun",
        field="spec.timeout",
        waits=True,
        counts="from when the TaskRun started, its pod's wait included; 1 h where nothing is written; it then fails (TaskRunTimeout)",
        instead='"0s" for none, and `timeout` in the step\'s script',
    ),
    Clock(
        kind="PipelineRun",
        field="spec.timeouts.pipeline",
        waits=True,
        counts="from when the PipelineRun started; 1 h where nothing is written; it then fails (PipelineRunTimeout)",
        instead='"0s" for none, and `timeout` in the steps\' scripts',
    ),
    Clock(
        kind="PipelineRun",
        field="spec.timeouts.tasks",
        waits=True,
        counts="from when the PipelineRun started, for all of its tasks; it then fails",
        instead='"0s" for none, and `timeout` in the steps\' scripts',
    ),
    Clock(
        kind="PipelineRun",
        field="spec.pipelineSpec.tasks[].timeout",
        waits=True,
        counts="from when the task started, its pod's wait included; the task then fails",
        instead="no timeout, and `timeout` in the step's script",
    ),
)

PROGRESS_S: Final = 600
"""progressDeadlineSeconds where nothing is written: the apiserver writes it before anybody is asked."""
_PATIENT_S: Final = 7 * 86_400.0
"""A deadline beyond this is none that a queue makes run out."""


def running_out(kind: str, object_: Json) -> Iterator[str]:
    """A warning for each deadline that the object has and that may run out while its pods wait, with its field and what to write."""
    for clock in CLOCKS:
        if clock.kind != kind or not clock.waits:
            continue
        for path, value in _values(object_, clock.field.split("."), ""):
            seconds = _seconds(value)
            if seconds is None or seconds <= 0 or seconds >= _PATIENT_S:
                continue
            if clock.field == "spec.progressDeadlineSeconds" and seconds >= PROGRESS_S:
                continue
            yield f"{path}: {value} counts while the pods wait for devices, too: {clock.counts}; write {clock.instead}"


def _values(value: Any, steps: list[str], path: str) -> Iterator[tuple[str, Any]]:
    """Each value at the field, with its path."""
    if not steps:
        if value is not None:
            yield path, value
        return
    key = steps[0].removesuffix("[]")
    found = value.get(key) if isinstance(value, Mapping) else None
    where = f"{path}.{key}" if path else key
    if steps[0].endswith("[]"):
        for index, each in enumerate(found if isinstance(found, list) else []):
            yield from _values(each, steps[1:], f"{where}[{index}]")
    else:
        yield from _values(found, steps[1:], where)


_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}


def _seconds(value: Any) -> float | None:
    """The seconds of a number, or of a duration as Go writes it; None for what is neither."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    total, digits = 0.0, ""
    for char in value if isinstance(value, str) and len(value) <= 32 else "?":
        if char.isascii() and (char.isdigit() or char == "."):
            digits += char
        elif char in _UNITS and digits.count(".") <= 1 and digits.strip("."):
            total, digits = total + float(digits) * _UNITS[char], ""
        else:
            return None
    try:
        return total + (float(digits) if digits else 0.0)
    except ValueError:
        return None
