"""What the control loops have in common: workers that take keys from a queue.

A loop is its decision and its writes. As in kube-controller-manager, each writes under its own user. A key that fails is
tried again with growing delay; a loop never stops because of one object.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from typing import Generic, TypeVar

from fairlead.kube import errors
from fairlead.kube.limits import Backoff
from fairlead.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

RETRY = Backoff(base_s=0.05, max_s=5.0)

K = TypeVar("K", bound=Hashable)


class Loop(Generic[K]):
    """A queue of keys and the workers on it. Subclasses say what to do about one key."""

    name = "loop"
    workers = 4

    def __init__(self) -> None:
        self.queue: WorkQueue[K] = WorkQueue(backoff=RETRY)

    async def sync(self, key: K) -> None:
        """Reconcile one object. An exception puts the key back with a delay."""
        raise NotImplementedError

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self.workers):
                group.create_task(self._work(), name=f"{self.name} {number}")

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            try:
                await self.sync(key)
                self.queue.forget(key)
            except errors.ApiError as error:
                delay_s = self.queue.retry(key)
                level = logging.DEBUG if isinstance(error, errors.Conflict | errors.NotFound) else logging.INFO
                log.log(level, "%s: %s: %s; again in %.2f s", self.name, key, error, delay_s)
            except Exception:
                delay_s = self.queue.retry(key)
                log.exception("%s: %s; again in %.2f s", self.name, key, delay_s)
            finally:
                self.queue.done(key)
