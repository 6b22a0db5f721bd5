"""What a pod's annotations ask of Fairlead: its gang, queue, topology and patience.

Exists so that webhook and controller read annotations with one function and one set of messages. Reads
one object's metadata; whether other members agree is the webhook's question. Where ours are absent, those of other
systems count (`foreign`): ours come first, each by itself, so that `fairlead.dev/queue` may stand beside Kueue's group.
What is said besides and does not count is pointed out (`unheard`).
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fairlead.api import foreign, names
from fairlead.api.base import is_dns_subdomain
from fairlead.api.gang import GANG_SIZE_MAX, duration_s, topology_domain

KEYS = (names.GANG, names.GANG_SIZE, names.QUEUE, names.TOPOLOGY, names.MIN_RUNTIME, names.CHECKPOINT_GRACE)
"""Every annotation that users write."""
_SAID = {key: f"metadata.annotations[{key}]" for key in (names.GANG, names.GANG_SIZE, names.QUEUE, names.TOPOLOGY)}


class IntentError(ValueError):
    """Annotations that mean nothing: one line per fault, each beginning with the annotation's path."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


@dataclass(frozen=True, kw_only=True)
class Intent:
    """None means that the annotation is absent: gang = the pod itself, queue = by namespace, size = 1 or the owner's."""

    gang: str | None = None
    size: int | None = None
    queue: str | None = None
    topology: str | None = None
    min_runtime_s: float | None = None
    checkpoint_grace_s: float | None = None
    system: foreign.System | None = None
    """Whose words name the gang, where they are not ours. Its size may be in that system's PodGroup object."""
    borrowed_queue: bool = False
    """The queue is named in another system's words: where no Queue has that name, it is as if none were named."""
    group: foreign.Group | None = None
    """What another system's words say, whoever names the gang: its PodGroup object may name a queue."""
    said: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where gang, size, queue and topology were read, by our key for each."""

    @property
    def provider(self) -> str | None:
        """The API group of the PodGroup object that the pod belongs to; None where there is none."""
        return foreign.PROVIDERS.get(self.group.system) if self.group is not None else None

    @property
    def size_elsewhere(self) -> bool:
        """Whether a PodGroup object may say how many members there are, since the pod does not."""
        return self.size is None and self.system in foreign.PROVIDERS

    @property
    def empty(self) -> bool:
        return self == Intent()


def read_intent(
    annotations: Mapping[str, str], labels: Mapping[str, str] | None = None, pod_group: str | None = None
) -> Intent:
    """The intent of one pod or pod template; `pod_group` is its `spec.schedulingGroup.podGroupName`.

    Raises IntentError with every fault at once.
    """
    faults: list[str] = []
    labels = labels or {}

    def fault(key: str, text: str) -> None:
        faults.append(f"metadata.annotations[{key}]: {text}")

    gang = annotations.get(names.GANG)
    if gang is not None and not is_dns_subdomain(gang):
        fault(names.GANG, f"{gang!r} is no gang name: use lower case letters, digits, '-' and '.', at most 253")
    size = _size(annotations.get(names.GANG_SIZE), fault)
    said = dict(_SAID)
    if names.QUEUE not in annotations and names.QUEUE in labels:
        said[names.QUEUE] = f"metadata.labels[{names.QUEUE}]"
    silent = foreign.silent(annotations, labels, pod_group)
    other = None if silent else next(foreign.groups(annotations, labels, pod_group), None)
    if other is not None and gang is None:
        gang, said[names.GANG] = other.name, other.path
        if size is None and other.size_path:
            size, said[names.GANG_SIZE] = _foreign_size(other, faults), other.size_path
        if not is_dns_subdomain(gang):
            faults.append(f"{other.path}: {gang!r} is no gang name: use lower case letters, digits, '-' and '.'")
    queue = _queue(annotations, labels, fault)
    borrowed = next(foreign.queues(annotations, labels), None) if queue is None and not silent else None
    if borrowed is not None:
        queue, said[names.QUEUE] = borrowed
        if not is_dns_subdomain(queue):
            faults.append(f"{borrowed[1]}: {queue!r} is no queue name: use lower case letters, digits, '-' and '.'")
    topology = annotations.get(names.TOPOLOGY)
    if topology is not None:
        try:
            topology_domain(topology)
        except ValueError as error:
            fault(names.TOPOLOGY, str(error))
    waits: dict[str, float | None] = {}
    for key in (names.MIN_RUNTIME, names.CHECKPOINT_GRACE):
        text = annotations.get(key)
        try:
            waits[key] = None if text is None else duration_s(text)
        except ValueError as error:
            fault(key, str(error))
    if faults:
        raise IntentError(tuple(faults))
    return Intent(
        gang=gang,
        size=size,
        queue=queue,
        topology=topology,
        min_runtime_s=waits[names.MIN_RUNTIME],
        checkpoint_grace_s=waits[names.CHECKPOINT_GRACE],
        system=other.system if other is not None and names.GANG not in annotations else None,
        borrowed_queue=borrowed is not None,
        group=other,
        said=said,
    )


def misspelt(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """One warning per annotation in our domain that nobody reads but that looks like one of ours."""
    found: list[str] = []
    for key in sorted(annotations):
        if key.startswith(names.ANNOTATION_PREFIX) and key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1, cutoff=0.85)
            if close:
                found.append(f"metadata.annotations[{key}]: nobody reads this; did you mean {close[0]}?")
    return tuple(found)


def unheard(
    annotations: Mapping[str, str], labels: Mapping[str, str] | None = None, pod_group: str | None = None
) -> Iterator[str]:
    """One warning per word of another system that does not count, since something before it says otherwise."""
    labels = labels or {}
    if foreign.silent(annotations, labels, pod_group):
        return
    groups = [(group.name, group.path) for group in foreign.groups(annotations, labels, pod_group)]
    first = next(foreign.groups(annotations, labels, pod_group), None)
    queues = list(foreign.queues(annotations, labels))
    if own := annotations.get(names.GANG):
        groups.insert(0, (own, f"metadata.annotations[{names.GANG}]"))
    own_queue = annotations.get(names.QUEUE, labels.get(names.QUEUE))
    if own_queue:
        kind = "annotations" if names.QUEUE in annotations else "labels"
        queues.insert(0, (own_queue, f"metadata.{kind}[{names.QUEUE}]"))
    sizes: list[tuple[str, str]] = []
    if names.GANG_SIZE in annotations:
        sizes.append((annotations[names.GANG_SIZE], f"metadata.annotations[{names.GANG_SIZE}]"))
    if first is not None and first.size_text is not None:
        sizes.append((first.size_text, first.size_path))
    for said in (groups, sizes, queues):
        for value, path in said[1:]:
            if value != said[0][0]:
                yield f"{path}: {value!r} does not count: {said[0][1]} says {said[0][0]!r}; keep one of them"


def without_counterpart(annotations: Mapping[str, str], labels: Mapping[str, str]) -> Iterator[str]:
    """One warning per word of another system that means nothing here, with what to write instead."""
    if names.KUEUE_PRIORITY in labels:
        where = f"metadata.labels[{names.KUEUE_PRIORITY}]"
        yield f"{where}: does not count here: a gang has its pods' priority; set priorityClassName"
    for how, key in (("required", names.KUEUE_TOPOLOGY_REQUIRED), ("preferred", names.KUEUE_TOPOLOGY_PREFERRED)):
        if key in annotations and names.TOPOLOGY not in annotations:
            yield f"metadata.annotations[{key}]: does not count here; write {names.TOPOLOGY}: {how}:{annotations[key]}"


def is_size(text: str) -> bool:
    """Whether the text is a gang's size."""
    return text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= GANG_SIZE_MAX


def no_size(text: str) -> str:
    """What is wrong with a size."""
    return f"{text!r} is no gang size: write a whole number from 1 to {GANG_SIZE_MAX}"


def _size(text: str | None, fault: Callable[[str, str], None]) -> int | None:
    if text is None:
        return None
    if not is_size(text):
        fault(names.GANG_SIZE, no_size(text))
        return None
    return int(text)


def _foreign_size(group: foreign.Group, faults: list[str]) -> int | None:
    return _size(group.size_text, lambda _, text: faults.append(f"{group.size_path}: {text}"))


def _queue(annotations: Mapping[str, str], labels: Mapping[str, str], fault: Callable[[str, str], None]) -> str | None:
    queue, label = annotations.get(names.QUEUE), labels.get(names.QUEUE)
    if queue is not None and label is not None and queue != label:
        fault(names.QUEUE, f"{queue!r}, but the label of that name says {label!r}: keep one of them")
        return None
    queue = label if queue is None else queue
    if queue is not None and not is_dns_subdomain(queue):
        fault(names.QUEUE, f"{queue!r} is no queue name: use lower case letters, digits, '-' and '.', at most 253")
    return queue
