"""Traps of JobSet, LeaderWorkerSet, Kubeflow Trainer, KubeRay, and of StatefulSets that are gangs.

Sources: jobset v0.12.0 pkg/webhooks/pod_webhook.go; lws v0.10.0 pkg/controllers/pod_controller.go; trainer v2.3.0
pkg/runtime/core/trainingruntime.go, pkg/runtime/framework/plugins/torch/torch.go, pkg/apis/trainer/v1alpha1/trainjob_types.go;
kuberay v1.7.0 ray-operator/controllers/ray/common/pod.go (addWellKnownAcceleratorResources), ray-project/kuberay#3527;
kubernetes v1.36 pkg/controller/statefulset/stateful_set_control.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fairlead.api import names
from fairlead.cli.checks.traps.base import (
    Json,
    Trap,
    annotations_of,
    at,
    has_claims,
    has_devices,
    mapping,
    mappings,
    ours,
)

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
EXCLUSIVE_GROUP = "leaderworkerset.sigs.k8s.io/exclusive-topology"
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"


def job_set(jobset: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """Exclusive placement refuses follower pods until the leader is scheduled, which waits for the whole gang."""
    own = annotations_of(jobset)
    for index, job in enumerate(mappings(jobset, "spec", "replicatedJobs")):
        if not has_devices(mapping(job, "template", "spec", "template", "spec")):
            continue
        said = annotations_of(job, "template")
        where = "metadata" if EXCLUSIVE in own else f"spec.replicatedJobs[{index}].template.metadata"
        if EXCLUSIVE not in {**own, **said} or NODE_SELECTOR in {**own, **said}:
            continue
        domain = {**own, **said}[EXCLUSIVE]
        yield Trap(
            field=f"{where}.annotations[{EXCLUSIVE}]",
            text=f"JobSet refuses to create a Job's other pods until its first pod is scheduled, and that pod waits for its whole "
            f"gang: neither happens. Write {names.TOPOLOGY}: required:{domain} for the JobSet, or {names.SUBGROUP_SIZE} and "
            f"{names.SUBGROUP_TOPOLOGY} for a domain for each Job; or use JobSet's node selectors ({NODE_SELECTOR})",
        )
        if EXCLUSIVE in own:
            return


def leader_worker_set(lws: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """Exclusive placement makes a group's workers when its leader has a node, and the leader waits for its whole gang."""
    template = mapping(lws, "spec", "leaderWorkerTemplate")
    specs = [mapping(template, key, "spec") for key in ("leaderTemplate", "workerTemplate")]
    if not any(map(has_devices, specs)):
        return
    domain = annotations_of(lws).get(EXCLUSIVE_GROUP)
    if domain is not None:
        yield Trap(
            field=f"metadata.annotations[{EXCLUSIVE_GROUP}]",
            text="LeaderWorkerSet makes a group's workers when its leader has a node, and the leader waits for its whole gang: neither "
            f"happens. Write {names.TOPOLOGY}: required:{domain} instead: each group is a gang, and within one domain",
        )
    if at(lws, "spec", "startupPolicy") == "LeaderReady":
        yield Trap(
            field="spec.startupPolicy",
            text="LeaderReady: a group's workers are made when its leader is ready, so leader and workers are no gang: a leader may "
            "hold its devices while its workers find none. Write LeaderCreated where the leader can wait for its workers",
            level="warning",
        )


def stateful_set(stateful_set: Json, others: Sequence[Json]) -> Iterator[Trap]:
    """OrderedReady makes a pod when the one before is ready; a gang's first pod waits for all."""
    spec = mapping(stateful_set, "spec")
    said = annotations_of(spec, "template")
    several = at(spec, "replicas") not in (None, 0, 1)
    if names.GANG in said and several and at(spec, "podManagementPolicy") != "Parallel":
        yield Trap(
            field="spec.podManagementPolicy",
            text=f"OrderedReady makes a pod when the one before it is ready, and the first pod of gang {said[names.GANG]} waits for all "
            "of them: write Parallel",
        )


def train_job(job: Json, others: Sequence[Json]) -> Iterator[Trap]:
    spec = mapping(job, "spec")
    if at(spec, "trainer", "resourcesPerNode", "claims"):
        yield Trap(
            field="spec.trainer.resourcesPerNode.claims",
            text="Trainer takes limits and requests only, and ignores claims: the pods get no device. Write the claims into the "
            "TrainingRuntime's pod template, or limits here (nvidia.com/gpu)",
        )
    yield from _patched_claims(spec)
    yield from _annotations(job)
    runtime = _runtime(job, others)
    yield from () if runtime is None else _processes(job, runtime)


