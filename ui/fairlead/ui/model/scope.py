"""What a viewer may see, and the facts less everything else; pure.

The rule: objects of namespaces in which the viewer may not list gangs are absent, and no text names one of them. Devices are there for
those who may list nodes: which are held is shown to all of them, by which gang and claim only where they may see that. Queues are there
for those who may list queues; the names of the queues of one's own gangs, and of the queues above them, are known anyway.

The controller writes into a gang's status which gangs hold what it could use: namespace/name, in sentences. Everything of that form is
taken for such a name unless its first part is a namespace that may be seen, or a node (`node-1/gpu-3`), or the text says that it is a
request of a claim (`request gpu/large`). So a name of a namespace that is gone, or of one that holds nothing now, is hidden, too.
Names of queues are words like any other: those are hidden that a Queue, a gang or a pod of the facts bears, after the word "queue".
Example: `gang team-b/train with 8 devices` becomes `a gang of another namespace with 8 devices`.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from fairlead.api import names
from fairlead.history.ledger.entries import Decision
from fairlead.kube.containment import computed
from fairlead.kube.resource import ResourceClaim
from fairlead.kube.resources import Raw
from fairlead.ui.model import plain_pods
from fairlead.ui.model.facts import ELSEWHERE, Facts, Hardware, Holder

T = TypeVar("T")
NAMED_MAX = 5
SCOPES_MAX = 256


@dataclass(frozen=True)
class Scope:
    """The rights of a viewer, as a key: viewers of equal scope see the same.

    `namespaces`: where gangs may be listed; None: in all. `cluster`: nodes may be listed, so devices are shown. `queues`: queues may be.
    """

    namespaces: frozenset[str] | None
    cluster: bool
    queues: bool

    def sees(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces

    @property
    def namespaces_why(self) -> str:
        """Why gangs are missing; "" where none is."""
        if self.namespaces is None:
            return ""
        need = "ask for a role with the verb list on gangs.fairlead.dev"
        if not self.namespaces:
            return f"gangs: you may list them in no namespace that has any; {need}"
        named = sorted(self.namespaces)
        more = f" and {len(named) - NAMED_MAX} more" if len(named) > NAMED_MAX else ""
        return f"gangs of other namespaces than {', '.join(named[:NAMED_MAX])}{more} are not shown: you may not list them; {need}"

    @property
    def cluster_why(self) -> str:
        return (
            ""
            if self.cluster
            else "nodes: you may not list them, so devices are not shown; ask for a role with the verb list on nodes"
        )

    @property
    def queues_why(self) -> str:
        return (
            ""
            if self.queues
            else "queues: you may not list them; ask for a role with the verb list on queues.fairlead.dev"
        )


EVERYTHING = Scope(namespaces=None, cluster=True, queues=True)


def restrict(facts: Facts, scope: Scope) -> Facts:
    """What a viewer of that scope may see; what is missing has its reason in `refused`."""
    return facts if scope == EVERYTHING else _View(scope).of(Sorted(facts))


class ScopedFacts:
    """Restricted facts are made once for each scope: viewers of equal scope have the same object while the facts are the same.

    What did not change from one reading to the next is the same object as before, for callers that compare objects.
    """

    def __init__(self, most: int = SCOPES_MAX) -> None:
        self._most = most
        self._sorted: Sorted | None = None
        self._views: OrderedDict[Scope, _View] = OrderedDict()

    def of(self, facts: Facts, scope: Scope) -> Facts:
        if scope == EVERYTHING:
            return facts
        if self._sorted is None or self._sorted.facts is not facts:
            self._sorted = Sorted(facts)
        view = self._views.setdefault(scope, _View(scope))
        self._views.move_to_end(scope)
        while len(self._views) > self._most:
            self._views.popitem(last=False)
        return view.of(self._sorted)


class Sorted:
    """Facts by namespace, for many scopes."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.gangs = _by_namespace(facts.gangs)
        self.pods = _by_namespace(facts.pods)
        self.claims: dict[str, list[ResourceClaim]] = {}
        for claim in facts.claims:
            self.claims.setdefault(claim.metadata.namespace, []).append(claim)
        self.namespaces = frozenset(self.gangs.keys() | self.pods.keys() | self.claims.keys())
        self.queues = frozenset(known_queues(facts))

    @cached_property
    def nodes(self) -> frozenset[str]:
        hardware = self.facts.hardware
        return frozenset() if hardware is None else frozenset(node.name for node in hardware.nodes.all())

    @cached_property
    def holders(self) -> Mapping[str, Mapping[str, Holder]]:
        """The gang that holds a claim, by namespace of the claim, then by claim UID; "" for claims that are not known."""
        found: dict[str, dict[str, Holder]] = {}
        hardware = self.facts.hardware
        for uid, holder in hardware.holders.items() if hardware is not None else ():
            claim = hardware.inventory.claim(uid) if hardware is not None else None
            found.setdefault(claim.namespace if claim is not None else "", {})[uid] = holder
        return found

    @cached_property
    def nameless(self) -> Mapping[str, Holder]:
        """What holds each claim, by UID, without the gang."""
        return {
            uid: replace(holder, gang="") if holder.gang else holder
            for each in self.holders.values()
            for uid, holder in each.items()
        }

    @cached_property
    def unknown(self) -> Mapping[str, Holder]:
        """The same without the queue, too."""
        return {uid: replace(holder, queue="") if holder.queue else holder for uid, holder in self.nameless.items()}


