"""Where each workload kind keeps its pod templates, and how many pods of each template run at once.

One table, WORKLOADS: a kind that is not in it is reviewed pod by pod. Reads raw objects and decides nothing.
`indexed` knows the index that each controller writes on its pods, by which they get ranks and subgroups, before a pod exists: so a workload
whose pods would be in no subgroup is refused when it is written, not pod by pod.

Sources: batch/v1; jobset.x-k8s.io/v1alpha2; leaderworkerset.x-k8s.io/v1; kubeflow.org/v1 and v2beta1;
trainer.kubeflow.org/v1alpha1 (a TrainJob has no templates: its runtime's JobSet has); ray.io/v1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fairlead.api import names
from fairlead.webhook.objects.fields import (
    Json,
    MalformedError,
    Path,
    dotted,
    int_at,
    join,
    list_at,
    map_at,
    object_at,
    text_at,
)


@dataclass(frozen=True, kw_only=True)
class PodTemplate:
    """A pod template at `path`; `pods` of it run at once."""

    path: Path
    pods: int
    job_spec: Path | None = None
    """The batch/v1 JobSpec that the template is in."""
    metadata_sources: tuple[Path, ...] = (("metadata",),)
    """Metadata whose annotations the pods inherit, nearest first."""
    separate_gang: str = ""
    """The name suffix of a gang of its own: its pods start only after others of the object are ready or done, so both cannot
    wait for each other in one gang. "" where they start together.
    """

    @property
    def where(self) -> str:
        return dotted(self.path)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """How a workload kind is read."""

    templates: Callable[[Json], Iterator[PodTemplate]]
    gang_by_default: bool = False
    """Its pods run together, also where no annotation asks for a gang."""
    creates_workloads: bool = False
    """It creates objects that are reviewed again, under names that are not known yet: a CronJob, a RayJob."""
    gang_per_group: bool = False
    """Its pods come in equal groups, each a gang that is named when its pods are created: a LeaderWorkerSet."""
    suspend: Path | None = None
    """The field that keeps it from creating pods; None for kinds without one, or where the field has another meaning."""


def parallel_pods(job_spec: Json, path: str) -> int:
    """Pods of a batch/v1 JobSpec that run at once. parallelism is 1 where absent; completions bound it where given."""
    parallelism = int_at(job_spec, "parallelism", path)
    completions = int_at(job_spec, "completions", path)
    pods = 1 if parallelism is None else parallelism
    return pods if completions is None else min(pods, completions)


def _job(object_: Json) -> Iterator[PodTemplate]:
    pods = parallel_pods(map_at(object_, "spec"), "spec")
    yield PodTemplate(path=("spec", "template"), pods=pods, job_spec=("spec",))


def _cronjob(object_: Json) -> Iterator[PodTemplate]:
    job: Path = ("spec", "jobTemplate", "spec")
    yield PodTemplate(
        path=(*job, "template"),
        pods=parallel_pods(object_at(object_, job), dotted(job)),
        job_spec=job,
        metadata_sources=(("spec", "jobTemplate", "metadata"), ("metadata",)),
    )


def _jobset(object_: Json) -> Iterator[PodTemplate]:
    spec = map_at(object_, "spec")
    jobs = list_at(spec, "replicatedJobs", "spec")
    startup = map_at(spec, "startupPolicy", "spec")
    ordered = startup.get("startupPolicyOrder") == "InOrder" or any(job.get("dependsOn") for job in jobs)
    for index, replicated in enumerate(jobs):
        at: Path = ("spec", "replicatedJobs", index)
        job: Path = (*at, "template", "spec")
        yield PodTemplate(
            path=(*job, "template"),
            pods=_replicas(replicated, "replicas", dotted(at)) * parallel_pods(object_at(object_, job), dotted(job)),
            job_spec=job,
            metadata_sources=((*at, "template", "metadata"), ("metadata",)),
            separate_gang=text_at(replicated, "name", dotted(at)) if ordered else "",
        )


def _leader_worker_set(object_: Json) -> Iterator[PodTemplate]:
    at: Path = ("spec", "leaderWorkerTemplate")
    spec = object_at(object_, at)
    size = _replicas(spec, "size", dotted(at))
    leader_first = map_at(object_, "spec").get("startupPolicy") == "LeaderReady"
    leader = bool(map_at(spec, "leaderTemplate", dotted(at)))
    if leader:
        yield PodTemplate(path=(*at, "leaderTemplate"), pods=1, separate_gang="leader" if leader_first else "")
    workers = "workers" if leader_first else ""
    yield PodTemplate(path=(*at, "workerTemplate"), pods=size - leader, separate_gang=workers)


def _kubeflow(field: str) -> Callable[[Json], Iterator[PodTemplate]]:
    def templates(object_: Json) -> Iterator[PodTemplate]:
        spec = map_at(object_, "spec")
        elastic_min = int_at(map_at(spec, "elasticPolicy", "spec"), "minReplicas", "spec.elasticPolicy")
        launcher_last = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
        for role in sorted(map_at(spec, field, "spec")):
            replica = object_at(object_, ("spec", field, role))
            pods = _replicas(replica, "replicas", f"spec.{field}.{role}")
            if role == "Worker" and elastic_min is not None:
                pods = elastic_min
            separate = "launcher" if role == "Launcher" and launcher_last else ""
            yield PodTemplate(path=("spec", field, role, "template"), pods=pods, separate_gang=separate)

    return templates


def _ray(*at: str) -> Callable[[Json], Iterator[PodTemplate]]:
    def templates(object_: Json) -> Iterator[PodTemplate]:
        spec = object_at(object_, at)
        autoscaled = spec.get("enableInTreeAutoscaling") is True
        yield PodTemplate(path=(*at, "headGroupSpec", "template"), pods=1)
        for index, group in enumerate(list_at(spec, "workerGroupSpecs", dotted(at))):
            where = dotted((*at, "workerGroupSpecs", index))
            least = int_at(group, "minReplicas", where) or 0
            replicas = int_at(group, "replicas", where)
            pods = least if autoscaled or replicas is None else max(replicas, least)
            hosts = _replicas(group, "numOfHosts", where)
            yield PodTemplate(path=(*at, "workerGroupSpecs", index, "template"), pods=pods * hosts)

    return templates


def _none(object_: Json) -> Iterator[PodTemplate]:
    return iter(())


def _replicas(parent: Json, key: str, path: str) -> int:
    found = int_at(parent, key, path)
    if found is not None and found < 0:
        raise MalformedError(f"{join(path, key)}: {found} is negative")
    return 1 if found is None else found


_SUSPEND: Path = ("spec", "suspend")
_RUN_SUSPEND: Path = ("spec", "runPolicy", "suspend")
_PYTORCH, _MPI = _kubeflow("pytorchReplicaSpecs"), _kubeflow("mpiReplicaSpecs")

WORKLOADS: Final[Mapping[str, Workload]] = {
    "jobs.batch": Workload(templates=_job, suspend=_SUSPEND),
    "cronjobs.batch": Workload(templates=_cronjob, creates_workloads=True),
    "jobsets.jobset.x-k8s.io": Workload(templates=_jobset, gang_by_default=True, suspend=_SUSPEND),
    "leaderworkersets.leaderworkerset.x-k8s.io": Workload(
        templates=_leader_worker_set, gang_by_default=True, gang_per_group=True
    ),
    "pytorchjobs.kubeflow.org": Workload(templates=_PYTORCH, gang_by_default=True, suspend=_RUN_SUSPEND),
    "mpijobs.kubeflow.org": Workload(templates=_MPI, gang_by_default=True, suspend=_RUN_SUSPEND),
    "trainjobs.trainer.kubeflow.org": Workload(templates=_none, gang_by_default=True),
    "rayclusters.ray.io": Workload(templates=_ray("spec"), gang_by_default=True, suspend=_SUSPEND),
    "rayjobs.ray.io": Workload(
        templates=_ray("spec", "rayClusterSpec"), gang_by_default=True, creates_workloads=True, suspend=_SUSPEND
    ),
}
"""By resource and group."""


ROLLED: Final = frozenset({"deployments.apps", "daemonsets.apps"})
"""Kinds whose pods are judged one by one, and that may roll out another template while these run."""
ROLLED_TEMPLATE: Path = ("spec", "template")


def pod_templates(group_resource: str, object_: Json) -> list[PodTemplate]:
    """The pod templates that the object has. Raises MalformedError."""
    return [found for found in WORKLOADS[group_resource].templates(object_) if object_at(object_, found.path)]


def suspended(group_resource: str, object_: Json) -> bool:
    """Whether the object is suspended, so that it creates no pods. Raises MalformedError."""
    path = WORKLOADS[group_resource].suspend
    return path is not None and object_at(object_, path[:-1]).get(str(path[-1])) is True


KUBEFLOW: Final = frozenset({"MPIJob", "PyTorchJob"})


def indexed(template: PodTemplate, object_: Json, *, kind: str, owner: str) -> Json:
    """The template's metadata, with the index of its first pod. The launcher of an MPIJob has none."""
    metadata = map_at(object_at(object_, template.path), "metadata", template.where)
    job_spec = None if template.job_spec is None else object_at(object_, template.job_spec)
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    if kind == "JobSet" or (job_spec is not None and job_spec.get("completionMode") == "Indexed"):
        annotations = {names.COMPLETION_INDEX: "0"}
    elif kind == "StatefulSet":
        labels = {names.STATEFULSET_INDEX: "0"}
    elif kind == "LeaderWorkerSet":
        labels = {names.LWS_NAME: owner, names.LWS_GROUP_INDEX: "0", names.LWS_WORKER_INDEX: "0"}
    elif kind in KUBEFLOW and template.path[-2] != "Launcher":
        labels = {names.KUBEFLOW_INDEX: "0"}
    return {
        **metadata,
        "annotations": {**map_at(metadata, "annotations"), **annotations},
        "labels": {**map_at(metadata, "labels"), **labels, **_worker_group(template, object_, kind)},
    }


def _worker_group(template: PodTemplate, object_: Json, kind: str) -> dict[str, str]:
    """The label of the pods' part of a JobSet or RayCluster."""
    part = object_at(object_, template.path[:3]) if len(template.path) > 3 else {}
    if kind == "JobSet":
        return {names.JOBSET_JOB: str(part.get("name", ""))}
    return {names.RAY_GROUP: str(part.get("groupName", ""))} if kind == "RayCluster" and part.get("groupName") else {}
