"""What a pod's metadata requests of Fairlead: its gang, queue, topology and minimum runtime.

Webhook and controller read it with this one function, so their answers and messages agree. Reads the metadata of one object;
whether the members of a gang agree is checked elsewhere. Where our annotations are absent, those of other systems count
(`foreign`), each by itself: `fairlead.dev/queue` may stand beside Kueue's group. `overridden` and `unsupported` warn of keys
that do not count.
Example: {fairlead.dev/gang: train, fairlead.dev/gang-size: "8"} is Intent(gang="train", size=8).
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from fairlead.api import foreign, names
from fairlead.api.align import alignments, by_subgroup
from fairlead.api.derived import Source, source_of
from fairlead.api.durations import duration_s
from fairlead.api.gang import GANG_SIZE_MAX
from fairlead.api.members import Members
from fairlead.api.members import members as read_members
from fairlead.api.models import Models
from fairlead.api.models import models as read_models
from fairlead.api.object_names import is_dns_subdomain
from fairlead.api.topology import levels

KEYS = (
    names.GANG,
    names.GANG_SIZE,
    names.QUEUE,
    names.TOPOLOGY,
    names.MODELS,
    names.ALIGN,
    names.MEMBERS,
    names.SUBGROUP,
    names.SUBGROUP_SIZE,
    names.SUBGROUP_TOPOLOGY,
    names.MIN_RUNTIME,
    names.CHECKPOINT_GRACE,
)
"""Every annotation that users write and that stays as it was when the pod was admitted."""
RUNNING_KEYS = (names.MOVABLE, names.CHECKPOINTED_AT)
"""Those that may change while the pod runs."""
OURS = frozenset(
    each for each in vars(names).values() if isinstance(each, str) and each.startswith(names.ANNOTATION_PREFIX)
)
"""Every key of our domain that some program of ours reads or writes, on any object."""
_PATHS = {key: f"metadata.annotations[{key}]" for key in KEYS}
_OBJECT_NAME = "use lower case letters, digits, '-' and '.'"
_SUBGROUP_KEYS = (names.SUBGROUP, names.SUBGROUP_SIZE, names.SUBGROUP_TOPOLOGY)
SUBGROUP = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""The name of a subgroup: a label's value."""

Strings = Mapping[str, str]
T = TypeVar("T")


class IntentError(ValueError):
    """Annotations that are not valid: one line per fault, each beginning with the annotation's path."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("; ".join(faults))


@dataclass(frozen=True, kw_only=True)
class Intent:
    """None means absent: gang = the pod by itself, queue = by namespace, size = 1 or the owner's."""

    gang: str | None = None
    size: int | None = None
    size_from: Source | None = None
    """Of what the webhook counted the size; None where a user wrote it."""
    queue: str | None = None
    topology: str | None = None
    models: Models | None = None
    align: str | None = None
    members: Members | None = None
    priority_class: str | None = None
    """The WorkloadPriorityClass of Kueue's label."""
    subgroup: str | None = None
    """The name of the pod's subgroup, where the pod says it."""
    subgroup_size: int | None = None
    subgroup_topology: str | None = None
    min_runtime_s: float | None = None
    checkpoint_grace_s: float | None = None
    movable: bool | None = None
    checkpointed: float | None = None
    """Unix seconds."""
    system: foreign.System | None = None
    """The other system whose key names the gang; None where ours does. The size may be in that system's PodGroup object."""
    foreign_queue: bool = False
    """Another system's key names the queue: where no Queue has that name, the pod counts as naming none."""
    group: foreign.Group | None = None
    """What another system's keys name, even where ours name the gang: its PodGroup object may name a queue."""
    paths: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where gang, size, queue, topology and subgroup were read, by our key for each."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What could not be read and counts as absent."""

    @property
    def provider(self) -> str | None:
        """The API group of the PodGroup object that the pod belongs to; None where there is none."""
        return foreign.PROVIDERS.get(self.group.system) if self.group is not None else None

    @property
    def size_elsewhere(self) -> bool:
        """Whether the size is to be read from a PodGroup object, since the pod does not have it."""
        return self.size is None and self.system in foreign.PROVIDERS

    @property
    def empty(self) -> bool:
        return self == Intent()


