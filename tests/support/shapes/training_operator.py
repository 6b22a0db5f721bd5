"""Kubeflow Training Operator 1.9.0 (PyTorchJob of kubeflow.org/v1): a pod for each replica.

Pods are named <job>-<type>-<index>, types in lower case, all made at once; workers have an init container that waits for the
master's name, which is left out here since it holds no device. MPIJobs are made by the MPI Operator (`mpi_operator`).
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, pod, with_env

PREFIX = "training.kubeflow.org"


def pods(job: Obj, lookup: Lookup) -> Iterator[Obj]:
    name, replicas = job["metadata"]["name"], job["spec"]["pytorchReplicaSpecs"]
    total = sum(each.get("replicas", 1) for each in replicas.values())
    for role, spec in replicas.items():
        for index in range(spec.get("replicas", 1)):
            labels = {
                f"{PREFIX}/operator-name": "pytorchjob-controller",
                f"{PREFIX}/job-name": name,
                f"{PREFIX}/replica-type": role.lower(),
                f"{PREFIX}/replica-index": str(index),
                **({f"{PREFIX}/job-role": "master"} if role == "Master" else {}),
            }
            made = pod(job, spec["template"], name=f"{name}-{role.lower()}-{index}", labels=labels)
            restart = spec.get("restartPolicy", "OnFailure")
            made["spec"]["restartPolicy"] = "Never" if restart == "ExitCode" else restart
            rank = index + (role == "Worker" and "Master" in replicas)
            for container in made["spec"]["containers"]:
                with_env(container, MASTER_ADDR=f"{name}-master-0", WORLD_SIZE=str(total), RANK=str(rank))
            yield made


TRAINING_OPERATOR = Controller(
    name="Kubeflow Training Operator (PyTorchJob)",
    version="1.9.0",
    sources=(
        "https://github.com/kubeflow/training-operator/blob/v1.9.0/pkg/controller.v1/common/pod.go",
        "https://github.com/kubeflow/training-operator/blob/v1.9.0/pkg/controller.v1/pytorch/envvar.go",
    ),
    account="system:serviceaccount:kubeflow:training-operator",
    kinds=(Kind(api_version="kubeflow.org/v1", kind="PyTorchJob", plural="pytorchjobs"),),
    shapes={"PyTorchJob": pods},
)
