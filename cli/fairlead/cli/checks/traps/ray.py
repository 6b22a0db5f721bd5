"""Traps of KubeRay.

Source: kuberay v1.7.0 ray-operator/controllers/ray/common/pod.go (addWellKnownAcceleratorResources); ray-project/kuberay#3527.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.cli.checks.traps.base import Json, Trap, at, has_claims, has_devices, mapping, mappings


def cluster(ray: Json, others: Sequence[Json]) -> Iterator[Trap]:
    yield from _cluster(mapping(ray, "spec"), "spec")


def job(ray: Json, others: Sequence[Json]) -> Iterator[Trap]:
    yield from _cluster(mapping(ray, "spec", "rayClusterSpec"), "spec.rayClusterSpec")


def service(ray: Json, others: Sequence[Json]) -> Iterator[Trap]:
    yield from _cluster(mapping(ray, "spec", "rayClusterConfig"), "spec.rayClusterConfig")


def _cluster(spec: Json, where: str) -> Iterator[Trap]:
    workers = mappings(spec, "workerGroupSpecs")
    groups = [("headGroupSpec", mapping(spec, "headGroupSpec"))]
    groups += [(f"workerGroupSpecs[{index}]", group) for index, group in enumerate(workers)]
    for path, group in groups:
        pod = mapping(group, "template", "spec")
        if has_claims(pod) and at(group, "rayStartParams", "num-gpus") is None:
            yield Trap(
                field=f"{where}.{path}.rayStartParams[num-gpus]",
                text="is missing: KubeRay passes only the GPUs in limits to Ray, so with a claim Ray has none, and what asks for one "
                'waits forever. Write the number of the claim\'s GPUs, as a string ("2")',
            )
    if at(spec, "enableInTreeAutoscaling") is True and any(
        has_devices(mapping(each, "template", "spec")) for each in workers
    ):
        yield Trap(
            field=f"{where}.enableInTreeAutoscaling",
            text="the gang is as large as minReplicas, and more workers join one by one; Ray's autoscaler does not see that they wait for "
            "devices, and counts them as starting (kuberay#3527). Set minReplicas to what the program cannot do without",
            level="warning",
        )
