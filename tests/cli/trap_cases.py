"""Manifests with a trap each, and with its cure in the trap's place: what `test_check_traps` runs."""

from __future__ import annotations

from dataclasses import dataclass

POD = "{resourceClaims: [{name: gpu, resourceClaimTemplateName: one}], containers: [{name: a, image: b, resources: {claims: [{name: gpu}]}}]}"
LEGACY = "{containers: [{name: a, image: b, resources: {limits: {nvidia.com/gpu: 1}}}]}"


@dataclass(frozen=True, kw_only=True)
class Case:
    """`text` with BAD and GOOD: the first stands where the trap is found at `field`, the second where nothing is."""

    name: str
    text: str
    bad: str
    good: str
    field: str
    says: str
    level: str = "fails"


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
RAY = """
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: r}
spec: {AUTOSCALER, workerGroupSpecs: [{groupName: g, replicas: 2, minReplicas: 2, rayStartParams: {PARAMS}, template: {spec: POD}}]}
"""
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


def plain(text: str, **words: str) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


CASES = (
    Case(
        name="jobset-exclusive",
        text=plain(JOBSET, OF_SET="HERE", OF_JOB=""),
        bad=f"{EXCLUSIVE}: rack",
        good="'fairlead.dev/topology': 'required:rack'",
        field=f"metadata.annotations[{EXCLUSIVE}]",
        says="fairlead.dev/topology: required:rack",
    ),
    Case(
        name="jobset-exclusive-of-a-job",
        text=plain(JOBSET, OF_SET="", OF_JOB="HERE"),
        bad=f"{EXCLUSIVE}: rack",
        good=f"{EXCLUSIVE}: rack, alpha.jobset.sigs.k8s.io/node-selector: 'true'",
        field=f"spec.replicatedJobs[0].template.metadata.annotations[{EXCLUSIVE}]",
        says="refuses to create",
    ),
    Case(
        name="lws-leader-ready",
        text="{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: l}, spec: {startupPolicy: HERE, "
        f"leaderWorkerTemplate: {{size: 2, workerTemplate: {{spec: {POD}}}}}}}}}",
        bad="LeaderReady",
        good="LeaderCreated",
        field="spec.startupPolicy",
        says="are no gang",
        level="warning",
    ),
    Case(
        name="lws-exclusive",
        text="{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: l, annotations: {HERE}}, spec: "
        f"{{leaderWorkerTemplate: {{size: 2, workerTemplate: {{spec: {POD}}}}}}}}}",
        bad="leaderworkerset.sigs.k8s.io/exclusive-topology: rack",
        good="'fairlead.dev/topology': 'required:rack'",
        field="metadata.annotations[leaderworkerset.sigs.k8s.io/exclusive-topology]",
        says="fairlead.dev/topology: required:rack",
    ),
    Case(
        name="stateful-set-in-order",
        text="{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: l}, spec: {replicas: 2, podManagementPolicy: HERE, template: "
        f"{{metadata: {{annotations: {{fairlead.dev/gang: g}}}}, spec: {POD}}}}}}}",
        bad="OrderedReady",
        good="Parallel",
        field="spec.podManagementPolicy",
        says="write Parallel",
    ),
    Case(
        name="train-job-claims",
        text=plain(TRAIN_JOB, OF_JOB="", FIELDS="trainer: {numProcPerNode: 1, resourcesPerNode: {HERE}}"),
        bad="claims: [{name: gpu}]",
        good="limits: {nvidia.com/gpu: 1}",
        field="spec.trainer.resourcesPerNode.claims",
        says="ignores claims",
    ),
    Case(
        name="train-job-patched-claims",
        text=plain(TRAIN_JOB, OF_JOB="", FIELDS=POD_PATCH.replace("SPEC", "{HERE}")),
        bad="resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]",
        good="nodeSelector: {a: b}",
        field="spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.resourceClaims",
        says="have no claims",
    ),
    Case(
        name="train-job-processes",
        text=RUNTIME + plain(TRAIN_JOB, OF_JOB="", FIELDS="trainer: {numProcPerNode: HERE}"),
        bad="auto",
        good="2",
        field="spec.trainer.numProcPerNode",
        says="one process for each CPU",
    ),
    Case(
        name="train-job-annotations",
        text=plain(TRAIN_JOB, OF_JOB="fairlead.dev/queue: q", FIELDS="HERE"),
        bad="suspend: false",
        good=PATCH,
        field="metadata.annotations[fairlead.dev/queue]",
        says="since Trainer 2.2",
        level="warning",
    ),
    Case(
        name="ray-num-gpus",
        text=plain(RAY, AUTOSCALER="rayVersion: '2'", PARAMS="HERE", POD=POD),
        bad="",
        good="num-gpus: '1'",
        field="spec.workerGroupSpecs[0].rayStartParams[num-gpus]",
        says="Ray knows of none",
    ),
    Case(
        name="ray-autoscaler",
        text=plain(RAY, AUTOSCALER="enableInTreeAutoscaling: HERE", PARAMS="num-gpus: '1'", POD=LEGACY),
        bad="true",
        good="false",
        field="spec.enableInTreeAutoscaling",
        says="kuberay#3527",
        level="warning",
    ),
    Case(
        name="kserve-knative-claims",
        text=plain(KSERVE, MODE="serving.kserve.io/deploymentMode: HERE", POD=POD),
        bad="Knative",
        good="Standard",
        field="metadata.annotations[serving.kserve.io/deploymentMode]",
        says="knative/serving#15332",
    ),
    Case(
        name="kserve-mode-not-said",
        text=plain(KSERVE, MODE="HERE", POD=POD),
        bad="",
        good="serving.kserve.io/deploymentMode: Standard",
        field="metadata.annotations[serving.kserve.io/deploymentMode]",
        says="Write Standard",
        level="warning",
    ),
    Case(
        name="kserve-knative-deadline",
        text=plain(KSERVE, MODE="serving.kserve.io/deploymentMode: Serverless, HERE", POD=LEGACY),
        bad="",
        good="serving.knative.dev/progress-deadline: 24h",
        field="spec.predictor.annotations[serving.knative.dev/progress-deadline]",
        says="knative/serving#15308",
        level="warning",
    ),
    Case(
        name="kserve-llm-both",
        text="{apiVersion: serving.kserve.io/v1alpha1, kind: LLMInferenceService, metadata: {name: l, annotations: {HERE}}, "
        f"spec: {{prefill: {{worker: {POD}}}}}}}",
        bad="serving.kserve.io/dra-device-class: gpu.nvidia.com",
        good="",
        field="metadata.annotations[serving.kserve.io/dra-device-class]",
        says="spec.prefill.worker",
        level="warning",
    ),
    Case(
        name="triton-probe",
        text=plain(SERVER, PROBE="HERE"),
        bad="livenessProbe: {httpGet: {path: /v2/health/live, port: 8000}, initialDelaySeconds: 30}",
        good="livenessProbe: {}, startupProbe: {periodSeconds: 10, failureThreshold: 30}",
        field="spec.template.spec.containers[0].livenessProbe",
        says="60 s after its start",
        level="warning",
    ),
    Case(
        name="kubeai-both",
        text="""
apiVersion: v1
kind: ConfigMap
metadata: {name: kubeai-config}
data:
  system.yaml: |
    resourceProfiles: {h100: {limits: {HERE: 1}}}
    modelServerPods: {jsonPatches: [{op: add, path: /spec/resourceClaims, value: []}]}
""",
        bad="nvidia.com/gpu",
        good="cpu",
        field="data[system.yaml].resourceProfiles.h100",
        says="they get both",
    ),
    Case(
        name="kubeai-annotations",
        text="{apiVersion: kubeai.org/v1, kind: Model, metadata: {name: m, annotations: {HERE: x}}, spec: {}}",
        bad="fairlead.dev/queue",
        good="example.com/queue",
        field="metadata.annotations[fairlead.dev/queue]",
        says="jsonPatches",
        level="warning",
    ),
    Case(
        name="argo-replaced-claims",
        text=workflow(own="HERE"),
        bad="resourceClaims: [{name: other, resourceClaimTemplateName: one}]",
        good="podSpecPatch: '{resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]}'",
        field="spec.templates[1].container.resources.claims",
        says="replace the Workflow's",
    ),
    Case(
        name="argo-parallelism",
        text=workflow(limit="HERE"),
        bad="1",
        good="2",
        field="spec.templates[1].metadata.annotations[fairlead.dev/gang-size]",
        says="the gang never starts",
    ),
    Case(
        name="argo-dependent-members",
        text=workflow(after="HERE"),
        bad="l",
        good="o",
        field="spec.templates[1].metadata.annotations[fairlead.dev/gang]",
        says="waits for the gang",
    ),
    Case(
        name="pipelines-accelerator",
        text="{apiVersion: pipelines.kubeflow.org/v2beta1, kind: PipelineVersion, metadata: {name: v}, spec: {pipelineSpec: {deploymentSpec: "
        "{executors: {exec-train: {container: {resources: {accelerator: {resourceType: HERE, resourceCount: '1'}}}}}}}}}",
        bad="gpu.fairlead.dev",
        good="nvidia.com/gpu",
        field="spec.pipelineSpec.deploymentSpec.executors.exec-train.container.resources.accelerator.resourceType",
        says="no field for claims",
    ),
    Case(
        name="tekton-pod-template",
        text="{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: t}, spec: {podTemplate: {HERE}, taskSpec: {steps: []}}}",
        bad="resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]",
        good="nodeSelector: {a: b}",
        field="spec.podTemplate.resourceClaims",
        says="no such field",
    ),
    Case(
        name="tekton-step",
        text="{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: t}, spec: {taskSpec: {steps: [{name: s, computeResources: {HERE}}]}}}",
        bad="claims: [{name: gpu}]",
        good="limits: {nvidia.com/gpu: 1}",
        field="spec.taskSpec.steps[0].computeResources.claims",
        says="Write limits",
    ),
    Case(
        name="workspace-kind",
        text="{apiVersion: kubeflow.org/v1beta1, kind: WorkspaceKind, metadata: {name: w}, spec: {podTemplate: {options: {podConfig: {values: "
        "[{id: gpu, spec: {resources: {HERE}}}]}}}}}",
        bad="claims: [{name: gpu}]",
        good="limits: {nvidia.com/gpu: 1}",
        field="spec.podTemplate.options.podConfig.values[0].spec",
        says="have no claims",
    ),
    Case(
        name="jupyterhub-values",
        text="{hub: {}, singleuser: {startTimeout: HERE, extraResource: {limits: {nvidia.com/gpu: '1'}}}}",
        bad="300",
        good="3600",
        field="singleuser.startTimeout",
        says="never starts",
    ),
)  # fmt: skip
