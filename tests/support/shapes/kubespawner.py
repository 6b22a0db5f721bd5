"""KubeSpawner 7.1.0 (JupyterHub): the pod of one user's server, made of `c.KubeSpawner…` in jupyterhub_config.py.

The pod is jupyter-<user>, without an owner: the hub deletes it. extra_resource_limits become limits, extra_container_config and
extra_pod_config are merged into container and pod, extra_annotations lie on it. A pod that is not ready within `start_timeout`
seconds (60 by default) is deleted, and the user sees that the spawn failed: waiting for a GPU counts.
"""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.shapes.base import Controller, Obj


def settings(path: Path) -> dict[str, Any]:
    """What a jupyterhub_config.py sets of KubeSpawner."""
    config = SimpleNamespace(KubeSpawner=SimpleNamespace(), JupyterHub=SimpleNamespace())
    exec(compile(path.read_text(), str(path), "exec"), {"get_config": lambda: config})
    return dict(vars(config.KubeSpawner))


def pod(said: dict[str, Any], user: str) -> Obj:
    container: Obj = {
        "name": "notebook",
        "image": said["image"],
        "args": list(said.get("cmd", ["jupyterhub-singleuser"])),
        "resources": {"limits": dict(said.get("extra_resource_limits", {})), "requests": {}},
    }
    for key, value in copy.deepcopy(said.get("extra_container_config", {})).items():
        container[key] = {**container[key], **value} if isinstance(container.get(key), dict) else value
    metadata = {
        "name": f"jupyter-{user}",
        "namespace": said["namespace"],
        "labels": {
            "hub.jupyter.org/username": user,
            "hub.jupyter.org/servername": "",
            "app.kubernetes.io/component": "singleuser-server",
            "component": "singleuser-server",
            "app": "jupyterhub",
        },
        "annotations": {"hub.jupyter.org/username": user, **said.get("extra_annotations", {})},
    }
    spec = {"restartPolicy": "OnFailure", "containers": [container], **copy.deepcopy(said.get("extra_pod_config", {}))}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


KUBESPAWNER = Controller(
    name="JupyterHub (KubeSpawner)",
    version="7.1.0",
    sources=("https://github.com/jupyterhub/kubespawner/blob/7.1.0/kubespawner/spawner.py",),
    account="system:serviceaccount:jupyterhub:hub",
)
