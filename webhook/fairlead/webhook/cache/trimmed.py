"""Trimmed objects: of pods and ResourceSlices the informer cache keeps only what the webhook reads, from decoding on.

So a cluster of 100,000 devices and as many pods fits into a small process: of slices the device models are kept, of pods, by gang,
the distinct settings of its members.
"""

import collections
import dataclasses
import itertools

import msgspec

from fairlead.api import foreign
from fairlead.api.derived import Source, workload_of
from fairlead.api.intent import IntentError, read_intent
from fairlead.kube import resources
from fairlead.kube.core import PodSchedulingGroup
from fairlead.kube.informer import Change
from fairlead.kube.objects import Object, Struct
from fairlead.kube.resource import Device
from fairlead.webhook.objects.device_models import DeviceModel, device_models
from fairlead.webhook.review.facts import GangMember, Key


class _Phase(Struct, frozen=True, kw_only=True):
    phase: str = ""


class _Spec(Struct, frozen=True, kw_only=True):
    scheduling_group: PodSchedulingGroup | None = None


class TrimmedPod(Object, frozen=True, kw_only=True):
    """The fields of a pod that say which gang it is a member of."""

    spec: _Spec = _Spec()
    status: _Phase = _Phase()


class _Pool(Struct, frozen=True, kw_only=True):
    name: str = ""


class _Devices(Struct, frozen=True, kw_only=True):
    driver: str = ""
    node_name: str | None = None
    pool: _Pool = _Pool()
    devices: tuple[Device, ...] = ()


class TrimmedSlice(Object, frozen=True, kw_only=True):
    """The device models of a ResourceSlice; its devices are dropped as soon as it is decoded."""

    spec: _Devices = _Devices()
    models: tuple[DeviceModel, ...] = ()

    def __post_init__(self) -> None:
        found = device_models(self.spec.driver, self.spec.node_name or self.spec.pool.name, self.spec.devices)
        msgspec.structs.force_setattr(self, "models", found)
        msgspec.structs.force_setattr(self, "spec", _Devices(driver=self.spec.driver, node_name=self.spec.node_name))


SLICES: resources.Resource[TrimmedSlice] = dataclasses.replace(resources.RESOURCE_SLICES, type=TrimmedSlice)  # type: ignore[arg-type, assignment]
PODS: resources.Resource[TrimmedPod] = dataclasses.replace(resources.PODS, type=TrimmedPod)  # type: ignore[arg-type, assignment]


def _gang(pod: TrimmedPod) -> str | None:
    """The pod's gang as `namespace/name`; None where it names none or the pod has ended."""
    gang = foreign.gang_name(pod.metadata.annotations, pod.metadata.labels, _pod_group(pod))
    return None if gang is None or _has_ended(pod) else f"{pod.metadata.namespace}/{gang}"


def _has_ended(pod: TrimmedPod) -> bool:
    return pod.status.phase in {"Succeeded", "Failed"} or pod.metadata.deletion_timestamp is not None


def _says_the_same(old: TrimmedPod, new: TrimmedPod) -> bool:
    """Whether both are the same member of the same gang, or both of none: so it is in most changes, which are of a pod's status."""
    was, now = old.metadata, new.metadata
    return (
        was.annotations == now.annotations
        and was.labels == now.labels
        and was.owner_references == now.owner_references
        and old.spec == new.spec
        and _has_ended(old) == _has_ended(new)
    )


_SAID = tuple(field.name for field in dataclasses.fields(GangMember) if field.name not in {"name", "workload"})


def _member(pod: TrimmedPod) -> GangMember:
    try:
        intent = read_intent(pod.metadata.annotations, pod.metadata.labels, _pod_group(pod))
    except IntentError:
        return GangMember(name=pod.metadata.name)
    said = {field: getattr(intent, field) for field in _SAID}
    workload = workload_of(pod.metadata.annotations, pod.metadata.labels, _owner(pod))
    return GangMember(name=pod.metadata.name, workload=workload, **said)


def _owner(pod: TrimmedPod) -> Source | None:
    owner = pod.metadata.controller
    return None if owner is None else (owner.kind, owner.name)


def _pod_group(pod: TrimmedPod) -> str | None:
    return pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group is not None else None


def _settings(member: GangMember) -> GangMember:
    """What it says, whoever it is."""
    return dataclasses.replace(member, name="")


class GangMemberIndex:
    """The members of each gang by their settings: a review of a gang's thousandth pod costs no more than of its second."""

    def __init__(self) -> None:
        self._gangs: dict[str, dict[GangMember, dict[str, GangMember]]] = {}

    def members(self, gang: Key) -> tuple[GangMember, ...]:
        """Two for each distinct setting, since one of them may be the pod under review itself."""
        by_settings = self._gangs.get(f"{gang[0]}/{gang[1]}", {})
        return tuple(member for members in by_settings.values() for member in itertools.islice(members.values(), 2))

    def update(self, change: Change[TrimmedPod]) -> None:
        if change.old is not None and change.new is not None and _says_the_same(change.old, change.new):
            return
        if change.old is not None and (gang := _gang(change.old)) is not None:
            by_settings, settings = self._gangs[gang], _settings(_member(change.old))
            by_settings[settings].pop(change.old.metadata.name, None)
            if not by_settings[settings]:
                del by_settings[settings]
            if not by_settings:
                del self._gangs[gang]
        if change.new is not None and (gang := _gang(change.new)) is not None:
            member = _member(change.new)
            self._gangs.setdefault(gang, {}).setdefault(_settings(member), {})[member.name] = member


NODE_MODELS_MAX = 64
"""A GPU cut into MIG devices of every profile is of eight models. A node of more counts for none: each review looks at every model."""


class DeviceModelIndex:
    """The device models of all slices, each once; without those of nodes that publish more than a node has."""

    def __init__(self) -> None:
        self._by_node: dict[str, collections.Counter[DeviceModel]] = {}
        self._counts: collections.Counter[DeviceModel] = collections.Counter()  # nodes
        self._models: tuple[DeviceModel, ...] | None = None

    def models(self) -> tuple[DeviceModel, ...]:
        if self._models is None:
            self._counts = +self._counts
            self._models = tuple(self._counts)
        return self._models

    def update(self, change: Change[TrimmedSlice]) -> None:
        before = () if change.old is None else change.old.models
        after = () if change.new is None else change.new.models
        if before == after:
            return
        node = change.object.spec.node_name or ""
        known = self._by_node.setdefault(node, collections.Counter())
        counted = self._counted(node)
        known.update(after)
        known.subtract(before)
        for model in {*before, *after}:
            if not known[model]:
                del known[model]
        now = self._counted(node)
        if not known:
            del self._by_node[node]
        if counted != now:
            self._counts.update(now - counted)
            self._counts.subtract(counted - now)
            self._models = None

    def _counted(self, node: str) -> frozenset[DeviceModel]:
        """The models of the node that count; those of no single node all do."""
        known = self._by_node[node]
        return frozenset(known) if not node or len(known) <= NODE_MODELS_MAX else frozenset()
