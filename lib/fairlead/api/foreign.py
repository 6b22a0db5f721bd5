"""A pod's gang, queue, topology and priority in the words of other systems: native PodGroups, Kueue, Volcano, coscheduling.

Manifests written for those systems run unchanged. Their keys count where our own annotations are absent, in this order:
`spec.schedulingGroup`, Kueue, Volcano, the coscheduling plugin. Where a system keeps the size of a gang in a PodGroup object
(`PROVIDERS`), the name here is that object's, and the controller reads it.
Example: the label kueue.x-k8s.io/pod-group-name: train and the annotation kueue.x-k8s.io/pod-group-total-count: "8" make the
pod one of 8 members of gang train.

Source: kueue `pkg/controller/constants` and `jobs/pod/pod_webhook.go`, volcano `pkg/apis/scheduling/v1beta1/labels.go` and
`batch/v1alpha1/labels.go`, scheduler-plugins `apis/scheduling/v1alpha1/types.go`, k8s.io/api `scheduling/v1beta1`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from fairlead.api import names

System = Literal["PodGroup", "Kueue", "Volcano", "coscheduling"]

PROVIDERS: Mapping[System, str] = {
    "PodGroup": "scheduling.k8s.io",
    "Volcano": "scheduling.volcano.sh",
    "coscheduling": "scheduling.x-k8s.io",
}
"""The API group whose PodGroup objects hold the size of a gang. Kueue has it on the pods."""

SCHEDULERS = frozenset({"volcano", "scheduler-plugins-scheduler"})
"""The schedulers that these systems bring, as pods name them."""


@dataclass(frozen=True, slots=True)
class MetadataKey:
    """An annotation or a label that another system reads."""

    kind: Literal["annotations", "labels"]
    key: str

    @property
    def path(self) -> str:
        return f"metadata.{self.kind}[{self.key}]"

    def value(self, annotations: Mapping[str, str], labels: Mapping[str, str]) -> str | None:
        return (annotations if self.kind == "annotations" else labels).get(self.key)


GROUP_PATH = "spec.schedulingGroup.podGroupName"
_KUEUE_GROUP = MetadataKey("labels", names.KUEUE_GROUP_LABEL)
_VOLCANO_GROUP = MetadataKey("annotations", names.VOLCANO_GROUP)
_COSCHEDULING_GROUP = MetadataKey("labels", names.COSCHEDULING_GROUP_LABEL)
_GROUPS: tuple[tuple[System, MetadataKey, tuple[MetadataKey, ...]], ...] = (
    ("Kueue", _KUEUE_GROUP, (MetadataKey("annotations", names.KUEUE_SIZE),)),
    ("Volcano", _VOLCANO_GROUP, (MetadataKey("annotations", names.VOLCANO_SIZE),)),
    (
        "coscheduling",
        _COSCHEDULING_GROUP,
        (MetadataKey("labels", names.COSCHEDULING_SIZE), MetadataKey("annotations", names.COSCHEDULING_SIZE)),
    ),
)
"""System, the key that names the gang, and the keys that may hold its size, in order of preference."""
QUEUE_KEYS = (
    MetadataKey("labels", names.KUEUE_QUEUE),
    MetadataKey("annotations", names.KUEUE_QUEUE),  # the older form, which Kueue still reads
    MetadataKey("annotations", names.VOLCANO_QUEUE),
    MetadataKey("annotations", names.VOLCANO_QUEUE_2),
    MetadataKey("labels", names.VOLCANO_QUEUE),
)
TOPOLOGY_KEYS: tuple[tuple[Literal["required", "preferred"], MetadataKey], ...] = (
    ("required", MetadataKey("annotations", names.KUEUE_TOPOLOGY_REQUIRED)),
    ("preferred", MetadataKey("annotations", names.KUEUE_TOPOLOGY_PREFERRED)),
)
"""Each names one node label. Kueue reads them of the pods of one template; of several templates of a gang they must agree here."""
SLICE_TOPOLOGY = MetadataKey("annotations", names.KUEUE_SLICE_TOPOLOGY)
SLICE_SIZE = MetadataKey("annotations", names.KUEUE_SLICE_SIZE)
PRIORITY_KEY = MetadataKey("labels", names.KUEUE_PRIORITY)
"""The name of a WorkloadPriorityClass. Kueue lets it change at any time, and so does Fairlead."""
METADATA_KEYS = (
    *QUEUE_KEYS,
    *dict.fromkeys(key for _, name, sizes in _GROUPS for key in (name, *sizes)),
    *(key for _, key in TOPOLOGY_KEYS),
    SLICE_TOPOLOGY,
    SLICE_SIZE,
)
"""Everything in a pod's metadata that is read here and stays as it was when the pod was admitted."""
_KEYS = frozenset(each.key for each in (*METADATA_KEYS, PRIORITY_KEY))


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A gang that another system's key names: `path` is the key's, `size_text` the size on the pod, at `size_path`."""

    system: System
    name: str
    path: str
    size_path: str = ""
    size_text: str | None = None


def absent(annotations: Mapping[str, str], labels: Mapping[str, str], pod_group: str | None = None) -> bool:
    """Whether the pod has no key of another system: true of nearly every pod, and tested many times for each."""
    return not pod_group and _KEYS.isdisjoint(annotations) and _KEYS.isdisjoint(labels)


def groups(annotations: Mapping[str, str], labels: Mapping[str, str], pod_group: str | None = None) -> Iterator[Group]:
    """The gangs that the pod's keys of other systems name; the first one counts.

    `pod_group` is the pod's `spec.schedulingGroup.podGroupName`.
    """
    if pod_group:
        yield Group(system="PodGroup", name=pod_group, path=GROUP_PATH)
    for system, key, sizes in _GROUPS:
        if name := key.value(annotations, labels):
            size = next((each for each in sizes if each.value(annotations, labels) is not None), sizes[0])
            text = size.value(annotations, labels)
            yield Group(system=system, name=name, path=key.path, size_path=size.path, size_text=text)


def gang_name(annotations: Mapping[str, str], labels: Mapping[str, str], pod_group: str | None = None) -> str | None:
    """The gang that a pod names, by our annotation or by a key of another system; None when it names none."""
    if own := annotations.get(names.GANG):
        return own
    if absent(annotations, labels, pod_group):
        return None
    found = next(groups(annotations, labels, pod_group), None)
    return found.name if found is not None else None


def topologies(annotations: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The topologies that Kueue's annotations ask for, in the form of ours, each with its key's path. Kueue allows one."""
    for mode, key in TOPOLOGY_KEYS:
        if label := annotations.get(key.key):
            yield f"{mode}:{label}", key.path


def queues(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The queues that the pod's keys of other systems name, each with its key's path; the first one counts."""
    for key in QUEUE_KEYS:
        if name := key.value(annotations, labels):
            yield name, key.path
