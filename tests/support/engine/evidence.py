"""The document that a certificate is checked against, of a snapshot and the raw objects that it was made from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fairlead.engine.types.amounts import text
from fairlead.engine.types.pod_needs import PODS
from fairlead.evidence.document import Claim, Facts, Gang, Member, Quota
from fairlead.kube import core, resource
from fairlead.kube.objects import to_dict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.gangs import GangRequest, RunningGang
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.engine.types.settings import FlavorSpec, QueueSpec
    from tests.support.engine.world import World


def facts_of_world(world: World, snapshot: Snapshot) -> Facts:
    pods = [{**pod, "spec": {**pod["spec"], "nodeName": node}} for pod, node in world.pods.values()]
    return facts_of(
        snapshot,
        slices=msgspec.convert(list(world.slice_json.values()), list[resource.ResourceSlice]),
        claims=msgspec.convert([claim for claim, _, _ in world.answers.values()], list[resource.ResourceClaim]),
        nodes=msgspec.convert(list(world.node_json.values()), list[core.Node]),
        pods=msgspec.convert(pods, list[core.Pod]),
    )


def facts_of(
    snapshot: Snapshot,
    *,
    slices: Iterable[resource.ResourceSlice],
    claims: Iterable[resource.ResourceClaim],
    nodes: Iterable[core.Node],
    pods: Iterable[core.Pod],
    taint_rules: Iterable[resource.DeviceTaintRule] = (),
) -> Facts:
    """`claims` and `pods` are those that the snapshot's tables count; a pod counts where it is bound or pinned."""
    return Facts(
        slices=tuple(slices),
        claims=tuple(claims),
        classes=tuple(snapshot.classes[name] for name in sorted(snapshot.classes)),
        taint_rules=tuple(taint_rules),
        nodes=tuple(nodes),
        pods=tuple(pods),
        queues=tuple(map(_queue, snapshot.queues)),
        flavors=tuple(map(_flavor, snapshot.flavors)),
        quotas=tuple(
            Quota(namespace=each.namespace, name=each.name, resource=each.resource, limit=each.limit, used=each.used)
            for each in snapshot.namespace_quotas
        ),
        gangs=tuple(map(_pending, snapshot.gangs)),
        running=tuple(map(_running, snapshot.running)),
    )


def _pending(gang: GangRequest) -> Gang:
    return Gang(
        namespace=gang.namespace,
        name=gang.name,
        uid=gang.uid,
        size=gang.size,
        members=tuple(
            Member(name=member.pod.name, uid=member.pod.uid, spec=_pod(member.needs), claims=member.claims)
            for member in gang.members
        ),
        claims=tuple(Claim(key=claim.key, spec=claim.spec, allocation=claim.allocation) for claim in gang.claims),
        queue=gang.queue,
        namespace_labels=dict(gang.namespace_labels),
        priority=gang.priority,
        created=gang.created,
        topology=gang.topology,
        placed_nodes=gang.placed_nodes,
        quota_charge=dict(gang.quota_charge),
    )


def _running(gang: RunningGang) -> Gang:
    return Gang(
        namespace=gang.namespace,
        name=gang.name,
        uid=gang.uid,
        queue=gang.queue,
        namespace_labels=dict(gang.namespace_labels),
        holds=gang.claims,
    )


def _pod(needs: PodNeeds) -> core.PodSpec:
    """A pod that needs this of a node, and nothing else."""
    requests: core.ResourceList = {name: f"{value}m" for name, value in needs.requests if name != PODS}
    ports = tuple(
        core.ContainerPort(host_port=number, protocol=protocol, host_ip=address)
        for protocol, address, number in needs.ports
    )
    affinity = None
    if needs.affinity is not None or needs.preferred:
        affinity = core.Affinity(node_affinity=core.NodeAffinity(required=needs.affinity, preferred=needs.preferred))
    return core.PodSpec(
        containers=(core.Container(ports=ports, resources=core.ResourceRequirements(requests=requests)),),
        node_selector=dict(needs.node_selector),
        affinity=affinity,
        tolerations=needs.tolerations,
    )


def _queue(spec: QueueSpec) -> dict[str, Any]:
    """As the Queue object has it, as far as limits, order and who may use it go."""
    flavors = [
        {
            "flavor": quota.flavor,
            "deserved": text(quota.deserved),
            **{
                name: text(value)
                for name, value in (("limit", quota.limit), ("borrowingLimit", quota.borrowing_limit))
                if value is not None
            },
        }
        for quota in spec.quotas
    ]
    body: dict[str, Any] = {"flavors": flavors, "ordering": spec.ordering}
    if spec.parent is not None:
        body["parent"] = spec.parent
    if spec.namespace_selector is not None:
        body["namespaceSelector"] = to_dict(spec.namespace_selector)
    return {"metadata": {"name": spec.name}, "spec": body}


def _flavor(spec: FlavorSpec) -> dict[str, Any]:
    body: dict[str, Any] = {"deviceSelector": spec.device_selector, "measure": spec.measure}
    if spec.capacity_name is not None:
        body["capacityName"] = spec.capacity_name
    return {"metadata": {"name": spec.name}, "spec": body}