class _View:
    """The facts of one scope, with the objects of the reading before."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._from: Facts | None = None
        self._made: Facts | None = None
        self._redaction: Redaction | None = None
        self._redacted: dict[
            int, tuple[Raw, Raw]
        ] = {}  # by the object's id: the object itself, and what is shown of it

    def of(self, found: Sorted) -> Facts:
        if self._made is None or self._from is not found.facts:
            self._made = self._make(found, self._made)
            self._from = found.facts
        return self._made

    def _make(self, found: Sorted, before: Facts | None) -> Facts:
        facts, scope = found.facts, self._scope
        redaction = _redaction(found, scope)
        known = self._redacted if redaction == self._redaction else {}
        self._redaction, self._redacted = redaction, {}
        refused = dict(facts.refused)
        if scope.namespaces is not None:
            refused["gangs"] = scope.namespaces_why
        if not scope.queues:
            refused["queues"] = scope.queues_why
        if not scope.cluster:
            refused["nodes"] = scope.cluster_why
        return replace(
            facts,
            hardware=_hardware(found, scope) if scope.cluster else None,
            gangs=_same(before.gangs if before else None, self._shown(_own(found.gangs, facts.gangs, scope), known)),
            pods=_same(before.pods if before else None, self._shown(_own(found.pods, facts.pods, scope), known)),
            queues=_same(before.queues if before else None, self._shown(facts.queues, known)) if scope.queues else (),
            claims=_same(before.claims if before else None, tuple(_own(found.claims, facts.claims, scope))),
            refused=refused,
        )

    def _shown(self, objects: Iterable[Raw], known: Mapping[int, tuple[Raw, Raw]]) -> tuple[Raw, ...]:
        assert self._redaction is not None
        shown = []
        for raw in objects:
            entry = known.get(id(raw))
            if entry is None or entry[0] is not raw:
                entry = (raw, computed(partial(self._redaction.object, raw), partial(_without_texts, raw)))
            self._redacted[id(raw)] = entry
            shown.append(entry[1])
        return tuple(shown)


def _without_texts(raw: Raw, _: Exception) -> Raw:
    """An object whose status cannot be read, without it."""
    return {**raw, "status": {}}


def restrict_events(events: Iterable[Raw], facts: Facts, scope: Scope) -> tuple[Raw, ...]:
    """Events on an object that the viewer may see, with what their messages name. `facts`: all of them, not restricted."""
    if scope.namespaces is None:
        return tuple(events)
    redaction = redaction_of(facts, scope)
    return tuple(raw | {"message": redaction.text(str(raw.get("message") or ""))} for raw in events)


def restrict_decisions(decisions: Iterable[Decision], facts: Facts, scope: Scope) -> tuple[Decision, ...]:
    """Like `restrict_events`, for what the ledger has of a gang."""
    if scope.namespaces is None:
        return tuple(decisions)
    redaction = redaction_of(facts, scope)
    return tuple(replace(each, text=redaction.text(each.text)) for each in decisions)


def redaction_of(facts: Facts, scope: Scope) -> Redaction:
    """The redaction of texts for a viewer of that scope. `facts`: all of them, not restricted."""
    return _redaction(Sorted(facts), scope)


def namespaces_with_gangs(facts: Facts) -> frozenset[str]:
    """Those of which pages show something: gangs, pods that are one, and claims."""
    found = {raw["metadata"].get("namespace", "") for raw in facts.gangs}
    found |= {pod["metadata"].get("namespace", "") for pod in facts.pods if plain_pods.is_plain(pod)}
    return frozenset(found | {claim.metadata.namespace for claim in facts.claims})


def _redaction(found: Sorted, scope: Scope) -> Redaction:
    if scope.namespaces is None:
        return Redaction(namespaces=None)
    own = (*_own(found.gangs, (), scope), *_own(found.pods, (), scope))
    return Redaction(
        namespaces=scope.namespaces,
        hidden=found.namespaces - scope.namespaces,
        queues=frozenset() if scope.queues else found.queues - queues_of(own, found.facts.queues),
        nodes=found.nodes,
    )


def _by_namespace(objects: Iterable[Raw]) -> dict[str, list[Raw]]:
    found: dict[str, list[Raw]] = {}
    for raw in objects:
        found.setdefault(raw["metadata"].get("namespace", ""), []).append(raw)
    return found


def _own(by_namespace: Mapping[str, Sequence[T]], every: Sequence[T], scope: Scope) -> Iterable[T]:
    """The entries of the viewer's namespaces, in the order of all."""
    if scope.namespaces is None:
        return every
    return (each for name in sorted(scope.namespaces) for each in by_namespace.get(name, ()))


