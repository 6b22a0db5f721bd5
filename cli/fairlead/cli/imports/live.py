"""What of a system a cluster has, as documents: lists with the user's own rights, and nothing else."""

from __future__ import annotations

from typing import Any

from fairlead.bounded import json_text
from fairlead.cli.imports.model import Document, System
from fairlead.cli.imports.yunikorn import CONFIG_MAP
from fairlead.kube import errors
from fairlead.kube.resources import Raw, Resource
from fairlead.ui.reading.cluster import Cluster, NotReadError, not_read

GROUPS: dict[System, tuple[tuple[str, tuple[tuple[str, str], ...]], ...]] = {
    "kueue": (
        (
            "kueue.x-k8s.io",
            (
                ("ClusterQueue", "clusterqueues"),
                ("Cohort", "cohorts"),
                ("LocalQueue", "localqueues"),
                ("ResourceFlavor", "resourceflavors"),
                ("Topology", "topologies"),
                ("WorkloadPriorityClass", "workloadpriorityclasses"),
            ),
        ),
    ),
    "volcano": (("scheduling.volcano.sh", (("Queue", "queues"),)),),
    "runai": (
        ("scheduling.run.ai", (("Queue", "queues"), ("Department", "departments"))),
        ("run.ai", (("Project", "projects"), ("Department", "departments"))),
    ),
}
VERSIONS = ("v2", "v1", "v1beta2", "v1beta1", "v1alpha1")
"""Of those that a cluster serves the first of these is read."""
_NAMESPACED = {"LocalQueue"}


async def read(cluster: Cluster, system: System) -> list[Document]:
    """Raises NotReadError."""
    if system == "yunikorn":
        return await _config_maps(cluster)
    found: list[Document] = []
    served = await _served(cluster)
    groups = GROUPS[system]
    if not any(group in served for group, _ in groups):
        names = " and ".join(group for group, _ in groups)
        raise NotReadError(f"this cluster serves nothing of {names}: name another cluster with --kubeconfig, or files")
    for group, kinds in groups:
        for resource in await _resources(cluster, group, served.get(group, ()), dict(kinds)):
            found += [
                Document(
                    f"the cluster's {resource}", {**item, "kind": resource.kind, "apiVersion": resource.api_version}
                )
                for item in await cluster.list(resource)
            ]
    return found


async def _served(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    """The versions of each API group."""
    groups = (await _get(cluster, "/apis")).get("groups") or ()
    return {each["name"]: tuple(version["version"] for version in each.get("versions") or ()) for each in groups}


async def _resources(
    cluster: Cluster, group: str, served: tuple[str, ...], kinds: dict[str, str]
) -> list[Resource[Raw]]:
    """Each kind once, in the newest of the versions that serve it."""
    found: dict[str, Resource[Raw]] = {}
    for version in (version for version in VERSIONS if version in served):
        for entry in (await _get(cluster, f"/apis/{group}/{version}")).get("resources") or ():
            kind = entry.get("kind")
            if kind in kinds and entry.get("name") == kinds[kind] and kind not in found:
                found[kind] = Resource(
                    group=group,
                    version=version,
                    plural=kinds[kind],
                    kind=kind,
                    namespaced=kind in _NAMESPACED,
                    type=dict,
                )
    return [found[kind] for kind in kinds if kind in found]


async def _get(cluster: Cluster, path: str) -> Any:
    try:
        return json_text.value(await cluster.client.request("GET", path))
    except errors.ApiError as error:
        raise NotReadError(
            f"the cluster's API groups cannot be read at {path}: {error}; ask for the role system:discovery"
        ) from error


async def _config_maps(cluster: Cluster) -> list[Document]:
    resource: Resource[Raw] = Resource(
        group="", version="v1", plural="configmaps", kind="ConfigMap", namespaced=True, type=dict
    )
    try:
        found = (await cluster.client.list(resource, fields=f"metadata.name={CONFIG_MAP}")).items
    except errors.ApiError as error:
        raise not_read(error, "list", resource, None) from error
    if not found:
        raise NotReadError(
            f"this cluster has no ConfigMap {CONFIG_MAP}: name another cluster with --kubeconfig, or a queues.yaml"
        )
    return [Document(f"the cluster's {resource}", {**item, "kind": "ConfigMap", "apiVersion": "v1"}) for item in found]
