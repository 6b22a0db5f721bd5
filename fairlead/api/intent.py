"""What a pod's annotations ask of Fairlead: its gang, queue, topology and patience.

Exists so that webhook and controller read annotations with one function and one set of messages. Reads
one object's metadata; whether other members agree is the webhook's question. Where ours are absent, those of other
systems count (`foreign`): ours come first, each by itself, so that `fairlead.dev/queue` may stand beside Kueue's group.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairlead.api import foreign, names
from fairlead.api.base import is_dns_subdomain
from fairlead.api.gang import GANG_SIZE_MAX, duration_s, topology_domain

KEYS = (names.GANG, names.GANG_SIZE, names.QUEUE, names.TOPOLOGY, names.MIN_RUNTIME, names.CHECKPOINT_GRACE)
"""Every annotation that users write."""


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
    other = foreign.group(annotations, labels, pod_group) if gang is None else None
    if other is not None:
        gang, size = other.name, _foreign_size(other, faults) if size is None else size
        if not is_dns_subdomain(gang):
            faults.append(f"{other.path}: {gang!r} is no gang name: use lower case letters, digits, '-' and '.'")
    queue = _queue(annotations, labels, fault)
    borrowed = foreign.queue(annotations, labels) if queue is None else None
    if borrowed is not None:
        queue = borrowed[0]
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
        system=other.system if other is not None else None,
        borrowed_queue=borrowed is not None,
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


def _size(text: str | None, fault: Callable[[str, str], None]) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= GANG_SIZE_MAX):
        fault(names.GANG_SIZE, f"{text!r} is no gang size: write a whole number from 1 to {GANG_SIZE_MAX}")
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