def read_intent(
    annotations: Strings, labels: Strings | None = None, pod_group: str | None = None, *, lenient: bool = False
) -> Intent:
    """The intent of one pod or pod template; `pod_group` is its `spec.schedulingGroup.podGroupName`.

    Raises IntentError with every fault at once. `lenient`: for a duration, or another of these, that cannot be read the queue's default counts, and
    `Intent.notes` says so: such a pod exists, and what it may hold does not depend on that annotation.
    """
    reader = _Reader(annotations, labels or {}, pod_group)
    gang, size = reader.gang()
    queue, foreign_queue = reader.queue()
    topology = reader.topology()
    models = reader.valid(names.MODELS, read_models)
    align = annotations[names.ALIGN] if reader.valid(names.ALIGN, alignments) else None
    members = reader.valid(names.MEMBERS, read_members)
    subgroup, subgroup_size, subgroup_topology = reader.subgroup(needed=by_subgroup(align))
    others, reader.faults = reader.faults, []
    min_runtime_s = reader.valid(names.MIN_RUNTIME, duration_s)
    checkpoint_grace_s = reader.valid(names.CHECKPOINT_GRACE, duration_s)
    movable = reader.valid(names.MOVABLE, _truth)
    checkpointed = reader.valid(names.CHECKPOINTED_AT, _time)
    durations = tuple(reader.faults)
    if others or (durations and not lenient):
        raise IntentError((*others, *durations))
    other = reader.group
    return Intent(
        gang=gang,
        size=size,
        size_from=None if size is None else source_of(annotations),
        queue=queue,
        topology=topology,
        models=models,
        align=align,
        members=members,
        priority_class=None if reader.own_only else foreign.PRIORITY_KEY.value(annotations, reader.labels) or None,
        subgroup=subgroup,
        subgroup_size=subgroup_size,
        subgroup_topology=subgroup_topology,
        min_runtime_s=min_runtime_s,
        checkpoint_grace_s=checkpoint_grace_s,
        movable=movable,
        checkpointed=checkpointed,
        system=other.system if other is not None and names.GANG not in annotations else None,
        foreign_queue=foreign_queue,
        group=other,
        paths=reader.paths,
        notes=tuple(f"{fault}; the queue's default counts" for fault in durations),
    )


