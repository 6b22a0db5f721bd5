"""By what the watched copies are found, and what of an object a decision depends on.

Exists so that State reads as what happens, not as how things are looked up. Pure functions of one object.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from fairlead.api import names
from fairlead.controller.gangs import claims, evictions, gangs
from fairlead.kube import core, resource
from fairlead.kube.objects import Object
from fairlead.kube.resources import Raw


def heading(slice_: resource.ResourceSlice) -> resource.ResourceSlice:
    """A slice without what it lists."""
    return structs.replace(slice_, spec=structs.replace(slice_.spec, devices=(), shared_counters=()))


def node_facts(node: core.Node) -> tuple[object, ...]:
    """What of a node can change a decision; heartbeats do not."""
    return (node.metadata.labels, node.spec, node.status.allocatable, node.ready)


def may_be_member(pod: core.Pod) -> bool:
    return bool(pod.spec.resource_claims) or pod.has_gate(names.ADMISSION_GATE) or gangs.named_gang(pod) is not None


def gang_index(pod: core.Pod) -> Iterator[str]:
    if may_be_member(pod):
        yield "/".join(gangs.gang_id(pod))


def uid_index(obj: Object) -> Iterator[str]:
    yield obj.metadata.uid


def claim_index(pod: core.Pod) -> Iterator[str]:
    for name in claims.names_used(pod).values():
        yield f"{pod.metadata.namespace}/{name}"


def template_index(pod: core.Pod) -> Iterator[str]:
    for use in pod.spec.resource_claims:
        if use.resource_claim_template_name:
            yield f"{pod.metadata.namespace}/{use.resource_claim_template_name}"


def owner_index(claim: resource.ResourceClaim) -> Iterator[str]:
    controller = claim.metadata.controller
    if controller is not None:
        yield controller.uid


def evicted_owner_index(raw: Raw) -> Iterator[str]:
    past = evictions.past_of(raw)
    if past is not None and past.owner:
        yield past.owner
