"""Kubeflow Pipelines 2.17: the Argo Workflow of a run of a PipelineVersion, and by it the pods of its first tasks.

A run is a Workflow <pipeline>-<five letters>; the pod of each task is of the template `system-container-impl` (with pod metadata
`metadata-<annotations>-<labels>-…`), whose podSpecPatch the task's driver writes: image, command, and accelerator and CPU limits of
the executor. There is no field for a claim. Annotations and labels of `kfp.kubernetes` come from the platform spec. Driver pods,
which hold no device, are left out. A run is made through the API; here it is made when the PipelineVersion is applied.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, child, ending


def run(version: Obj, lookup: Lookup) -> Iterator[Obj]:
    spec = version["spec"]["pipelineSpec"]
    executors = spec["deploymentSpec"]["executors"]
    platform = ((version["spec"].get("platformSpec") or {}).get("platforms") or {}).get("kubernetes") or {}
    settings = (platform.get("deploymentSpec") or {}).get("executors") or {}
    templates, tasks = [], []
    for name, task in spec["root"]["dag"]["tasks"].items():
        label = spec["components"][task["componentRef"]["name"]]["executorLabel"]
        template = _template(executors[label]["container"], (settings.get(label) or {}).get("podMetadata") or {})
        template["name"] += f"-{name}"  # one template with parameters upstream; here one for each task
        templates.append(template)
        tasks.append(
            {"name": name, "template": template["name"], "dependencies": list(task.get("dependentTasks") or ())}
        )
    entry = {"name": "entrypoint", "dag": {"tasks": tasks}}
    name = f"{version['spec']['pipelineName']}-{ending(version['metadata']['name'])}"
    labels = {"pipelines.kubeflow.org/v2_component": "true"}
    workflow = {"entrypoint": "entrypoint", "templates": [entry, *templates]}
    yield child(version, "argoproj.io/v1alpha1", "Workflow", name, workflow, labels=labels)


def _template(container: Obj, metadata: Obj) -> Obj:
    resources = container.get("resources") or {}
    accelerator = resources.get("accelerator") or {}
    limits = {
        key: resources[said]
        for key, said in (("cpu", "resourceCpuLimit"), ("memory", "resourceMemoryLimit"))
        if said in resources
    }
    if accelerator:
        limits[accelerator["resourceType"]] = str(accelerator["resourceCount"])
    main = {
        "name": "main",
        "image": container["image"],
        "command": container["command"],
        "resources": {"limits": limits},
    }
    prefix = (
        f"metadata-{len(metadata.get('annotations') or {})}-{len(metadata.get('labels') or {})}-" if metadata else ""
    )
    return {
        "name": f"{prefix}system-container-impl",
        "metadata": metadata,
        "container": {"image": "gcr.io/ml-pipeline/should-be-overridden-during-runtime"},
        "podSpecPatch": yaml.safe_dump({"containers": [main]}),
    }


KUBEFLOW_PIPELINES = Controller(
    name="Kubeflow Pipelines",
    version="2.17.0",
    sources=(
        "https://github.com/kubeflow/pipelines/blob/2.17.0/backend/src/v2/driver/driver.go",
        "https://github.com/kubeflow/pipelines/blob/2.17.0/backend/src/v2/compiler/argocompiler/container.go",
    ),
    account="system:serviceaccount:kubeflow:ml-pipeline",
    kinds=(Kind(api_version="pipelines.kubeflow.org/v2beta1", kind="PipelineVersion", plural="pipelineversions"),),
    shapes={"PipelineVersion": run},
)
