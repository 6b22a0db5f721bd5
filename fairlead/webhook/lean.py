"""Pods and ResourceSlices as little as the webhook needs of them: what comes is let go as soon as it is decoded.

Exists so that a cluster of 100,000 devices and as many pods fits into a small process. Reads nothing by itself.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import msgspec

from fairlead.api import names
from fairlead.api.intent import IntentError, read_intent
from fairlead.kube.objects import Object, Struct
from fairlead.kube.resource import Device
from fairlead.kube.resources import PODS, RESOURCE_SLICES, Resource
from fairlead.webhook import devices
from fairlead.webhook.facts import Member


class _Phase(Struct, frozen=True, kw_only=True):
    phase: str = ""


class MemberPod(Object, frozen=True, kw_only=True):
    """As little of a pod as its gang needs."""

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
    gang = pod.metadata.annotations.get(names.GANG)
    over = pod.status.phase in {"Succeeded", "Failed"} or pod.metadata.deletion_timestamp is not None
    return () if gang is None or over else (f"{pod.metadata.namespace}/{gang}",)


def member_of(pod: MemberPod) -> Member:
    try:
        intent = read_intent(pod.metadata.annotations, pod.metadata.labels)
    except IntentError:
        return Member(name=pod.metadata.name)
    return Member(name=pod.metadata.name, size=intent.size, queue=intent.queue, topology=intent.topology)


def signature(pod: MemberPod) -> tuple[Any, ...]:
    member = member_of(pod)
    return (member.size, member.queue, member.topology)
