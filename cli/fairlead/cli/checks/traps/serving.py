"""Traps of KServe, KubeAI, and of model servers' probes and rollouts: a model loads for minutes, and before that its pod may wait for a GPU.

- The first of startup and liveness probe that gives up ends the container while the model loads. Kubelet's counts begin when the
  container starts, so waiting for a GPU is not among them.
- A pod without readiness and startup probe is ready when its container starts, and one whose readiness probe asks Triton's
  /v2/health/live when the process runs: Services send requests to a server without a model.
- `progressDeadlineSeconds` of a Deployment counts from its creation, hence the wait for a GPU and the load: after it the rollout is
  reported as failed.

Sources: knative/serving#15332 and #15308; kserve v0.20.0 pkg/constants (deploymentMode, dra-device-class) and
pkg/apis/serving/v1alpha1/servingruntime_types.go (ServingRuntimePodSpec, which has resourceClaims since kserve#5828, July 2026);
kubeai v0.21.0 internal/modelcontroller (model_controller.go, patch.go); kubernetes.io "Liveness, Readiness, and Startup Probes" and
"Deployments" (progress deadline); Triton's health endpoints (KServe's predict protocol, /v2/health/live and /v2/health/ready).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.bounded import yaml_text
from fairlead.bounded.limits import SMALL, UnreadableError
from fairlead.cli.checks.traps.base import (
    Json,
    Trap,
    annotations_of,
    at,
    has_claims,
    has_devices,
    has_limits,
    mapping,
    mappings,
    number,
    ours,
)

MODE = "serving.kserve.io/deploymentMode"
KNATIVE = ("Knative", "Serverless")
DEADLINE = "serving.knative.dev/progress-deadline"
DRA_CLASS = "serving.kserve.io/dra-device-class"


def inference_service(service: Json, others: Sequence[Json]) -> Iterator[Trap]:
    said = annotations_of(service)
    for component in ("predictor", "transformer", "explainer"):
        pod, where = mapping(service, "spec", component), f"spec.{component}"
        model = mapping(pod, "model")
        claims = has_claims(pod) or bool(at(model, "resources", "claims"))
        devices = claims or has_devices(pod) or has_limits(model.get("resources"))
        mode = said.get(MODE, "")
        if claims and mode in KNATIVE:
            yield Trap(
                field=f"metadata.annotations[{MODE}]",
                text=f"{mode}: Knative refuses pods with claims (knative/serving#15332). Write Standard, or limits (nvidia.com/gpu) instead of "
                f"{where}.resourceClaims",
            )
        elif devices and mode in KNATIVE and DEADLINE not in {**said, **annotations_of(pod), **_of(pod)}:
            yield Trap(
                field=f"{where}.annotations[{DEADLINE}]",
                text="is missing: Knative scales a revision to 0 whose pods are not ready within ten minutes (knative/serving#15308), and "
                "waiting for a GPU counts. Write how long they may wait, as 24h, or use deploymentMode Standard",
                level="warning",
            )
        elif claims and MODE not in said:
            yield Trap(
                field=f"metadata.annotations[{MODE}]",
                text="is missing: where the cluster's default is Knative, pods with claims are refused (knative/serving#15332). Write Standard",
                level="warning",
            )
        yield from _unknown_claims(pod, model, where, _runtime(service, model, others))
        yield from _of_pod(pod, where, defaulted=True)


def _runtime(service: Json, model: Json, others: Sequence[Json]) -> Json | None:
    """The ServingRuntime or ClusterServingRuntime that a model names, where it is among the objects that were given."""
    namespace = at(service, "metadata", "namespace") or "default"
    for other in others:
        if at(other, "metadata", "name") != model.get("runtime") or not model.get("runtime"):
            continue
        own = other.get("kind") == "ServingRuntime" and (at(other, "metadata", "namespace") or "default") == namespace
        if own or other.get("kind") == "ClusterServingRuntime":
            return other
    return None


def _unknown_claims(pod: Json, model: Json, where: str, runtime: Json | None) -> Iterator[Trap]:
    """A container names a claim that its pod does not have, so the pod is refused."""
    known = {
        str(each.get("name"))
        for each in (*mappings(pod, "resourceClaims"), *mappings(runtime, "spec", "resourceClaims"))
    }
    holders = {f"{where}.containers[{index}]": each for index, each in enumerate(mappings(pod, "containers"))}
    if model:
        holders[f"{where}.model"] = model
    for path, holder in holders.items():
        for name in (str(each.get("name")) for each in mappings(holder, "resources", "claims")):
            if name not in known:
                seen = not model or runtime is not None
                yield Trap(
                    field=f"{path}.resources.claims",
                    text=f"names {name!r}, and {where}.resourceClaims has no such entry: the pod is refused"
                    f"{'' if seen else ', unless its runtime, which is not among the files, has one'}. Add it there, with its "
                    "resourceClaimTemplateName",
                    level="fails" if seen else "warning",
                )


def serving_runtime(runtime: Json, others: Sequence[Json]) -> Iterator[Trap]:
    spec = mapping(runtime, "spec")
    if has_claims(spec):
        yield Trap(
            field="spec.resourceClaims" if spec.get("resourceClaims") else "spec.containers",
            text="runtimes have resourceClaims since kserve#5828 (July 2026): a KServe without it drops the field, its pods name a claim that "
            "they do not have, and are refused. Write the claims into the InferenceService, spec.predictor.resourceClaims and "
            "model.resources.claims",
            level="warning",
        )
    yield from _of_pod(spec, "spec", defaulted=True)


def llm_inference_service(service: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """KServe makes a claim itself where the annotation names a class."""
    said = annotations_of(service)
    for path in (("template",), ("worker",), ("prefill", "template"), ("prefill", "worker")):
        pod = mapping(service, "spec", *path)
        if DRA_CLASS in said and has_devices(pod):
            yield Trap(
                field=f"metadata.annotations[{DRA_CLASS}]",
                text=f"KServe adds a claim of this class to each pod, and spec.{'.'.join(path)} asks for devices, too: the pods wait for both. "
                "Keep one of them",
                level="warning",
            )
            return


def workload(object_: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """A Deployment or StatefulSet of a model server."""
    yield from _of_pod(mapping(object_, "spec", "template", "spec"), "spec.template.spec")
    if object_.get("kind") == "Deployment":
        yield from _of_rollout(object_)


def _of(component: Json) -> dict[str, str]:
    """KServe's components have annotations beside their pod spec."""
    return {str(key): str(text) for key, text in mapping(component, "annotations").items()}


