"""Kubeflow Notebooks 1.10.0: a Notebook's StatefulSet of one pod.

The StatefulSet has the Notebook's name and pod spec; labels and annotations of the Notebook lie on the pod, but for those with
"kubectl" or "notebook" in their names. With the annotation `kubeflow-resource-stopped`, which idle culling writes, it has no pod.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, child, with_env


def stateful_set(notebook: Obj, lookup: Lookup) -> Iterator[Obj]:
    metadata = notebook["metadata"]
    annotations = metadata.get("annotations") or {}
    template = {
        "metadata": {
            "labels": {
                **(metadata.get("labels") or {}),
                "statefulset": metadata["name"],
                "notebook-name": metadata["name"],
            },
            "annotations": {
                key: text for key, text in annotations.items() if "kubectl" not in key and "notebook" not in key
            },
        },
        "spec": copy.deepcopy(notebook["spec"]["template"]["spec"]),
    }
    container = template["spec"]["containers"][0]
    container.setdefault("workingDir", "/home/jovyan")
    with_env(container, NB_PREFIX=f"/notebook/{metadata['namespace']}/{metadata['name']}")
    spec = {
        "replicas": 0 if "kubeflow-resource-stopped" in annotations else 1,
        "selector": {"matchLabels": {"statefulset": metadata["name"]}},
        "serviceName": "",
        "template": template,
    }
    yield child(notebook, "apps/v1", "StatefulSet", metadata["name"], spec)


NOTEBOOKS = Controller(
    name="Kubeflow Notebooks",
    version="1.10.0",
    sources=(
        "https://github.com/kubeflow/kubeflow/blob/v1.10.0/components/notebook-controller/controllers/notebook_controller.go",
    ),
    account="system:serviceaccount:kubeflow:notebook-controller-service-account",
    kinds=(Kind(api_version="kubeflow.org/v1", kind="Notebook", plural="notebooks"),),
    shapes={"Notebook": stateful_set},
)
