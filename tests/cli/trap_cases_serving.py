"""Traps of model servers and notebooks: cases of `trap_cases`."""

from __future__ import annotations

from tests.cli.trap_case import LEGACY, POD, Case, plain

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

SERVING = (
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
        name="triton-ready-without-model",
        text=plain(SERVER, PROBE="HERE"),
        bad="readinessProbe: {httpGet: {path: /v2/health/live, port: 8000}}",
        good="readinessProbe: {httpGet: {path: /v2/health/ready, port: 8000}}",
        field="spec.template.spec.containers[0].readinessProbe.httpGet.path",
        says="/v2/health/ready",
        level="warning",
    ),
    Case(
        name="triton-always-ready",
        text=plain(SERVER, PROBE="HERE"),
        bad="livenessProbe: {initialDelaySeconds: 600}",
        good="startupProbe: {periodSeconds: 10, failureThreshold: 60}",
        field="spec.template.spec.containers[0].readinessProbe",
        says="while the model loads",
        level="warning",
    ),
    Case(
        name="triton-rollout",
        text=ROLLOUT,
        bad="progressDeadlineSeconds: 600",
        good="progressDeadlineSeconds: 7200",
        field="spec.progressDeadlineSeconds",
        says="waits for its GPU and loads its model",
        level="warning",
    ),
    Case(
        name="kserve-runtime-claims",
        text=plain(RUNTIME_OF_KSERVE, KIND="ClusterServingRuntime"),
        bad="resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]",
        good="nodeSelector: {a: b}",
        field="spec.resourceClaims",
        says="kserve#5828",
        level="warning",
    ),
    Case(
        name="kserve-model-without-claim",
        text=plain(RUNTIME_OF_KSERVE, KIND="ServingRuntime", HERE="multiModel: false") + "---" + MODEL,
        bad="minReplicas: 1",
        good="resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]",
        field="spec.predictor.model.resources.claims",
        says="names 'gpu'",
    ),
    Case(
        name="kserve-model-of-an-unknown-runtime",
        text=MODEL,
        bad="minReplicas: 1",
        good="resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]",
        field="spec.predictor.model.resources.claims",
        says="not among the files",
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
    Case(
        name="jupyterhub-values-of-the-hub",
        text="{hub: {config: {KubeSpawner: {start_timeout: HERE}}}, singleuser: {startTimeout: 3600, profileList: "
        "[{display_name: g, kubespawner_override: {extra_resource_limits: {nvidia.com/gpu: '1'}}}]}}",
        bad="300",
        good="3600",
        field="hub.config.KubeSpawner.start_timeout",
        says="never starts",
    ),
    Case(
        name="jupyterhub-values-half",
        text="{hub: {config: {KubeSpawner: {HERE}}}, singleuser: {startTimeout: 3600, extraPodConfig: {resourceClaims: [{name: gpu}]}}}",
        bad="",
        good="extra_container_config: {resources: {claims: [{name: gpu}]}}",
        field="hub.config.KubeSpawner.extra_container_config",
        says="would not see its GPU",
    ),
)  # fmt: skip
