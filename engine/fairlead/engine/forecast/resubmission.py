"""What a running gang would request if it had to start again, where its request was not seen: as many devices of the same kinds as it holds.

An estimate, for simulations only: of its claims' own selectors and constraints nothing is known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead.api.drivers import attributes_of, classes_of, part_class
from fairlead.engine.inventory.attributes import is_part, text
from fairlead.engine.types.gangs import ClaimRequest, GangRequest, PendingMember
from fairlead.engine.types.pod_needs import PodNeeds
from fairlead.kube import resource

if TYPE_CHECKING:
    from fairlead.engine.inventory.device import Device
    from fairlead.engine.snapshot import Snapshot
    from fairlead.engine.types.gangs import RunningGang

_NEEDS = PodNeeds(requests=(("pods", 1000),))


def resubmitted(gang: RunningGang, snapshot: Snapshot) -> GangRequest | None:
    """None where its pods, its devices or their class are not known. To be called while it holds its devices."""
    specs = {uid: _spec(uid, snapshot) for uid in gang.claims}
    members = [member for member in gang.members if not member.leaving]
    if not members or any(specs.get(uid) is None for member in members for uid in member.claims):
        return None
    claims = {}
    for uid, spec in specs.items():
        claim = snapshot.inventory.claim(uid)
        if spec is not None and claim is not None:
            claims[uid] = ClaimRequest(key=uid, namespace=claim.namespace, name=claim.name, spec=spec)
    return GangRequest(
        namespace=gang.namespace,
        name=gang.name,
        uid=gang.uid,
        size=min(gang.size, len(members)),
        members=tuple(
            PendingMember(pod=member.pod, needs=_needs(member.pod.uid, snapshot), claims=member.claims)
            for member in members
        ),
        claims=tuple(claims.values()),
        queue=gang.queue,
        namespace_labels=gang.namespace_labels,
        priority=gang.priority,
        created=gang.created,
        endless=gang.endless,
        hold=gang.hold,
    )


def _needs(uid: str, snapshot: Snapshot) -> PodNeeds:
    known = snapshot.nodes.pod(uid)
    if known is None:
        return _NEEDS
    needs = known[1]
    # A pod that was released is pinned to its node: that is not asked for again.
    return PodNeeds(requests=needs.requests, node_selector=needs.node_selector, tolerations=needs.tolerations)


def _spec(uid: str, snapshot: Snapshot) -> resource.ResourceClaimSpec | None:
    claim = snapshot.inventory.claim(uid)
    if claim is None:
        return None
    counts: dict[tuple[str, str], int] = {}
    for item in claim.devices:
        device = snapshot.inventory.device(item.ref)
        kind = None if device is None else _kind(device, snapshot)
        if kind is None or item.admin or not item.whole:
            return None
        counts[kind] = counts.get(kind, 0) + 1
    return resource.ResourceClaimSpec(
        devices=resource.DeviceClaim(
            requests=tuple(
                resource.DeviceRequest(name=f"r{number}", exactly=_exactly(*kind, count))
                for number, (kind, count) in enumerate(sorted(counts.items()))
            )
        )
    )


def _kind(device: Device, snapshot: Snapshot) -> tuple[str, str] | None:
    """Device class and a CEL selector."""
    driver = device.pool.driver
    known, part = attributes_of(driver), is_part(device)
    name = part_class(driver) if part else classes_of(driver)[0]
    if name not in snapshot.classes:
        return None
    wanted = {attribute: text(device, (attribute,)) for attribute in known.product}
    if known.whole:  # the class holds whole GPUs and parts alike
        wanted[known.kind] = text(device, (known.kind,))
    if part and known.profile:
        wanted[known.profile] = text(device, (known.profile,))
    selector = " && ".join(
        f'device.attributes["{driver}"].{attribute} == "{value}"' for attribute, value in wanted.items() if value
    )
    return name, selector


def _exactly(device_class: str, selector: str, count: int) -> resource.ExactDeviceRequest:
    selectors = (resource.DeviceSelector(cel=resource.CELDeviceSelector(expression=selector)),) if selector else ()
    return resource.ExactDeviceRequest(device_class_name=device_class, count=count, selectors=selectors)