def kubeai_config(config_map: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """KubeAI's settings: the patch reaches the pods of every profile."""
    text = at(config_map, "data", "system.yaml")
    try:
        settings = yaml_text.document(text, SMALL) if isinstance(text, str) else None
    except UnreadableError:
        return
    patches = mappings(settings, "modelServerPods", "jsonPatches")
    if not any("/resourceClaims" in str(patch.get("path")) for patch in patches):
        return
    for name, profile in mapping(settings, "resourceProfiles").items():
        if has_limits(profile):
            yield Trap(
                field=f"data[system.yaml].resourceProfiles.{name}",
                text="has limits of GPUs, and modelServerPods.jsonPatches add a claim to the pods of every profile: they get both. Keep one of "
                "them",
            )


def model(kubeai: Json, others: Sequence[Json]) -> Iterator[Trap]:
    if str(kubeai.get("apiVersion")).startswith("kubeai.org/"):
        for key in ours(annotations_of(kubeai)):
            yield Trap(
                field=f"metadata.annotations[{key}]",
                text="KubeAI does not copy it to the Model's pods: add it by modelServerPods.jsonPatches (/metadata/annotations)",
                level="warning",
            )


LOAD_S = 300
"""How long a model may load at least before a probe may end its container."""
DEADLINE_S = 600
"""Of a Deployment that says nothing."""
SERVERS = ("tritonserver", "vllm", "sglang", "text-generation-inference", "huggingfaceserver")
LIVE = "/v2/health/live"


def _of_pod(pod: Json, where: str, *, defaulted: bool = False) -> Iterator[Trap]:
    """The traps of model servers among a pod's containers. `defaulted`: its controller adds a readiness probe where there is none."""
    for index, container in enumerate(mappings(pod, "containers")):
        if not _serves(container):
            continue
        path = f"{where}.containers[{index}]"
        ended = list(_ended(container, path))
        yield from ended or _ready_too_early(container, path, defaulted=defaulted)


def _of_rollout(deployment: Json) -> Iterator[Trap]:
    pod = mapping(deployment, "spec", "template", "spec")
    seconds = number(at(deployment, "spec", "progressDeadlineSeconds"), DEADLINE_S)
    if seconds <= DEADLINE_S and has_devices(pod) and any(map(_serves, mappings(pod, "containers"))):
        yield Trap(
            field="spec.progressDeadlineSeconds",
            text=f"{seconds:.0f} s from the rollout's begin, in which a pod waits for its GPU and loads its model: after that the rollout is "
            "reported as failed (ProgressDeadlineExceeded), and kubectl rollout status, Helm and Argo CD give up. Write how long "
            "it may take, 7200 for two hours",
            level="warning",
        )


def _serves(container: Json) -> bool:
    return any(server in str(container.get("image", "")) for server in SERVERS)


def _ended(container: Json, path: str) -> Iterator[Trap]:
    kind = next((each for each in ("startupProbe", "livenessProbe") if container.get(each)), None)
    if kind is None:
        return
    probe = mapping(container, kind)
    lasts = number(probe.get("initialDelaySeconds"), 0)
    lasts += number(probe.get("periodSeconds"), 10) * number(probe.get("failureThreshold"), 3)
    if lasts < LOAD_S:
        yield Trap(
            field=f"{path}.{kind}",
            text=f"ends the container when it is not ready {lasts:.0f} s after its start, and a model loads for minutes: write a "
            f"startupProbe with periodSeconds x failureThreshold of {LOAD_S} or more",
            level="warning",
        )


def _ready_too_early(container: Json, path: str, *, defaulted: bool) -> Iterator[Trap]:
    if container.get("startupProbe"):
        return  # the pod is not ready until it succeeds
    probe = container.get("readinessProbe")
    if not probe and not defaulted:
        yield Trap(
            field=f"{path}.readinessProbe",
            text="is missing: the pod is ready when its container starts, and Services send requests while the model loads for minutes. "
            "Write one that succeeds when the model is loaded (Triton: httpGet /v2/health/ready; vLLM: /v1/models)",
            level="warning",
        )
    elif at(probe, "httpGet", "path") == LIVE:
        yield Trap(
            field=f"{path}.readinessProbe.httpGet.path",
            text=f"{LIVE} answers when Triton's process runs, and Services send requests while the model loads for minutes: write "
            "/v2/health/ready, which answers when it is loaded",
            level="warning",
        )
