"""One look at a cluster: the snapshot that the next decision of a leader would start from, without leading and without writing.

The caches are the controller's own, filled once; what a leader keeps in its memory alone (backoff after a failed write, admissions
under way) is not known. Every list is made with the rights of the client; one that is refused ends it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from fairlead.controller.background import background, first
from fairlead.controller.commit.writes import LeaseLostError
from fairlead.controller.options import ControllerOptions
from fairlead.controller.rehearsal import Rehearsal
from fairlead.controller.watch.caches import Caches
from fairlead.engine.snapshot import Snapshot
from fairlead.kube import errors
from fairlead.kube.client import Client
from fairlead.kube.limits import Clock
from fairlead.kube.listing import Listing
from fairlead.kube.resources import Resource
from fairlead.kube.watching import Bookmark, WatchEvent

T = TypeVar("T")
FILL_S = 120.0


class Unread(Exception):  # noqa: N818 - what happened, as the errors of kube are named
    """A list that the apiserver refused."""

    def __init__(self, resource: Resource[Any], error: errors.ApiError) -> None:
        super().__init__(f"{resource}: {error}")
        self.resource = resource
        self.error = error


class _Once:
    """A source whose lists are made once and whose watches never bring anything. The first error is kept."""

    def __init__(self, client: Client) -> None:
        self.refused: Unread | None = None
        self.ended = asyncio.Event()
        self._client = client

    async def list(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        labels: str | None = None,
        fields: str | None = None,
        each: Callable[[T], None] | None = None,
    ) -> Listing[T]:
        try:
            return await self._client.list(resource, namespace, labels=labels, fields=fields, each=each)
        except errors.ApiError as error:
            if not error.transient:
                self.refused = self.refused or Unread(resource, error)
                self.ended.set()
            raise

    async def watch(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        *,
        resource_version: str,
        labels: str | None = None,
        fields: str | None = None,
    ) -> AsyncIterator[WatchEvent[T] | Bookmark]:
        await asyncio.Event().wait()
        yield Bookmark(resource_version)


async def observe(client: Client, drivers: tuple[str, ...], *, wall: Clock = time.time) -> tuple[Snapshot, float]:
    """The snapshot, and its time. Raises Unread; TimeoutError when the apiserver does not answer."""
    source = _Once(client)
    caches = Caches(source, drivers, forecasts=False)
    await caches.discover(client)
    try:
        async with asyncio.timeout(FILL_S), background(*(each.run() for each in caches.all()), ignore=LeaseLostError):
            await first(caches.filled(), source.ended.wait(), ignore=LeaseLostError)
    except TimeoutError:
        raise TimeoutError(f"the apiserver did not answer all lists within {FILL_S:g} s; try again") from None
    if source.refused is not None:
        raise source.refused
    caches.refresh_all()
    caches.refresh()
    now = wall()
    rehearsal = Rehearsal(ControllerOptions(managed_drivers=drivers), client, caches)
    return rehearsal.snapshot(now), now
