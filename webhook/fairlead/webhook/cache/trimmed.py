"""Pods and ResourceSlices as little as the webhook needs of them: what comes is let go as soon as it is decoded.

Exists so that a cluster of 100,000 devices and as many pods fits into a small process: what is kept of them are the kinds of
devices and, by gang, the different things that members say. Reads nothing by itself.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.api import foreign
from fairlead.api.intent import IntentError, read_intent
from fairlead.kube.core import PodSchedulingGroup
from fairlead.kube.informer import Change
from fairlead.kube.objects import Object, Struct
from fairlead.kube.resource import Device
from fairlead.kube.resources import PODS, RESOURCE_SLICES, Resource
from fairlead.webhook.objects import device_models as devices
from fairlead.webhook.review.facts import Key, Member


class _Phase(Struct, frozen=True, kw_only=True):
    phase: str = ""


class _Spec(Struct, frozen=True, kw_only=True):
    scheduling_group: PodSchedulingGroup | None = None


class MemberPod(Object, frozen=True, kw_only=True):
    """As little of a pod as its gang needs."""

    spec: _Spec = _Spec()
    status: _Phase = _Phase()


class _Pool(Struct, frozen=True, kw_only=True):
    name: str = ""


class _Devices(Struct, frozen=True, kw_only=True):
    driver: str = ""
    node_name: str | None = None
    pool: _Pool = _Pool()
    devices: tuple[Device, ...] = ()


class ModelSlice(Object, frozen=True, kw_only=True):
    """As little of a ResourceSlice as its kinds of devices: what came is let go as soon as it is decoded."""

    spec: _Devices = _Devices()
    models: tuple[devices.Model, ...] = ()

    def __post_init__(self) -> None:
        found = devices.models(self.spec.driver, self.spec.node_name or self.spec.pool.name, self.spec.devices)
        msgspec.structs.force_setattr(self, "models", found)
        msgspec.structs.force_setattr(self, "spec", _Devices(driver=self.spec.driver))


SLICES: Resource[ModelSlice] = dataclasses.replace(RESOURCE_SLICES, type=ModelSlice)  # type: ignore[arg-type, assignment]
MEMBERS: Resource[MemberPod] = dataclasses.replace(PODS, type=MemberPod)  # type: ignore[arg-type, assignment]


def gangs_of(pod: MemberPod) -> Iterable[str]:
    gang = foreign.gang_name(pod.metadata.annotations, pod.metadata.labels, _pod_group(pod))
    over = pod.status.phase in {"Succeeded", "Failed"} or pod.metadata.deletion_timestamp is not None
    return () if gang is None or over else (f"{pod.metadata.namespace}/{gang}",)


def member_of(pod: MemberPod) -> Member:
    try:
        intent = read_intent(pod.metadata.annotations, pod.metadata.labels, _pod_group(pod))
    except IntentError:
        return Member(name=pod.metadata.name)
    return Member(name=pod.metadata.name, size=intent.size, queue=intent.queue, topology=intent.topology)


def _pod_group(pod: MemberPod) -> str | None:
    return pod.spec.scheduling_group.pod_group_name if pod.spec.scheduling_group is not None else None


def signature(pod: MemberPod) -> tuple[Any, ...]:
    member = member_of(pod)
    return (member.size, member.queue, member.topology)


class Members:
    """What the members of each gang say, kept by what they say: the thousandth of a gang costs no more than the second."""

    def __init__(self) -> None:
        self._said: dict[str, dict[tuple[Any, ...], dict[str, Member]]] = {}

    def of(self, gang: Key) -> tuple[Member, ...]:
        """Two for each thing that members say: one of them may be the pod under review itself."""
        said = self._said.get(f"{gang[0]}/{gang[1]}", {})
        return tuple(member for members in said.values() for member in itertools.islice(members.values(), 2))

    def changed(self, change: Change[MemberPod]) -> None:
        for pod in (change.old,) if change.old is not None else ():
            for gang in gangs_of(pod):
                said = self._said[gang]
                key = signature(pod)
                said[key].pop(pod.metadata.name, None)
                if not said[key]:
                    del said[key]
                if not said:
                    del self._said[gang]
        for pod in (change.new,) if change.new is not None else ():
            for gang in gangs_of(pod):
                members = self._said.setdefault(gang, {}).setdefault(signature(pod), {})
                members[pod.metadata.name] = member_of(pod)


class Models:
    """The kinds of devices that the slices list, each once."""

    def __init__(self) -> None:
        self._counts: collections.Counter[devices.Model] = collections.Counter()
        self._models: tuple[devices.Model, ...] | None = None

    def known(self) -> tuple[devices.Model, ...]:
        if self._models is None:
            self._counts = +self._counts
            self._models = tuple(self._counts)
        return self._models

    def changed(self, change: Change[ModelSlice]) -> None:
        before = () if change.old is None else change.old.models
        after = () if change.new is None else change.new.models
        if before != after:
            self._counts.update(after)
            self._counts.subtract(before)
            self._models = None
