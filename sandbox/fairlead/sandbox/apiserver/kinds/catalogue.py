"""Every built-in kind that the apiserver serves: kinds.yaml, with the rules and the table of those that have some of their own."""

from __future__ import annotations

from functools import cache

import msgspec

from fairlead.sandbox.apiserver import names
from fairlead.sandbox.apiserver.crds.strategy import CrdStrategy
from fairlead.sandbox.apiserver.kinds import coregroup, registrations, small, workloads
from fairlead.sandbox.apiserver.kinds.base import READ_WRITE, SUBRESOURCE_VERBS, Kind, Subresource
from fairlead.sandbox.apiserver.kinds.builtin import BuiltIn
from fairlead.sandbox.apiserver.kinds.pods import PodStrategy
from fairlead.sandbox.apiserver.kinds.resource.claims import ResourceClaimStrategy, ResourceClaimTemplateStrategy
from fairlead.sandbox.apiserver.kinds.resource.slices import DeviceClassStrategy, ResourceSliceStrategy
from fairlead.sandbox.apiserver.tables import table_of
from fairlead.sandbox.files import table
from fairlead.sandbox.release import NEWEST, Release

STRATEGIES: dict[str, type[BuiltIn]] = {
    "V1Namespace": coregroup.NamespaceStrategy,
    "V1Pod": PodStrategy,
    "V1Node": coregroup.NodeStrategy,
    "V1ConfigMap": coregroup.ConfigMapStrategy,
    "V1Secret": coregroup.SecretStrategy,
    "V1Service": coregroup.ServiceStrategy,
    "CoreV1Event": coregroup.CoreEventStrategy,
    "EventsV1Event": coregroup.NewEventStrategy,
    "V1ResourceQuota": small.ResourceQuotaStrategy,
    "V1DaemonSet": workloads.WorkloadStrategy,
    "V1Deployment": workloads.WorkloadStrategy,
    "V1ReplicaSet": workloads.WorkloadStrategy,
    "V1StatefulSet": workloads.WorkloadStrategy,
    "V1CronJob": workloads.CronJobStrategy,
    "V1Job": workloads.JobStrategy,
    "V1NetworkPolicy": small.NetworkPolicyStrategy,
    "V1PodDisruptionBudget": small.PodDisruptionBudgetStrategy,
    "V1ClusterRoleBinding": small.RoleBindingStrategy,
    "V1ClusterRole": small.RoleStrategy,
    "V1RoleBinding": small.RoleBindingStrategy,
    "V1Role": small.RoleStrategy,
    "V1StorageClass": small.StorageClassStrategy,
    "V1MutatingAdmissionPolicy": registrations.UnsupportedPolicyStrategy,
    "V1MutatingAdmissionPolicyBinding": registrations.UnsupportedPolicyStrategy,
    "V1MutatingWebhookConfiguration": registrations.WebhooksStrategy,
    "V1ValidatingAdmissionPolicy": registrations.PolicyStrategy,
    "V1ValidatingAdmissionPolicyBinding": registrations.PolicyBindingStrategy,
    "V1ValidatingWebhookConfiguration": registrations.WebhooksStrategy,
    "V1CustomResourceDefinition": CrdStrategy,
    "V1PriorityClass": small.PriorityClassStrategy,
    "V1Lease": small.LeaseStrategy,
    "V1DeviceClass": DeviceClassStrategy,
    "ResourceV1ResourceClaim": ResourceClaimStrategy,
    "V1ResourceClaimTemplate": ResourceClaimTemplateStrategy,
    "V1ResourceSlice": ResourceSliceStrategy,
}
"""By the kind's class in kubernetes.client; others have a shape and no rules."""

_NAMES = {
    "subdomain": names.subdomain_complaints,
    "label": names.label_complaints,
    "label-1035": names.label_1035_complaints,
    "path-segment": names.path_segment_complaints,
}


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind as kinds.yaml has it; lists are words separated by blanks."""

    kind: str
    model: str = ""
    cluster: bool = False
    short: str = ""
    categories: str = ""
    singular: str = ""
    list_kind: str = ""
    only: str = ""
    but: str = ""
    subresources: str = ""
    storage: str = ""
    stored: str = ""
    needs: str = ""
    fields: str = ""
    names: str = "subdomain"
    rules: dict[str, bool] = {}


class _Sub(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    verbs: str = ""
    kind: str = ""
    group: str = ""
    version: str = ""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    subresources: dict[str, _Sub]
    kinds: dict[str, dict[str, _Row]]


@cache
def _table() -> _Table:
    return msgspec.convert(table(__file__, "kinds.yaml"), _Table)


def kinds(release: Release = NEWEST) -> list[Kind]:
    """Fresh kinds for one apiserver of that release: strategies hold no state but caches of schemas."""
    return [
        _kind(group, plural, row, release)
        for group, rows in _table().kinds.items()
        for plural, row in rows.items()
        if not row.needs or release.has(row.needs)
    ]


def _kind(group: str, plural: str, row: _Row, release: Release) -> Kind:
    model = row.model or f"V1{row.kind}"
    strategy = STRATEGIES.get(model, BuiltIn)()
    strategy.model, strategy.kind, strategy.release = model, row.kind, release
    strategy.table = table_of(model)
    strategy.fields, strategy.name_check = tuple(row.fields.split()), _NAMES[row.names]
    for rule, holds in row.rules.items():
        setattr(strategy, rule, holds)
    return Kind(
        group,
        "v1",
        plural,
        row.kind,
        not row.cluster,
        strategy,
        singular=row.singular,
        list_kind=row.list_kind,
        short_names=tuple(row.short.split()),
        categories=tuple(row.categories.split()),
        verbs=tuple(row.only.split()) or tuple(verb for verb in READ_WRITE if verb != row.but),
        subresources=tuple(_subresource(name, row.kind) for name in row.subresources.split()),
        storage=row.storage,
        storage_version=_stored_version(group, plural, row, release),
    )


def _subresource(name: str, kind: str) -> Subresource:
    sub = _table().subresources[name]
    verbs = tuple(sub.verbs.split()) or SUBRESOURCE_VERBS
    return Subresource(name, verbs, sub.kind.replace("*", kind), sub.group, sub.version)


def _stored_version(group: str, plural: str, row: _Row, release: Release) -> str:
    """The version in which the release stores the kind."""
    if group == "resource.k8s.io" and not release.has("claims-stored-as-v1"):
        return "v1beta2"
    if plural == "volumeattributesclasses" and not release.has("volume-attributes-stored-as-v1"):
        return "v1beta1"
    return row.stored
