"""Traps of KServe and KubeAI, and of the probes of model servers.

Sources: knative/serving#15332 and #15308; kserve v0.20.0 pkg/constants (deploymentMode, dra-device-class); kubeai v0.21.0
internal/modelcontroller (model_controller.go, patch.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import yaml

from fairlead.cli.checks.traps.base import (
    Json,
    Trap,
    annotations_of,
    at,
    containers,
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
LOAD_S = 300
"""How long a model may load at least before a probe may end its container. Kubelet's counts begin when the container starts."""
SERVERS = ("tritonserver", "vllm", "sglang", "text-generation-inference", "huggingfaceserver")


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
        yield from _probes(pod, where)


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
    """A Deployment, or a ServingRuntime: its own probes."""
    path = ("spec",) if str(object_.get("kind")).endswith("ServingRuntime") else ("spec", "template", "spec")
    yield from _probes(mapping(object_, *path), ".".join(path))


def _of(component: Json) -> dict[str, str]:
    """KServe's components have annotations beside their pod spec."""
    return {str(key): str(text) for key, text in mapping(component, "annotations").items()}


def _probes(pod: Json, where: str) -> Iterator[Trap]:
    """A model server's container is ended by the first probe that gives up before the model is loaded."""
    for index, container in enumerate(containers(pod)):
        if not any(server in str(container.get("image", "")) for server in SERVERS):
            continue
        kind = next((each for each in ("startupProbe", "livenessProbe") if container.get(each)), None)
        if kind is None:
            continue
        probe = mapping(container, kind)
        lasts = number(probe.get("initialDelaySeconds"), 0)
        lasts += number(probe.get("periodSeconds"), 10) * number(probe.get("failureThreshold"), 3)
        if lasts < LOAD_S:
            yield Trap(
                field=f"{where}.containers[{index}].{kind}",
                text=f"ends the container when it is not ready {lasts:.0f} s after its start, and a model loads for minutes: write a "
                f"startupProbe with periodSeconds x failureThreshold of {LOAD_S} or more",
                level="warning",
            )


def kubeai_config(config_map: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """KubeAI's settings: the patch reaches the pods of every profile."""
    text = at(config_map, "data", "system.yaml")
    try:
        settings = yaml.safe_load(text) if isinstance(text, str) else None
    except yaml.YAMLError:
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
