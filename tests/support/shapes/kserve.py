"""KServe 0.20.0, Standard deployment mode: an InferenceService's Deployment; Kubernetes makes its ReplicaSet and pods.

The Deployment is <name>-predictor. Its pod is the ServingRuntime's, into whose container `kserve-container` image, args, env and
resources of `predictor.model` go (claims, too), or the predictor's own containers; `resourceClaims` of the predictor are the pod's.
Without `storageUri` there is no init container that fetches the model. Annotations of the InferenceService lie on the pods.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from tests.support.shapes.base import Controller, Kind, Lookup, Obj, child

CONTAINER = "kserve-container"


def deployment(service: Obj, lookup: Lookup) -> Iterator[Obj]:
    metadata, predictor = service["metadata"], service["spec"]["predictor"]
    name = f"{metadata['name']}-predictor"
    labels = {
        **(metadata.get("labels") or {}),
        "serving.kserve.io/inferenceservice": metadata["name"],
        "component": "predictor",
        "app": f"isvc.{name}",
    }
    template = {
        "metadata": {"labels": labels, "annotations": dict(metadata.get("annotations") or {})},
        "spec": _pod_spec(predictor, metadata["namespace"], lookup),
    }
    spec = {
        "replicas": predictor.get("minReplicas", 1),
        "selector": {"matchLabels": {"app": f"isvc.{name}"}},
        "template": template,
        "progressDeadlineSeconds": 600,
    }
    yield child(service, "apps/v1", "Deployment", name, spec, labels=labels)


def _pod_spec(predictor: Obj, namespace: str, lookup: Lookup) -> Obj:
    own: Obj = {
        key: copy.deepcopy(predictor[key]) for key in ("resourceClaims", "tolerations", "volumes") if key in predictor
    }
    if "model" not in predictor:
        return {**own, "containers": copy.deepcopy(predictor["containers"])}
    model = predictor["model"]
    runtime = lookup("ServingRuntime", namespace, model["runtime"])["spec"]
    containers = copy.deepcopy(runtime["containers"])
    for container in containers:
        if container["name"] == CONTAINER:
            container |= {key: copy.deepcopy(model[key]) for key in ("image", "resources") if key in model}
            container["args"] = [*(container.get("args") or ()), *(model.get("args") or ())]
            container["env"] = [*(container.get("env") or ()), *(model.get("env") or ())]
    return {**own, "containers": containers}


KSERVE = Controller(
    name="KServe (vLLM, Triton)",
    version="0.20.0",
    sources=(
        "https://github.com/kserve/kserve/blob/v0.20.0/pkg/controller/v1beta1/inferenceservice/components/predictor.go",
        "https://github.com/kserve/kserve/blob/v0.20.0/pkg/controller/v1beta1/inferenceservice/reconcilers/deployment/deployment_reconciler.go",
    ),
    account="system:serviceaccount:kserve:kserve-controller-manager",
    kinds=(
        Kind(api_version="serving.kserve.io/v1beta1", kind="InferenceService", plural="inferenceservices"),
        Kind(api_version="serving.kserve.io/v1alpha1", kind="ServingRuntime", plural="servingruntimes"),
    ),
    shapes={"InferenceService": deployment},
)