class _Reader:
    """The metadata of one object, the faults found in it, and where each value was read."""

    def __init__(self, annotations: Strings, labels: Strings, pod_group: str | None) -> None:
        self.annotations = annotations
        self.labels = labels
        self.own_only = foreign.absent(annotations, labels, pod_group)
        self.group = None if self.own_only else next(foreign.groups(annotations, labels, pod_group), None)
        self.paths = dict(_PATHS)
        self.faults: list[str] = []

    def gang(self) -> tuple[str | None, int | None]:
        """The gang's name and size: ours, else those of another system."""
        gang = self.annotations.get(names.GANG)
        if gang is not None and not is_dns_subdomain(gang):
            self.faults.append(f"{self.paths[names.GANG]}: {gang!r} is no gang name: {_OBJECT_NAME}, at most 253")
        size = self._size(self.annotations.get(names.GANG_SIZE), self.paths[names.GANG_SIZE])
        other = self.group
        if other is None or gang is not None:
            return gang, size
        self.paths[names.GANG] = other.path
        if size is None and other.size_path:
            size, self.paths[names.GANG_SIZE] = self._size(other.size_text, other.size_path), other.size_path
        if not is_dns_subdomain(other.name):
            self.faults.append(f"{other.path}: {other.name!r} is no gang name: {_OBJECT_NAME}")
        return other.name, size

    def topology(self) -> str | None:
        """Ours, else Kueue's in the form of ours."""
        if names.TOPOLOGY in self.annotations:
            return self.annotations[names.TOPOLOGY] if self.valid(names.TOPOLOGY, levels) else None
        found = [] if self.own_only else list(foreign.topologies(self.annotations))
        if not found:
            return None
        text, self.paths[names.TOPOLOGY] = found[0]
        if len(found) > 1:
            both = f"{found[1][1]} asks for {found[1][0]}: Kueue takes one of them"
            self.faults.append(f"{found[0][1]}: {both}; keep one, or write {names.TOPOLOGY}: {text}, {found[1][0]}")
        mode, _, label = text.partition(":")
        return text if self._is_level(mode, label, self.paths[names.TOPOLOGY]) else None

    def kueue_slices(self) -> tuple[int | None, str | None]:
        """Size and topology of Kueue's slices of a pod set, which are subgroups here."""
        label = foreign.SLICE_TOPOLOGY.value(self.annotations, self.labels)
        text = foreign.SLICE_SIZE.value(self.annotations, self.labels)
        if label is None:
            return None, None  # the size alone means nothing to Kueue either
        self.paths |= {
            names.SUBGROUP_TOPOLOGY: foreign.SLICE_TOPOLOGY.path,
            names.SUBGROUP_SIZE: foreign.SLICE_SIZE.path,
        }
        if text is None:
            path = foreign.SLICE_TOPOLOGY.path
            self.faults.append(
                f"{path}: has no effect without a size; write {names.KUEUE_SLICE_SIZE}: <pods of one slice>"
            )
        sound = self._is_level("required", label, foreign.SLICE_TOPOLOGY.path)
        return self._size(text, foreign.SLICE_SIZE.path, "slice size"), f"required:{label}" if sound else None

    def _is_level(self, mode: str, label: str, path: str) -> bool:
        """Whether it is one level: Kueue's keys have one label each."""
        try:
            if "," in label:
                raise ValueError(f"{label!r} is no node label: name one level, or several in {names.TOPOLOGY}")
            levels(f"{mode}:{label}")
        except ValueError as error:
            self.faults.append(f"{path}: {error}")
            return False
        return True

    def subgroup(self, *, needed: bool) -> tuple[str | None, int | None, str | None]:
        """Name, size and topology of the pod's subgroup. The name may be a label, ours or that of a LeaderWorkerSet.

        `needed`: members of a subgroup are compared, so it counts without a topology of its own, too.
        """
        if not self.own_only and not any(key in self.annotations or key in self.labels for key in _SUBGROUP_KEYS):
            return None, *self.kueue_slices()
        own, label = self.annotations.get(names.SUBGROUP), self.labels.get(names.SUBGROUP)
        if own is not None and label is not None and own != label:
            said = f"{own!r}, but the label of that name says {label!r}: keep one of them"
            self.faults.append(f"{self.paths[names.SUBGROUP]}: {said}")
        if own is None and label is not None:
            self.paths[names.SUBGROUP] = f"metadata.labels[{names.SUBGROUP}]"
        name = own if own is not None else label
        if name is not None and not SUBGROUP.fullmatch(name):
            wanted = "use letters, digits, '-', '_' and '.', at most 63, such as replica-0"
            self.faults.append(f"{self.paths[names.SUBGROUP]}: {name[:80]!r} is no subgroup: {wanted}")
        size = self._size(self.annotations.get(names.SUBGROUP_SIZE), self.paths[names.SUBGROUP_SIZE], "subgroup size")
        within = self.valid(names.SUBGROUP_TOPOLOGY, levels)
        stated = name is not None or names.SUBGROUP_SIZE in self.annotations
        if stated and not needed and names.SUBGROUP_TOPOLOGY not in self.annotations:
            key = names.SUBGROUP if name is not None else names.SUBGROUP_SIZE
            cure = f"say how close its members must be: {names.SUBGROUP_TOPOLOGY}: required:<node label>"
            self.faults.append(f"{self.paths[key]}: has no effect without {names.SUBGROUP_TOPOLOGY}; {cure}")
        named = name
        if named is None and names.SUBGROUP_SIZE not in self.annotations and names.LWS_SUBGROUP_INDEX in self.labels:
            group, number = self.labels.get(names.LWS_GROUP_INDEX, ""), self.labels[names.LWS_SUBGROUP_INDEX]
            named = f"{group}-{number}"
        return (
            (named if within or needed else None),
            size,
            (self.annotations[names.SUBGROUP_TOPOLOGY] if within else None),
        )

    def queue(self) -> tuple[str | None, bool]:
        """The queue's name, and whether another system's key names it."""
        queue = self._own_queue()
        found = (
            next(foreign.queues(self.annotations, self.labels), None) if queue is None and not self.own_only else None
        )
        if found is None:
            return queue, False
        name, path = found
        self.paths[names.QUEUE] = path
        if not is_dns_subdomain(name):
            self.faults.append(f"{path}: {name!r} is no queue name: {_OBJECT_NAME}")
        return name, True

    def _own_queue(self) -> str | None:
        path = self.paths[names.QUEUE]
        queue, label = self.annotations.get(names.QUEUE), self.labels.get(names.QUEUE)
        if queue is not None and label is not None and queue != label:
            self.faults.append(f"{path}: {queue!r}, but the label of that name says {label!r}: keep one of them")
            return None
        if queue is None and label is not None:
            self.paths[names.QUEUE] = f"metadata.labels[{names.QUEUE}]"
            queue = label
        if queue is not None and not is_dns_subdomain(queue):
            self.faults.append(f"{path}: {queue!r} is no queue name: {_OBJECT_NAME}, at most 253")
        return queue

    def valid(self, key: str, parse: Callable[[str], T]) -> T | None:
        """What the annotation means; None where it is absent or not valid."""
        text = self.annotations.get(key)
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            self.faults.append(f"metadata.annotations[{key}]: {error}")
            return None

    def _size(self, text: str | None, path: str, what: str = "gang size") -> int | None:
        if text is None:
            return None
        if not is_size(text):
            self.faults.append(f"{path}: {no_size(text, what)}")
            return None
        return int(text)


