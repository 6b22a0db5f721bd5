"""From the engine's values to the format: one function per kind, each a pure view of one frozen value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlead.engine.inventory.published import published_slice
from fairlead.history.facts import form

if TYPE_CHECKING:
    from fairlead.api.bounds import Bound, Bounds
    from fairlead.engine.inventory.allocated import AllocatedClaim, AllocatedDevice
    from fairlead.engine.inventory.nodes import NodeInfo
    from fairlead.engine.inventory.pool import SliceEntry
    from fairlead.engine.types.amounts import Amount
    from fairlead.engine.types.gangs import GangRequest, RunningGang
    from fairlead.engine.types.neighbours import PodIdentity
    from fairlead.engine.types.pod_needs import PodNeeds
    from fairlead.engine.types.settings import (
        BudgetState,
        DisruptionBudget,
        FlavorQuota,
        FlavorSpec,
        NamespaceQuota,
        QueueSpec,
    )
    from fairlead.engine.types.workload import Demand, Workload
    from fairlead.kube import resource


def slice_(entry: SliceEntry) -> resource.ResourceSliceSpec:
    return published_slice(entry)


def device_class(value: resource.DeviceClass) -> resource.DeviceClassSpec:
    return value.spec


def node(info: NodeInfo) -> form.Node:
    return form.Node(
        labels=dict(info.labels),
        taints=info.taints,
        unschedulable=info.unschedulable,
        ready=info.ready,
        notice=None if info.notice is None else msgspec.convert(info.notice, form.Notice, from_attributes=True),
        allocatable=info.allocatable,
    )


def needs(value: PodNeeds) -> form.Needs:
    return form.Needs(
        requests=value.requests,
        node_selector=value.node_selector,
        affinity=value.affinity,
        preferred=value.preferred,
        tolerations=value.tolerations,
        ports=value.ports,
        volumes=value.volumes,
        neighbours=value.neighbours,
    )


def counted_pod(where: str, value: PodNeeds, identity: PodIdentity) -> form.CountedPod:
    return form.CountedPod(
        node=where,
        needs=needs(value),
        namespace=identity.namespace,
        labels=identity.labels,
        leaving=identity.leaving,
    )


def allocated_claim(value: AllocatedClaim) -> form.AllocatedClaim:
    return form.AllocatedClaim(
        namespace=value.namespace, name=value.name, devices=tuple(map(_allocated_device, value.devices))
    )


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
    """The fields are the engine's by name."""
    return msgspec.convert(value, form.Gang, from_attributes=True)


def running_gang(value: RunningGang) -> form.RunningGang:
    return msgspec.convert(value, form.RunningGang, from_attributes=True)


def queue(value: QueueSpec) -> form.Queue:
    return form.Queue(
        uid=value.uid,
        parent=value.parent,
        quotas=tuple(map(_flavor_quota, value.quotas)),
        priority=value.priority,
        strategy=value.strategy,
        ordering=value.ordering,
        namespace_selector=value.namespace_selector,
        preemption=value.preemption,
        min_runtime_s=value.min_runtime_s,
        evictions_left=value.evictions_left,
        bounds=_bounds(value.bounds),
        respects_budgets=value.respects_budgets,
        past_usage=dict(value.past_usage),
        quotas_change_at=value.quotas_change_at,
        idle=None if value.idle is None else msgspec.convert(value.idle, form.IdlePolicy, from_attributes=True),
        budget=None if value.budget is None else _spending_budget(value.budget),
        models=value.models,
        movable=value.movable,
        hold=None if value.hold is None else msgspec.convert(value.hold, form.Hold, from_attributes=True),
    )


def _spending_budget(value: BudgetState) -> form.SpendingBudget:
    return form.SpendingBudget(
        on_exhausted=value.on_exhausted,
        limit=str(value.limit),
        spent=None if value.spent is None else str(value.spent),
        renews_at=value.renews_at,
        exhausts_at=value.exhausts_at,
    )


def _flavor_quota(value: FlavorQuota) -> form.FlavorQuota:
    return form.FlavorQuota(
        flavor=value.flavor,
        deserved=str(value.deserved),
        limit=_amount(value.limit),
        weight=value.weight,
        borrowing_limit=_amount(value.borrowing_limit),
        lending_limit=_amount(value.lending_limit),
    )


def _amount(value: Amount | None) -> str | None:
    return None if value is None else str(value)


def _bounds(value: Bounds) -> form.Bounds:
    return form.Bounds(
        min_runtime=_bound(value.min_runtime),
        checkpoint_grace=_bound(value.checkpoint_grace),
        termination_grace=_bound(value.termination_grace),
    )


def _bound(value: Bound | None) -> form.Bound | None:
    return None if value is None else form.Bound(seconds=value.seconds, source=value.source)


def flavor(value: FlavorSpec) -> form.Flavor:
    scaling = value.autoscaling
    return form.Flavor(
        device_selector=value.device_selector,
        measure=value.measure,
        capacity_name=value.capacity_name,
        autoscaling=None
        if scaling is None
        else form.Autoscaling(
            mode=scaling.mode,
            max=_amount(scaling.max),
            patience_s=scaling.patience_s,
            wait_s=scaling.wait_s,
            device_classes=scaling.device_classes,
            node_selector=scaling.node_selector,
            templates=tuple(
                msgspec.convert(each, form.NodeTemplate, from_attributes=True) for each in scaling.templates
            ),
        ),
    )


def budget(value: DisruptionBudget) -> form.Budget:
    return form.Budget(namespace=value.namespace, name=value.name, allowed=value.allowed)


def quota(value: NamespaceQuota) -> form.Quota:
    return form.Quota(
        namespace=value.namespace, name=value.name, resource=value.resource, limit=value.limit, used=value.used
    )


def workload(value: Workload | None) -> tuple[form.Demand, ...] | None:
    if value is None:
        return None
    return _demands(value.demands)


def mix(value: Workload | None) -> form.Mix:
    if value is None:
        return form.Mix()
    return form.Mix(rare=_demands(value.rare), pods=value.pods, once=value.once, cpu=value.cpu)


def _demands(values: tuple[Demand, ...]) -> tuple[form.Demand, ...]:
    return tuple(form.Demand(spec=each.spec, needs=needs(each.needs), count=each.count) for each in values)
