"""MLflow 3.5 Projects on Kubernetes: the Job that `mlflow run --backend kubernetes` makes of `kube-job-template-path`.

The Job is the template with a name of project and time, one container's image and command replaced and its env extended by
MLFLOW_RUN_ID, MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_ID. It is created by whoever runs the command, so it has no owner.
"""

from __future__ import annotations

import copy

from tests.support.shapes.base import Controller, Obj, with_env

TIME = "2026-11-24-03-00-00-000000"


def submitted(template: Obj, *, project: str, image: str, command: str, at: str = TIME) -> Obj:
    job = copy.deepcopy(template)
    job["metadata"]["name"] = f"{project.lower().replace('_', '-')}-{at}"
    container = job["spec"]["template"]["spec"]["containers"][0]
    container |= {"name": job["metadata"]["name"], "image": image, "command": ["/bin/sh", "-c", command]}
    with_env(container, MLFLOW_RUN_ID="0f" * 16, MLFLOW_TRACKING_URI="http://mlflow", MLFLOW_EXPERIMENT_ID="0")
    return job


MLFLOW = Controller(
    name="MLflow Projects",
    version="3.5.0",
    sources=("https://github.com/mlflow/mlflow/blob/v3.5.0/mlflow/projects/kubernetes.py",),
    account="admin",
)