def _truth(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError(f"{text[:40]!r} is neither 'true' nor 'false': write one of them, in quotes")
    return text == "true"


def _time(text: str) -> float:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise ValueError
        return time.timestamp()
    except (ValueError, OverflowError):
        example = "2026-11-21T01:50:31Z"
        raise ValueError(f"{text[:40]!r} is no time: write RFC 3339 with its zone, such as {example}") from None


def is_size(text: str) -> bool:
    """Whether the text is a gang's size."""
    return text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= GANG_SIZE_MAX


def no_size(text: str, what: str = "gang size") -> str:
    """What is wrong with a text that is no size."""
    return f"{text[:40]!r} is no {what}: write a whole number from 1 to {GANG_SIZE_MAX}"


def misspelt(annotations: Strings) -> tuple[str, ...]:
    """One warning per annotation in our domain that has no meaning but resembles one that users write.

    What our own programs wrote, such as the submitter's name on the pods of a Job, comes back when a pod is made of a template or
    an object is applied again.
    """
    found: list[str] = []
    for key in sorted(annotations):
        if key.startswith(names.ANNOTATION_PREFIX) and key not in OURS:
            close = difflib.get_close_matches(key, (*KEYS, *RUNNING_KEYS), n=1, cutoff=0.85)
            if close:
                found.append(f"metadata.annotations[{key}]: no program reads this; did you mean {close[0]}?")
    return tuple(found)


def overridden(annotations: Strings, labels: Strings | None = None, pod_group: str | None = None) -> Iterator[str]:
    """One warning per key of another system that does not count, since one before it has another value."""
    labels = labels or {}
    if foreign.absent(annotations, labels, pod_group):
        return
    found = list(foreign.groups(annotations, labels, pod_group))
    groups = [(group.name, group.path) for group in found]
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
    if found and found[0].size_text is not None:
        sizes.append((found[0].size_text, found[0].size_path))
    topologies = list(foreign.topologies(annotations))
    if own_topology := annotations.get(names.TOPOLOGY):
        topologies.insert(0, (own_topology, f"metadata.annotations[{names.TOPOLOGY}]"))
    for values in (groups, sizes, queues, topologies):
        for value, path in values[1:]:
            if value != values[0][0]:
                yield f"{path}: {value!r} does not count: {values[0][1]} says {values[0][0]!r}; keep one of them"


def unsupported(annotations: Strings) -> Iterator[str]:
    """One warning per key of another system that has no meaning here, with what to write instead."""
    if names.KUEUE_SLICE_LEVELS in annotations:
        where = f"metadata.annotations[{names.KUEUE_SLICE_LEVELS}]"
        yield f"{where}: does not count here; write {names.SUBGROUP_SIZE} and {names.SUBGROUP_TOPOLOGY} for one level of slices"
    if names.KUEUE_PODSET_GROUP in annotations:
        where = f"metadata.annotations[{names.KUEUE_PODSET_GROUP}]"
        yield f"{where}: does not count here: a topology is of the whole gang; write {names.TOPOLOGY} on each of its templates"
