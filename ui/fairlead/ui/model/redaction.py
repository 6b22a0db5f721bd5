"""Texts without the names of gangs, pods, claims and queues that a viewer may not see; pure.

The controller writes into a gang's status which gangs hold what it could use: namespace/name, in sentences. Everything of that form is
taken for such a name unless its first part is a namespace that may be seen, or a node (`node-1/gpu-3`), or the text says that it is a
request of a claim (`request gpu/large`). So a name of a namespace that is gone, or of one that holds nothing now, is hidden, too.
Names of queues are words like any other: those are hidden that a Queue, a gang or a pod of the facts bears, after the word "queue".
Example: `gang team-b/train with 8 devices` becomes `a gang of another namespace with 8 devices`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.api import names
from fairlead.kube.resources import Raw
from fairlead.ui.model.facts import ELSEWHERE, Facts

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
