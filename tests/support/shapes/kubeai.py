"""KubeAI 0.21.0: a Model's pods.

As many pods as `spec.minReplicas` say (its autoscaler adds more), owned by the Model, named model-<model>-<hash>-…; requests and limits are
those of the resource profile, multiplied by the number after the colon. `modelServerPods.jsonPatches` are applied to every such
pod: the only way to a claim. Both are in the ConfigMap `kubeai-config`, which its chart makes of its values, in KubeAI's namespace,
where its Models are. Annotations of the Model do not reach the pods, but for KubeAI's own.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from fairlead.webhook.review.verdict import apply_patch
from tests.support.shapes.base import Controller, Kind, Lookup, Obj, ending, pod

CONFIG = "kubeai-config"


def pods(model: Obj, lookup: Lookup) -> Iterator[Obj]:
    metadata, spec = model["metadata"], model["spec"]
    config = yaml.safe_load(lookup("ConfigMap", metadata["namespace"], CONFIG)["data"]["system.yaml"])
    profile_name, _, multiple = spec["resourceProfile"].partition(":")
    profile = config["resourceProfiles"][profile_name]
    resources = {
        key: {name: _times(value, int(multiple)) for name, value in profile[key].items()}
        for key in ("requests", "limits")
        if key in profile
    }
    engine = spec["engine"].lower()
    labels = {
        "app": "model",
        "model": metadata["name"],
        "app.kubernetes.io/name": engine,
        "app.kubernetes.io/instance": f"{engine}-{metadata['name']}",
        "app.kubernetes.io/managed-by": "kubeai",
    }
    container = {
        "name": "server",
        "image": config["modelServers"][spec["engine"]]["images"]["default"],
        "command": ["python3", "-m", "vllm.entrypoints.openai.api_server"],
        "args": [
            f"--model={spec['url'].partition('://')[2]}",
            f"--served-model-name={metadata['name']}",
            *spec.get("args", ()),
        ],
        "resources": resources,
    }
    for _ in range(spec.get("minReplicas", 0)):
        begins = f"model-{metadata['name']}-{ending(repr(spec))}-"
        made = pod(model, {"spec": {"containers": [container]}}, generate_name=begins, labels=labels)
        yield apply_patch(made, (config.get("modelServerPods") or {}).get("jsonPatches") or ())


def _times(quantity: object, multiple: int) -> str:
    """A whole quantity with or without a unit, multiplied."""
    text = str(quantity)
    number = text.rstrip("KMGTi")
    return f"{int(number) * multiple}{text[len(number) :]}"


KUBEAI = Controller(
    name="KubeAI (Model)",
    version="0.21.0",
    sources=(
        "https://github.com/substratusai/kubeai/blob/v0.21.0/internal/modelcontroller/engine_vllm.go",
        "https://github.com/substratusai/kubeai/blob/v0.21.0/internal/modelcontroller/patch.go",
        "https://github.com/substratusai/kubeai/blob/v0.21.0/charts/kubeai/templates/configmap.yaml",
    ),
    account="system:serviceaccount:kubeai:kubeai",
    kinds=(Kind(api_version="kubeai.org/v1", kind="Model", plural="models"),),
    shapes={"Model": pods},
)
