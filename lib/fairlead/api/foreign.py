"""What manifests written for other systems say of a pod's gang and queue: native PodGroups, Kueue, Volcano, coscheduling.

Exists so that such manifests run unchanged, and so that webhook and controller understand them alike. Read where our own
annotations say nothing, in this order: `spec.schedulingGroup`, Kueue, Volcano, the coscheduling plugin. A name means a
PodGroup object where the system keeps sizes there (`PROVIDERS`); those objects are the controller's to read.
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
"""The API group whose PodGroup objects say how many members a gang has. Kueue writes that on the pods."""

SCHEDULERS = frozenset({"volcano", "scheduler-plugins-scheduler"})
"""The schedulers that these systems bring, as pods name them."""


@dataclass(frozen=True, slots=True)
class Word:
    """A key that another system reads, and where it stands in an object's metadata."""

    kind: Literal["annotations", "labels"]
    key: str

    @property
    def path(self) -> str:
        return f"metadata.{self.kind}[{self.key}]"

    def said(self, annotations: Mapping[str, str], labels: Mapping[str, str]) -> str | None:
        return (annotations if self.kind == "annotations" else labels).get(self.key)


GROUP_PATH = "spec.schedulingGroup.podGroupName"
_KUEUE_GROUP = Word("labels", names.KUEUE_GROUP_LABEL)
_VOLCANO_GROUP = Word("annotations", names.VOLCANO_GROUP)
_COSCHEDULING_GROUP = Word("labels", names.COSCHEDULING_GROUP_LABEL)
_GROUPS: tuple[tuple[System, Word, tuple[Word, ...]], ...] = (
    ("Kueue", _KUEUE_GROUP, (Word("annotations", names.KUEUE_SIZE),)),
    ("Volcano", _VOLCANO_GROUP, (Word("annotations", names.VOLCANO_SIZE),)),
    (
        "coscheduling",
        _COSCHEDULING_GROUP,
        (Word("labels", names.COSCHEDULING_SIZE), Word("annotations", names.COSCHEDULING_SIZE)),
    ),
)
"""System, the word that names the gang, and those that may say its size, the first of them first."""
QUEUES = (
    Word("labels", names.KUEUE_QUEUE),
    Word("annotations", names.KUEUE_QUEUE),  # Kueue's old way, which it still reads
    Word("annotations", names.VOLCANO_QUEUE),
    Word("annotations", names.VOLCANO_QUEUE_2),
    Word("labels", names.VOLCANO_QUEUE),
)
WORDS = (*QUEUES, *dict.fromkeys(word for _, name, sizes in _GROUPS for word in (name, *sizes)))
"""Everything in a pod's metadata that is read here."""
_KEYS = frozenset(word.key for word in WORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A gang as another system names it; `path` is where, `size_text` what the pod itself says of its size."""

    system: System
    name: str
    path: str
    size_path: str = ""
    size_text: str | None = None


def silent(annotations: Mapping[str, str], labels: Mapping[str, str], pod_group: str | None = None) -> bool:
    """Whether nothing is said in others' words: so it is with nearly every pod, and asked of each many times."""
    return not pod_group and _KEYS.isdisjoint(annotations) and _KEYS.isdisjoint(labels)


def groups(annotations: Mapping[str, str], labels: Mapping[str, str], pod_group: str | None = None) -> Iterator[Group]:
    """The groups that the pod belongs to for other systems, the one that counts first; `pod_group` is its
    `spec.schedulingGroup.podGroupName`.
    """
    if pod_group:
        yield Group(system="PodGroup", name=pod_group, path=GROUP_PATH)
    for system, word, sizes in _GROUPS:
        if name := word.said(annotations, labels):
            size = next((each for each in sizes if each.said(annotations, labels) is not None), sizes[0])
            text = size.said(annotations, labels)
            yield Group(system=system, name=name, path=word.path, size_path=size.path, size_text=text)


def gang_name(annotations: Mapping[str, str], labels: Mapping[str, str], pod_group: str | None = None) -> str | None:
    """The gang that a pod names, by our annotation or in another system's way; None when it names none."""
    if own := annotations.get(names.GANG):
        return own
    if silent(annotations, labels, pod_group):
        return None
    found = next(groups(annotations, labels, pod_group), None)
    return found.name if found is not None else None


def queues(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The queues that the pod names for other systems and where, the one that counts first."""
    for word in QUEUES:
        if name := word.said(annotations, labels):
            yield name, word.path
