"""Before a new leader's first decision: its caches are made current, and what the last leader may still send is made void.

1. Every cache is as new as the acquisition of the lease. The last leader wrote until a moment before, and a watch lags. A
   small resource, or one whose watch is broken, is listed again: lists are consistent. Of claims and pods that are too many
   for that a marker is written: one object of that resource. Changes come in order, so when the watch shows the
   marker's, it has shown all before it. (A resourceVersion from a list is of no use for that: it is the revision of the
   whole cluster, which a watch of a quiet resource reaches only with its next bookmark, up to a minute later.) Other
   large resources are read only, or their writes tell stale reads by themselves: they lag as they do for any leader.
2. A write that the last leader sent before it lost the lease may arrive at any time. It names the resourceVersion that it was
   decided on, so any write to the object makes it fail. Allocations are sent only for claims that have the finalizer
   (`claim_writes`), and taken back only from pods that are gated. So the claims to write are those with the finalizer that
   are unallocated, or reserved for a gated pod: the gangs that were being written, not those that wait. A pod's release
   comes after the allocation of all its gang's claims; `recovery` finds these, and holds the pod back or releases it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from fairlead.api import names
from fairlead.controller.commit.writes import Writes, all_done
from fairlead.controller.gangs.claims import claims
from fairlead.controller.watch.optional import OptionalInformer
from fairlead.kube import core, errors, resource, resources, timestamps
from fairlead.kube.client import Patch
from fairlead.kube.informer import Informer

log = logging.getLogger(__name__)

RELIST_MAX = 500  # objects that are listed again rather than waited for: one page
MARKER_S = 5.0  # after which a watch that does not show its marker is given up, and the resource listed
MARKED_PODS_MAX = 20  # tried before pods are listed
MARKER = "fairlead-controller"  # the claim, in Fairlead's namespace, that asks for nothing

Mark = Callable[[], Awaitable[str | None]]


class Takeover(Writes):
    async def run(self) -> None:
        """Returns when the first decision may be made."""
        caches, began = self._caches, self._clock()
        warm = [each for each in caches.all() if each.synced.is_set()]  # the others list only from now on
        await caches.filled()
        await asyncio.gather(*(self._catch_up(each) for each in warm))
        touched = await self._void()
        caches.rules.begin_term()
        log.info("took over in %.2f s; %d claims were being written", self._clock() - began, touched)

    # -- caches ----------------------------------------------------------------------------------------------------

    async def _catch_up(self, watched: Informer[Any] | OptionalInformer[Any]) -> None:
        required = not isinstance(watched, OptionalInformer) or watched.required
        informer = watched.informer if isinstance(watched, OptionalInformer) else watched
        if informer is None:
            return
        if len(informer) > RELIST_MAX and not informer.failures:
            mark = self._marker_of(informer)
            if mark is None or await self._reached(informer, mark):
                return
        await self._relist(informer, required=required)

    def _marker_of(self, informer: Informer[Any]) -> Mark | None:
        marks: dict[Informer[Any], Mark] = {self._caches.claims: self._mark_claims, self._caches.pods: self._mark_pods}
        return marks.get(informer)

    async def _reached(self, informer: Informer[Any], mark: Mark) -> bool:
        """Whether the watch has shown all that was before this call; False where that cannot be found out."""
        try:
            version = await mark()
            async with asyncio.timeout(MARKER_S):
                await informer.reached(version or "")
        except (errors.ApiError, TimeoutError) as error:
            log.warning("%s: no marker was seen (%s); listing them again", informer.resource, error or "timeout")
            return False
        return True

    async def _mark_claims(self) -> str:
        """Writes the marker claim; the resourceVersion of that."""
        metadata = {"name": MARKER, "namespace": names.NAMESPACE, "annotations": self._annotation()}
        marker = await self._client.patch(
            resources.RESOURCE_CLAIMS,
            MARKER,
            {"metadata": metadata, "spec": {}},
            namespace=names.NAMESPACE,
            kind=Patch.APPLY,
            field_manager=names.FIELD_MANAGER,
            force=True,
        )
        return marker.metadata.resource_version

    async def _mark_pods(self) -> str | None:
        """Writes to a gated pod; the resourceVersion of that. None where no pod is gated: nothing is to be decided."""
        gated = [pod for pod in self._caches.pods.all() if pod.has_gate(names.ADMISSION_GATE)]
        if not gated:
            found = await self._client.list(resources.PODS, fields="spec.nodeName=")
            for pod in found.items:
                self._caches.pods.note(pod)
            gated = [pod for pod in found.items if pod.has_gate(names.ADMISSION_GATE)]
        for pod in sorted(gated, key=lambda pod: pod.metadata.key)[:MARKED_PODS_MAX]:
            try:
                return (await self._mark_pod(pod)).metadata.resource_version
            except (errors.NotFound, errors.Conflict):  # gone, or another has its name
                continue
        if gated:
            raise errors.ApiError("none of the gated pods could be written")
        return None

    async def _mark_pod(self, pod: core.Pod) -> core.Pod:
        return await self._client.patch(
            resources.PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid, "annotations": self._annotation()}},
            namespace=pod.metadata.namespace,
            kind=Patch.STRATEGIC,
            subresource="status",
            field_manager=names.FIELD_MANAGER,
        )

    async def _relist(self, informer: Informer[Any], *, required: bool) -> None:
        """Until it succeeds; once where the cluster may do without that API."""
        failures = 0
        while True:
            try:
                await informer.relist()
            except errors.ApiError as error:
                log.warning("%s cannot be listed: %s", informer.resource, error)
                if not required:
                    return
            else:
                return
            await self._sleep(self._backoff.delay(failures, self._random))
            failures += 1

    # -- the last leader's writes ----------------------------------------------------------------------------------

    async def _void(self) -> int:
        """Writes to each claim that the last leader may still write; returns how many."""
        gated = {pod.metadata.uid for pod in self._caches.pods.all() if pod.has_gate(names.ADMISSION_GATE)}
        found = [claim for claim in self._caches.claims.all() if self._under_way(claim, gated)]
        await all_done(self._touch(claim) for claim in sorted(found, key=lambda claim: claim.metadata.key))
        return len(found)

    def _under_way(self, claim: resource.ResourceClaim, gated: set[str]) -> bool:
        if names.CLAIM_FINALIZER not in claim.metadata.finalizers:
            return False
        if claim.status.allocation is not None:
            return any(reference.uid in gated for reference in claim.status.reserved_for)
        caches = self._caches
        managed = claims.managed(claim.spec, caches.tables.classes, caches.drivers, caches.shared_drivers)
        return managed.ours or bool(managed.problem)

    async def _touch(self, claim: resource.ResourceClaim) -> None:
        """Changes the claim's resourceVersion, whatever it is now."""
        meta = claim.metadata

        async def attempt() -> bool:
            try:
                touched = await self._client.patch(
                    resources.RESOURCE_CLAIMS,
                    meta.name,
                    {"metadata": {"uid": meta.uid, "annotations": self._annotation()}},
                    namespace=meta.namespace,
                    field_manager=names.FIELD_MANAGER,
                )
            except errors.NotFound:
                return True
            except errors.Conflict:  # another has its name, or it changed within this request
                seen = await self._client.get(resources.RESOURCE_CLAIMS, meta.name, meta.namespace)
                return seen.metadata.uid != meta.uid
            self._caches.claims.note(touched)
            return True

        await self._retry_until_certain(attempt, f"ResourceClaim {meta.key}")

    def _annotation(self) -> dict[str, str]:
        return {names.TAKEN_OVER: timestamps.micro(self._wall())}
