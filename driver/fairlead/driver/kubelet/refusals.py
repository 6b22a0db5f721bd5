"""Writes into a claim's status why it is not prepared, and takes that back when it is.

kubelet says it in an Event on the pod only; the controller reads claims, and tells the gang. Server-side apply with a field manager
of its own, so that what others write of the device stays. Keeps: kubelet's answer waits for no write; a claim that is refused again
for the same reason is not written again; what cannot be written is one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from fairlead.driver.prepare.claim_consumers import Fetch
from fairlead.kube import errors, prepare_refusals
from fairlead.kube.client import Client, Patch
from fairlead.kube.limits import Clock
from fairlead.kube.resources import RESOURCE_CLAIMS, raw

log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "fairlead-driver-prepare"
KNOWN_MAX = 1024
Key = tuple[str, str, str]
"""Namespace, name, UID."""


class Refusals:
    """`note` says what became of a prepare, `run` writes it. `fetch` reads a claim; `pool` is the node's."""

    def __init__(self, client: Client, *, fetch: Fetch, pool: str, wall: Clock = time.time) -> None:
        self._client = client
        self._fetch = fetch
        self._pool = pool
        self._wall = wall
        self._refused: dict[Key, str] = {}  # as it is written, or will be
        self._due: dict[Key, str] = {}
        self._wake = asyncio.Event()

    def note(self, key: Key, problem: str | None) -> None:
        """The claim is refused because of `problem`; None: it is prepared."""
        if self._refused.get(key) == problem:
            return
        if problem is None:
            del self._refused[key]
        else:
            if len(self._refused) >= KNOWN_MAX:
                self._refused.clear()
            self._refused[key] = problem
        self._due[key] = problem or ""
        self._wake.set()

    async def run(self) -> None:
        """Never returns."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._due:
                key = next(iter(self._due))
                await self._write(key, self._due.pop(key))

    async def _write(self, key: Key, problem: str) -> None:
        namespace, name, uid = key
        try:
            devices: list[Mapping[str, Any]] = []
            if problem:
                claim = await self._fetch(namespace, name)
                if claim.metadata.uid != uid:
                    return
                said = prepare_refusals.conditions(problem, self._wall())
                devices = prepare_refusals.entries(claim, conditions=said, pool=self._pool)
            body = {"metadata": {"name": name, "namespace": namespace, "uid": uid}, "status": {"devices": devices}}
            await self._client.patch(
                raw(RESOURCE_CLAIMS),
                name,
                body,
                namespace=namespace,
                kind=Patch.APPLY,
                subresource="status",
                field_manager=FIELD_MANAGER,
                force=True,
            )
        except (errors.NotFound, errors.Conflict):
            pass  # gone, or another of its name
        except errors.ApiError as error:
            log.warning(
                "ResourceClaim %s/%s: why it is not prepared is not written into it: %s", namespace, name, error
            )
        except Exception:  # nothing of this may end the driver
            log.exception("ResourceClaim %s/%s: why it is not prepared is not written into it", namespace, name)
