"""The writes that bind a pod, as kube-scheduler makes them: nominatedNodeName, per claim finalizer and status, binding.

On failure the caller removes its reservations again; an allocation stays, and the next attempt finds it.
Source: kubernetes pkg/scheduler/framework/plugins/dynamicresources (PreBind, Unreserve), defaultbinder, schedule_one.go
(bindingCycle: NominatedNodeNameForExpectation), 1.34 to 1.36.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from fairlead.api import names
from fairlead.kube import errors, timestamps
from fairlead.kube.client import Client, Patch
from fairlead.kube.limits import Clock
from fairlead.kube.resources import PODS, RESOURCE_CLAIMS, raw
from fairlead.sandbox.objects import (
    Obj,
    allocation_of,
    finalizers_of,
    is_reserved_for,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from fairlead.sandbox.release import NEWEST, Release
from fairlead.sandbox.scheduler import claims as dra

log = logging.getLogger(__name__)

ATTEMPTS: Final = 5  # of one claim, after conflicts
_CLAIMS: Final = raw(RESOURCE_CLAIMS)
_PODS: Final = raw(PODS)


class AllocatedElsewhere(Exception):  # noqa: N818
    """Another writer allocated the claim between the decision and the write."""


class Binder:
    def __init__(self, client: Client, *, wall: Clock, release: Release = NEWEST) -> None:
        self._client = client
        self._wall = wall
        self._nominates = release.has("nomination-for-expectation")
        self._dates = release.has("binding-conditions")

    async def nominate(self, pod: Obj, node: str) -> None:
        """`status.nominatedNodeName` before the work of PreBind, which 1.35 and later write for every pod with claims.

        A failure is logged only: the binding goes on, as upstream.
        """
        if not self._nominates:
            return
        body = {"metadata": {"uid": uid_of(pod)}, "status": {"nominatedNodeName": node}}
        try:
            await self._client.patch(
                _PODS, name_of(pod), body, namespace=namespace_of(pod), kind=Patch.STRATEGIC, subresource="status"
            )
        except errors.ApiError as error:
            log.info("pod %s: nominatedNodeName %s not written: %s", key_of(pod), node, error)

    async def pod(self, pod: Obj, node: str) -> None:
        metadata = {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self._client.request("POST", PODS.path(namespace_of(pod), name_of(pod), "binding"), body=body)

    async def claim(self, claim: Obj, pod: Obj, allocation: Obj | None) -> Obj:
        """Finalizer and status of one claim; after a conflict again, unless another writer allocated it.

        `allocation` None: the claim was allocated before and is only reserved. Returns it as written. Raises
        AllocatedElsewhere, ApiError.
        """
        for _ in range(ATTEMPTS):
            try:
                return await self._write_claim(claim, pod, allocation)
            except errors.Conflict as error:
                log.debug("claim %s: %s", key_of(claim), error)
                again = await self._client.get(_CLAIMS, name_of(claim), namespace_of(claim))
                if uid_of(again) != uid_of(claim):
                    raise AllocatedElsewhere(f"claim {key_of(claim)} was replaced") from error
                if allocation is not None and allocation_of(again) is not None:
                    raise AllocatedElsewhere(
                        f"claim {key_of(claim)} got allocated elsewhere in the meantime"
                    ) from error
                claim = again
        raise AllocatedElsewhere(f"claim {key_of(claim)} keeps changing; giving up for now")

    async def _write_claim(self, claim: Obj, pod: Obj, allocation: Obj | None) -> Obj:
        now = timestamps.seconds(self._wall()) if self._dates else None
        status = dra.bound(claim, pod, allocation=allocation, now=now)
        if status is None:
            return claim
        if allocation is not None and names.CLAIM_FINALIZER not in finalizers_of(claim):
            finalizers = [*finalizers_of(claim), names.CLAIM_FINALIZER]
            claim = await self._client.replace(
                _CLAIMS, {**claim, "metadata": {**claim["metadata"], "finalizers": finalizers}}
            )
        return await self._client.replace(_CLAIMS, {**claim, "status": status}, subresource="status")

    async def unreserve(self, pod: Obj, reserved: Sequence[Obj]) -> None:
        """Remove the reservation for the pod, whichever client made it; the allocation stays, and the next attempt finds it."""
        for claim in reserved:
            if not is_reserved_for(claim, pod):
                continue
            body = {
                "metadata": {"uid": uid_of(claim)},
                "status": {"reservedFor": [{"$patch": "delete", "uid": uid_of(pod)}]},
            }
            try:
                await self._client.patch(
                    _CLAIMS,
                    name_of(claim),
                    body,
                    namespace=namespace_of(claim),
                    kind=Patch.STRATEGIC,
                    subresource="status",
                )
            except errors.ApiError as error:
                log.info("claim %s: reservation for %s not removed: %s", key_of(claim), key_of(pod), error)
