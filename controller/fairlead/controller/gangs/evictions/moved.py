"""The place that is held for a gang which is being moved: from the decision until its new pods are admitted, or time is up.

Written pod by pod on the marks while the old pods run, and in the Gang's status from their eviction on (`past_evictions`), so that a
new leader holds it, too. In the engine's tables the place is a claim and a pod of its own for each pod (`Held`), charged to the
gang's queue; when the gang's new pods are requested, they are bound to its nodes and decided first. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from fairlead.cel.devices.requests import alternatives
from fairlead.engine.types.allocation import AllocatedClaim, AllocatedDevice
from fairlead.engine.types.gangs import GangRequest, RunningGang
from fairlead.engine.types.plan import Admission
from fairlead.engine.types.pods import PodNeeds
from fairlead.engine.types.values import DeviceRef
from fairlead.kube import core, resource

HELD_S = 900.0  # after the eviction: longer than the longest back-off of a Job


@dataclass(frozen=True, slots=True)
class Spot:
    """For one pod. `requests`: as PodNeeds has them; () where the pod itself still says so."""

    node: str
    devices: tuple[DeviceRef, ...]
    requests: tuple[tuple[str, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"node": self.node, "devices": [str(device) for device in self.devices]}
        return {**fields, "requests": dict(self.requests)} if self.requests else fields


def read_spot(value: Mapping[str, Any]) -> Spot:
    """Raises KeyError, ValueError, TypeError."""
    requests = tuple(sorted((str(name), int(amount)) for name, amount in (value.get("requests") or {}).items()))
    return Spot(str(value["node"]), tuple(_device(str(text)) for text in value["devices"]), requests)


def _device(text: str) -> DeviceRef:
    """Names of drivers and devices have no slash, those of pools may."""
    driver, _, rest = text.partition("/")
    pool, _, device = rest.rpartition("/")
    if not (driver and pool and device):
        raise ValueError(f"{text[:80]!r} is no device: write driver/pool/device")
    return DeviceRef(driver, pool, device)


def spots_of(place: Admission) -> dict[str, Spot]:
    """By UID of the pods that run now. A claim of several pods counts for the first of them."""
    devices: dict[str, list[DeviceRef]] = {}
    for claim in place.claims:
        devices.setdefault(claim.reserved_for[0].uid, []).extend(claim.devices)
    return {each.pod.uid: Spot(each.node, tuple(devices.get(each.pod.uid, ()))) for each in place.assignments}


@dataclass(frozen=True, slots=True)
class Held:
    """A gang's place in the tables. `until`: unix seconds; None: as long as its pods are marked."""

    gang: tuple[str, str]
    spots: tuple[Spot, ...]
    until: float | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({spot.node for spot in self.spots}))

    @property
    def claims(self) -> list[AllocatedClaim]:
        return [
            AllocatedClaim(
                uid=self.uid(number),
                namespace=self.gang[0],
                name=self.gang[1],
                devices=tuple(AllocatedDevice(driver=d.driver, pool=d.pool, device=d.device) for d in spot.devices),
            )
            for number, spot in enumerate(self.spots)
            if spot.devices
        ]

    @property
    def pods(self) -> list[tuple[str, str, PodNeeds]]:
        """UID, node and needs of what stands for each pod."""
        return [
            (self.uid(number), spot.node, PodNeeds(requests=spot.requests)) for number, spot in enumerate(self.spots)
        ]

    def uid(self, number: int) -> str:
        return f"move/{'/'.join(self.gang)}/{number}"

    def devices(self) -> set[DeviceRef]:
        return {device for spot in self.spots for device in spot.devices}


def with_place(running: RunningGang | None, held: Held, queue: str | None) -> RunningGang:
    """The gang as the engine sees it: its queue is charged for the place, and that is nothing to evict."""
    if running is None:
        namespace, name = held.gang
        running = RunningGang(namespace=namespace, name=name, uid=held.uid(0), queue=queue, claims=())
    claims = tuple(sorted({*running.claims, *(claim.uid for claim in held.claims)}))
    return replace(running, claims=claims, pods=(*running.pods, *(uid for uid, _, _ in held.pods)))


def may_have(request: GangRequest, held: Held) -> bool:
    """Whether it asks for no more members and devices than the place has: new pods may ask for anything, and would go first with it."""
    devices = sum(_devices(claim.spec) for claim in request.claims)
    return len(request.members) <= len(held.spots) and devices <= sum(len(spot.devices) for spot in held.spots)


def _devices(spec: resource.ResourceClaimSpec) -> int:
    """The most that it may get, where it says how many."""
    found = 0
    for each in spec.devices.requests:
        found += max(
            (option.count for option in alternatives(each) if option.allocation_mode == "ExactCount"), default=0
        )
    return found


def to_its_place(request: GangRequest, held: Held) -> GangRequest:
    """Bound to its nodes and devices, and decided before all others, as what replaces members of a gang that runs."""
    members = tuple(
        replace(member, needs=replace(member.needs, affinity=_on(member.needs.affinity, held.nodes)))
        for member in request.members
    )
    return replace(request, members=members, kept=tuple(sorted(held.devices())), replaces=True)


def _on(affinity: core.NodeSelector | None, nodes: Sequence[str]) -> core.NodeSelector:
    pin = core.NodeSelectorRequirement(key="metadata.name", operator="In", values=tuple(nodes))
    if affinity is None:
        return core.NodeSelector(node_selector_terms=(core.NodeSelectorTerm(match_fields=(pin,)),))
    terms = (
        _pinned(term, pin) if term.match_fields or term.match_expressions else term
        for term in affinity.node_selector_terms
    )
    return core.NodeSelector(node_selector_terms=tuple(terms))


def _pinned(term: core.NodeSelectorTerm, pin: core.NodeSelectorRequirement) -> core.NodeSelectorTerm:
    return core.NodeSelectorTerm(match_fields=(*term.match_fields, pin), match_expressions=term.match_expressions)


def unpinned(affinity: core.NodeSelector | None, node: str) -> core.NodeSelector | None:
    """What a released pod asked for before it was pinned to its node (`release`)."""
    if affinity is None:
        return None
    terms = [_unpinned(term, node) for term in affinity.node_selector_terms]
    if len(terms) == 1 and not terms[0].match_fields and not terms[0].match_expressions:
        return None if terms[0] != affinity.node_selector_terms[0] else affinity
    return core.NodeSelector(node_selector_terms=tuple(terms))


def _unpinned(term: core.NodeSelectorTerm, node: str) -> core.NodeSelectorTerm:
    last = term.match_fields[-1] if term.match_fields else None
    if last is None or (last.key, last.operator, tuple(last.values)) != ("metadata.name", "In", (node,)):
        return term
    return core.NodeSelectorTerm(match_fields=term.match_fields[:-1], match_expressions=term.match_expressions)
