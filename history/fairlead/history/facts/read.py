"""From the format to what the engine's tables keep, where that is another value."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.types.pods import Demand, PodIdentity, Workload
from fairlead.history.facts import form


def node(name: str, value: form.Node) -> NodeInfo:
    return NodeInfo(
        name=name,
        labels=value.labels,
        taints=value.taints,
        unschedulable=value.unschedulable,
        ready=value.ready,
        notice=value.notice,
        allocatable=dict(value.allocatable),
    )


def identity(value: form.CountedPod) -> PodIdentity:
    return PodIdentity(namespace=value.namespace, labels=value.labels, leaving=value.leaving)


def workload(demands: tuple[Demand, ...] | None, mix: Workload) -> Workload | None:
    return None if demands is None else replace(mix, demands=demands)
