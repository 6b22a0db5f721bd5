"""Traps of Argo Workflows, Kubeflow Pipelines and Tekton.

Sources: argo-workflows v4.1.2 workflow/controller/workflowpod.go (resourceClaims of a template replace the Workflow's); pipelines 2.17.0
backend/src/v2/driver/driver.go (accelerator becomes a limit); tekton v1.15.0 pkg/apis/pipeline/pod/template.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fairlead.api import names
from fairlead.bounded import yaml_text
from fairlead.bounded.limits import SMALL, UnreadableError
from fairlead.cli.checks.traps.base import (
    LEGACY,
    Json,
    Trap,
    annotations_of,
    at,
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
