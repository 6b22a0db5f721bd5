"""Writes to pods, of evictions, and to the Gang objects and Queues that record them.

A release is one patch that tests the pod's resourceVersion. So any other write to the pod makes a release that may still
be on its way fail: that is how `ensure_gated` becomes certain.
The writes of an eviction need no certainty about an earlier write: each may be repeated, and the marks say what comes next.
A mark is one patch, annotations and condition together, so that no reader gets half of it. Decides nothing.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fairlead.api import names
from fairlead.controller.commit.claim_writes import ClaimWrites
from fairlead.controller.commit.writes import CONFLICTS_MAX, GivenUpError
from fairlead.controller.gangs import release
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.conditions import condition
from fairlead.controller.gangs.evictions.eviction_marks import EvictionMark
from fairlead.controller.gangs.evictions.past_evictions import PastEviction
from fairlead.controller.gangs.held import leaving
from fairlead.controller.gangs.membership import decisions
from fairlead.controller.gangs.membership.decisions import Decision
from fairlead.controller.gangs.membership.gangs import GangId, gang_id, named_gang
from fairlead.kube import core, errors, resources, timestamps
from fairlead.kube.client import Patch
from fairlead.kube.resources import Raw

log = logging.getLogger(__name__)

MESSAGE_MAX = 1024


class Writer(ClaimWrites):
    """All writes of the protocol."""

    async def name_claims(self, pod: core.Pod, chosen: Mapping[str, str]) -> core.Pod:
        """Writes into the pod's status the claim name of each of these entries."""
        named = [{"name": entry, "resourceClaimName": claim} for entry, claim in sorted(chosen.items())]
        return await self._write_status(pod, {"resourceClaimStatuses": named}, unchanged=True)

    async def wake_kubelet(self, pod: core.Pod) -> None:
        """Changes an annotation, so that kubelet syncs the pod at once (see `KubeletWakes`)."""
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # gone, or another has its name
            await self._write_status(pod, annotations={names.CLAIMS_CORRECTED: timestamps.micro(self._wall())})

    async def set_scheduled_condition(self, pod: core.Pod, condition: Mapping[str, Any]) -> bool:
        """Writes a gated pod's PodScheduled condition. False when the pod changed meanwhile, or is gone: look again then."""
        try:
            await self._write_status(pod, {"conditions": [dict(condition)]}, unchanged=True)
        except (errors.NotFound, errors.Conflict):
            return False
        return True

    async def nominate(self, pod: core.Pod, node: str) -> None:
        """Writes a gated pod's nominatedNodeName; "": removes it. Does nothing to a pod that changed meanwhile, or is gone."""
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # it is looked at again when the change comes
            await self._write_status(pod, {"nominatedNodeName": node or None}, unchanged=True)

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
        await self._end(pod, ("RolledBack", message), delete=not pod.spec.node_name)

    async def _end(
        self, pod: core.Pod, disrupted: tuple[str, str] | None = None, *, delete: bool, grace_s: int | None = None
    ) -> str:
        """Evicts or deletes the pod: "" when it is terminating or gone, else why not. `disrupted`: reason and message of the mark before."""
        meta = pod.metadata
        try:
            async with self._slots:
                if disrupted is not None:
                    await self._mark_disrupted(pod, *disrupted, delete=delete)
                if delete:
                    await self._client.delete(
                        resources.PODS, meta.name, meta.namespace, uid=meta.uid, grace_period_s=grace_s
                    )
                else:
                    await self._client.evict(meta.name, meta.namespace, uid=meta.uid, grace_period_s=grace_s)
        except (errors.NotFound, errors.Conflict):
            return ""
        except errors.ApiError as error:
            log.info("pod %s not %s: %s", meta.key, "deleted" if delete else "evicted", error)
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

    async def _write_status(
        self,
        pod: core.Pod,
        status: Mapping[str, Any] | None = None,
        *,
        annotations: Mapping[str, str | None] | None = None,
        unchanged: bool = False,
    ) -> core.Pod:
        """The pod as written. `unchanged`: Conflict where it is no more as given; that also where another has its name."""
        metadata: dict[str, Any] = {"uid": pod.metadata.uid}
        if unchanged:
            metadata["resourceVersion"] = pod.metadata.resource_version
        if annotations is not None:
            metadata["annotations"] = dict(annotations)
        body = {"metadata": metadata} | ({"status": status} if status is not None else {})
        written = await self._retry(lambda: self._patch_status(pod, body), f"pod {pod.metadata.key}")
        self._caches.pods.note(written)
        return written

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

    # -- evictions -------------------------------------------------------------------------------------------------

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
        return await self._end(pod, ("Evicted", mark.description[:MESSAGE_MAX]), delete=delete, grace_s=shorter)

    async def shorten(self, pod: core.Pod) -> str:
        """Deletes a terminating pod again, with a shorter grace: "" when it is done or the pod is gone, else why not."""
        return await self._end(pod, delete=True, grace_s=leaving.GRACE_S)

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
        with contextlib.suppress(errors.NotFound, errors.Conflict):  # gone, or another has its name
            await self._write_status(pod, {"conditions": [condition]} if condition else None, annotations=annotations)
