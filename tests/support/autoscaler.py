"""cluster-autoscaler beside a sandbox, by its published rules: what it takes for demand, whether a new node would help, how many.

Sources, read in August 2026:
    kubernetes-sigs/cluster-autoscaler pkg/utils/kubernetes/listers.go (ArrangePodsBySchedulability), before that
    kubernetes/autoscaler cluster-autoscaler/utils/kubernetes/listers.go (UnschedulablePodLister); pkg/core/podlistprocessor
    filter_out_expendable.go (--expendable-pods-priority-cutoff=-10) and filter_out_schedulable.go; the template of a group that has
    a node is that node without what is its own (simulator/node_info_utils.go); estimator/binpacking_estimator.go; claims that are
    not allocated are simulated with the devices of the node (simulator/dynamicresources).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from fairlead.kube import errors, resources
from fairlead.kube.client import Client, Patch
from fairlead.sandbox.node import Node
from fairlead.sandbox.node_fit import matches_affinity, untolerated

Json = dict[str, Any]
Rule = tuple[str, Callable[[Json], bool]]

LOOK_S = 0.2  # 10 s in a real one


def scheduled(pod: Json) -> Json:
    return next((each for each in pod["status"].get("conditions", []) if each["type"] == "PodScheduled"), {})


CLUSTER_AUTOSCALER: list[Rule] = [
    ("spec.nodeName is empty", lambda pod: not pod["spec"].get("nodeName")),
    ("it has not ended", lambda pod: pod["status"].get("phase") not in {"Succeeded", "Failed"}),
    ("PodScheduled is False", lambda pod: scheduled(pod).get("status") == "False"),
    ("its reason is Unschedulable", lambda pod: scheduled(pod).get("reason") == "Unschedulable"),
    ("no node is nominated", lambda pod: not pod["status"].get("nominatedNodeName")),
    ("its priority is not below the cutoff", lambda pod: (pod["spec"].get("priority") or 0) >= -10),
]
"""Of pods for which cluster-autoscaler makes nodes."""


def broken(rules: Iterable[Rule], pod: Json) -> list[str]:
    """The rules that the pod breaks."""
    return [name for name, holds in rules if not holds(pod)]


class Autoscaler:
    """Of one group: `nodes` that it starts one by one, like `like`, a node that exists."""

    def __init__(self, client: Client, like: str, nodes: Sequence[Node]) -> None:
        self.made: list[str] = []
        self._client = client
        self._like = like
        self._left = list(nodes)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        while True:
            for _ in range(await self.estimate()):
                await self._make()
            await asyncio.sleep(LOOK_S)

    async def estimate(self) -> int:
        """How many nodes it would make now: as many as hold the pods that are demand, fit the group's nodes and none that exists."""
        client = self._client
        pods = (await client.list(resources.raw(resources.PODS))).items
        claims = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): each
            for each in (await client.list(resources.raw(resources.RESOURCE_CLAIMS))).items
        }
        nodes = (await client.list(resources.raw(resources.NODES))).items
        free = await self._free(nodes, claims.values())
        template = _sanitized(next(each for each in nodes if each["metadata"]["name"] == self._like))
        size = (await self._devices()).get(self._like, 0)
        wanted: list[int] = []
        for pod in pods:
            asked = _asked(pod, claims)
            if broken(CLUSTER_AUTOSCALER, pod) or asked is None:
                continue
            there = next(
                (node for node in nodes if _takes(pod, node) and free[node["metadata"]["name"]] >= asked), None
            )
            if there is not None:
                free[there["metadata"]["name"]] -= asked
            elif _takes(pod, template) and asked <= size:
                wanted.append(asked)
        bins: list[int] = []
        for asked in sorted(wanted, reverse=True):
            place = next((number for number, left in enumerate(bins) if left >= asked), None)
            if place is None:
                bins.append(size - asked)
            else:
                bins[place] -= asked
        return min(len(bins), len(self._left))

    async def _free(self, nodes: Sequence[Json], claims: Iterable[Json]) -> dict[str, int]:
        """Nodes that it started and that publish no devices yet count with those of the group: it does not make them twice."""
        devices = await self._devices()
        names = {each["metadata"]["name"] for each in nodes} | set(self.made)
        free = {name: devices.get(name, devices.get(self._like, 0) if name in self.made else 0) for name in names}
        for claim in claims:
            for result in ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results", ()):
                free[result["pool"]] = free.get(result["pool"], 0) - 1
        return free

    async def _devices(self) -> dict[str, int]:
        """By node: whole GPUs that are published."""
        found: dict[str, int] = {}
        for each in (await self._client.list(resources.raw(resources.RESOURCE_SLICES))).items:
            node = each["spec"].get("nodeName", "")
            found[node] = found.get(node, 0) + sum("type" in str(device) for device in each["spec"].get("devices", ()))
        return found

    async def _make(self) -> None:
        node = self._left.pop(0)
        self.made.append(node.name)
        await node.start()
        like = await self._client.get(resources.raw(resources.NODES), self._like)
        with contextlib.suppress(errors.NotFound):
            taints = {"spec": {"taints": like["spec"].get("taints") or []}}
            await self._client.patch(resources.NODES, node.name, taints, kind=Patch.MERGE)


def _asked(pod: Json, claims: dict[tuple[str, str], Json]) -> int | None:
    """Devices; None where a claim of it does not exist, or has devices already: then it is not simulated."""
    total = 0
    for use in pod["spec"].get("resourceClaims") or ():
        generated = {
            each["name"]: each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses") or ()
        }
        name = use.get("resourceClaimName") or generated.get(use["name"])
        claim = claims.get((pod["metadata"]["namespace"], name or ""))
        if claim is None or (claim.get("status") or {}).get("allocation"):
            return None
        total += sum(each["exactly"].get("count", 1) for each in claim["spec"]["devices"]["requests"])
    return total


def _takes(pod: Json, node: Json) -> bool:
    return matches_affinity(pod, node) and not any(
        untolerated(node["spec"].get("taints") or (), pod["spec"].get("tolerations") or ())
    )


def _sanitized(node: Json) -> Json:
    own = "kubernetes.io/hostname"
    labels = {key: value for key, value in node["metadata"]["labels"].items() if key != own}
    return {**node, "metadata": {**node["metadata"], "name": "", "labels": labels}}
