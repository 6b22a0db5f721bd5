"""Manifests with a trap each, and with its cure in the trap's place: what `test_check_traps` runs."""

from __future__ import annotations

from tests.cli.trap_case import LEGACY, POD, Case, plain
from tests.cli.trap_cases_serving import SERVING

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
        name="train-job-overridden-claims",
        text=plain(TRAIN_JOB, OF_JOB="", FIELDS=OVERRIDES),
        bad="resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]",
        good="nodeSelector: {a: b}",
        field="spec.podTemplateOverrides[0].spec.resourceClaims",
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
        says="Ray has none",
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
        name="argo-gangs-of-one",
        text=DAG,
        bad="",
        good="fairlead.dev/gang: g, fairlead.dev/gang-size: '2'",
        field="spec.templates[1].metadata.annotations[fairlead.dev/gang]",
        says="each is a gang of one",
        level="warning",
    ),
    Case(
        name="pipelines-compiled",
        text="{pipelineInfo: {name: p}, root: {}, deploymentSpec: {executors: {exec-train: {container: {resources: {accelerator: "
        "{type: HERE, count: '1'}}}}}}}",
        bad="gpu.fairlead.dev",
        good="nvidia.com/mig-1g.10gb",
        field="deploymentSpec.executors.exec-train.container.resources.accelerator.type",
        says="no field for claims",
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
        text="{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: t}, spec: {timeout: 0s, podTemplate: {HERE}, taskSpec: {steps: []}}}",
        bad="resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]",
        good="nodeSelector: {a: b}",
        field="spec.podTemplate.resourceClaims",
        says="no such field",
    ),
    Case(
        name="tekton-step",
        text="{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: t}, spec: {timeout: 0s, taskSpec: {steps: [{name: s, computeResources: {HERE}}]}}}",
        bad="claims: [{name: gpu}]",
        good="limits: {nvidia.com/gpu: 1}",
        field="spec.taskSpec.steps[0].computeResources.claims",
        says="Write limits",
    ),
    Case(
        name="tekton-pipeline-step",
        text="{apiVersion: tekton.dev/v1, kind: Pipeline, metadata: {name: t}, spec: {finally: [{name: a, taskSpec: {stepTemplate: "
        "{computeResources: {HERE}}}}]}}",
        bad="claims: [{name: gpu}]",
        good="limits: {nvidia.com/gpu: 1}",
        field="spec.finally[0].taskSpec.stepTemplate.computeResources.claims",
        says="Write limits",
    ),
    Case(
        name="tekton-timeout",
        text="{apiVersion: tekton.dev/v1, kind: TaskRun, metadata: {name: t}, spec: {HERE, taskSpec: {steps: [{name: s, computeResources: "
        "{limits: {nvidia.com/gpu: 1}}}]}}}",
        bad="timeout: 1h30m",
        good="timeout: 0s",
        field="spec.timeout",
        says="counts while the pods wait",
        level="warning",
    ),
    Case(
        name="tekton-timeout-by-default",
        text="{apiVersion: tekton.dev/v1, kind: PipelineRun, metadata: {name: t}, spec: {HERE, pipelineSpec: {tasks: [{name: a, taskSpec: {steps: "
        "[{name: s, computeResources: {limits: {nvidia.com/gpu: 1}}}]}}]}}}",
        bad="params: []",
        good="timeouts: {pipeline: 0s}",
        field="spec.timeouts.pipeline",
        says="it is 1 h",
        level="warning",
    ),
    Case(
        name="argo-deadline",
        text="{apiVersion: argoproj.io/v1alpha1, kind: CronWorkflow, metadata: {name: w}, spec: {workflowSpec: {templates: [{name: t, HERE, container: "
        "{image: b, resources: {limits: {nvidia.com/gpu: 1}}}}]}}}",
        bad="timeout: 2h",
        good="activeDeadlineSeconds: 7200",
        field="spec.workflowSpec.templates[0].timeout",
        says="Pending included",
        level="warning",
    ),
    Case(
        name="tekton-pipeline-run",
        text="{apiVersion: tekton.dev/v1, kind: PipelineRun, metadata: {name: t}, spec: {timeouts: {pipeline: 0s}, taskRunSpecs: [{pipelineTaskName: a, podTemplate: {HERE}}]}}",
        bad="resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]",
        good="nodeSelector: {a: b}",
        field="spec.taskRunSpecs[0].podTemplate.resourceClaims",
        says="no such field",
    ),
    Case(
        name="mlflow-tracking-uri",
        text="{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {containers: [{name: a, image: b, env: "
        "[{name: MLFLOW_TRACKING_URI, value: 'HERE'}]}]}}}}",
        bad="http://localhost:5000",
        good="http://mlflow.tracking:5000",
        field="spec.template.spec.containers[0].env[0]",
        says="is in the pod itself",
        level="warning",
    ),
    *SERVING,
)  # fmt: skip
