"""Objects of other systems, where the cluster serves them, as far as they say something of gangs. Writes nothing: they are their controllers'.

- PodGroups: size, queue, topology, priority and claims of a gang. So pods of native PodGroups, Volcano and the coscheduling plugin run as
  gangs though these terms are not on the pods.
- Kueue's WorkloadPriorityClasses: the priority of gangs whose pods name one by Kueue's label. They say in which order a queue takes
  workloads, and which goes for which; kube-scheduler does not read them. They work without Kueue's controllers.
- Workloads of kinds that may be scaled while their pods exist: sizes of gangs as their templates have them now. The webhook counts the
  pods of such a workload at each of its changes and writes the size into its templates (`api.derived`). A pod that was made before says
  the old size; and where the workload became smaller, no new one is made that would say the new one. Kubeflow's kinds end a workload at
  its deadline, also while its pods wait.
- Kubeflow TrainJobs: what they report of their progress, for forecasts, never for a decision. The Trainer writes `status.trainerStatus`
  from what a program posts to it (its feature gate TrainJobStatus, alpha). A pod is of the TrainJob that its label
  `jobset.sigs.k8s.io/jobset-name` names: the Trainer gives its JobSet the name of the TrainJob, and JobSet puts it on every pod. Anybody
  can write such a label on a pod of theirs; it changes what is forecast of their own gang.

An API that is installed later is read from then on (`optional`). CRDs of others may have any shape. Of workloads and TrainJobs only their
name and what is read here are kept.
Sources: k8s.io/api `scheduling/v1alpha2` (1.36) and `v1beta1` (1.37), PodGroupSpec and PodGroupStatus; KEP-5710, KEP-5729;
kubernetes-sigs/kueue ff69552e `apis/kueue/v1beta2/workloadpriorityclass_types.go` (`value`, int32), `pkg/util/priority`; kubeflow.org/v1
(training operator), kubeflow.org/v2beta1 (MPI operator), ray.io/v1; runPolicy.activeDeadlineSeconds: `api.clocks`; kubeflow/trainer
8c0f505 `pkg/apis/trainer/v1alpha1/trainjob_types.go`, `pkg/runtime/framework/plugins/jobset/jobset.go`; jobset 08dfbdf
`api/jobset/v1alpha2/jobset_types.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from fairlead.api import names
from fairlead.api.derived import source_of
from fairlead.api.intent import is_size
from fairlead.api.object_names import is_label_key
from fairlead.controller.gangs.membership.members import GroupClaim, GroupTerms
from fairlead.controller.watch.optional import OptionalInformer, on_change
from fairlead.engine.forecast.run_times import Progress
from fairlead.kube import objects, timestamps
from fairlead.kube.informer import Change
from fairlead.kube.resources import Raw, Resource

# By API group the versions of PodGroups that can be read, the newest first.
POD_GROUP_VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "scheduling.k8s.io": ("v1beta1", "v1alpha3", "v1alpha2"),
    "scheduling.volcano.sh": ("v1beta1",),
    "scheduling.x-k8s.io": ("v1alpha1",),
}
PRIORITY_VERSIONS: Final = ("v1beta2", "v1beta1")
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
LEFT_MAX_S: Final = 10 * 365 * 86_400  # of more than ten years nothing is believed
DEPTH_MAX: Final = 8  # of a template within a workload
_KEPT: Final = ("name", "namespace", "uid", "resourceVersion")


def _resource(group: str, version: str, plural: str, kind: str, *, namespaced: bool = True) -> Resource[Raw]:
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=namespaced, type=dict[str, Any])


PRIORITIES: Final = _resource(
    names.KUEUE_API, PRIORITY_VERSIONS[0], "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
TRAIN_JOBS: Final = _resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
WORKLOADS: Final = {
    "PyTorchJob": (_resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob"), ("v1",)),
    "MPIJob": (_resource("kubeflow.org", "v2beta1", "mpijobs", "MPIJob"), ("v2beta1", "v1")),
    "RayCluster": (_resource("ray.io", "v1", "rayclusters", "RayCluster"), ("v1",)),
}


class OtherSystems:
    """`informers` run with the others. `forecasts` False: what only they read is not watched."""

    def __init__(self, *, forecasts: bool) -> None:
        self._groups = {
            api: OptionalInformer(_resource(api, versions[0], "podgroups", "PodGroup"), versions, required=False)
            for api, versions in POD_GROUP_VERSIONS.items()
        }
        self._priorities = OptionalInformer(PRIORITIES, PRIORITY_VERSIONS, required=False)
        self._train_jobs = OptionalInformer(
            TRAIN_JOBS, (TRAIN_JOBS.version,), required=False, transform=kept_of_train_job
        )
        self._workloads = {
            kind: OptionalInformer(resource, versions, required=False, transform=kept_of_workload)
            for kind, (resource, versions) in WORKLOADS.items()
        }
        wanted = (self._train_jobs,) if forecasts else ()
        self.informers = (*self._groups.values(), self._priorities, *wanted, *self._workloads.values())

    def subscribe(
        self, sized: Callable[[str, str], None], ends: Callable[[str], None], prioritised: Callable[[str], None]
    ) -> None:
        """`sized`: the terms or the size of a gang changed, by namespace and name; `ends`: the end of a workload did, by namespace;
        `prioritised`: the value of a WorkloadPriorityClass did, by name.
        """

        def grouped(key: str) -> None:
            namespace, _, name = key.partition("/")
            sized(namespace, name)

        def scaled(change: Change[Raw]) -> None:
            old = change.old or {}
            new = {} if change.new is None else kept_of_workload(change.new)
            namespace = change.object["metadata"]["namespace"]
            before, after = old.get("sizes", {}), new.get("sizes", {})
            for gang in sorted(before.keys() | after.keys()):
                if before.get(gang) != after.get(gang):
                    sized(namespace, gang)
            if old.get("end") != new.get("end"):
                ends(namespace)

        for api, informer in self._groups.items():
            informer.subscribe(on_change(functools.partial(terms, api), grouped))
        self._priorities.subscribe(on_change(value_of, prioritised))
        for workloads in self._workloads.values():
            workloads.subscribe(scaled)

    def pod_group(self, api: str, namespace: str, name: str) -> GroupTerms | None:
        raw = self._groups[api].get(f"{namespace}/{name}")
        return terms(api, raw) if raw is not None else None

    def priority(self, name: str) -> int | None:
        raw = self._priorities.get(name)
        return None if raw is None else value_of(raw)

    def size(self, namespace: str, gang: str, source: str) -> int | None:
        """The size of a gang that was counted of `source`, such as `RayCluster/explore`; None where that is not read."""
        kind, _, name = source.partition("/")
        raw = self._workload(kind, namespace, name)
        return None if raw is None else raw["sizes"].get(gang)

    def end(self, namespace: str, owner: objects.OwnerReference) -> float | None:
        """When the workload that controls a pod ends, unix seconds; None where nothing says so, or it is not read."""
        raw = self._workload(owner.kind, namespace, owner.name)
        return raw["end"] if raw is not None and raw["metadata"]["uid"] == owner.uid else None

    def progress(self, namespace: str, labels: Mapping[str, str]) -> Progress | None:
        """As the TrainJob of a pod with these labels reports it."""
        name = labels.get(JOBSET_NAME)
        raw = self._train_jobs.get(f"{namespace}/{name}") if name else None
        return None if raw is None else raw["report"]

    def _workload(self, kind: str, namespace: str, name: str) -> Raw | None:
        informer = self._workloads.get(kind)
        return None if informer is None else informer.get(f"{namespace}/{name}")


# -- PodGroups and classes of priority -----------------------------------------------------------------------------


def terms(api: str, raw: Mapping[str, Any]) -> GroupTerms:
    """What a PodGroup of this API group states for its gang. Without a gang policy its pods are gangs of one: size 1."""
    spec = _at(raw, "spec")
    if api == "scheduling.k8s.io":
        return _native_terms(spec, _at(raw, "status"))
    count = spec.get("minMember")
    queue = spec.get("queue") if api == "scheduling.volcano.sh" else None
    return GroupTerms(
        size=count if isinstance(count, int) and count > 0 else 1,
        queue=queue if isinstance(queue, str) and queue else None,
    )


def _native_terms(spec: Mapping[str, Any], status: Mapping[str, Any]) -> GroupTerms:
    """`priority` is what the apiserver resolved `priorityClassName` to; 0 where the group names no class, so that is its pods' to say."""
    count = _at(spec, "schedulingPolicy", "gang").get("minCount")
    priority = spec.get("priority") if spec.get("priorityClassName") else None
    return GroupTerms(
        size=count if isinstance(count, int) and count > 0 else 1,
        topology=_topology(_at(spec, "schedulingConstraints").get("topology")),
        priority=priority if type(priority) is int else None,
        preempts=spec.get("preemptionPolicy") != "Never",
        claims=tuple(_claims(spec, status)),
    )


