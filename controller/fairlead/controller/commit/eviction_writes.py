"""Writes of an eviction: the decision, a reservation for the gang that gets the devices, marks on the pods to be evicted, and the eviction itself.

Unlike releases these need no certainty about an earlier write: each may be repeated, and the marks say what comes next.
A mark is one patch, annotations and condition together, so that no reader gets half of it. Decides nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairlead.api import names
from fairlead.controller.commit.claim_writes import ClaimWrites
from fairlead.controller.commit.pod_writes import PodWrites
from fairlead.controller.gangs.conditions import condition
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark
from fairlead.controller.gangs.evictions.past_evictions import PastEviction
from fairlead.controller.gangs.held import leaving
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.decisions import Decision
from fairlead.controller.gangs.membership.gangs import GangId
from fairlead.kube import core, errors, resources, timestamps
from fairlead.kube.resources import Raw

log = logging.getLogger(__name__)

MESSAGE_MAX = 1024


class Writer(ClaimWrites, PodWrites):
    """All writes of the protocol: of claims, pods and evictions."""

    async def mark(self, pod: core.Pod, mark: EvictionMark) -> None:
        """Does nothing when the pod is gone."""
        message = f"to be evicted at {timestamps.seconds(mark.at)}: {mark.description}"
        await self._annotate(pod, mark.annotations(), self._evicting(True, mark.kind, message))

    async def unmark(self, pod: core.Pod, reason: str, why: str) -> None:
        annotations = {names.EVICT_AT: None, names.EVICTION: None}
        await self._annotate(pod, annotations, self._evicting(False, reason, why))

    async def reserve(self, gang: GangId, until: float, spec: Mapping[str, Any]) -> None:
        """Devices freed by evictions stay reserved for this waiting gang until then; unix seconds."""
        await self._record(gang, {decisions.RESERVED: timestamps.seconds(until)}, spec)

    async def note_decisions(self, gang: GangId, made: Iterable[Decision], spec: Mapping[str, Any]) -> None:
        """Before the marks, which count only where these say the same."""
        await self._record(gang, {decisions.DECISIONS: [each.to_json() for each in made] or None}, spec)

    async def ask_checkpoint(self, pod: core.Pod, by: str | None) -> None:
        """That its node goes by then (RFC 3339); None: no more."""
        await self._annotate(pod, {names.CHECKPOINT_BY: by}, None)

    async def evict(self, pod: core.Pod, mark: EvictionMark, *, grace_s: int, delete: bool) -> str:
        """By the eviction API, as budgets allow, or by a deletion: "" when the pod is terminating or gone, else why not.

        `grace_s` is the most that it gets to end, at least one second.
        """
        own = pod.spec.termination_grace_period_seconds
        shorter = max(1, grace_s) if own is not None and own > max(1, grace_s) else None
        return await self._evict(pod, "Evicted", mark.description[:MESSAGE_MAX], delete=delete, grace_s=shorter)

    async def shorten(self, pod: core.Pod) -> str:
        """Deletes a terminating pod again, with a shorter grace: "" when it is done or the pod is gone, else why not."""
        meta = pod.metadata
        try:
            async with self._slots:
                await self._client.delete(
                    resources.PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_s=leaving.GRACE_S
                )
        except (errors.NotFound, errors.Conflict):
            return ""
        except errors.ApiError as error:
            log.info("pod %s not deleted again: %s", meta.key, error)
            return str(error)
        return ""

    async def note_past_eviction(self, gang: GangId, past: PastEviction, spec: Mapping[str, Any]) -> None:
        """So that the gang's recreated pods keep its age."""
        await self._record(gang, past.status(), spec)

    async def _record(self, gang: GangId, status: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """In the status of the Gang object. A gang of one that never waited has none: it is created, with `spec`."""
        try:
            written = await self._patch_gang_status(gang, status)
        except errors.NotFound:
            await self._create_gang(gang, spec)
            written = await self._patch_gang_status(gang, status)
        self._caches.gang_objects.note(written)

    async def _patch_gang_status(self, gang: GangId, status: Mapping[str, Any]) -> Raw:
        body = {"status": status}
        return await self._retry(
            lambda: self._client.patch(resources.GANGS, gang[1], body, namespace=gang[0], subresource="status"),
            f"gang {gang[0]}/{gang[1]}",
        )

    async def _create_gang(self, gang: GangId, spec: Mapping[str, Any]) -> None:
        metadata = {"name": gang[1], "namespace": gang[0], "labels": {names.MANAGED_BY: names.MANAGED_BY_VALUE}}
        body = {"metadata": metadata, "spec": dict(spec)}
        with contextlib.suppress(errors.AlreadyExists):  # by a user, or by an answer that was lost
            await self._retry(
                lambda: self._client.create(resources.GANGS, body, namespace=gang[0]), f"gang {gang[0]}/{gang[1]}"
            )

    async def note_eviction_times(self, queue: str, times: Sequence[str]) -> None:
        """When gangs of the queue were evicted, for its disruption budget."""
        body = {"status": {"evictions": list(times)}}
        try:
            written = await self._retry(
                lambda: self._client.patch(resources.QUEUES, queue, body, subresource="status"), f"queue {queue}"
            )
        except errors.NotFound:
            return
        self._caches.queues.note(written)

    def _evicting(self, holds: bool, reason: str, message: str) -> dict[str, Any]:
        return condition(names.EVICTING_CONDITION, holds, reason, message[:MESSAGE_MAX], now=self._wall())

    async def _annotate(
        self, pod: core.Pod, annotations: Mapping[str, str | None], condition: Mapping[str, Any] | None
    ) -> None:
        body: dict[str, Any] = {"metadata": {"uid": pod.metadata.uid, "annotations": dict(annotations)}}
        if condition is not None:
            body["status"] = {"conditions": [condition]}
        try:
            written = await self._retry(lambda: self._patch_status(pod, body), f"pod {pod.metadata.key}")
        except (errors.NotFound, errors.Conflict):  # gone, or another has its name
            return
        self._caches.pods.note(written)
