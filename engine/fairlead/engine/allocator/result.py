"""What a search for devices returns, and a claim's allocation from it: results, configs of class and claim, the nodes that it is bound to.

Results are in upstream's order. Share IDs come from the caller: the engine has no randomness.
Source: structured allocator's end of Allocate, createNodeSelector.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlead.engine.allocator.candidates import Candidates
from fairlead.engine.allocator.requests import CompiledClaim, CompiledRequest
from fairlead.engine.inventory.device import Device
from fairlead.engine.inventory.ledger import Consumption
from fairlead.engine.inventory.node_selector import NODE_NAME
from fairlead.engine.types.allocation import Allocation, DeviceConfig, DeviceResult, plain_json
from fairlead.engine.types.values import DeviceRef, text
from fairlead.kube import resource
from fairlead.kube.core import NodeSelector

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
) -> Allocation:
    return Allocation(
        results=tuple(_result(key, pick, share_ids) for pick in picks),
        config=tuple(_configs(claim, picks, classes)),
        node_selector=node_selector(picks, node),
    )


def _result(key: str, pick: Pick, share_ids: ShareIds) -> DeviceResult:
    device, request = pick.device, pick.request
    return DeviceResult(
        request=request.name,
        device=device.ref,
        admin_access=request.admin,
        share_id=share_ids(key, request.name, device.ref) if device.shared else None,
        consumed_capacity=tuple((name, text(value)) for name, value in pick.consumption),
        tolerations=request.filter.tolerations,
        binding_conditions=device.kind.spec.binding_conditions,
        binding_failure_conditions=device.kind.spec.binding_failure_conditions,
    )


def _configs(
    claim: CompiledClaim, picks: Sequence[Pick], classes: Mapping[str, resource.DeviceClass]
) -> list[DeviceConfig]:
    """Class configs, per request in the claim's order, then the claim's own in its order."""
    configs: list[DeviceConfig] = []
    if not claim.spec.devices.config and not any(
        classes[request.class_name].spec.config for alternatives in claim.alternatives for request in alternatives
    ):
        return configs
    chosen = {pick.request.request: pick.request for pick in picks}
    for alternatives in claim.alternatives:
        request = chosen.get(alternatives[0].request)
        if request is None:
            continue
        configs.extend(
            DeviceConfig(
                source="FromClass",
                requests=(request.name,),
                driver=config.opaque.driver,
                parameters=config.opaque.parameters,
            )
            for config in classes[request.class_name].spec.config
            if config.opaque is not None
        )
    names = {name for request in chosen.values() for name in (request.request, request.name)}
    configs.extend(
        DeviceConfig(
            source="FromClaim",
            requests=config.requests,
            driver=config.opaque.driver,
            parameters=config.opaque.parameters,
        )
        for config in claim.spec.devices.config
        if config.opaque is not None and (not config.requests or not names.isdisjoint(config.requests))
    )
    return configs


def node_selector(picks: Sequence[Pick], node: str) -> dict[str, Any] | None:
    """The nodes on which these devices can be used: one, those of all selectors together, or (None) every node."""
    if any(pick.device.local for pick in picks):
        return {"nodeSelectorTerms": [{"matchFields": [{"key": NODE_NAME, "operator": "In", "values": [node]}]}]}
    expressions: list[Any] = []
    fields: list[Any] = []
    for pick in picks:
        selector: NodeSelector | None = pick.device.node_selector
        for term in selector.node_selector_terms if selector is not None else ():
            for rule in term.match_expressions:
                if rule not in expressions:
                    expressions.append(rule)
            for rule in term.match_fields:
                if rule not in fields:
                    fields.append(rule)
    if not expressions and not fields:
        return None
    term_body: dict[str, Any] = {}
    if expressions:
        term_body["matchExpressions"] = [plain_json(rule) for rule in expressions]
    if fields:
        term_body["matchFields"] = [plain_json(rule) for rule in fields]
    return {"nodeSelectorTerms": [term_body]}
