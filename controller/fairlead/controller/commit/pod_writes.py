"""Writes to pods: naming their claims, releasing them, keeping them gated, evicting them.

A release is one patch that tests the pod's resourceVersion. So any other write to the pod makes a release that may still
be on its way fail: that is how `ensure_gated` becomes certain.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Any

from fairlead.api import names
from fairlead.controller.commit.writes import CONFLICTS_MAX, GivenUpError, Writes
from fairlead.controller.gangs import release
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.conditions import condition
from fairlead.controller.gangs.membership.gangs import gang_id, named_gang
from fairlead.kube import core, errors, resources, timestamps
from fairlead.kube.client import Patch

log = logging.getLogger(__name__)


class PodWrites(Writes):
    async def name_claims(self, pod: core.Pod, chosen: Mapping[str, str]) -> core.Pod:
        """Writes into the pod's status the claim name of each of these entries."""
        body = {
            "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
            "status": {
                "resourceClaimStatuses": [
                    {"name": entry, "resourceClaimName": claim} for entry, claim in sorted(chosen.items())
                ]
            },
        }
        named = await self._retry(lambda: self._patch_status(pod, body), f"status of pod {pod.metadata.key}")
        self._caches.pods.note(named)
        return named

    async def wake_kubelet(self, pod: core.Pod) -> None:
        """Changes an annotation, so that kubelet syncs the pod at once (see `kubelet_wakes`)."""
        annotations = {names.CLAIMS_CORRECTED: timestamps.micro(self._wall())}
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # gone, or another has its name
            self._caches.pods.note(await self._retry(lambda: self._patch_status(pod, body), f"pod {pod.metadata.key}"))

    async def set_scheduled_condition(self, pod: core.Pod, condition: Mapping[str, Any]) -> bool:
        """Writes a gated pod's PodScheduled condition. False when the pod changed meanwhile, or is gone: look again then."""
        version = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        body = {"metadata": version, "status": {"conditions": [dict(condition)]}}
        try:
            self._caches.pods.note(
                await self._retry(lambda: self._patch_status(pod, body), f"status of pod {pod.metadata.key}")
            )
        except (errors.NotFound, errors.Conflict):
            return False
        return True

    async def nominate(self, pod: core.Pod, node: str) -> None:
        """Writes a gated pod's nominatedNodeName; "": removes it. Does nothing to a pod that changed meanwhile, or is gone."""
        version = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        body = {"metadata": version, "status": {"nominatedNodeName": node or None}}
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # it is looked at again when the change comes
            self._caches.pods.note(
                await self._retry(lambda: self._patch_status(pod, body), f"status of pod {pod.metadata.key}")
            )

    async def read_pod(self, pod: core.Pod) -> core.Pod | None:
        """The pod as it is now; None when it is gone, or another has its name."""
        try:
            now = await self._retry(
                lambda: self._client.get(resources.PODS, pod.metadata.name, pod.metadata.namespace),
                f"pod {pod.metadata.key}",
            )
        except errors.NotFound:
            return None
        self._caches.pods.note(now)
        return now if now.metadata.uid == pod.metadata.uid else None

    async def release_pod(
        self, pod: core.Pod, node: str | None, expect: Mapping[str, str], *, note_time: bool = False
    ) -> bool:
        """Pins the pod to `node` and removes its gate; None: only the gate. False when the pod is gone or terminating.

        `expect` are claim names by entry; where the pod's status names others, it is corrected first. `note_time`: on the
        pod, as no claim of it says when it was allocated. Raises GivenUpError when the apiserver refuses the patch for good.
        """
        current = pod
        for _ in range(CONFLICTS_MAX):
            if current.metadata.deletion_timestamp or current.finished:
                return False
            wrong = {k: v for k, v in claims.names_used(current).items() if k in expect and expect[k] != v}
            try:
                if wrong:
                    current = await self.name_claims(current, {entry: expect[entry] for entry in wrong})
                await self._release_once(current, node, note_time=note_time)
            except release.NotGatedError:
                return True
            except errors.NotFound:
                return False
            except (errors.Conflict, errors.Invalid, errors.BadRequest) as error:
                seen = await self.read_pod(pod)
                if seen is None:
                    return False
                unchanged = seen.metadata.resource_version == current.metadata.resource_version
                if unchanged and not isinstance(error, errors.Conflict):
                    raise GivenUpError(f"pod {pod.metadata.key} cannot be released: {error}") from error
                current = seen
                continue
            if current.condition(names.ADMITTED_CONDITION) is not None:  # an earlier admission was undone
                with contextlib.suppress(errors.ApiError):
                    released = condition(
                        names.ADMITTED_CONDITION, True, "Released", f"released to {node}", now=self._wall()
                    )
                    body = {"metadata": {}, "status": {"conditions": [released]}}
                    self._caches.pods.note(await self._patch_status(pod, body))
            return True
        raise GivenUpError(f"pod {pod.metadata.key} changed {CONFLICTS_MAX} times while it was released")

    async def _release_once(self, pod: core.Pod, node: str | None, *, note_time: bool) -> None:
        notes = {names.RELEASED_AT: timestamps.seconds(self._wall())} if note_time else {}
        if named_gang(pod) is None and (queue := self._caches.rules.queue_of(gang_id(pod))):
            notes[names.ADMITTED_QUEUE] = queue
        patch = release.release_patch(pod, node, notes) if node else release.ungate_patch(pod)
        released = await self._retry(
            lambda: self._client.patch(
                resources.PODS, pod.metadata.name, patch, namespace=pod.metadata.namespace, kind=Patch.JSON
            ),
            f"pod {pod.metadata.key}",
        )
        self._caches.pods.note(released)

    async def ensure_gated(self, pod: core.Pod, why: str) -> bool:
        """Returns when it is certain that the pod has its gate and no release can still arrive; False: it was released.

        A release carries the pod's resourceVersion, so writing a condition is enough. The condition's message is `why`
        with a random suffix: the same text twice would change nothing.
        """
        released = False

        async def attempt() -> bool:
            nonlocal released
            try:
                seen = await self._client.get(resources.PODS, pod.metadata.name, pod.metadata.namespace)
                if seen.metadata.uid != pod.metadata.uid:
                    return True
                if not seen.has_gate(names.ADMISSION_GATE):
                    released = True
                    self._caches.pods.note(seen)
                    return True
                message = f"{why[:1000]} (op {self._random.getrandbits(32):08x})"
                undone = condition(names.ADMITTED_CONDITION, False, "TakenBack", message, now=self._wall())
                version = {"uid": pod.metadata.uid, "resourceVersion": seen.metadata.resource_version}
                body = {"metadata": version, "status": {"conditions": [undone]}}
                self._caches.pods.note(await self._patch_status(pod, body))
            except errors.NotFound:
                return True
            except errors.Conflict:
                return False
            return True

        await self._retry_until_certain(attempt, f"pod {pod.metadata.key}")
        return not released

    async def evict_late(self, pod: core.Pod) -> None:
        """Evicts a pod of a gang that did not start, as budgets allow; deletes one that never bound."""
        message = "Fairlead takes the gang back: it did not come to run"
        await self._evict(pod, "RolledBack", message, delete=not pod.spec.node_name)

    async def _evict(
        self, pod: core.Pod, reason: str, message: str, *, delete: bool, grace_s: int | None = None
    ) -> str:
        """Evicts or deletes the pod, marked as disrupted first. "" when it is terminating or gone, else why not."""
        meta = pod.metadata
        try:
            async with self._slots:
                await self._mark_disrupted(pod, reason, message, delete=delete)
                if delete:
                    await self._client.delete(
                        resources.PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_s=grace_s
                    )
                else:
                    await self._client.evict(meta.name, meta.namespace, uid=meta.uid, grace_period_s=grace_s)
        except (errors.NotFound, errors.Conflict):
            return ""
        except errors.ApiError as error:
            log.info("pod %s not evicted: %s", meta.key, error)
            return str(error)
        return ""

    async def _mark_disrupted(self, pod: core.Pod, reason: str, message: str, *, delete: bool) -> None:
        """Sets DisruptionTarget on the pod, so that a Job's failure policy can ignore its end.

        The eviction API does that for running pods, and only for them.
        """
        if pod.status.phase == "Running" and not delete:
            return
        target = condition("DisruptionTarget", True, reason, message, now=self._wall())
        await self._patch_status(pod, {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [target]}})

    async def _patch_status(self, pod: core.Pod, body: Mapping[str, Any]) -> core.Pod:
        """Strategic merge: conditions and claim statuses that `body` does not name stay."""
        return await self._client.patch(
            resources.PODS,
            pod.metadata.name,
            body,
            namespace=pod.metadata.namespace,
            kind=Patch.STRATEGIC,
            subresource="status",
            field_manager=names.FIELD_MANAGER,
        )
