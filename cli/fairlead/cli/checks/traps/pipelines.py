"""Traps of Argo Workflows, Kubeflow Pipelines, Tekton and MLflow Projects, with deadlines that count while a pod waits for its GPU: of kinds that the
webhook does not see (`api.clocks` has all).

Sources: argo-workflows v4.1.2 workflow/controller/workflowpod.go (resourceClaims of a template replace the Workflow's); pipelines 2.17.0
backend/src/v2/driver/driver.go (accelerator becomes a limit); tekton v1.15.0 pkg/apis/pipeline/pod/template.go, docs/taskruns.md and
docs/pipelineruns.md (a run without a timeout has one of 60 minutes); mlflow v3.18.0 mlflow/projects/kubernetes.py (the template's first
container gets image, command and MLFLOW_TRACKING_URI; the Job a name for each run, the rest stays).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from fairlead.api import names
from fairlead.api.clocks import running_out
from fairlead.bounded import yaml_text
from fairlead.bounded.limits import SMALL, UnreadableError
from fairlead.cli.checks.traps.base import (
    LEGACY,
    Json,
    Trap,
    annotations_of,
    at,
    containers,
    has_claims,
    has_limits,
    mapping,
    mappings,
)

WORKFLOW_SPECS: dict[str, tuple[str, ...]] = {"CronWorkflow": ("spec", "workflowSpec")}


def workflow(argo: Json, others: Sequence[Json]) -> Iterator[Trap]:
    path: tuple[str, ...] = WORKFLOW_SPECS.get(str(argo.get("kind")), ("spec",))
    spec, where = mapping(argo, *path), ".".join(path)
    for index, template in enumerate(mappings(spec, "templates")):
        at_template = f"{where}.templates[{index}]"
        yield from _claims(spec, template, at_template)
        yield from _together(spec, template, at_template)
        yield from _apart(spec, template, at_template)


def _apart(spec: Json, template: Json, where: str) -> Iterator[Trap]:
    """Tasks that run at the same time are gangs of one, as nothing in a DAG says that they need one another."""
    said = annotations_of(template)
    asks = has_limits(at(template, "container", "resources")) or has_limits(at(template, "script", "resources"))
    asks = (
        asks or any(at(template, key, "resources", "claims") for key in ("container", "script")) or has_claims(template)
    )
    if not asks or names.GANG in said or names.GANG_SIZE in said:
        return
    for index, entry in enumerate(mappings(spec, "templates")):
        tasks = [task for task in mappings(entry, "dag", "tasks") if task.get("template") == template.get("name")]
        waiting = {str(task.get("name")) for task in tasks if not _depends(task)}
        if len(waiting) > 1:
            yield Trap(
                field=f"{where}.metadata.annotations[{names.GANG}]",
                text=f"is missing, and {', '.join(sorted(waiting))} of spec.templates[{index}] run at the same time: each is a gang of "
                f"one, and starts when a GPU is free for it alone. Where they need one another, write {names.GANG} and "
                f'{names.GANG_SIZE}: "{len(waiting)}"; else nothing has to be changed',
                level="warning",
            )


def _depends(task: Json) -> bool:
    return bool(task.get("dependencies") or task.get("depends"))


def _claims(spec: Json, template: Json, where: str) -> Iterator[Trap]:
    """A container that names a claim which its pod does not have is refused by the apiserver, step by step."""
    container = "container" if template.get("container") else "script"
    named = [str(each.get("name")) for each in mappings(template, container, "resources", "claims")]
    own, shared = mappings(template, "resourceClaims"), mappings(spec, "resourceClaims")
    known = {str(each.get("name")) for each in own or shared} | _patched(spec) | _patched(template)
    for name in dict.fromkeys(named):
        if name in known:
            continue
        replaced = own and any(each.get("name") == name for each in shared)
        why = "the template's own resourceClaims replace the Workflow's" if replaced else "no resourceClaims has it"
        yield Trap(
            field=f"{where}.{container}.resources.claims",
            text=f"names {name!r}, and {why}, so the pod is refused: add it to {where}.resourceClaims (Argo Workflows 4.1), or by "
            "podSpecPatch",
        )


def _patched(holder: Json) -> set[str]:
    """Claims that a podSpecPatch adds. One with parameters in it may be no YAML yet: it adds nothing that is known."""
    text = holder.get("podSpecPatch")
    try:
        patch = yaml_text.document(text, SMALL) if isinstance(text, str) else None
    except UnreadableError:
        return set()
    return {str(each.get("name")) for each in mappings(patch, "resourceClaims")}


def _together(spec: Json, template: Json, where: str) -> Iterator[Trap]:
    """Members of a gang that may not run at the same time wait for one another."""
    said = annotations_of(template)
    size = said.get(names.GANG_SIZE, "")
    limit = at(spec, "parallelism")
    if names.GANG in said and size.isdigit() and isinstance(limit, int) and limit < int(size):
        yield Trap(
            field=f"{where}.metadata.annotations[{names.GANG_SIZE}]",
            text=f"{size} pods must run at once, and the Workflow's parallelism lets {limit} be made: the gang never starts. Raise one or "
            "lower the other",
        )
    for entry in mappings(spec, "templates"):
        tasks = [task for task in mappings(entry, "dag", "tasks") if task.get("template") == template.get("name")]
        waiting = {str(task.get("name")) for task in tasks} & {
            str(each) for task in tasks for each in (task.get("dependencies") or [])
        }
        if names.GANG in said and waiting:
            yield Trap(
                field=f"{where}.metadata.annotations[{names.GANG}]",
                text=f"tasks of this template depend on {', '.join(sorted(waiting))}, of the same template and gang: the gang waits for a task "
                "that waits for the gang. Give them another template, or leave the gang out",
            )


def pipeline_version(version: Json, others: Sequence[Json]) -> Iterator[Trap]:
    yield from _accelerators(mapping(version, "spec", "pipelineSpec"), "spec.pipelineSpec.")


def compiled_pipeline(pipeline: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """What the SDK's compiler writes: the pipeline itself, no Kubernetes object."""
    yield from _accelerators(mapping(pipeline, "spec"), "")


