"""A pod for the device plugin, unchanged, on a cluster with all three programs: its product chosen by node label, its GPUs given."""

import pytest

from fairlead.api import names
from fairlead.kube.resources import PODS, RESOURCE_CLAIM_TEMPLATES
from fairlead.sandbox.cluster import NodeSpec
from fairlead.sandbox.testing import View, cluster, until

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"},
        "containers": [
            {"name": "a", "image": "busybox", "resources": {"limits": {names.LEGACY_GPU: 2}}},
            {"name": "b", "image": "busybox", "resources": {"limits": {names.LEGACY_GPU: 1}}},
            {"name": "c", "image": "busybox", "resources": {"limits": {names.LEGACY_GPU: 0}}},
        ],
    },
}


@pytest.mark.slow
async def test_a_pod_for_the_device_plugin_runs_unchanged() -> None:
    async with cluster(NodeSpec("big", "hgx-h100"), NodeSpec("small", "l40s")) as made, made.client() as client:
        view = View(client)
        await made.apply([POD])

        async def running() -> bool:
            pod = await view.get(PODS, "train")
            return pod is not None and pod["status"].get("phase") == "Running"

        await until(running, timeout_s=60)
        pod = await view.get(PODS, "train")
        assert pod is not None
        assert pod["spec"]["nodeName"] == "small", "no node has the label; the L40S are there"
        kept = {found["metadata"]["name"] for found in await view.all(RESOURCE_CLAIM_TEMPLATES, "default")}
        assert kept == {f"fairlead-gpu-{count}.product-nvidia-l40s" for count in (1, 2)}
        containers = made.nodes["small"].kubelet.containers
        devices = {name: len(containers["default", "train", name].cdi_devices) for name in ("a", "b")}
        assert devices == {"a": 2, "b": 1}
