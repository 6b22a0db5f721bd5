"""Manifests with a trap each, and with its cure in the trap's place: what `test_check_traps` runs."""

from __future__ import annotations

from typing import NamedTuple

WARNS = "warning"
POD = "{resourceClaims: [{name: gpu, resourceClaimTemplateName: one}], containers: [{name: a, image: b, resources: {claims: [{name: gpu}]}}]}"
LEGACY = "{containers: [{name: a, image: b, resources: {limits: {nvidia.com/gpu: 1}}}]}"


class Case(NamedTuple):
    """`text` with BAD and GOOD at HERE: the first stands where the trap is found at `field`, the second where nothing is."""

    name: str
    text: str
    bad: str
    good: str
    field: str
    says: str
    level: str = "fails"


def plain(text: str, **words: str) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: t, annotations: {{OF_SET}}}}
spec: {{replicatedJobs: [{{name: w, template: {{metadata: {{annotations: {{OF_JOB}}}}, spec: {{template: {{spec: {POD}}}}}}}}}]}}
"""
RUNTIME = f"""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {{name: torch}}
spec:
  mlPolicy: {{torch: {{}}}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {{labels: {{trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}
          spec: {{template: {{spec: {POD}}}}}
---
"""
TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: t, annotations: {OF_JOB}}
spec: {runtimeRef: {kind: TrainingRuntime, name: torch}, FIELDS}
"""
PATCH = "runtimePatches: [{manager: a.b/c, trainingRuntimeSpec: {template: {metadata: {annotations: {fairlead.dev/queue: q}}}}}]"
POD_PATCH = (
    "runtimePatches: [{manager: a.b/c, trainingRuntimeSpec: {template: {spec: {replicatedJobs: "
    "[{name: node, template: {spec: {template: {spec: SPEC}}}}]}}}}]"
)
OVERRIDES = "podTemplateOverrides: [{targetJobs: [{name: node}], spec: {HERE}}]"
RAY = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: r}
spec: {AUTOSCALER, workerGroupSpecs: [{groupName: g, replicas: 2, minReplicas: 2, rayStartParams: {PARAMS}, template: {spec: POD}}]}
"""
DAG = """
apiVersion: argoproj.io/v1alpha1
kind: WorkflowTemplate
metadata: {name: w}
spec:
  templates:
  - {name: all, dag: {tasks: [{name: l, template: t}, {name: r, template: t}]}}
  - name: t
    metadata: {annotations: {HERE}}
    container: {image: b, resources: {limits: {nvidia.com/gpu: 1}}}
"""
WORKFLOW = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  parallelism: LIMIT
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
  templates:
  - {name: all, dag: {tasks: [{name: l, template: t}, {name: r, template: t, dependencies: [AFTER]}, {name: o, template: u}]}}
  - name: t
    metadata: {annotations: {fairlead.dev/gang: g, fairlead.dev/gang-size: "2"}}
    OWN
    container: {image: b, resources: {claims: [{name: gpu}]}}
"""


def workflow(*, limit: str = "9", after: str = "o", own: str = "") -> str:
    return WORKFLOW.replace("LIMIT", limit).replace("AFTER", after).replace("OWN", own)


KSERVE = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: s, annotations: {MODE}}
spec: {predictor: POD}
"""
SERVER = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: triton}
spec: {template: {spec: {containers: [{name: a, image: nvcr.io/nvidia/tritonserver:25.10-py3, PROBE}]}}}
"""
ROLLOUT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: triton}
spec:
  HERE
  template: {spec: {containers: [{name: a, image: nvcr.io/nvidia/tritonserver:25.10-py3, resources: {limits: {nvidia.com/gpu: 1}},
    readinessProbe: {httpGet: {path: /v2/health/ready, port: 8000}, initialDelaySeconds: 5}}]}}
"""
RUNTIME_OF_KSERVE = """
apiVersion: serving.kserve.io/v1alpha1
kind: KIND
metadata: {name: r}
spec: {HERE, containers: [{name: kserve-container, image: vllm/vllm-openai:v0.11.0}]}
"""
MODEL = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: s, annotations: {serving.kserve.io/deploymentMode: Standard}}
spec: {predictor: {HERE, model: {runtime: r, resources: {claims: [{name: gpu}]}}}}
"""
KUBEAI = """
apiVersion: v1
kind: ConfigMap
metadata: {name: kubeai-config}
data:
  system.yaml: |
    resourceProfiles: {h100: {limits: {HERE: 1}}}
    modelServerPods: {jsonPatches: [{op: add, path: /spec/resourceClaims, value: []}]}
"""

CASES = (
    Case(
        "jobset-exclusive", plain(JOBSET, OF_SET="HERE", OF_JOB=""),
        f"{EXCLUSIVE}: rack", "'fairlead.dev/topology': 'required:rack'", f"metadata.annotations[{EXCLUSIVE}]", "fairlead.dev/topology: required:rack",
    ),
    Case(
        "jobset-exclusive-of-a-job", plain(JOBSET, OF_SET="", OF_JOB="HERE"),
        f"{EXCLUSIVE}: rack", f"{EXCLUSIVE}: rack, alpha.jobset.sigs.k8s.io/node-selector: 'true'",
        f"spec.replicatedJobs[0].template.metadata.annotations[{EXCLUSIVE}]", "refuses to create",
    ),
    Case(
        "lws-leader-ready", "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: l}, spec: {startupPolicy: HERE, "
        f"leaderWorkerTemplate: {{size: 2, workerTemplate: {{spec: {POD}}}}}}}}}",
        "LeaderReady", "LeaderCreated", "spec.startupPolicy", "are no gang", WARNS,
    ),
    Case(
        "lws-exclusive", "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: l, annotations: {HERE}}, spec: "
        f"{{leaderWorkerTemplate: {{size: 2, workerTemplate: {{spec: {POD}}}}}}}}}",
        "leaderworkerset.sigs.k8s.io/exclusive-topology: rack", "'fairlead.dev/topology': 'required:rack'",
        "metadata.annotations[leaderworkerset.sigs.k8s.io/exclusive-topology]", "fairlead.dev/topology: required:rack",
    ),
    Case(
        "stateful-set-in-order", "{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: l}, spec: {replicas: 2, podManagementPolicy: HERE, template: "
        f"{{metadata: {{annotations: {{fairlead.dev/gang: g}}}}, spec: {POD}}}}}}}",
        "OrderedReady", "Parallel", "spec.podManagementPolicy", "write Parallel",
    ),
    Case(
        "train-job-claims", plain(TRAIN_JOB, OF_JOB="", FIELDS="trainer: {numProcPerNode: 1, resourcesPerNode: {HERE}}"),
        "claims: [{name: gpu}]", "limits: {nvidia.com/gpu: 1}", "spec.trainer.resourcesPerNode.claims", "ignores claims",
    ),
    Case(
        "train-job-patched-claims", plain(TRAIN_JOB, OF_JOB="", FIELDS=POD_PATCH.replace("SPEC", "{HERE}")),
        "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]", "nodeSelector: {a: b}",
        "spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.resourceClaims", "have no claims",
    ),
    Case(
        "train-job-overridden-claims", plain(TRAIN_JOB, OF_JOB="", FIELDS=OVERRIDES),
        "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]", "nodeSelector: {a: b}", "spec.podTemplateOverrides[0].spec.resourceClaims", "have no claims",
    ),
    Case(
        "train-job-processes", RUNTIME + plain(TRAIN_JOB, OF_JOB="", FIELDS="trainer: {numProcPerNode: HERE}"),
        "auto", "2", "spec.trainer.numProcPerNode", "one process for each CPU",
    ),
    Case(
        "train-job-annotations", plain(TRAIN_JOB, OF_JOB="fairlead.dev/queue: q", FIELDS="HERE"),
        "suspend: false", PATCH, "metadata.annotations[fairlead.dev/queue]", "since Trainer 2.2", WARNS,
    ),
    Case(
        "ray-num-gpus", plain(RAY, AUTOSCALER="rayVersion: '2'", PARAMS="HERE", POD=POD),
        "", "num-gpus: '1'", "spec.workerGroupSpecs[0].rayStartParams[num-gpus]", "Ray has none",
    ),
    Case(
        "ray-autoscaler", plain(RAY, AUTOSCALER="enableInTreeAutoscaling: HERE", PARAMS="num-gpus: '1'", POD=LEGACY),
        "true", "false", "spec.enableInTreeAutoscaling", "kuberay#3527", WARNS,
    ),
    Case(
        "argo-replaced-claims", workflow(own="HERE"),
        "resourceClaims: [{name: other, resourceClaimTemplateName: one}]", "podSpecPatch: '{resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]}'",
        "spec.templates[1].container.resources.claims", "replace the Workflow's",
    ),
    Case("argo-parallelism", workflow(limit="HERE"), "1", "2", "spec.templates[1].metadata.annotations[fairlead.dev/gang-size]", "the gang never starts"),
    Case("argo-dependent-members", workflow(after="HERE"), "l", "o", "spec.templates[1].metadata.annotations[fairlead.dev/gang]", "waits for the gang"),
    Case(
        "argo-gangs-of-one", DAG,
        "", "fairlead.dev/gang: g, fairlead.dev/gang-size: '2'", "spec.templates[1].metadata.annotations[fairlead.dev/gang]", "each is a gang of one", WARNS,
    ),
    Case(
        "pipelines-compiled", "{pipelineInfo: {name: p}, root: {}, deploymentSpec: {executors: {exec-train: {container: {resources: {accelerator: "
        "{type: HERE, count: '1'}}}}}}}",
        "gpu.fairlead.dev", "nvidia.com/mig-1g.10gb", "deploymentSpec.executors.exec-train.container.resources.accelerator.type", "no field for claims",
    ),
    Case(
        "pipelines-accelerator", "{apiVersion: pipelines.kubeflow.org/v2beta1, kind: PipelineVersion, metadata: {name: v}, spec: {pipelineSpec: {deploymentSpec: "
        "{executors: {exec-train: {container: {resources: {accelerator: {resourceType: HERE, resourceCount: '1'}}}}}}}}}",
        "gpu.fairlead.dev", "nvidia.com/gpu", "spec.pipelineSpec.deploymentSpec.executors.exec-train.container.resources.accelerator.resourceType", "no field for claims",
    ),
    Case(
        "tekton-pod-template", "{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: t}, spec: {timeout: 0s, podTemplate: {HERE}, taskSpec: {steps: []}}}",
        "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]", "nodeSelector: {a: b}", "spec.podTemplate.resourceClaims", "no such field",
    ),
    Case(
        "tekton-step", "{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: t}, spec: {timeout: 0s, taskSpec: {steps: [{name: s, computeResources: {HERE}}]}}}",
        "claims: [{name: gpu}]", "limits: {nvidia.com/gpu: 1}", "spec.taskSpec.steps[0].computeResources.claims", "Write limits",
    ),
    Case(
        "tekton-pipeline-step", "{apiVersion: tekton.dev/v1, kind: Pipeline, metadata: {name: t}, spec: {finally: [{name: a, taskSpec: {stepTemplate: "
        "{computeResources: {HERE}}}}]}}",
        "claims: [{name: gpu}]", "limits: {nvidia.com/gpu: 1}", "spec.finally[0].taskSpec.stepTemplate.computeResources.claims", "Write limits",
    ),
    Case(
        "tekton-timeout", "{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: t}, spec: {HERE, taskSpec: {steps: [{name: s, computeResources: "
        "{limits: {nvidia.com/gpu: 1}}}]}}}",
        "timeout: 1h30m", "timeout: 0s", "spec.timeout", "counts while the pods wait", WARNS,
    ),
    Case(
        "tekton-timeout-by-default", "{apiVersion: tekton.dev/v1, kind: PipelineRun, metadata: {name: t}, spec: {HERE, pipelineSpec: {tasks: [{name: a, taskSpec: {steps: "
        "[{name: s, computeResources: {limits: {nvidia.com/gpu: 1}}}]}}]}}}",
        "params: []", "timeouts: {pipeline: 0s}", "spec.timeouts.pipeline", "it is 1 h", WARNS,
    ),
    Case(
        "argo-deadline", "{apiVersion: argoproj.io/v1alpha1, kind: CronWorkflow, metadata: {name: w}, spec: {workflowSpec: {templates: [{name: t, HERE, container: "
        "{image: b, resources: {limits: {nvidia.com/gpu: 1}}}}]}}}",
        "timeout: 2h", "activeDeadlineSeconds: 7200", "spec.workflowSpec.templates[0].timeout", "Pending included", WARNS,
    ),
    Case(
        "tekton-pipeline-run", "{apiVersion: tekton.dev/v1, kind: PipelineRun, metadata: {name: t}, spec: {timeouts: {pipeline: 0s}, taskRunSpecs: [{pipelineTaskName: a, podTemplate: {HERE}}]}}",
        "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]", "nodeSelector: {a: b}", "spec.taskRunSpecs[0].podTemplate.resourceClaims", "no such field",
    ),
    Case(
        "mlflow-tracking-uri", "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: [{name: a, image: b, env: "
        "[{name: MLFLOW_TRACKING_URI, value: 'HERE'}]}]}}}}",
        "http://localhost:5000", "http://mlflow.tracking:5000", "spec.template.spec.containers[0].env[0]", "is in the pod itself", WARNS,
    ),
    Case(
        "kserve-knative-claims", plain(KSERVE, MODE="serving.kserve.io/deploymentMode: HERE", POD=POD),
        "Knative", "Standard", "metadata.annotations[serving.kserve.io/deploymentMode]", "knative/serving#15332",
    ),
    Case(
        "kserve-mode-not-said", plain(KSERVE, MODE="HERE", POD=POD),
        "", "serving.kserve.io/deploymentMode: Standard", "metadata.annotations[serving.kserve.io/deploymentMode]", "Write Standard", WARNS,
    ),
    Case(
        "kserve-knative-deadline", plain(KSERVE, MODE="serving.kserve.io/deploymentMode: Serverless, HERE", POD=LEGACY),
        "", "serving.knative.dev/progress-deadline: 24h", "spec.predictor.annotations[serving.knative.dev/progress-deadline]", "knative/serving#15308", WARNS,
    ),
    Case(
        "kserve-llm-both", "{apiVersion: serving.kserve.io/v1alpha1, kind: LLMInferenceService, metadata: {name: l, annotations: {HERE}}, "
        f"spec: {{prefill: {{worker: {POD}}}}}}}",
        "serving.kserve.io/dra-device-class: gpu.nvidia.com", "", "metadata.annotations[serving.kserve.io/dra-device-class]", "spec.prefill.worker", WARNS,
    ),
    Case(
        "triton-probe", plain(SERVER, PROBE="HERE"),
        "livenessProbe: {httpGet: {path: /v2/health/live, port: 8000}, initialDelaySeconds: 30}", "livenessProbe: {}, startupProbe: {periodSeconds: 10, failureThreshold: 30}",
        "spec.template.spec.containers[0].livenessProbe", "60 s after its start", WARNS,
    ),
    Case(
        "triton-ready-without-model", plain(SERVER, PROBE="HERE"),
        "readinessProbe: {httpGet: {path: /v2/health/live, port: 8000}}", "readinessProbe: {httpGet: {path: /v2/health/ready, port: 8000}}",
        "spec.template.spec.containers[0].readinessProbe.httpGet.path", "/v2/health/ready", WARNS,
    ),
    Case(
        "triton-always-ready", plain(SERVER, PROBE="HERE"),
        "livenessProbe: {initialDelaySeconds: 600}", "startupProbe: {periodSeconds: 10, failureThreshold: 60}",
        "spec.template.spec.containers[0].readinessProbe", "while the model loads", WARNS,
    ),
    Case(
        "triton-rollout", ROLLOUT,
        "progressDeadlineSeconds: 600", "progressDeadlineSeconds: 7200", "spec.progressDeadlineSeconds", "waits for its GPU and loads its model", WARNS,
    ),
    Case(
        "kserve-runtime-claims", plain(RUNTIME_OF_KSERVE, KIND="ClusterServingRuntime"),
        "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]", "nodeSelector: {a: b}", "spec.resourceClaims", "kserve#5828", WARNS,
    ),
    Case(
        "kserve-model-without-claim", plain(RUNTIME_OF_KSERVE, KIND="ServingRuntime", HERE="multiModel: false") + "---" + MODEL,
        "minReplicas: 1", "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]", "spec.predictor.model.resources.claims", "names 'gpu'",
    ),
    Case(
        "kserve-model-of-an-unknown-runtime", MODEL,
        "minReplicas: 1", "resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]", "spec.predictor.model.resources.claims", "not among the files", WARNS,
    ),
    Case("kubeai-both", KUBEAI, "nvidia.com/gpu", "cpu", "data[system.yaml].resourceProfiles.h100", "they get both"),
    Case(
        "kubeai-annotations", "{apiVersion: kubeai.org/v1, kind: Model, metadata: {name: m, annotations: {HERE: x}}, spec: {}}",
        "fairlead.dev/queue", "example.com/queue", "metadata.annotations[fairlead.dev/queue]", "jsonPatches", WARNS,
    ),
    Case(
        "workspace-kind", "{apiVersion: kubeflow.org/v1beta1, kind: WorkspaceKind, metadata: {name: w}, spec: {podTemplate: {options: {podConfig: {values: "
        "[{id: gpu, spec: {resources: {HERE}}}]}}}}}",
        "claims: [{name: gpu}]", "limits: {nvidia.com/gpu: 1}", "spec.podTemplate.options.podConfig.values[0].spec", "have no claims",
    ),
    Case(
        "jupyterhub-values", "{hub: {}, singleuser: {startTimeout: HERE, extraResource: {limits: {nvidia.com/gpu: '1'}}}}",
        "300", "3600", "singleuser.startTimeout", "never starts",
    ),
    Case(
        "jupyterhub-values-of-the-hub", "{hub: {config: {KubeSpawner: {start_timeout: HERE}}}, singleuser: {startTimeout: 3600, profileList: "
        "[{display_name: g, kubespawner_override: {extra_resource_limits: {nvidia.com/gpu: '1'}}}]}}",
        "300", "3600", "hub.config.KubeSpawner.start_timeout", "never starts",
    ),
    Case(
        "jupyterhub-values-half", "{hub: {config: {KubeSpawner: {HERE}}}, singleuser: {startTimeout: 3600, extraPodConfig: {resourceClaims: [{name: gpu}]}}}",
        "", "extra_container_config: {resources: {claims: [{name: gpu}]}}", "hub.config.KubeSpawner.extra_container_config", "would not see its GPU",
    ),
)  # fmt: skip