def _same(before: tuple[T, ...] | None, now: tuple[T, ...]) -> tuple[T, ...]:
    """The tuple of before where it has the same objects."""
    same = before is not None and len(before) == len(now) and all(a is b for a, b in zip(before, now, strict=True))
    return before if same and before is not None else now


def _hardware(found: Sorted, scope: Scope) -> Hardware | None:
    hardware = found.facts.hardware
    if hardware is None or scope.namespaces is None:
        return hardware
    holders = dict(found.nameless if scope.queues else found.unknown)
    for namespace in scope.namespaces:
        holders |= found.holders.get(namespace, {})
    reserved = {
        node: gang if scope.sees(gang.partition("/")[0]) else ELSEWHERE for node, gang in hardware.reserved.items()
    }
    evicting = frozenset(gang for gang in hardware.evicting if scope.sees(gang.partition("/")[0]))
    return replace(hardware, holders=holders, reserved=reserved, namespaces=scope.namespaces, evicting=evicting)


_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?"
_KIND = r"(?:[Gg]ang|[Cc]laim|ResourceClaim|[Pp]od|PodDisruptionBudget|[Bb]udget|Job|[Rr]equest)"
_ID = re.compile(rf"(?<![-\w./])(?P<kind>{_KIND} )?(?P<namespace>{_LABEL})/(?P<name>{_NAME})(?![\w/])")
_QUEUE = re.compile(rf"(?P<word>\b[Qq]ueues? )(?P<queue>{_NAME})")
_IN_QUEUE = re.compile(rf" \(queue (?P<queue>{_NAME})\)")
_KEPT = ("name", "namespace", "uid", "nodes", "reservedNodes", "queue", "type")
QUEUE_ELSEWHERE = "another queue"


@dataclass(frozen=True, kw_only=True)
class Redaction:
    """`namespaces`: those that may be seen; None: all, and nothing is hidden. `hidden`: others that are known. `queues`: names to hide.
    `nodes`: names that are no namespace's.
    """

    namespaces: frozenset[str] | None
    hidden: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()

    def text(self, text: str) -> str:
        if self.namespaces is None:
            return text
        if self.queues:
            text = _IN_QUEUE.sub(lambda found: "" if found["queue"] in self.queues else found[0], text)
            text = _QUEUE.sub(self._queue, text)
        return _ID.sub(self._id, text) if "/" in text else text

    def object(self, raw: Raw) -> Raw:
        """A Gang, pod or Queue with what its status says; the rest of it is its own."""
        status = raw.get("status")
        if self.namespaces is None or not status:
            return raw
        return raw | {"status": self._value(status)}

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(each) for each in value]
        if isinstance(value, Mapping):
            return {key: self._field(key, each) for key, each in value.items()}
        return value

    def _field(self, key: str, value: Any) -> Any:
        if key == "holders" and isinstance(value, list):
            return [self._holder(each) for each in value]
        return value if key in _KEPT else self._value(value)

    def _holder(self, holder: Mapping[str, Any]) -> Mapping[str, Any]:
        gang, queue = str(holder.get("gang") or ""), str(holder.get("queue") or "")
        namespaces = self.namespaces or frozenset()
        found = dict(holder)
        if gang and gang.partition("/")[0] not in namespaces:
            found["gang"] = ELSEWHERE
        if queue in self.queues:
            found["queue"] = ""
        return found

    def _id(self, found: re.Match[str]) -> str:
        kind, namespace = (found["kind"] or "").strip(), found["namespace"]
        if namespace in (self.namespaces or ()):
            return found[0]
        if namespace not in self.hidden:
            counts = namespace.isdecimal() and found["name"].isdecimal()  # 3/8 pods
            if counts or namespace in self.nodes or kind.lower() == "request":
                return found[0]
        if kind.lower() in {"", "gang", "request"}:
            return ELSEWHERE
        return f"a {kind.lower() if kind.lower() in {'pod', 'claim', 'budget'} else kind} of another namespace"

    def _queue(self, found: re.Match[str]) -> str:
        return QUEUE_ELSEWHERE if found["queue"] in self.queues else found[0]


def known_queues(facts: Facts) -> set[str]:
    """Every name of a queue that the facts have."""
    found = {raw["metadata"]["name"] for raw in facts.queues}
    for raw in (*facts.gangs, *facts.pods):
        found |= _named(raw)
    return found


def queues_of(objects: Iterable[Raw], queues: Iterable[Raw]) -> set[str]:
    """The queues that these gangs and pods name, and those above them."""
    parents = {raw["metadata"]["name"]: (raw.get("spec") or {}).get("parent") for raw in queues}
    found: set[str] = set()
    for raw in objects:
        for name in _named(raw):
            above: str | None = name
            while above and above not in found:
                found.add(above)
                above = parents.get(above)
    return found


def _named(raw: Raw) -> set[str]:
    meta = raw["metadata"]
    said = (
        (raw.get("status") or {}).get("queue"),
        (raw.get("spec") or {}).get("queue"),
        (meta.get("annotations") or {}).get(names.QUEUE),
        (meta.get("labels") or {}).get(names.QUEUE),
    )
    return {each for each in said if each}
