"""MPI Operator 0.8.0 (MPIJob of kubeflow.org/v2beta1): a pod for each worker, and a Job for the launcher.

Workers are named <job>-worker-<index>; the launcher's Job is <job>-launcher, made at once unless `launcherCreationPolicy` is
WaitForWorkersReady. A launcher that is no worker has NVIDIA_VISIBLE_DEVICES emptied. SSH keys and the host file are left out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, child, pod, with_env

PREFIX = "training.kubeflow.org"


def pods(job: Obj, lookup: Lookup) -> Iterator[Obj]:
    name, replicas = job["metadata"]["name"], job["spec"]["mpiReplicaSpecs"]
    for index in range(replicas.get("Worker", {}).get("replicas", 0)):
        labels = {**_labels(name, "worker"), f"{PREFIX}/replica-index": str(index)}
        made = pod(job, replicas["Worker"]["template"], name=f"{name}-worker-{index}", labels=labels)
        made["spec"] |= {"hostname": f"{name}-worker-{index}", "subdomain": name, "restartPolicy": "Never"}
        container = made["spec"]["containers"][0]
        if not container.get("command") and not container.get("args"):
            container["command"] = ["/usr/sbin/sshd", "-De"]
        with_env(container, K_MPI_JOB_ROLE="worker")
        yield made
    if job["spec"].get("launcherCreationPolicy") != "WaitForWorkersReady":
        yield _launcher(job, name, replicas["Launcher"]["template"])


def _launcher(job: Obj, name: str, found: Obj) -> Obj:
    template = copy.deepcopy(found)
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **_labels(name, "launcher")}
    template["spec"] |= {"hostname": f"{name}-launcher", "subdomain": name, "restartPolicy": "OnFailure"}
    container = template["spec"]["containers"][0]
    with_env(container, K_MPI_JOB_ROLE="launcher", NVIDIA_VISIBLE_DEVICES="", NVIDIA_DRIVER_CAPABILITIES="")
    spec = {"template": template, "podReplacementPolicy": "Failed"}
    return child(job, "batch/v1", "Job", f"{name}-launcher", spec, labels={"app": name})


def _labels(name: str, role: str) -> dict[str, str]:
    return {f"{PREFIX}/operator-name": "mpi-operator", f"{PREFIX}/job-name": name, f"{PREFIX}/job-role": role}


MPI_OPERATOR = Controller(
    name="MPI Operator (MPIJob)",
    version="0.8.0",
    sources=("https://github.com/kubeflow/mpi-operator/blob/v0.8.0/pkg/controller/mpi_job_controller.go",),
    account="system:serviceaccount:mpi-operator:mpi-operator",
    kinds=(Kind(api_version="kubeflow.org/v2beta1", kind="MPIJob", plural="mpijobs"),),
    shapes={"MPIJob": pods},
)
