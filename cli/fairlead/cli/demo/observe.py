"""Watches a cluster and records it in a `History`.

Uses informers, so a closed watch or an expired resourceVersion loses nothing that the checks need; but a claim that is
allocated and released between two lists is not seen. Writes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from fairlead.cli.demo.history import History
from fairlead.kube.client import Client
from fairlead.kube.informer import Change, Informer
from fairlead.kube.resource import ResourceSlice
from fairlead.kube.resources import GANGS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, raw


class Observer:
    """A `History` that follows a cluster, and the devices that its slices publish."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.history = History()
        self._clock = clock
        self._changed = asyncio.Event()
        self._pods = Informer(client, raw(PODS))
        self._claims = Informer(client, raw(RESOURCE_CLAIMS))
        self._gangs = Informer(client, raw(GANGS))
        self._slices = Informer(client, RESOURCE_SLICES)
        self._pods.subscribe(self._on_pod)
        self._claims.subscribe(self._on_claim)
        self._gangs.subscribe(self._on_gang)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Observer]:
        """Follow the cluster for the length of the block."""
        informers = (self._pods, self._claims, self._gangs, self._slices)
        async with contextlib.AsyncExitStack() as stack:
            tasks = [asyncio.create_task(informer.run()) for informer in informers]
            stack.push_async_callback(_cancel, tasks)
            await asyncio.gather(*(informer.synced.wait() for informer in informers))
            yield self

    async def until(self, condition: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until `condition()` holds, checked at each change; False when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        return condition()

    def now_s(self) -> float:
        return self._clock()

    def slices(self) -> list[ResourceSlice]:
        return sorted(self._slices.all(), key=lambda item: item.metadata.name)

    def attributes(self, pool: str, device: str) -> dict[str, object]:
        """A published device's attributes by bare name; empty if no slice has it."""
        for item in self._slices.all():
            if item.spec.pool.name == pool:
                for found in item.spec.devices:
                    if found.name == device:
                        return {name.rpartition("/")[2]: value.value for name, value in found.attributes.items()}
        return {}

    def _on_pod(self, change: Change[dict[str, Any]]) -> None:
        if change.new is not None:
            self.history.pod(change.new, now_s=self._clock())
        self._changed.set()

    def _on_claim(self, change: Change[dict[str, Any]]) -> None:
        final = change.new if change.new is not None else change.old
        if final is not None:
            self.history.claim(final, deleted=change.new is None)
        self._changed.set()

    def _on_gang(self, change: Change[dict[str, Any]]) -> None:
        if change.new is not None:
            self.history.gang(change.new, now_s=self.now_s())
        self._changed.set()


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
