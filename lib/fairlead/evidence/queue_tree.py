"""The Queue objects: which of them takes a gang, what is above it, and its bounds."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import msgspec

from fairlead.evidence.document import Facts, Gang
from fairlead.evidence.published import number
from fairlead.kube import labels
from fairlead.kube.objects import LabelSelector


class QueueTree:
    def __init__(self, facts: Facts) -> None:
        self.specs: dict[str, dict[str, Any]] = {
            queue["metadata"]["name"]: queue.get("spec", {}) for queue in facts.queues
        }
        self.parents = {name: spec.get("parent") or "" for name, spec in self.specs.items()}

    def of(self, gang: Gang) -> tuple[str | None, str]:
        """The queue that takes the gang, and ""; or the one that it names, and why none takes it (`QueueRefuses`)."""
        if not self.specs:
            return "", ""
        takes = {name: self._selects(spec.get("namespaceSelector"), gang) for name, spec in self.specs.items()}
        if not gang.queue:
            leaves = sorted(self.specs.keys() - self.parents.values())
            name = next((name for name in leaves if takes[name]), None)
            return name, "" if name else "None"
        leaf = "NotLeaf" if gang.queue in self.parents.values() else ""
        refused = "Namespace" if takes.get(gang.queue) is False else ""
        return gang.queue, (leaf or refused) if gang.queue in self.specs else "Unknown"

    def _selects(self, selector: Any, gang: Gang) -> bool | None:
        """None: there is no selector that can be read."""
        try:
            wanted = None if selector is None else msgspec.convert(selector, LabelSelector)
            return None if wanted is None else labels.matches(wanted, gang.namespace_labels)
        except labels.SelectorError:
            return None

    def path(self, name: str | None) -> list[str]:
        """The queue and those above it; none twice."""
        found: list[str] = []
        while name in self.specs and name not in found:
            found.append(name)
            name = self.parents[name]
        return found

    def bound(self, queue: str, flavor: str, field: str) -> Fraction | None:
        quotas: Iterable[dict[str, Any]] = self.specs.get(queue, {}).get("flavors", ())
        quota = next((each for each in quotas if each["flavor"] == flavor and each.get(field) is not None), None)
        if quota is None:
            return None
        return number(quota[field]) + (number(quota.get("deserved") or 0) if field == "borrowingLimit" else 0)
