"""Writes to pods: naming their claims, releasing them, holding them back, evicting them.

Exists to make certain of a release: it is one patch that tests the pod's resourceVersion, so an attempt that may still be
on its way is made void by any other write (`hold_back`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping

from fairlead.api import names
from fairlead.controller.commit.writes import CONFLICTS_MAX, GivenUpError, Steps
from fairlead.controller.gangs import claims, release
from fairlead.kube import core, errors, resources, timestamps
from fairlead.kube.client import Patch

log = logging.getLogger(__name__)


class PodWrites(Steps):
    async def name_claims(self, pod: core.Pod, chosen: Mapping[str, str]) -> core.Pod:
        """Says in the pod's status which claims stand behind its template entries."""

        async def attempt() -> core.Pod:
            body = {
                "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
                "status": {
                    "resourceClaimStatuses": [
                        {"name": entry, "resourceClaimName": claim} for entry, claim in sorted(chosen.items())
                    ]
                },
            }
            return await self._client.patch(
                resources.PODS,
                pod.metadata.name,
                body,
                namespace=pod.metadata.namespace,
                kind=Patch.STRATEGIC,
                subresource="status",
                field_manager=names.FIELD_MANAGER,
            )

        named = await self._persist(attempt, f"status of pod {pod.metadata.key}")
        self._state.pods.note(named)
        return named

    async def read_pod(self, pod: core.Pod) -> core.Pod | None:
        """The pod as it is now; None when it is gone (or another has its name)."""
        try:
            now = await self._persist(
                lambda: self._client.get(resources.PODS, pod.metadata.name, pod.metadata.namespace),
                f"pod {pod.metadata.key}",
            )
        except errors.NotFound:
            return None
        self._state.pods.note(now)
        return now if now.metadata.uid == pod.metadata.uid else None

    async def release_pod(self, pod: core.Pod, node: str | None, expect: Mapping[str, str]) -> bool:
        """Pins the pod and removes its gate; without a node only the gate. False when the pod is gone or leaving.

        `expect` are the claims (by entry) that the pod must name; where it names others it is corrected first. Raises
        GivenUpError when the apiserver refuses the patch for good.
        """
        current = pod
        for _ in range(CONFLICTS_MAX):
            if current.metadata.deletion_timestamp or current.finished:
                return False
            wrong = {k: v for k, v in claims.names_used(current).items() if k in expect and expect[k] != v}
            try:
                if wrong:
                    current = await self.name_claims(current, {entry: expect[entry] for entry in wrong})
                await self._release_once(current, node)
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
            if current.condition(names.ADMITTED_CONDITION) is not None:  # said to be taken back before
                with contextlib.suppress(errors.ApiError):
                    self._state.pods.note(await self._say(pod, "True", "Released", f"released to {node}"))
            return True
        raise GivenUpError(f"pod {pod.metadata.key} changed {CONFLICTS_MAX} times while it was released")

    async def hold_back(self, pod: core.Pod, why: str) -> bool:
        """Makes certain that a pod has its gate and that no release of ours can still arrive; false: it was released.

        A release carries the pod's resourceVersion, so writing a condition, which says why, is enough.
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
                    self._state.pods.note(seen)
                    return True
                # Never the same text twice: it must be a change.
                said = f"{why[:1000]} (op {self._random.getrandbits(32):08x})"
                version = {"uid": pod.metadata.uid, "resourceVersion": seen.metadata.resource_version}
                self._state.pods.note(await self._say(pod, "False", "TakenBack", said, version))
            except errors.NotFound:
                return True
            except errors.Conflict:
                return False
            return True

        await self._insist(attempt, f"pod {pod.metadata.key}")
        return not released

    async def _say(
        self, pod: core.Pod, status: str, reason: str, message: str, metadata: Mapping[str, str] | None = None
    ) -> core.Pod:
        condition = {
            "type": names.ADMITTED_CONDITION,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": timestamps.seconds(self._wall()),
        }
        return await self._client.patch(
            resources.PODS,
            pod.metadata.name,
            {"metadata": metadata or {}, "status": {"conditions": [condition]}},
            namespace=pod.metadata.namespace,
            kind=Patch.STRATEGIC,
            subresource="status",
            field_manager=names.FIELD_MANAGER,
        )

    async def _release_once(self, pod: core.Pod, node: str | None) -> None:
        patch = release.release_patch(pod, node) if node else release.ungate_patch(pod)
        released = await self._persist(
            lambda: self._client.patch(
                resources.PODS, pod.metadata.name, patch, namespace=pod.metadata.namespace, kind=Patch.JSON
            ),
            f"pod {pod.metadata.key}",
        )
        self._state.pods.note(released)

    async def evict(self, pod: core.Pod) -> bool:
        """Evicts one pod, as budgets allow; a pod that never bound is deleted. False: not now."""
        meta = pod.metadata
        try:
            async with self._slots:
                await self.excuse(pod, "RolledBack", "Fairlead takes the gang back: it did not come to run")
                if pod.spec.node_name:
                    await self._client.evict(meta.name, meta.namespace, uid=meta.uid)
                else:
                    await self._client.delete(resources.PODS, meta.name, meta.namespace, uid=meta.uid)
        except (errors.NotFound, errors.Conflict):
            return True
        except errors.ApiError as error:
            log.info("pod %s not evicted: %s", meta.key, error)
            return False
        return True

    async def excuse(self, pod: core.Pod, reason: str, message: str) -> None:
        """Marks a pod that does not run yet as disrupted, so that a Job may tell this from a failure of its own.

        The eviction API does that for running pods, and only for them.
        """
        if pod.status.phase == "Running":
            return
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": timestamps.seconds(self._wall()),
        }
        await self._client.patch(
            resources.PODS,
            pod.metadata.name,
            {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}},
            namespace=pod.metadata.namespace,
            kind=Patch.STRATEGIC,
            subresource="status",
            field_manager=names.FIELD_MANAGER,
        )
