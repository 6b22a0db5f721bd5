"""MLflow 3.18 Projects on Kubernetes: the Job that `mlflow run --backend kubernetes` makes of `kube-job-template-path`.

The Job is the template with a name of project and time; its first container gets name, image and command, and its env is extended by
MLFLOW_RUN_ID, MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_ID. It is created by whoever runs the command, so it has no owner.
"""

from __future__ import annotations

import copy

from tests.support.shapes.base import Controller, Obj

TIME = "2026-11-24-03-00-00-000000"
DIGEST = f"sha256:{'0f' * 32}"


def submitted(template: Obj, *, project: str, image: str, command: list[str], at: str = TIME) -> Obj:
    job = copy.deepcopy(template)
    job["metadata"]["name"] = f"{project}-{at}"
    container = job["spec"]["template"]["spec"]["containers"][0]
    container |= {"name": project, "image": f"{image}@{DIGEST}", "command": command}
    variables = {"MLFLOW_RUN_ID": "0f" * 16, "MLFLOW_TRACKING_URI": "http://mlflow", "MLFLOW_EXPERIMENT_ID": "0"}
    container.setdefault("env", []).extend({"name": name, "value": value} for name, value in variables.items())
    return job


MLFLOW = Controller(
    name="MLflow Projects",
    version="3.18.0",
    sources=("https://github.com/mlflow/mlflow/blob/v3.18.0/mlflow/projects/kubernetes.py",),
    account="admin",
)