def _accelerators(pipeline: Json, where: str) -> Iterator[Trap]:
    for name, executor in mapping(pipeline, "deploymentSpec", "executors").items():
        accelerator = mapping(executor, "container", "resources", "accelerator")
        key = "resourceType" if accelerator.get("resourceType") else "type"
        kind = accelerator.get(key)
        if isinstance(kind, str) and not kind.startswith(LEGACY) and "{{" not in kind:
            yield Trap(
                field=f"{where}deploymentSpec.executors.{name}.container.resources.accelerator.{key}",
                text=f"{kind!r} becomes a limit of the pod, and Kubeflow Pipelines has no field for claims: write "
                'set_accelerator_type("nvidia.com/gpu"), or nvidia.com/mig-<profile>',
            )


def tekton(run: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """A TaskRun, PipelineRun, Pipeline or Task; Tekton drops what it does not know of a pod."""
    spec = mapping(run, "spec")
    templates = {f"spec.{key}podTemplate": holder for key, holder in _template_holders(spec)}
    for path, holder in templates.items():
        if at(holder, "podTemplate", "resourceClaims"):
            yield Trap(
                field=f"{path}.resourceClaims",
                text="Tekton's pod template has no such field: the pod gets no claim. Write limits into the step's computeResources "
                "(nvidia.com/gpu)",
            )
    for path, resources in _compute_resources(spec):
        if at(resources, "claims"):
            yield Trap(
                field=f"{path}.claims",
                text="the pod of a TaskRun has no claims, so it is refused. Write limits (nvidia.com/gpu)",
            )


def _template_holders(spec: Json) -> Iterator[tuple[str, Json]]:
    yield "", spec
    yield "taskRunTemplate.", mapping(spec, "taskRunTemplate")
    for index, each in enumerate(mappings(spec, "taskRunSpecs")):
        yield f"taskRunSpecs[{index}].", each


def _compute_resources(spec: Json) -> Iterator[tuple[str, Any]]:
    """Wherever a task, a run or a pipeline says what containers ask for, with its path."""
    yield "spec.computeResources", spec.get("computeResources")
    for key in ("stepSpecs", "sidecarSpecs", "taskRunSpecs"):
        for index, each in enumerate(mappings(spec, key)):
            yield f"spec.{key}[{index}].computeResources", each.get("computeResources")
    tasks = [("spec", spec), ("spec.taskSpec", mapping(spec, "taskSpec"))]
    for where, pipeline in (("spec", spec), ("spec.pipelineSpec", mapping(spec, "pipelineSpec"))):
        for key in ("tasks", "finally"):
            found = enumerate(mappings(pipeline, key))
            tasks += [(f"{where}.{key}[{index}].taskSpec", mapping(each, "taskSpec")) for index, each in found]
    for where, task in tasks:
        yield f"{where}.stepTemplate.computeResources", at(task, "stepTemplate", "computeResources")
        for key in ("steps", "sidecars"):
            for index, step in enumerate(mappings(task, key)):
                yield f"{where}.{key}[{index}].computeResources", step.get("computeResources")


_TEKTON: Final = {"TaskRun": ("timeout",), "PipelineRun": ("timeouts", "pipeline")}
DEPTH_MAX: Final = 24


def of_run(object_: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """The traps of an Argo Workflow, of what makes one, and of Tekton's runs, where they or the tasks beside them ask for GPUs."""
    kind = str(object_.get("kind"))
    tekton = _TEKTON.get(kind)
    if not any(map(_asks, (object_, *(others if tekton else ())))):
        return
    if kind == "CronWorkflow":
        inner = {"spec": mapping(object_, "spec", "workflowSpec")}
        found = [text.replace("spec.", "spec.workflowSpec.", 1) for text in running_out("Workflow", inner)]
    else:
        found = list(running_out(kind if tekton else "Workflow", object_))
    for text in found:
        field, _, rest = text.partition(": ")
        yield Trap(field=field, text=rest, level="warning")
    if tekton is not None and at(object_, "spec", *tekton) is None:
        yield Trap(
            field=f"spec.{'.'.join(tekton)}",
            text='is not written, so it is 1 h, and the wait for a GPU counts: the run then fails. Write "0s" for none, and `timeout` in '
            "the steps' scripts",
            level="warning",
        )


def _asks(value: Any, depth: int = 0) -> bool:
    """Whether something in it asks for devices."""
    if depth > DEPTH_MAX:
        return False
    if isinstance(value, Mapping):
        resources = (value.get("resources"), value.get("computeResources"))
        if has_claims(dict(value)) or any(map(has_limits, resources)):
            return True
        return any(_asks(each, depth + 1) for each in value.values())
    return isinstance(value, list) and any(_asks(each, depth + 1) for each in value)


URI = "MLFLOW_TRACKING_URI"
TEMPLATE = "kube-job-template-path"
_HERE = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}


def mlflow_job(job: Json, others: Sequence[Json]) -> Iterator[Trap]:
    pod, where = mapping(job, "spec", "template", "spec"), "spec.template.spec"
    for number, container in enumerate(containers(pod)):
        for index, variable in enumerate(mappings(container, "env")):
            value = variable.get("value")
            if variable.get("name") == URI and isinstance(value, str) and _is_local(value):
                yield Trap(
                    field=f"{where}.containers[{number}].env[{index}]",
                    text=f"{URI} {value!r} is in the pod itself: what a run records is lost with it, or refused. Write the address of a "
                    "tracking server that pods can reach",
                    level="warning",
                )


def backend_config(config: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """`spec` has the settings, `template` the Job template that they name."""
    template, path = mapping(config, "template"), mapping(config, "spec").get(TEMPLATE)
    said = annotations_of(mapping(template, "spec", "template"))
    if names.GANG in said:
        yield Trap(
            field=f"{TEMPLATE} {path}: spec.template.metadata.annotations[{names.GANG}]",
            text="every run of the project is made of this template, so that two runs at the same time are one gang: leave the name out "
            f"and write {names.GANG_SIZE}, then the gang has the name that MLflow gives the Job",
            level="warning",
        )
    for trap in mlflow_job(template, others):
        yield Trap(field=f"{TEMPLATE} {path}: {trap.field}", text=trap.text, level=trap.level)


def _is_local(uri: str) -> bool:
    try:
        found = urlsplit(uri)
        host = found.hostname
    except ValueError:
        return False
    return found.scheme in {"", "file", "sqlite"} or (found.scheme in {"http", "https"} and host in _HERE)
