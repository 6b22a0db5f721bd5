"""Whether kubelet takes a pod that was bound to its node: enough pods, cpu and memory beside those that it has.

kube-scheduler decides from its own cache: a pod that does not fit any more when it arrives is refused here, for good. Only
resources are looked at. A pod's labels, taints and ports are not: nothing here changes them between binding and arrival.
Pure. Source: kubernetes pkg/kubelet/lifecycle/predicate.go, pkg/scheduler/framework/plugins/noderesources/fit.go, 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fairlead.sandbox.objects import Obj
from fairlead.sandbox.resource_amounts import amounts, pod_requests

_REASONS: Final = ("pods", "cpu", "memory")  # in the order in which they are looked at


@dataclass(frozen=True)
class Refusal:
    reason: str
    message: str


def refusal(
    pod: Obj, others: Iterable[Obj], *, allocatable: Mapping[str, str], unseen: Mapping[str, str]
) -> Refusal | None:
    """Why the pod is refused, None where it fits. `others`: the pods that are active on the node.

    `unseen` is in use by what the API does not show. Quantities are Kubernetes'; the message counts cpu in thousandths.
    """
    used = amounts(unseen)
    for each in others:
        used["pods"] = used.get("pods", 0) + 1
        for resource, value in pod_requests(each).items():
            used[resource] = used.get(resource, 0) + value
    capacity = amounts(allocatable)
    wanted = pod_requests(pod) | {"pods": 1}
    for resource in _REASONS:
        asked, taken, most = wanted.get(resource, 0), used.get(resource, 0), capacity.get(resource, 0)
        if asked > 0 and asked > most - taken:
            return Refusal(
                f"OutOf{resource}",
                f"Node didn't have enough resource: {resource}, requested: {asked}, used: {taken}, capacity: {most}",
            )
    return None
