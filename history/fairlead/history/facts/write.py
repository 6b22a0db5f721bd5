"""From what the engine's tables keep to the format, where that is another value. What the key of a table says is left out."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.types.allocation import AllocatedClaim
from fairlead.engine.types.pods import Demand, PodIdentity, PodNeeds, Workload
from fairlead.engine.types.settings import FlavorSpec, QueueSpec
from fairlead.history.facts import form


def node(info: NodeInfo) -> form.Node:
    return form.Node(
        labels=info.labels,
        taints=info.taints,
        unschedulable=info.unschedulable,
        ready=info.ready,
        notice=info.notice,
        allocatable=info.allocatable,
    )


def counted_pod(where: str, needs: PodNeeds, identity: PodIdentity) -> form.CountedPod:
    return form.CountedPod(
        node=where, needs=needs, namespace=identity.namespace, labels=identity.labels, leaving=identity.leaving
    )


def allocated_claim(value: AllocatedClaim) -> AllocatedClaim:
    return replace(value, uid="")


def queue(value: QueueSpec) -> QueueSpec:
    return replace(value, name="")


def flavor(value: FlavorSpec) -> FlavorSpec:
    return replace(value, name="")


def workload(value: Workload | None) -> tuple[Demand, ...] | None:
    return None if value is None else value.demands


def mix(value: Workload | None) -> Workload:
    return form.NO_WORKLOAD if value is None else replace(value, demands=())
