"""The resource quota controller: counts what a namespace's pods and claims use, and writes it into its quotas' status.

Admission adds what is created; this loop takes over new limits, and counts again when something that counts is deleted or a pod
has ended, and every five minutes. `quota_status` is the rule, a pure function; the class writes it.
Source: kubernetes pkg/controller/resourcequota, pkg/quota/v1/install/update_filter.go (1.36.2).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.informer import Change
from fairlead.kube.limits import Clock
from fairlead.kube.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_QUOTAS, Raw
from fairlead.sandbox import quota_usage
from fairlead.sandbox.controllers.loop import Loop
from fairlead.sandbox.informers import Informers
from fairlead.sandbox.objects import TERMINAL_PHASES, Obj, key_of, namespace_of, phase_of, spec_of, status_of
from fairlead.sandbox.quota_usage import CLAIMS, Extended

RESYNC_S: Final = 300.0


def quota_status(quota: Obj, objects: Mapping[str, Iterable[Obj]], extended: Extended, *, now_s: float) -> Obj:
    """The status of a quota, given all pods and claims of its namespace, by resource."""
    hard = dict(spec_of(quota).get("hard") or {})
    used = dict.fromkeys(hard, 0)
    for resource, found in objects.items():
        names = [name for name in hard if quota_usage.concerns(name, resource, extended)]
        for obj in found if names else ():
            if not quota_usage.selects(quota, resource, obj):
                continue
            amounts = quota_usage.usage(resource, obj, extended, now_s=now_s)
            for name in names:
                used[name] += amounts.get(name, 0)
    return {"hard": hard, "used": {name: quota_usage.shown(name, value) for name, value in used.items()}}


class QuotaController(Loop[str]):
    name = "resource quota controller"
    workers = 2

    def __init__(self, client: Client, informers: Informers, *, wall: Clock = time.time) -> None:
        super().__init__()
        self._client = client
        self._wall = wall
        self._quotas = informers.of(RESOURCE_QUOTAS)
        self._classes = informers.of(DEVICE_CLASSES)
        self._objects = {quota_usage.PODS: informers.of(PODS), CLAIMS: informers.of(RESOURCE_CLAIMS)}
        self._quotas.subscribe(self._quota_changed)
        for informer in self._objects.values():
            informer.subscribe(self._object_changed)

    def _quota_changed(self, change: Change[Raw]) -> None:
        if change.new is not None and (change.old is None or spec_of(change.old) != spec_of(change.new)):
            self.queue.add(change.key)

    def _object_changed(self, change: Change[Raw]) -> None:
        old, new = change.old, change.new
        if new is None or (old is not None and phase_of(new) in TERMINAL_PHASES and phase_of(new) != phase_of(old)):
            self._replenish(namespace_of(change.object))

    def _replenish(self, namespace: str) -> None:
        for quota in self._quotas.all():
            if namespace_of(quota) == namespace:
                self.queue.add(key_of(quota))

    async def sync(self, key: str) -> None:
        quota = self._quotas.get(key)
        if quota is None:
            return
        self.queue.add_after(key, RESYNC_S)
        objects = {
            resource: [each for each in informer.all() if namespace_of(each) == namespace_of(quota)]
            for resource, informer in self._objects.items()
        }
        extended = quota_usage.extended_resources(list(self._classes.all()))
        status = quota_status(quota, objects, extended, now_s=self._wall())
        if status == status_of(quota):
            return
        try:
            body = {**quota, "status": status}
            self._quotas.note(await self._client.replace(RESOURCE_QUOTAS, body, subresource="status"))
        except errors.NotFound:
            return
