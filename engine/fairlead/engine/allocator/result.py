"""What a search for devices returns, and a claim's allocation from it: results, configs of class and claim, the nodes that it is bound to.

Results are in upstream's order. Share IDs come from the caller: the engine has no randomness.
Source: structured allocator's end of Allocate, createNodeSelector.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fairlead.engine.allocator.candidates import Candidates
from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.node_selector import NODE_NAME
from fairlead.engine.types.values import Consumption, DeviceRef, text
from fairlead.kube import resource
from fairlead.kube.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm

# (claim key, request, device) to a lower-case UUID, different for each share.
ShareIds = Callable[[str, str, DeviceRef], str]


class SearchStatus(enum.Enum):
    FOUND = "found"
    IMPOSSIBLE = "impossible"
    BUDGET_ENDED = "budget ended"


class Pick(NamedTuple):
    """A device chosen for a request, and the capacity that the request consumes of it."""

    request: CompiledRequest
    device: Device
    consumption: Consumption


@dataclass(frozen=True, slots=True)
class ClaimCandidates:
    """A claim on one node: per request, the candidate devices there, and their order of preference."""

    claim: CompiledClaim
    candidates: Callable[[CompiledRequest], Candidates]
    prefer: Callable[[CompiledRequest, Candidates], Sequence[Device]]


@dataclass(slots=True)
class SearchResult:
    """`picks` has one list per claim, in order. When not FOUND, `short` is the request that got furthest and fell short."""

    status: SearchStatus
    picks: list[list[Pick]] = field(default_factory=list)
    short: CompiledRequest | None = None
    picked: int = 0  # devices that were found for `short`
    detail: str = ""


def allocation(
    key: str,
    claim: CompiledClaim,
    picks: Sequence[Pick],
    node: str,
    classes: Mapping[str, resource.DeviceClass],
    share_ids: ShareIds,
) -> resource.AllocationResult:
    """What `status.allocation` of the claim is to say. `key` names the claim in share IDs."""
    results = tuple(_result(key, pick, share_ids) for pick in picks)
    devices = resource.DeviceAllocationResult(results=results, config=tuple(_configs(claim, picks, classes)))
    return resource.AllocationResult(devices=devices, node_selector=node_selector(picks, node))


def _result(key: str, pick: Pick, share_ids: ShareIds) -> resource.DeviceRequestAllocationResult:
    device, request = pick.device, pick.request
    return resource.DeviceRequestAllocationResult(
        request=request.name,
        driver=device.pool.driver,
        pool=device.pool.name,
        device=device.name,
        admin_access=request.admin or None,
        share_id=share_ids(key, request.name, device.ref) if device.shared else None,
        consumed_capacity={name: text(value) for name, value in pick.consumption},
        tolerations=request.filter.tolerations,
        binding_conditions=device.kind.spec.binding_conditions,
        binding_failure_conditions=device.kind.spec.binding_failure_conditions,
    )


def _configs(
    claim: CompiledClaim, picks: Sequence[Pick], classes: Mapping[str, resource.DeviceClass]
) -> Iterator[resource.DeviceAllocationConfiguration]:
    """Class configs, per request in the claim's order, then the claim's own in its order."""
    chosen = {pick.request.request: pick.request for pick in picks}
    for alternatives in claim.alternatives:
        request = chosen.get(alternatives[0].request)
        for config in classes[request.class_name].spec.config if request is not None else ():
            if config.opaque is not None and request is not None:
                yield resource.DeviceAllocationConfiguration(
                    source="FromClass", requests=(request.name,), opaque=config.opaque
                )
    names = {name for request in chosen.values() for name in (request.request, request.name)}
    for own in claim.spec.devices.config:
        if own.opaque is not None and (not own.requests or not names.isdisjoint(own.requests)):
            yield resource.DeviceAllocationConfiguration(source="FromClaim", requests=own.requests, opaque=own.opaque)


def node_selector(picks: Sequence[Pick], node: str) -> NodeSelector | None:
    """The nodes on which these devices can be used: one, those of all selectors together, or (None) every node."""
    if any(pick.device.local for pick in picks):
        own = NodeSelectorRequirement(key=NODE_NAME, operator="In", values=(node,))
        return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_fields=(own,)),))
    selectors = dict.fromkeys(pick.device.node_selector for pick in picks)
    terms = [term for selector in selectors if selector is not None for term in selector.node_selector_terms]
    together = NodeSelectorTerm(
        match_expressions=tuple(dict.fromkeys(rule for term in terms for rule in term.match_expressions)),
        match_fields=tuple(dict.fromkeys(rule for term in terms for rule in term.match_fields)),
    )
    return None if together == NodeSelectorTerm() else NodeSelector(node_selector_terms=(together,))
