"""Argo Workflows 4.1.2: the pods of a Workflow's first steps.

The entrypoint is a container template, whose pod is named like the Workflow, or a DAG, of which the tasks without `dependencies` are
shaped: the others are made when those have ended. Their pods are <workflow>-<template>-<number>, the number a hash of the node's
name. Since 4.1 `resourceClaims` of a template, or else of the Workflow, are the pod's; `podSpecPatch` works in all versions.
The init container of the executor is left out: it ends before `main` begins, and holds no device.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import yaml

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, pod

PREFIX = "workflows.argoproj.io"


def pods(workflow: Obj, lookup: Lookup) -> Iterator[Obj]:
    name, spec = workflow["metadata"]["name"], workflow["spec"]
    templates = {each["name"]: each for each in spec["templates"]}
    entry = templates[spec["entrypoint"]]
    if "dag" not in entry:
        yield _pod(workflow, entry, name, name)
        return
    for task in entry["dag"]["tasks"]:
        if not task.get("dependencies") and not task.get("depends"):
            node = f"{name}.{task['name']}"
            yield _pod(workflow, templates[task["template"]], node, f"{name}-{task['template']}-{_hash(node)}")


def _pod(workflow: Obj, found: Obj, node: str, name: str) -> Obj:
    template = _filled(found, {"workflow.name": workflow["metadata"]["name"], "pod.name": name})
    main = {"name": "main", **template["container"]}
    waits = {"name": "wait", "image": "quay.io/argoproj/argoexec:v4.1.2", "command": ["argoexec", "wait"]}
    spec: Obj = {"restartPolicy": "Never", "containers": [waits, main]}
    claims = template.get("resourceClaims") or workflow["spec"].get("resourceClaims")
    if claims:
        spec["resourceClaims"] = claims
    for patch in (workflow["spec"].get("podSpecPatch"), template.get("podSpecPatch")):
        if patch:
            _merge(spec, yaml.safe_load(patch))
    labels = {f"{PREFIX}/workflow": workflow["metadata"]["name"], f"{PREFIX}/completed": "false"}
    annotations = {f"{PREFIX}/node-name": node, f"{PREFIX}/node-id": name}
    shaped = {"metadata": template.get("metadata") or {}, "spec": spec}
    return pod(workflow, shaped, name=name, labels=labels, **annotations)


def _merge(spec: Obj, patch: Obj) -> None:
    """A strategic merge as far as these pods need it: containers by name, maps by key, the rest replaced."""
    for key, value in patch.items():
        if key == "containers":
            for container in value:
                (own,) = (each for each in spec["containers"] if each["name"] == container["name"])
                _merge(own, container)
        elif isinstance(value, dict):
            _merge(spec.setdefault(key, {}), value)
        else:
            spec[key] = copy.deepcopy(value)


def _filled(template: Obj, values: dict[str, str]) -> Obj:
    text = json.dumps(template)
    for key, value in values.items():
        text = text.replace("{{" + key + "}}", value)
    filled: Obj = json.loads(text)
    return filled


def _hash(node: str) -> int:
    """FNV-1a of 32 bits, as the controller names pods."""
    number = 2166136261
    for byte in node.encode():
        number = (number ^ byte) * 16777619 % 2**32
    return number


ARGO_WORKFLOWS = Controller(
    name="Argo Workflows",
    version="4.1.2",
    sources=(
        "https://github.com/argoproj/argo-workflows/blob/v4.1.2/workflow/controller/workflowpod.go",
        "https://github.com/argoproj/argo-workflows/blob/v4.1.2/workflow/util/pod_name.go",
    ),
    account="system:serviceaccount:argo:argo",
    kinds=(Kind(api_version="argoproj.io/v1alpha1", kind="Workflow", plural="workflows"),),
    shapes={"Workflow": pods},
)