def _patched_claims(spec: Json) -> Iterator[Trap]:
    """In runtimePatches, and in podTemplateOverrides, which they were until Trainer 2.1."""
    found = []
    for index, patch in enumerate(mappings(spec, "runtimePatches")):
        jobs = mappings(patch, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        for number, job in enumerate(jobs):
            path = f"spec.runtimePatches[{index}].trainingRuntimeSpec.template.spec.replicatedJobs[{number}]"
            pod = mapping(job, "template", "spec", "template", "spec")
            found.append(("patches of a runtime", f"{path}.template.spec.template.spec", pod))
    for index, override in enumerate(mappings(spec, "podTemplateOverrides")):
        pod = mapping(override, "spec")
        found.append(("overrides of pod templates", f"spec.podTemplateOverrides[{index}].spec", pod))
    for what, path, pod in found:
        if has_claims(pod):
            yield Trap(
                field=f"{path}.resourceClaims",
                text=f"{what} have no claims, and the apiserver drops the field: the pods get no device. Write the claims into the "
                "TrainingRuntime's pod template, or limits into spec.trainer.resourcesPerNode",
            )


def _annotations(job: Json) -> Iterator[Trap]:
    """TrainJobs had spec.annotations until Trainer 2.1; since 2.2 they reach the pods by a patch only."""
    patched: dict[str, str] = {}
    for patch in mappings(job, "spec", "runtimePatches"):
        patched |= annotations_of(patch, "trainingRuntimeSpec", "template")
    for where, said in (
        ("metadata", annotations_of(job)),
        ("spec", {str(key): str(text) for key, text in mapping(job, "spec", "annotations").items()}),
    ):
        for key in ours(said):
            if key not in patched:
                yield Trap(
                    field=f"{where}.annotations[{key}]",
                    text="since Trainer 2.2 a TrainJob's own annotations do not reach its pods: write it into "
                    "spec.runtimePatches[].trainingRuntimeSpec.template.metadata.annotations, or into the runtime's "
                    "spec.template.metadata.annotations",
                    level="warning",
                )


def _runtime(job: Json, others: Sequence[Json]) -> Json | None:
    """The runtime that the TrainJob names, where it is among the objects that were given."""
    reference = mapping(job, "spec", "runtimeRef")
    kind = reference.get("kind") or "ClusterTrainingRuntime"
    for other in others:
        same = other.get("kind") == kind and at(other, "metadata", "name") == reference.get("name")
        namespaces = (at(each, "metadata", "namespace") or "default" for each in (other, job))
        if same and (kind == "ClusterTrainingRuntime" or len(set(namespaces)) == 1):
            return other
    return None


def _processes(job: Json, runtime: Json) -> Iterator[Trap]:
    """With claims and "auto", a node runs as many processes as it has CPUs."""
    if at(runtime, "spec", "mlPolicy", "torch") is None or at(job, "spec", "trainer", "numProcPerNode") not in (
        None,
        "auto",
    ):
        return
    for replicated in mappings(runtime, "spec", "template", "spec", "replicatedJobs"):
        pod = mapping(replicated, "template", "spec", "template", "spec")
        trains = at(replicated, "template", "metadata", "labels", STEP) == "trainer"
        if trains and has_claims(pod):
            kind, name = runtime.get("kind"), at(runtime, "metadata", "name")
            yield Trap(
                field="spec.trainer.numProcPerNode",
                text=f"{kind} {name} asks for devices by claims, and Trainer counts GPUs in limits only: it starts one process for each "
                "CPU. Write how many processes a pod starts, the number of its GPUs",
            )


def ray_cluster(ray: Json, others: Sequence[Json]) -> Iterator[Trap]:
    yield from _cluster(mapping(ray, "spec"), "spec")


def ray_job(ray: Json, others: Sequence[Json]) -> Iterator[Trap]:
    yield from _cluster(mapping(ray, "spec", "rayClusterSpec"), "spec.rayClusterSpec")


def ray_service(ray: Json, others: Sequence[Json]) -> Iterator[Trap]:
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
