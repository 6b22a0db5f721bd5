"""Which kinds have traps: the entrance.

A kind is looked up with its API group, since systems have kinds of the same name (KubeAI's Model, others' models).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fairlead.cli.checks.traps import notebooks, pipelines, serving, training
from fairlead.cli.checks.traps.base import Finder, Json, Trap

FINDERS: Final[Mapping[tuple[str, str], tuple[Finder, ...]]] = {
    ("batch", "Job"): (pipelines.mlflow_job,),
    ("jobset.x-k8s.io", "JobSet"): (training.job_set,),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): (training.leader_worker_set,),
    ("apps", "StatefulSet"): (training.stateful_set, serving.workload),
    ("trainer.kubeflow.org", "TrainJob"): (training.train_job,),
    ("ray.io", "RayCluster"): (training.ray_cluster,),
    ("ray.io", "RayJob"): (training.ray_job,),
    ("ray.io", "RayService"): (training.ray_service,),
    ("serving.kserve.io", "InferenceService"): (serving.inference_service,),
    ("serving.kserve.io", "LLMInferenceService"): (serving.llm_inference_service,),
    ("serving.kserve.io", "ServingRuntime"): (serving.serving_runtime,),
    ("serving.kserve.io", "ClusterServingRuntime"): (serving.serving_runtime,),
    ("apps", "Deployment"): (serving.workload,),
    ("", "ConfigMap"): (serving.kubeai_config,),
    ("kubeai.org", "Model"): (serving.model,),
    ("argoproj.io", "Workflow"): (pipelines.workflow, pipelines.of_run),
    ("argoproj.io", "WorkflowTemplate"): (pipelines.workflow, pipelines.of_run),
    ("argoproj.io", "ClusterWorkflowTemplate"): (pipelines.workflow, pipelines.of_run),
    ("argoproj.io", "CronWorkflow"): (pipelines.workflow, pipelines.of_run),
    ("pipelines.kubeflow.org", "PipelineVersion"): (pipelines.pipeline_version,),
    ("tekton.dev", "TaskRun"): (pipelines.tekton, pipelines.of_run),
    ("tekton.dev", "PipelineRun"): (pipelines.tekton, pipelines.of_run),
    ("tekton.dev", "Pipeline"): (pipelines.tekton,),
    ("tekton.dev", "Task"): (pipelines.tekton,),
    ("kubeflow.org", "WorkspaceKind"): (notebooks.workspace_kind,),
    ("settings", "backend config of MLflow"): (pipelines.backend_config,),
    ("settings", "pipeline of Kubeflow Pipelines"): (pipelines.compiled_pipeline,),
    ("settings", "jupyterhub_config.py"): (notebooks.kube_spawner,),
    ("settings", "values of JupyterHub"): (notebooks.chart_values,),
}
"""By API group and kind; `settings` are files that are no Kubernetes objects (`fairlead.cli.checks.settings`)."""


def find(document: Json, others: Sequence[Json]) -> list[Trap]:
    """The traps of one object; `others` are all that were given with it, such as the runtime that a TrainJob names."""
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    finders = FINDERS.get((group, str(document.get("kind"))), ())
    return list(dict.fromkeys(trap for finder in finders for trap in finder(document, others)))