def _claims(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[GroupClaim]:
    """Those of a template. One that the group names itself is named by its pods, too."""
    made = {str(each.get("name")): each.get("resourceClaimName") for each in _listed(status, "resourceClaimStatuses")}
    for each in _listed(spec, "resourceClaims"):
        name, template = each.get("name"), each.get("resourceClaimTemplateName")
        if isinstance(name, str) and isinstance(template, str):
            claim = made.get(name)
            yield GroupClaim(name=name, template=template, claim=claim if isinstance(claim, str) else "")


def _topology(constraints: Any) -> str | None:
    """From the one constraint that the API allows; one without a label key is left to kube-scheduler."""
    first = constraints[0] if isinstance(constraints, list) and constraints else None
    key = first.get("key") if isinstance(first, Mapping) else None
    return f"required:{key}" if isinstance(key, str) and is_label_key(key) else None


def value_of(raw: Mapping[str, Any]) -> int | None:
    """The priority of a WorkloadPriorityClass; None where it has none that can be read."""
    value = raw.get("value")
    return value if type(value) is int and -(2**31) <= value < 2**31 else None


# -- workloads and TrainJobs ---------------------------------------------------------------------------------------


def kept_of_workload(raw: Raw) -> Raw:
    return {"metadata": _named(raw), "sizes": sizes(raw.get("spec")), "end": end(raw)}


def kept_of_train_job(raw: Raw) -> Raw:
    """Without its metrics."""
    return {"metadata": _named(raw), "report": report(raw)}


def sizes(spec: Any) -> dict[str, int]:
    """By gang, of the templates whose size was counted.

    >>> note = {"fairlead.dev/gang": "g", "fairlead.dev/gang-size": "2", "fairlead.dev/gang-size-from": "RayCluster/g"}
    >>> sizes({"workerGroupSpecs": [{"template": {"metadata": {"annotations": note}}}]})
    {'g': 2}
    """
    return dict(_sizes(spec, DEPTH_MAX))


def _sizes(value: Any, depth: int) -> Iterator[tuple[str, int]]:
    if depth == 0:
        return
    if isinstance(value, list):
        for each in value:
            yield from _sizes(each, depth - 1)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key == "template" and isinstance(each, Mapping):
                yield from _size_of_template(each)
            elif isinstance(each, Mapping | list):
                yield from _sizes(each, depth - 1)


def _size_of_template(template: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    notes = (template.get("metadata") or {}).get("annotations") or {}
    gang, size = notes.get(names.GANG), notes.get(names.GANG_SIZE)
    if isinstance(gang, str) and isinstance(size, str) and is_size(size) and source_of(notes) is not None:
        yield gang, int(size)


def end(raw: Raw) -> float | None:
    """Unix seconds at which its operator ends it, by `spec.runPolicy`; None where nothing says so, or it has not begun.

    >>> end({"spec": {"runPolicy": {"activeDeadlineSeconds": 60}}, "status": {"startTime": "1970-01-01T00:01:00Z"}})
    120.0
    """
    limit_s, began = _at(raw, "spec", "runPolicy").get("activeDeadlineSeconds"), _at(raw, "status").get("startTime")
    if type(limit_s) is not int or limit_s < 0 or not isinstance(began, str):
        return None
    try:
        return timestamps.parse(began) + min(limit_s, timestamps.LAST_S)
    except ValueError:
        return None


def report(raw: Mapping[str, Any]) -> Progress | None:
    """What the TrainJob says is left, and when it said so; None where it says nothing that can be read.

    >>> report({"status": {"trainerStatus": {"estimatedRemainingSeconds": 60, "lastUpdatedTime": "1970-01-01T00:01:00Z"}}})
    Progress(left_s=60.0, at=60.0)
    """
    found = _at(raw, "status", "trainerStatus")
    left_s, at = found.get("estimatedRemainingSeconds"), found.get("lastUpdatedTime")
    if type(left_s) is not int or not 0 <= left_s <= LEFT_MAX_S or not isinstance(at, str):
        return None
    try:
        return Progress(float(left_s), timestamps.parse(at))
    except ValueError:
        return None


# -- objects of any shape ------------------------------------------------------------------------------------------


def _named(raw: Raw) -> dict[str, Any]:
    return {key: value for key, value in raw["metadata"].items() if key in _KEPT}


def _listed(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = raw.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _at(raw: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    """The object at path; {} where there is none."""
    for step in path:
        found = raw.get(step)
        raw = found if isinstance(found, Mapping) else {}
    return raw
