"""What the four systems' modules fill, and the step that all share: names, order, checks, and the objects themselves.

Queues and flavors are known here by keys of the input, so that references survive renaming. A queue's amounts are of kinds of devices, or of
what pods request (`kinds`); each kind becomes one Flavor, since two Flavors that take the same device would both be charged for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeVar

from fairlead.api import names
from fairlead.api.base import CustomResource, ManifestError
from fairlead.api.flavor import Flavor
from fairlead.api.policy import TenancyPolicy
from fairlead.api.queue import FLAVORS_MAX, Queue
from fairlead.cli.imports.kinds import Kind
from fairlead.cli.imports.model import Fault, Imported, Note, RefusedError, Source, plain

NAME_MAX = 200
"""Leaves room for what makes a name unique."""
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
NOTHING = {"matchExpressions": [{"key": NAMESPACE_LABEL, "operator": "DoesNotExist"}]}
"""Selects no namespace: each has this label."""
R = TypeVar("R", bound=CustomResource)


@dataclass(slots=True)
class Quota:
    """Amounts in devices, or of a resource; None: without such a bound."""

    deserved: Fraction = Fraction(0)
    limit: Fraction | None = None
    borrowing: Fraction | None = None
    lending: Fraction | None = None
    weight: Fraction = Fraction(1)

    def add(self, other: Quota) -> None:
        """The amounts of a second flavor that means the same devices."""
        if self.lending is not None or other.lending is not None:
            self.lending = (self.deserved if self.lending is None else self.lending) + (
                other.deserved if other.lending is None else other.lending
            )
        self.deserved += other.deserved
        self.limit = None if self.limit is None or other.limit is None else self.limit + other.limit
        if self.borrowing is None or other.borrowing is None:
            self.borrowing = None
        else:
            self.borrowing += other.borrowing


@dataclass(slots=True)
class DraftQueue:
    """`wanted`: its name in the input. `spec`: fields of our spec that need no further work."""

    source: Source
    wanted: str
    parent: Hashable | None = None
    parent_path: str = "spec.parent"
    quotas: dict[Kind, Quota] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Pending:
    source: Source
    path: str
    text: str
    lost: bool
    queue: Hashable | None
    kind: Kind | None


@dataclass(slots=True)
class Draft:
    """`queues` by keys that the system's module chooses; a parent is such a key."""

    faults: list[Fault] = field(default_factory=list)
    queues: dict[Hashable, DraftQueue] = field(default_factory=dict)
    flavors: dict[Kind, set[str]] = field(default_factory=dict)
    flavor_sources: dict[Kind, set[Source]] = field(default_factory=dict)
    policies: dict[Hashable, tuple[Source, dict[str, Any]]] = field(default_factory=dict)
    _notes: list[_Pending] = field(default_factory=list)

    def fault(self, source: Source, path: str, text: str) -> None:
        self.faults.append(Fault(source, path, text))

    def note(
        self,
        source: Source,
        path: str,
        text: str,
        *,
        lost: bool = True,
        queue: Hashable | None = None,
        kind: Kind | None = None,
    ) -> None:
        """`queue`, `kind`: the key of the queue or flavor that it is of."""
        self._notes.append(_Pending(source, path, text, lost, queue, kind))

    def note_others(self, source: Source, others: Mapping[str, str], queue: Hashable) -> None:
        """Resources that are no devices, each with its path."""
        for name, path in others.items():
            text = (
                f"{plain(name)}: a Queue counts GPUs, MIG devices and what pods request; bound it with a ResourceQuota"
            )
            self.note(source, path, text, queue=queue)

    def flavor(self, kind: Kind, source: Source | None = None, wanted: str | None = None) -> None:
        """Have a Flavor for the kind; `wanted` is what the input calls it."""
        self.flavors.setdefault(kind, set()).update([] if wanted is None else [wanted])
        self.flavor_sources.setdefault(kind, set()).update([] if source is None else [source])

    def build(self) -> Imported:
        """The objects, or RefusedError with every fault."""
        self._check_parents()
        if self.faults:
            raise RefusedError(self.faults)
        flavor_names = _unique(
            {kind: (next(iter(wanted)) if len(wanted) == 1 else kind.name) for kind, wanted in self.flavors.items()},
            lambda kind: (kind.name, kind),
        )
        queue_names = _unique({key: queue.wanted for key, queue in self.queues.items()}, self._order)
        self._note_names(queue_names)
        self._note_overlaps(flavor_names)
        flavors = [self._flavor(kind, name) for kind, name in flavor_names.items()]
        queues = [self._queue(key, queue_names, flavor_names) for key in self._parents_first(queue_names)]
        policies = [self._policy(key, queue_names) for key in self.policies]
        if self.faults:
            raise RefusedError(self.faults)
        sources: dict[tuple[str, str], tuple[Source, ...]] = {
            ("Flavor", name): tuple(sorted(self.flavor_sources.get(kind, ()))) for kind, name in flavor_names.items()
        }
        sources |= {("Queue", queue_names[key]): (queue.source,) for key, queue in self.queues.items()}
        sources |= {("TenancyPolicy", queue_names[key]): (self.policies[key][0],) for key in self.policies}
        return Imported(
            flavors=tuple(sorted((each for each in flavors if each is not None), key=lambda each: each.name)),
            queues=tuple(each for each in queues if each is not None),
            policies=tuple(sorted((each for each in policies if each is not None), key=lambda each: each.name)),
            notes=tuple(sorted(self._settled(queue_names, flavor_names), key=_note_order)),
            sources=sources,
        )

    def _order(self, key: Hashable) -> Any:
        queue = self.queues[key]
        return (queue.wanted, queue.source.subject, queue.source)

    def _check_parents(self) -> None:
        """Every parent is there, and none is below its own child. A cycle is told once, at its first queue by name."""
        done: set[Hashable] = set()
        for start in sorted(self.queues, key=self._order):
            path: dict[Hashable, None] = {}
            key: Hashable | None = start
            while key is not None and key not in done and key not in path:
                path[key] = None
                queue = self.queues[key]
                key = queue.parent if queue.parent in self.queues else None
            if key is not None and key in path:
                ring = list(path)[list(path).index(key) :]
                first = self.queues[min(ring, key=self._order)]
                ways = " → ".join(plain(self.queues[each].wanted) for each in [*ring, key])
                self.fault(
                    first.source,
                    first.parent_path,
                    f"the parents form a cycle ({ways}): remove the parent of one of them",
                )
            done.update(path)

    def _parents_first(self, queue_names: dict[Hashable, str]) -> list[Hashable]:
        children: dict[Hashable | None, list[Hashable]] = {}
        for key in sorted(self.queues, key=lambda key: queue_names[key], reverse=True):
            children.setdefault(self.queues[key].parent, []).append(key)
        found: list[Hashable] = []
        rest = list(children.get(None, ()))
        while rest:
            key = rest.pop()
            found.append(key)
            rest += children.get(key, ())
        return found

    def _note_names(self, queue_names: dict[Hashable, str]) -> None:
        for key, queue in self.queues.items():
            if queue_names[key] != queue.wanted:
                text = f"is called {queue_names[key]} here, since {plain(queue.wanted)!r} is no name of an object, or is another's; pods that name it have to name that"
                self.note(queue.source, "metadata.name", text, lost=False, queue=key)

    def _note_overlaps(self, flavor_names: dict[Kind, str]) -> None:
        for kind in self.flavors:
            both = ", ".join(sorted(flavor_names[other] for other in self.flavors if kind.counts_with(other)))
            for source in sorted(self.flavor_sources.get(kind, ())) if both else ():
                text = f"a node may have its labels and those of {both}: a pod there is charged in each; give them different values of one label"
                self.note(source, "spec.nodeLabels", text, kind=kind)
            others = ", ".join(sorted(flavor_names[other] for other in kind.more_particular(self.flavors)))
            if others:
                text = (
                    f"its nodes may have devices of {others}: Flavor {flavor_names[kind]} leaves those to them, so that no device is "
                    "charged twice; where others are meant, write them into the deviceSelector"
                )
                for source in sorted(self.flavor_sources.get(kind, ())):
                    self.note(source, "spec.nodeLabels", text, kind=kind)

    def _flavor(self, kind: Kind, name: str) -> Flavor | None:
        source = min(self.flavor_sources.get(kind) or {Source("the input")})
        if kind.resource:
            nodes = {"nodeSelector": dict(kind.nodes)} if kind.nodes else {}
            return self._read(Flavor, source, name, {"measure": "Resource", "resourceName": kind.resource, **nodes})
        return self._read(
            Flavor, source, name, {"deviceSelector": kind.selector(self.flavors), "measure": kind.measure}
        )

    def _queue(self, key: Hashable, queue_names: dict[Hashable, str], flavor_names: dict[Kind, str]) -> Queue | None:
        queue = self.queues[key]
        spec: dict[str, Any] = {} if queue.parent is None else {"parent": queue_names[queue.parent]}
        spec |= queue.spec
        by_name = sorted((flavor_names[kind], kind) for kind in queue.quotas)
        if len(by_name) > FLAVORS_MAX:
            text = f"has quotas of {len(by_name)} kinds of devices and resources, more than the {FLAVORS_MAX} of a Queue: divide it, or leave some out"
            self.fault(queue.source, "spec", text)
            return None
        if by_name:
            spec["flavors"] = [{"flavor": name, **self._quota(queue, name, kind)} for name, kind in by_name]
        return self._read(Queue, queue.source, queue_names[key], spec)

    def _quota(self, queue: DraftQueue, flavor: str, kind: Kind) -> dict[str, Any]:
        quota, written = queue.quotas[kind], kind.written
        if quota.limit is not None and quota.limit < quota.deserved:
            text = (
                f"of {flavor} it may use {written(quota.limit)} at most, less than the {written(quota.deserved)} that are "
                "guaranteed: raise the limit or lower what is guaranteed"
            )
            self.fault(queue.source, "spec", text)
        found: dict[str, Any] = {"deserved": written(quota.deserved)}
        for name, value in (
            ("limit", quota.limit),
            ("borrowingLimit", quota.borrowing),
            ("lendingLimit", quota.lending),
        ):
            found |= {} if value is None else {name: written(value)}
        weight = float(quota.weight)
        return found if weight == 1 else found | {"weight": int(weight) if weight.is_integer() else weight}

    def _policy(self, key: Hashable, queue_names: dict[Hashable, str]) -> TenancyPolicy | None:
        source, spec = self.policies[key]
        return self._read(TenancyPolicy, source, queue_names[key], spec)

    def _read(self, kind: type[R], source: Source, name: str, spec: dict[str, Any]) -> R | None:
        raw = {"apiVersion": names.API_VERSION, "kind": kind.__name__, "metadata": {"name": name}, "spec": spec}
        try:
            return kind.read(raw)
        except ManifestError as error:
            for fault in error.faults:
                self.fault(
                    source, "", f"cannot be the {kind.__name__} {name}: {fault}; change it there, or leave it out"
                )
            return None

    def _settled(self, queue_names: dict[Hashable, str], flavor_names: dict[Kind, str]) -> Iterable[Note]:
        for each in dict.fromkeys(self._notes):
            about = None
            if each.queue is not None and each.queue in queue_names:
                about = ("Queue", queue_names[each.queue])
            elif each.kind is not None and each.kind in flavor_names:
                about = ("Flavor", flavor_names[each.kind])
            yield Note(each.source, each.path, each.text, each.lost, about)


def _note_order(note: Note) -> tuple[Any, ...]:
    return (not note.lost, note.source, note.path, note.text)


def object_name(text: str) -> str:
    """The text as a name of an object: lower case, other characters as dashes."""
    cut = re.sub(r"[^a-z0-9.-]+", "-", text.lower())[:NAME_MAX]
    labels = [label for part in cut.split(".") if (label := part.strip("-"))]
    return ".".join(labels) or "queue"


K = TypeVar("K", bound=Hashable)


def _unique(wanted: dict[K, str], order: Callable[[K], Any]) -> dict[K, str]:
    """A valid name for each. A name that is valid as it is stays; others that come to the same get a number."""
    taken: dict[str, K] = {}
    ranked = sorted(wanted, key=lambda key: (object_name(wanted[key]) != wanted[key], order(key)))
    for key in ranked:
        name = base = object_name(wanted[key])
        number = 1
        while name in taken:
            number += 1
            name = f"{base}-{number}"
        taken[name] = key
    return {key: name for name, key in taken.items()}
