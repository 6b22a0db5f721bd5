"""A Deployment of one replica that surges on full GPUs, on the sandbox with the real programs: it is told that it waits for itself."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.kube.client import Patch
from fairlead.kube.resources import DEPLOYMENTS, GANGS, PODS, Raw, raw
from fairlead.sandbox.cluster import Cluster, NodeSpec
from fairlead.sandbox.objects import Obj, labels_of, name_of, phase_of
from tests.support.sandbox import View, cluster, until

SURGES = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
REPLACES = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def deployment(strategy: Obj) -> Obj:
    labels = {"app": "llm"}
    container = {
        "name": "main", "image": "busybox", "command": ["sleep", "600"], "resources": {"limits": {"nvidia.com/gpu": 8}}
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "strategy": strategy,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": {"kubernetes.io/hostname": "h1"}, "containers": [container]},
            },
        },
    }


async def pods(view: View) -> list[Raw]:
    return [each for each in await view.all(PODS, "default") if labels_of(each).get("app") == "llm"]


async def running(view: View) -> list[Raw]:
    return [each for each in await pods(view) if phase_of(each) == "Running"]


async def roll(made: Cluster) -> None:
    body: dict[str, Any] = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
    await made.admin.patch(raw(DEPLOYMENTS), "llm", body, namespace="default", kind=Patch.MERGE)


@pytest.mark.slow
async def test_a_rollout_that_waits_for_its_own_pod_is_told_so_and_goes_on_when_that_is_taken_away_first():
    async with cluster(NodeSpec("h1", "hgx-h100"), NodeSpec("h2", "hgx-h100")) as made, made.client() as client:
        view = View(client)
        await made.apply([deployment(SURGES)])
        (old,) = await until(lambda: running(view), what="the first pod runs")
        await roll(made)

        async def told() -> Raw | None:
            waiting = [
                each
                for each in await view.all(GANGS, "default")
                if (each.get("status") or {}).get("phase") == "Waiting"
            ]
            found = [each for each in waiting if each["status"].get("reason") == "WaitsForOwnPredecessor"]
            return found[0] if found else None

        found = await until(told, what="its gang says that it waits for its predecessor")
        status = found["status"]
        assert f"default/{name_of(old)}" in status["message"]
        assert status["why"]["couldEverFit"] is False
        assert "maxSurge: 0" in status["why"]["advice"]
        forecast = status.get("forecast") or {}
        assert not (forecast.get("p50") or forecast.get("p90")), "no date"
        body = {"spec": {"strategy": REPLACES}}
        await made.admin.patch(raw(DEPLOYMENTS), "llm", body, namespace="default", kind=Patch.MERGE)

        async def replaced() -> bool:
            left = await running(view)
            return len(left) == 1 and name_of(left[0]) != name_of(old)

        await until(replaced, timeout_s=60.0, what="the new pod runs alone")
