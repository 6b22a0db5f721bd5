"""The device taint eviction controller: deletes pods when `evictions` says that a taint of their device evicts them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from fairlead.kube import errors
from fairlead.kube.client import Client, Patch
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Raw, raw
from fairlead.sandbox.controllers.evictions import Eviction, evictions, taints_of
from fairlead.sandbox.objects import key_of, name_of, namespace_of, reserved_for, uid_of

log = logging.getLogger(__name__)

# Changes come in bursts (a driver rewrites all slices of a pool): one pass per burst.
BATCH_S = 0.05


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
        condition: dict[str, Any] = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByDeviceTaintManager",
            "message": f"Device Taint manager: deleting due to NoExecute taint {eviction.taint} on {eviction.device}",
        }
        namespace, name = namespace_of(pod), name_of(pod)
        log.info("evicting pod %s/%s: taint %s on %s", namespace, name, eviction.taint, eviction.device)
        try:
            await self._client.patch(
                raw(PODS),
                name,
                {"status": {"conditions": [condition]}},
                namespace=namespace,
                kind=Patch.STRATEGIC,
                subresource="status",
            )
            await self._client.delete(PODS, name, namespace, uid=uid_of(pod))
        except (errors.NotFound, errors.Conflict):
            return
        except errors.ApiError as error:
            log.warning("pod %s/%s: %s; trying again", namespace, name, error)
            self._changed.set()

    async def _wait(self, wait_s: float | None) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()
