"""Kueue's WorkloadPriorityClasses, where the cluster serves them: the priority of gangs whose pods name one by Kueue's label.

They say in which order a queue takes workloads, and which goes for which; kube-scheduler does not read them. The objects work without
Kueue's controllers, as long as their CRD is there.
Source: kubernetes-sigs/kueue ff69552e `apis/kueue/v1beta2/workloadpriorityclass_types.go` (`value`, int32), `pkg/util/priority`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fairlead.api import names
from fairlead.controller.watch.optional import OptionalInformer
from fairlead.kube.informer import Change
from fairlead.kube.resources import Raw, Resource

VERSIONS = ("v1beta2", "v1beta1")
RESOURCE: Resource[Raw] = Resource(
    group=names.KUEUE_API,
    version=VERSIONS[0],
    plural="workloadpriorityclasses",
    kind="WorkloadPriorityClass",
    namespaced=False,
    type=dict[str, Any],
)


def value_of(raw: Mapping[str, Any]) -> int | None:
    """None where it has none that can be read: a CRD of others may have any shape."""
    value = raw.get("value")
    return value if type(value) is int and -(2**31) <= value < 2**31 else None


class WorkloadPriorities:
    def __init__(self) -> None:
        self._informer: OptionalInformer[Raw] = OptionalInformer(RESOURCE, VERSIONS, required=False)

    @property
    def informers(self) -> tuple[OptionalInformer[Raw], ...]:
        return (self._informer,)

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """`changed` gets the name of each class that came, went or has another value."""

        def handler(change: Change[Raw]) -> None:
            before, after = (None if raw is None else value_of(raw) for raw in (change.old, change.new))
            if change.old is None or change.new is None or before != after:
                changed(change.key)

        self._informer.subscribe(handler)

    def value(self, name: str) -> int | None:
        informer = self._informer.informer
        raw = informer.get(name) if informer is not None else None
        return None if raw is None else value_of(raw)
