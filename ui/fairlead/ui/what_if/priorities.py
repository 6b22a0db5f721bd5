"""The priority that the apiserver would give a pod of a manifest: of its PriorityClass, from the file or the cluster, else of the default.

A class that is named and not known is an error: another priority would make the forecast one of another gang.
Source: kube-apiserver, plugin/pkg/admission/priority/admission.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fairlead.engine.forecast.what_if import ChangeError
from fairlead.kube import nulls
from fairlead.kube.core import PriorityClass
from fairlead.kube.objects import ObjectMeta

GROUP = "scheduling.k8s.io"
SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Classes that every cluster has."""


@dataclass(frozen=True, kw_only=True)
class Priorities:
    """`unread`: why the classes of the cluster are not known; "" where they are."""

    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    unread: str = ""

    def of(self, pod: str, spec: Mapping[str, Any]) -> tuple[int, bool]:
        """Priority, and whether the pod preempts. Raises ChangeError for a class that is not known; `pod` is for the message."""
        found = self._class(pod, spec)
        policy = spec.get("preemptionPolicy") or (None if found is None else found.preemption_policy)
        priority = int(spec.get("priority") or 0) if found is None else found.value
        return priority, policy != "Never"

    def _class(self, pod: str, spec: Mapping[str, Any]) -> PriorityClass | None:
        """None where the pod names none and none is the default."""
        name = spec.get("priorityClassName")
        if not name:
            if spec.get("priority") is not None:
                return None
            defaults = [each for each in self.classes.values() if each.global_default]
            return min(defaults, key=lambda each: (each.value, each.metadata.name), default=None)
        known = self.classes.get(name)
        if known is not None:
            return known
        if name in SYSTEM:
            return PriorityClass(metadata=ObjectMeta(name=name), value=SYSTEM[name])
        why = self.unread or f"the cluster has none of that name; it has {', '.join(sorted(self.classes)) or 'none'}"
        raise ChangeError(
            f"-f: {pod}: spec.priorityClassName: PriorityClass {name} is not known: {why}; add its manifest to the file"
        )


def read(documents: Iterable[Mapping[str, Any]], *, cluster: Iterable[Mapping[str, Any]], unread: str) -> Priorities:
    """Classes of the cluster, and those among the manifests, which go first. Raises ChangeError for one that cannot be read."""
    classes: dict[str, PriorityClass] = {}
    for document in (*cluster, *(each for each in documents if _is_class(each))):
        try:
            found = nulls.convert(document, PriorityClass)
        except (msgspec.ValidationError, TypeError, ValueError) as error:
            name = (document.get("metadata") or {}).get("name")
            raise ChangeError(f"-f: PriorityClass {name}: cannot be read: {error}") from None
        classes[found.metadata.name] = found
    return Priorities(classes=classes, unread=unread)


def _is_class(document: Mapping[str, Any]) -> bool:
    return document.get("kind") == "PriorityClass" and str(document.get("apiVersion")).partition("/")[0] == GROUP
