"""Where the kinds that make pods keep their pod templates, and how many pods of each run at once.

Exists so that nobody else knows the shape of a JobSet or a RayCluster. One table; a kind that is not in it is judged
pod by pod. Reads raw objects and decides nothing.

Sources: batch/v1; jobset.x-k8s.io/v1alpha2; leaderworkerset.x-k8s.io/v1; kubeflow.org/v1 and v2beta1;
trainer.kubeflow.org/v1alpha1 (a TrainJob has no templates: its runtime's JobSet has); ray.io/v1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead.webhook.objects.fields import Json, MalformedError, int_at, join, list_at, map_at, strings_at, text_at

Path = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A pod template at `path`; `most` pods of it run at once."""

    path: Path
    most: int
    job: Path | None = None
    """The batch/v1 JobSpec that the template is in."""
    holders: tuple[Path, ...] = (("metadata",),)
    """Metadata whose annotations its pods inherit, nearest first."""
    apart: str = ""
    """Starts only after others of its object are ready or done, so it cannot be in one gang with them: its own name."""

    @property
    def where(self) -> str:
        return dotted(self.path)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a kind is read. `gang`: its pods run together by nature, unasked."""

    parts: Callable[[Json], Iterator[Part]]
    gang: bool = False
    runs: bool = False
    """It makes objects that are judged again, under names that are not known yet: a CronJob, a RayJob."""
    grouped: bool = False
    """Its pods come in several equal groups, each a gang of its own, named when the pods come: a LeaderWorkerSet."""
    suspend: Path | None = None
    """The field that keeps it from making pods; None for kinds without one, or where users mean something else by it."""


def dotted(path: Path) -> str:
    """`("spec", "jobs", 0, "template")` as `spec.jobs[0].template`."""
    text = ""
    for step in path:
        text = f"{text}[{step}]" if isinstance(step, int) else join(text, step)
    return text


def descend(object_: Json, path: Path) -> Json:
    """The object at path; {} where a step is absent. Raises MalformedError."""
    if not path:
        return object_
    where: Path = ()
    node: Any = object_
    for step, following in zip(path, (*path[1:], ""), strict=True):
        if isinstance(step, int):
            node = node[step] if step < len(node) else {}
        elif isinstance(following, int):
            node = list_at(node, step, dotted(where))
        else:
            node = map_at(node, step, dotted(where))
        where = (*where, step)
    found: Json = node
    return found


def together(job: Json, path: str) -> int:
    """Pods of a batch/v1 JobSpec that run at once. parallelism is 1 where absent; completions bound it where given."""
    parallelism = int_at(job, "parallelism", path)
    completions = int_at(job, "completions", path)
    most = 1 if parallelism is None else parallelism
    return most if completions is None else min(most, completions)


def _job(object_: Json) -> Iterator[Part]:
    yield Part(path=("spec", "template"), most=together(map_at(object_, "spec"), "spec"), job=("spec",))


def _cronjob(object_: Json) -> Iterator[Part]:
    job: Path = ("spec", "jobTemplate", "spec")
    most = together(descend(object_, job), dotted(job))
    holders: tuple[Path, ...] = (("spec", "jobTemplate", "metadata"), ("metadata",))
    yield Part(path=(*job, "template"), most=most, job=job, holders=holders)


def _jobset(object_: Json) -> Iterator[Part]:
    spec = map_at(object_, "spec")
    jobs = list_at(spec, "replicatedJobs", "spec")
    policy = map_at(spec, "startupPolicy", "spec")
    ordered = policy.get("startupPolicyOrder") == "InOrder" or any(job.get("dependsOn") for job in jobs)
    for index, replicated in enumerate(jobs):
        at: Path = ("spec", "replicatedJobs", index)
        job: Path = (*at, "template", "spec")
        yield Part(
            path=(*job, "template"),
            most=_replicas(replicated, "replicas", dotted(at)) * together(descend(object_, job), dotted(job)),
            job=job,
            holders=((*at, "template", "metadata"), ("metadata",)),
            apart=text_at(replicated, "name", dotted(at)) if ordered else "",
        )


def _leader_workers(object_: Json) -> Iterator[Part]:
    at: Path = ("spec", "leaderWorkerTemplate")
    spec = descend(object_, at)
    size = _replicas(spec, "size", dotted(at))
    late = map_at(object_, "spec").get("startupPolicy") == "LeaderReady"
    leader = bool(map_at(spec, "leaderTemplate", dotted(at)))
    if leader:
        yield Part(path=(*at, "leaderTemplate"), most=1, apart="leader" if late else "")
    yield Part(path=(*at, "workerTemplate"), most=size - leader, apart="workers" if late else "")


def _kubeflow(field: str) -> Callable[[Json], Iterator[Part]]:
    def parts(object_: Json) -> Iterator[Part]:
        spec = map_at(object_, "spec")
        elastic = map_at(spec, "elasticPolicy", "spec")
        least = int_at(elastic, "minReplicas", "spec.elasticPolicy")
        late = spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
        for role in sorted(map_at(spec, field, "spec")):
            replica = descend(object_, ("spec", field, role))
            most = _replicas(replica, "replicas", f"spec.{field}.{role}")
            if role == "Worker" and least is not None:
                most = least
            apart = "launcher" if role == "Launcher" and late else ""
            yield Part(path=("spec", field, role, "template"), most=most, apart=apart)

    return parts


def _ray(*at: str) -> Callable[[Json], Iterator[Part]]:
    def parts(object_: Json) -> Iterator[Part]:
        spec = descend(object_, at)
        scales = spec.get("enableInTreeAutoscaling") is True
        yield Part(path=(*at, "headGroupSpec", "template"), most=1)
        for index, group in enumerate(list_at(spec, "workerGroupSpecs", dotted(at))):
            where = dotted((*at, "workerGroupSpecs", index))
            least = int_at(group, "minReplicas", where) or 0
            replicas = int_at(group, "replicas", where)
            most = least if scales or replicas is None else max(replicas, least)
            hosts = _replicas(group, "numOfHosts", where)
            yield Part(path=(*at, "workerGroupSpecs", index, "template"), most=most * hosts)

    return parts


def _none(object_: Json) -> Iterator[Part]:
    return iter(())


def _replicas(parent: Json, key: str, path: str) -> int:
    found = int_at(parent, key, path)
    if found is not None and found < 0:
        raise MalformedError(f"{join(path, key)}: {found} is negative")
    return 1 if found is None else found


_SUSPEND: Path = ("spec", "suspend")
_RUN_SUSPEND: Path = ("spec", "runPolicy", "suspend")

SHAPES: Final[Mapping[str, Shape]] = {
    "jobs.batch": Shape(parts=_job, suspend=_SUSPEND),
    "cronjobs.batch": Shape(parts=_cronjob, runs=True),
    "jobsets.jobset.x-k8s.io": Shape(parts=_jobset, gang=True, suspend=_SUSPEND),
    "leaderworkersets.leaderworkerset.x-k8s.io": Shape(parts=_leader_workers, gang=True, grouped=True),
    "pytorchjobs.kubeflow.org": Shape(parts=_kubeflow("pytorchReplicaSpecs"), gang=True, suspend=_RUN_SUSPEND),
    "mpijobs.kubeflow.org": Shape(parts=_kubeflow("mpiReplicaSpecs"), gang=True, suspend=_RUN_SUSPEND),
    "trainjobs.trainer.kubeflow.org": Shape(parts=_none, gang=True),
    "rayclusters.ray.io": Shape(parts=_ray("spec"), gang=True, suspend=_SUSPEND),
    "rayjobs.ray.io": Shape(parts=_ray("spec", "rayClusterSpec"), gang=True, runs=True, suspend=_SUSPEND),
}
"""By resource and group."""


def parts_of(of: str, object_: Json) -> list[Part]:
    """The templates of an object that are there. Raises MalformedError."""
    return [part for part in SHAPES[of].parts(object_) if descend(object_, part.path)]


def suspended(of: str, object_: Json) -> bool:
    """Whether the object says that it makes no pods yet. Raises MalformedError."""
    path = SHAPES[of].suspend
    return path is not None and descend(object_, path[:-1]).get(str(path[-1])) is True


def pod_group_of(spec: Json) -> str | None:
    """The native PodGroup that a pod, or the pods of a template, are in."""
    return text_at(map_at(spec, "schedulingGroup", "spec"), "podGroupName", "spec.schedulingGroup") or None


def group_of(metadata: Json) -> str | None:
    """The group that a pod of a LeaderWorkerSet is in, `serve-0`, by its labels; None for other pods.

    A leader has no group's label yet when it comes to us first, but the group's number is the end of its name.
    """
    labels = strings_at(metadata, "labels", "metadata")
    name = labels.get("leaderworkerset.sigs.k8s.io/name")
    if name is None:
        return None
    group = labels.get("leaderworkerset.sigs.k8s.io/group-index")
    if group is None:
        group = text_at(metadata, "name", "metadata").removeprefix(f"{name}-")
    return f"{name}-{group}" if group.isdigit() else None
