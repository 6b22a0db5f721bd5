"""The device taint eviction controller: deletes pods when a NoExecute taint of their device evicts them.

`evictions` is the rule, a pure function: claims, slices and pods in, deadlines out. A pod is evicted when a device of a
claim that it uses has a NoExecute taint that the allocation result does not tolerate; a toleration with
`tolerationSeconds` only delays it, counted from the taint's `timeAdded`. NoSchedule has no effect on allocated devices.
Source: kubernetes pkg/controller/devicetainteviction; resource.k8s.io/v1 DeviceToleration.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Raw, raw
from fairlead.kube.timestamps import parse, seconds
from fairlead.sandbox.node_fit import tolerates
from fairlead.sandbox.objects import (
    TERMINAL_PHASES,
    Obj,
    is_deleting,
    key_of,
    name_of,
    namespace_of,
    phase_of,
    reserved_for,
    results_of,
    spec_of,
    uid_of,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, order=True)
class Eviction:
    """Delete this pod at that time (unix seconds), because of this device."""

    at_s: float
    pod_uid: str
    device: str
    taint: str


Taints = Mapping[tuple[str, str, str], tuple[Mapping[str, Any], ...]]


def taints_of(slices: Iterable[Obj]) -> Taints:
    """(driver, pool, device) → its NoExecute taints, from the newest generation of each pool."""
    newest: dict[tuple[str, str], int] = {}
    all_slices = list(slices)
    for each in all_slices:
        pool = spec_of(each)["pool"]
        key = (spec_of(each)["driver"], pool["name"])
        newest[key] = max(newest.get(key, 0), int(pool.get("generation", 0)))
    found: dict[tuple[str, str, str], tuple[Mapping[str, Any], ...]] = {}
    for each in all_slices:
        spec = spec_of(each)
        driver, pool = spec["driver"], spec["pool"]
        if int(pool.get("generation", 0)) < newest[driver, pool["name"]]:
            continue
        for device in spec.get("devices") or ():
            severe = tuple(taint for taint in device.get("taints") or () if taint.get("effect") == "NoExecute")
            if severe:
                found[driver, pool["name"], device["name"]] = severe
    return found


def evictions(
    pods: Iterable[Obj], claims_of: Mapping[str, Iterable[Obj]], taints: Taints, *, now_s: float
) -> list[Eviction]:
    """One entry per pod to evict, earliest first. `claims_of` maps a pod's UID to the claims it uses."""
    found: list[Eviction] = []
    for pod in pods:
        if is_deleting(pod):
            continue
        due = [
            eviction
            for claim in claims_of.get(uid_of(pod), ())
            for result in results_of(claim)
            for eviction in _of_result(uid_of(pod), result, taints, now_s)
        ]
        if due:
            found.append(min(due))
    return sorted(found)


def _of_result(pod_uid: str, result: Mapping[str, Any], taints: Taints, now_s: float) -> Iterable[Eviction]:
    device = (result["driver"], result["pool"], result["device"])
    for taint in taints.get(device, ()):
        added_s = parse(taint["timeAdded"]) if taint.get("timeAdded") else now_s
        tolerated = [_tolerated_s(each) for each in result.get("tolerations") or () if tolerates(each, taint)]
        if any(seconds is None for seconds in tolerated):
            continue
        wait_s = max((seconds for seconds in tolerated if seconds is not None), default=0.0)
        yield Eviction(added_s + wait_s, pod_uid, "/".join(device), f"{taint['key']}={taint.get('value', '')}")


def _tolerated_s(toleration: Mapping[str, Any]) -> float | None:
    seconds = toleration.get("tolerationSeconds")
    return None if seconds is None else max(0.0, float(seconds))


# Changes come in bursts (a driver rewrites all slices of a pool): one pass per burst.
BATCH_S = 0.05


async def disrupt(client: Client, pod: Obj, reason: str, message: str, *, now_s: float, force: bool = False) -> None:
    """Say in a pod's status why it goes, and delete it; by force it has failed and is gone at once."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    status: Obj = {"conditions": [condition | {"lastTransitionTime": seconds(now_s)}]}
    if force and phase_of(pod) not in TERMINAL_PHASES:
        status["phase"] = "Failed"
    name, namespace, uid = name_of(pod), namespace_of(pod), uid_of(pod)
    body = {"metadata": {"uid": uid}, "status": status}
    try:
        await client.patch(raw(PODS), name, body, namespace=namespace, kind=Patch.STRATEGIC, subresource="status")
        await client.delete(raw(PODS), name, namespace, uid=uid, grace_period_s=0 if force else None)
    except (errors.NotFound, errors.Conflict):
        log.debug("pod %s: deleted or recreated meanwhile", key_of(pod))


class TaintEviction:
    """`run()` never returns; cancel it. `clock` gives unix seconds."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._clock = clock
        self._changed = asyncio.Event()
        self._pods = Informer(client, raw(PODS))
        self._claims = Informer(client, raw(RESOURCE_CLAIMS))
        self._slices = Informer(client, raw(RESOURCE_SLICES))
        for informer in (self._pods, self._claims, self._slices):
            informer.subscribe(self._note)

    def _note(self, _: Change[Raw]) -> None:
        self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in (self._pods, self._claims, self._slices):
                group.create_task(informer.run())
            for informer in (self._pods, self._claims, self._slices):
                await informer.synced.wait()
            while True:
                await self._wait(await self._evict_due())
                await asyncio.sleep(BATCH_S)

    async def _evict_due(self) -> float | None:
        """Evict the pods that are due; seconds until the next, None when there is none."""
        taints = taints_of(self._slices.all())
        if not taints:
            return None
        now_s = self._clock()
        users: dict[str, list[Raw]] = {}
        for claim in sorted(self._claims.all(), key=key_of):
            for consumer in reserved_for(claim):
                users.setdefault(str(consumer.get("uid")), []).append(claim)
        pods = {uid_of(pod): pod for pod in self._pods.all()}
        next_s: float | None = None
        for eviction in evictions(sorted(pods.values(), key=key_of), users, taints, now_s=now_s):
            if eviction.at_s > now_s:
                next_s = eviction.at_s - now_s
                break
            await self._evict(pods[eviction.pod_uid], eviction)
        return next_s

    async def _evict(self, pod: Raw, eviction: Eviction) -> None:
        message = f"Device Taint manager: deleting due to NoExecute taint {eviction.taint} on {eviction.device}"
        log.info("evicting pod %s: taint %s on %s", key_of(pod), eviction.taint, eviction.device)
        try:
            await disrupt(self._client, pod, "DeletionByDeviceTaintManager", message, now_s=self._clock())
        except errors.ApiError as error:
            log.warning("pod %s: %s; trying again", key_of(pod), error)
            self._changed.set()

    async def _wait(self, wait_s: float | None) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()
