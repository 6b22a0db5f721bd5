"""From the engine's values to the format: one function per kind, each a pure view of one frozen value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fairlead.engine.inventory.published import published_slice
from fairlead.history.facts import form

if TYPE_CHECKING:
    from fairlead.engine.inventory.allocated import AllocatedClaim, AllocatedDevice
    from fairlead.engine.inventory.nodes import NodeInfo
    from fairlead.engine.inventory.pool import SliceEntry
    from fairlead.engine.types.amounts import Amount
    from fairlead.engine.types.gangs import GangRequest, RunningGang
    from fairlead.engine.types.neighbours import PodIdentity
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.engine.types.settings import (
        Autoscaling,
        BudgetState,
        DisruptionBudget,
        FlavorQuota,
        FlavorSpec,
        NamespaceQuota,
        QueueSpec,
    )
    from fairlead.engine.types.workload import Demand, Workload
    from fairlead.kube import resource


K = TypeVar("K", bound=msgspec.Struct)


def slice_(entry: SliceEntry) -> resource.ResourceSliceSpec:
    return published_slice(entry)


def device_class(value: resource.DeviceClass) -> resource.DeviceClassSpec:
    return value.spec


def _as(kind: type[K], value: object) -> K:
    """All fields are the engine's by name."""
    return msgspec.convert(value, kind, from_attributes=True)


def _but(kind: type[K], value: object, **others: Any) -> K:
    """The fields are the engine's by name, but for `others`."""
    same = {name: getattr(value, name) for name in kind.__struct_fields__ if name not in others}
    return kind(**same, **others)


def node(info: NodeInfo) -> form.Node:
    notice = None if info.notice is None else _as(form.Notice, info.notice)
    return _but(form.Node, info, labels=dict(info.labels), notice=notice)


def needs(value: PodNeeds) -> form.Needs:
    return _as(form.Needs, value)


def counted_pod(where: str, value: PodNeeds, identity: PodIdentity) -> form.CountedPod:
    return _but(form.CountedPod, identity, node=where, needs=needs(value))


def allocated_claim(value: AllocatedClaim) -> form.AllocatedClaim:
    return _but(form.AllocatedClaim, value, devices=tuple(map(_allocated_device, value.devices)))


def _allocated_device(value: AllocatedDevice) -> form.AllocatedDevice:
    return form.AllocatedDevice(
        driver=value.ref.driver,
        pool=value.ref.pool,
        device=value.ref.device,
        admin=value.admin,
        whole=value.whole,
        consumed=tuple((name, str(amount)) for name, amount in value.consumed),
        tolerations=value.tolerations,
    )


def gang(value: GangRequest) -> form.Gang:
    return _as(form.Gang, value)


def running_gang(value: RunningGang) -> form.RunningGang:
    return _as(form.RunningGang, value)


def queue(value: QueueSpec) -> form.Queue:
    return _but(
        form.Queue,
        value,
        quotas=tuple(map(_flavor_quota, value.quotas)),
        bounds=_as(form.Bounds, value.bounds),
        past_usage=dict(value.past_usage),
        idle=None if value.idle is None else _as(form.IdlePolicy, value.idle),
        budget=None if value.budget is None else _spending_budget(value.budget),
        hold=None if value.hold is None else _as(form.Hold, value.hold),
    )


def _spending_budget(value: BudgetState) -> form.SpendingBudget:
    return _but(form.SpendingBudget, value, limit=str(value.limit), spent=_amount(value.spent))


def _flavor_quota(value: FlavorQuota) -> form.FlavorQuota:
    return _but(
        form.FlavorQuota,
        value,
        deserved=str(value.deserved),
        limit=_amount(value.limit),
        borrowing_limit=_amount(value.borrowing_limit),
        lending_limit=_amount(value.lending_limit),
    )


def _amount(value: Amount | None) -> str | None:
    return None if value is None else str(value)


def flavor(value: FlavorSpec) -> form.Flavor:
    return _but(form.Flavor, value, autoscaling=None if value.autoscaling is None else _autoscaling(value.autoscaling))


def _autoscaling(value: Autoscaling) -> form.Autoscaling:
    templates = tuple(_as(form.NodeTemplate, each) for each in value.templates)
    return _but(form.Autoscaling, value, max=_amount(value.max), templates=templates)


def budget(value: DisruptionBudget) -> form.Budget:
    return _as(form.Budget, value)


def quota(value: NamespaceQuota) -> form.Quota:
    return _as(form.Quota, value)


def workload(value: Workload | None) -> tuple[form.Demand, ...] | None:
    return None if value is None else _demands(value.demands)


def mix(value: Workload | None) -> form.Mix:
    return form.Mix() if value is None else _as(form.Mix, value)


def _demands(values: tuple[Demand, ...]) -> tuple[form.Demand, ...]:
    return tuple(_as(form.Demand, each) for each in values)
