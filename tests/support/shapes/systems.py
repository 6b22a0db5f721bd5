"""Every controller whose pods are shaped here: docs/examples.md lists them with their versions, and a test compares."""

from __future__ import annotations

from tests.support.shapes.argo_workflows import ARGO_WORKFLOWS
from tests.support.shapes.base import Controller
from tests.support.shapes.jobset import JOBSET
from tests.support.shapes.kserve import KSERVE
from tests.support.shapes.kubeai import KUBEAI
from tests.support.shapes.kubeflow_pipelines import KUBEFLOW_PIPELINES
from tests.support.shapes.kubeflow_trainer import TRAINER
from tests.support.shapes.kuberay import KUBERAY
from tests.support.shapes.kubernetes import STATEFUL_SETS
from tests.support.shapes.kubespawner import KUBESPAWNER
from tests.support.shapes.leader_worker_set import LEADER_WORKER_SET
from tests.support.shapes.mlflow import MLFLOW
from tests.support.shapes.mpi_operator import MPI_OPERATOR
from tests.support.shapes.notebooks import NOTEBOOKS
from tests.support.shapes.tekton import TEKTON
from tests.support.shapes.training_operator import TRAINING_OPERATOR

KUBERNETES = (STATEFUL_SETS,)
OTHERS: tuple[Controller, ...] = (
    JOBSET,
    LEADER_WORKER_SET,
    TRAINER,
    TRAINING_OPERATOR,
    MPI_OPERATOR,
    KUBERAY,
    KSERVE,
    KUBEAI,
    ARGO_WORKFLOWS,
    KUBEFLOW_PIPELINES,
    TEKTON,
    MLFLOW,
    KUBESPAWNER,
    NOTEBOOKS,
)
CONTROLLERS = (*KUBERNETES, *OTHERS)
