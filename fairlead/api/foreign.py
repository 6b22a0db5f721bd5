"""What manifests written for other systems say of a pod's gang and queue: native PodGroups, Kueue, Volcano, coscheduling.

Exists so that such manifests run unchanged, and so that webhook and controller understand them alike. Read where our own
annotations say nothing, in this order: `spec.schedulingGroup`, Kueue, Volcano, the coscheduling plugin. A name means a
PodGroup object where the system keeps sizes there (`groups`); those objects are the controller's to read.
Source: kueue `pkg/controller/constants`, volcano `pkg/apis/scheduling/v1beta1/labels.go`, scheduler-plugins
`apis/scheduling/v1alpha1/types.go`, k8s.io/api `scheduling/v1beta1`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fairlead.api import names

System = Literal["PodGroup", "Kueue", "Volcano", "coscheduling"]

SPEC_PATH = "spec.schedulingGroup.podGroupName"
PROVIDERS: Mapping[System, str] = {
    "PodGroup": "scheduling.k8s.io",
    "Volcano": "scheduling.volcano.sh",
    "coscheduling": "scheduling.x-k8s.io",
}
"""The API group whose PodGroup objects say how many members a gang has. Kueue writes that on the pods."""
_MARKS = (
    names.KUEUE_GROUP_LABEL,
    names.VOLCANO_GROUP,
    names.COSCHEDULING_GROUP_LABEL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A gang as another system names it; `path` is where, `size_text` what the pod itself says of its size."""

    system: System
    name: str
    path: str
    size_path: str = ""
    size_text: str | None = None


def group(annotations: Mapping[str, str], labels: Mapping[str, str], pod_group: str | None = None) -> Group | None:
    """The group that the pod belongs to for another system; `pod_group` is its `spec.schedulingGroup.podGroupName`."""
    if pod_group:
        return Group(system="PodGroup", name=pod_group, path=SPEC_PATH)
    if not any(mark in labels or mark in annotations for mark in _MARKS):
        return None
    if name := labels.get(names.KUEUE_GROUP_LABEL):
        return Group(
            system="Kueue",
            name=name,
            path=_label(names.KUEUE_GROUP_LABEL),
            size_path=_annotation(names.KUEUE_SIZE),
            size_text=annotations.get(names.KUEUE_SIZE),
        )
    if name := annotations.get(names.VOLCANO_GROUP):
        return Group(
            system="Volcano",
            name=name,
            path=_annotation(names.VOLCANO_GROUP),
            size_path=_annotation(names.VOLCANO_SIZE),
            size_text=annotations.get(names.VOLCANO_SIZE),
        )
    if name := labels.get(names.COSCHEDULING_GROUP_LABEL):
        labelled = names.COSCHEDULING_SIZE in labels
        return Group(
            system="coscheduling",
            name=name,
            path=_label(names.COSCHEDULING_GROUP_LABEL),
            size_path=(_label if labelled else _annotation)(names.COSCHEDULING_SIZE),
            size_text=labels.get(names.COSCHEDULING_SIZE, annotations.get(names.COSCHEDULING_SIZE)),
        )
    return None


def gang_name(annotations: Mapping[str, str], labels: Mapping[str, str], pod_group: str | None = None) -> str | None:
    """The gang that a pod names, by our annotation or in another system's way; None when it names none."""
    own = annotations.get(names.GANG)
    if own:
        return own
    found = group(annotations, labels, pod_group)
    return found.name if found is not None else None


def queue(annotations: Mapping[str, str], labels: Mapping[str, str]) -> tuple[str, str] | None:
    """The queue that the pod names for another system, and where."""
    if name := labels.get(names.KUEUE_QUEUE_LABEL):
        return name, _label(names.KUEUE_QUEUE_LABEL)
    for key in (names.VOLCANO_QUEUE, names.VOLCANO_QUEUE_2):
        if name := annotations.get(key):
            return name, _annotation(key)
    return None


def _label(key: str) -> str:
    return f"metadata.labels[{key}]"


def _annotation(key: str) -> str:
    return f"metadata.annotations[{key}]"
