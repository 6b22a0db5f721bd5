"""From the format to the engine's values, and a state that facts change: tables and tuples as the controller keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.api.bounds import NO_BOUNDS, Bound, Bounds
from fairlead.bounded.limits import fraction
from fairlead.engine.inventory.allocated import AllocatedClaim, AllocatedDevice
from fairlead.engine.inventory.nodes import NodeInfo
from fairlead.engine.inventory.notices import NodeNotice
from fairlead.engine.types.gangs import (
    ClaimRequest,
    GangRequest,
    IdleSpan,
    PendingMember,
    RefusedNode,
    RunningGang,
    RunningMember,
)
from fairlead.engine.types.hold import Hold
from fairlead.engine.types.neighbours import PodIdentity
from fairlead.engine.types.pod_needs import PodNeeds
from fairlead.engine.types.references import DeviceRef, PodRef
from fairlead.engine.types.settings import (
    Autoscaling,
    BudgetState,
    DisruptionBudget,
    FlavorQuota,
    FlavorSpec,
    IdlePolicy,
    NamespaceQuota,
    NodeTemplate,
    QueueSpec,
)
from fairlead.engine.types.workload import Demand, Workload

if TYPE_CHECKING:
    from typing import Any

    from fairlead.engine.types.amounts import Amount
    from fairlead.history.facts import form


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def amount(text: str) -> Amount:
    """Raises ValueError, ZeroDivisionError."""
    exact = fraction(text)
    return exact.numerator if exact.denominator == 1 else exact


def _optional(text: str | None) -> Amount | None:
    return None if text is None else amount(text)


def node(name: str, value: form.Node) -> NodeInfo:
    return NodeInfo(
        name=name,
        labels=value.labels,
        taints=value.taints,
        unschedulable=value.unschedulable,
        ready=value.ready,
        notice=None if value.notice is None else NodeNotice(**_fields(value.notice)),
        allocatable=dict(value.allocatable),
    )


def needs(value: form.Needs) -> PodNeeds:
    return PodNeeds(**_fields(value))


def identity(value: form.CountedPod) -> PodIdentity:
    return PodIdentity(namespace=value.namespace, labels=value.labels, leaving=value.leaving)


def pod(value: form.Pod) -> PodRef:
    return PodRef(value.namespace, value.name, value.uid)


def allocated_claim(uid: str, value: form.AllocatedClaim) -> AllocatedClaim:
    devices = tuple(
        AllocatedDevice(
            ref=DeviceRef(each.driver, each.pool, each.device),
            admin=each.admin,
            whole=each.whole,
            consumed=tuple((name, amount(text)) for name, text in each.consumed),
            tolerations=each.tolerations,
        )
        for each in value.devices
    )
    return AllocatedClaim(uid, value.namespace, value.name, devices, sum(not each.admin for each in devices))


def gang(value: form.Gang) -> GangRequest:
    known: dict[form.Needs, PodNeeds] = {}  # members of a gang are mostly alike

    def shared(wanted: form.Needs) -> PodNeeds:
        if wanted not in known:
            known[wanted] = needs(wanted)
        return known[wanted]

    members = tuple(
        PendingMember(**{**_fields(each), "pod": pod(each.pod), "needs": shared(each.needs)}) for each in value.members
    )
    claims = tuple(ClaimRequest(**_fields(each)) for each in value.claims)
    refused = tuple(RefusedNode(**_fields(each)) for each in value.refused)
    kept = tuple(DeviceRef(each.driver, each.pool, each.device) for each in value.kept)
    placed_claims = tuple((group, ClaimRequest(**_fields(each))) for group, each in value.placed_claims)
    parts = {
        "placed_claims": placed_claims,
        "members": members,
        "claims": claims,
        "refused": refused,
        "kept": kept,
        "hold": hold(value.hold),
    }
    return GangRequest(**{**_fields(value), **parts})


def hold(value: form.Hold | None) -> Hold | None:
    return None if value is None else Hold(**_fields(value))


def running_gang(value: form.RunningGang) -> RunningGang:
    members = tuple(RunningMember(**{**_fields(each), "pod": pod(each.pod)}) for each in value.members)
    idle = None if value.idle is None else IdleSpan(**_fields(value.idle))
    relocation = None if value.relocation is None else gang(value.relocation)
    return RunningGang(
        **{
            **_fields(value),
            "members": members,
            "bounds": bounds(value.bounds),
            "idle": idle,
            "relocation": relocation,
            "hold": hold(value.hold),
        }
    )


def bounds(value: form.Bounds) -> Bounds:
    known: dict[str, Any] = {
        name: Bound(each.seconds, each.source) for name, each in _fields(value).items() if each is not None
    }
    return Bounds(**known) if known else NO_BOUNDS


def queue(name: str, value: form.Queue) -> QueueSpec:
    quotas = tuple(
        FlavorQuota(
            flavor=each.flavor,
            deserved=amount(each.deserved),
            limit=_optional(each.limit),
            weight=each.weight,
            borrowing_limit=_optional(each.borrowing_limit),
            lending_limit=_optional(each.lending_limit),
        )
        for each in value.quotas
    )
    return QueueSpec(
        name=name,
        **{
            **_fields(value),
            "quotas": quotas,
            "bounds": bounds(value.bounds),
            "idle": None if value.idle is None else IdlePolicy(**_fields(value.idle)),
            "budget": None if value.budget is None else _budget_state(value.budget),
            "hold": hold(value.hold),
        },
    )


def _budget_state(value: form.SpendingBudget) -> BudgetState:
    return BudgetState(**{**_fields(value), "limit": amount(value.limit), "spent": _optional(value.spent)})


def flavor(name: str, value: form.Flavor) -> FlavorSpec:
    scaling = value.autoscaling
    read = None
    if scaling is not None:
        templates = tuple(NodeTemplate(**_fields(each)) for each in scaling.templates)
        read = Autoscaling(**{**_fields(scaling), "max": _optional(scaling.max), "templates": templates})
    return FlavorSpec(name=name, **{**_fields(value), "autoscaling": read})


def budget(value: form.Budget) -> DisruptionBudget:
    return DisruptionBudget(**_fields(value))


def quota(value: form.Quota) -> NamespaceQuota:
    return NamespaceQuota(**_fields(value))


def workload(value: tuple[form.Demand, ...] | None, mix: form.Mix) -> Workload | None:
    if value is None:
        return None
    return Workload(_demands(value), rare=_demands(mix.rare), pods=mix.pods, once=mix.once, cpu=mix.cpu)


def _demands(values: tuple[form.Demand, ...]) -> tuple[Demand, ...]:
    return tuple(Demand(each.spec, needs(each.needs), each.count) for each in values)
