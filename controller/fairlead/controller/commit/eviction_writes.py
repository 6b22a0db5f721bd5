"""Writes of an eviction: marks on the pods that go, a hold on the gang they go for, the eviction itself, and what stays of it.

Exists beside `pod_writes` because these need no certainty about what was written last: each can be made again, and the marks
say what comes next. A mark is one write, annotations and condition together, so that nobody sees half of it. Decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.api import names
from fairlead.controller.commit.pod_writes import PodWrites
from fairlead.controller.gangs.evictions import Mark, Past
from fairlead.controller.gangs.gangs import GangId
from fairlead.kube import core, errors, resources, timestamps
from fairlead.kube.client import Patch

log = logging.getLogger(__name__)

MESSAGE_MAX = 1024


class EvictionWrites(PodWrites):
    async def mark(self, pod: core.Pod, mark: Mark) -> None:
        """Tells the pod that it will be evicted, when, and why. A pod that is gone needs no telling."""
        message = f"to be evicted at {timestamps.seconds(mark.at)}: {mark.story}"
        condition = self._evicting("True", mark.kind, message)
        await self._annotate(pod, mark.annotations(), condition)

    async def unmark(self, pod: core.Pod, reason: str, why: str) -> None:
        """Tells the pod that it may stay."""
        condition = self._evicting("False", reason, why)
        await self._annotate(pod, {names.EVICT_AT: None, names.EVICTION: None}, condition)

    async def hold_for(self, pod: core.Pod, until: float) -> None:
        """What others give back is this waiting pod's gang's until then."""
        await self._annotate(pod, {names.HOLDS_UNTIL: timestamps.seconds(until)}, None)

    async def evict_now(self, pod: core.Pod, mark: Mark) -> str:
        """By the eviction API, as budgets allow: empty when the pod is on its way out, else why it is not."""
        meta = pod.metadata
        try:
            async with self._slots:
                await self.excuse(pod, "Evicted", mark.story[:MESSAGE_MAX])
                await self._client.evict(meta.name, meta.namespace, uid=meta.uid)
        except (errors.NotFound, errors.Conflict):
            return ""
        except errors.ApiError as error:
            log.info("pod %s not evicted: %s", meta.key, error)
            return str(error)
        return ""

    async def remember(self, gang: GangId, past: Past) -> None:
        """Writes on the Gang object what keeps the gang's age when its pods are made anew."""
        body = {"metadata": {"annotations": {names.EVICTED: past.annotation()}}}
        try:
            written = await self._persist(
                lambda: self._client.patch(resources.GANGS, gang[1], body, namespace=gang[0]),
                f"gang {gang[0]}/{gang[1]}",
            )
        except errors.NotFound:
            log.warning("gang %s/%s: has no Gang object; its age is not kept", *gang)
            return
        self._state.gang_objects.note(written)

    async def note_evictions(self, queue: str, times: Sequence[str]) -> None:
        """Writes when gangs of the queue were evicted, for its disruption budget."""
        body = {"status": {"evictions": list(times)}}
        try:
            written = await self._persist(
                lambda: self._client.patch(resources.QUEUES, queue, body, subresource="status"), f"queue {queue}"
            )
        except errors.NotFound:
            return
        self._state.queues.note(written)

    def _evicting(self, status: str, reason: str, message: str) -> Mapping[str, Any]:
        return {
            "type": names.EVICTING_CONDITION,
            "status": status,
            "reason": reason,
            "message": message[:MESSAGE_MAX],
            "lastTransitionTime": timestamps.seconds(self._wall()),
        }

    async def _annotate(
        self, pod: core.Pod, annotations: Mapping[str, str | None], condition: Mapping[str, Any] | None
    ) -> None:
        body: dict[str, Any] = {"metadata": {"uid": pod.metadata.uid, "annotations": dict(annotations)}}
        if condition is not None:
            body["status"] = {"conditions": [condition]}
        try:
            written = await self._persist(
                lambda: self._client.patch(
                    resources.PODS,
                    pod.metadata.name,
                    body,
                    namespace=pod.metadata.namespace,
                    kind=Patch.STRATEGIC,
                    subresource="status",
                    field_manager=names.FIELD_MANAGER,
                ),
                f"pod {pod.metadata.key}",
            )
        except (errors.NotFound, errors.Conflict):  # gone, or another has its name
            return
        self._state.pods.note(written)
