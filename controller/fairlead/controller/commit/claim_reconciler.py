"""What the pods and claims of a gang need apart from a decision, whenever the gang changes.

- A template that a named claim comes from is read where the watch has not shown it.
- The template behind a legacy request (`nvidia.com/gpu: 8`) is created: the webhook writes only its name into the pod.
- One claim per entry that names a template is in use, and the pod's status names it, also before kubelet; duplicates are deleted.
- A gated pod without a managed claim is ungated: the webhook gates what it cannot judge, because a gate cannot be added
  later.
- Garbage collection: an orphaned allocation, seen in two sweeps, is cleared.
The claim controller and users write the same objects; each step may be repeated.
"""

from __future__ import annotations

import contextlib
import logging
from typing import NamedTuple

from fairlead.api import legacy
from fairlead.api.drivers import legacy_driver
from fairlead.controller.commit.part import Part, Shared, Tasks
from fairlead.controller.commit.writer import Writer
from fairlead.controller.gangs.admission import recovery
from fairlead.controller.gangs.claims import claims
from fairlead.controller.gangs.membership.gangs import Gang
from fairlead.controller.gangs.membership.members import Member, PodClaim
from fairlead.controller.watch.informers import Informers
from fairlead.kube import core, errors, prepare_refusals, resource, resources
from fairlead.kube.informer import Change

log = logging.getLogger(__name__)

UNSEEN_TEMPLATE_S = 10.0
LOOKED_AT_MAX = 4096
READS_MAX = 50  # unseen templates of one namespace in UNSEEN_TEMPLATE_S: thousands may have been deleted
WAKE_AFTER_S = (0.0, 1.0, 3.0, 6.0, 12.0, 30.0)
"""When kubelet is woken, since the names were seen right; each time only if the pod has not started.

More than once: the apiserver lets a kubelet read a claim only when its authorizer has seen, too, that a pod there uses it.
"""


class ClaimReconciler(Part):
    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._looked_at: dict[tuple[str, str], float] = {}  # unseen templates, and when they were read; unix seconds
        self._reads: dict[str, tuple[float, int]] = {}  # by namespace: since when, and how many were read
        self._suspects: set[str] = set()  # UIDs of claims orphaned in the last sweep
        self._wakes = KubeletWakes(shared.caches, shared.writer, shared.tasks)

    def close(self) -> None:
        """The term ends."""
        self._wakes.close()

    def reconcile(self, gang: Gang, now: float, *, busy: bool) -> float | None:
        """`busy`: a task is writing the gang's claims; then they are left alone. Returns when it is to be called again."""
        again: list[float] = []
        for member in gang.unmanaged:
            self._tasks.start(f"pod {member.pod.metadata.key}", self._ungate(member))
        for member in gang.members:
            for name in member.legacy_templates:
                self._tasks.start(f"template {gang.namespace}/{name}", self._create_template(gang.namespace, name))
            again += [self._look_for_template(gang.namespace, name, now) for name in member.unseen_templates]
            if not busy and not member.pod.finished and self._agree_on_claims(member):
                due = self._wakes.step(member.pod, now)
                again += [] if due is None else [due]
        return min(again, default=None)

    def _agree_on_claims(self, member: Member) -> bool:
        """Names the claims in use in the pod's status; then, and when it returns True, duplicates are deleted.

        The claim controller works from a cache: it may name its own claim after ours was allocated, even after the pod was
        bound.
        """
        named = claims.names_used(member.pod)
        misnamed = {
            pod_claim.name: pod_claim.claim.metadata.name
            for pod_claim in member.claims
            if pod_claim.claim is not None
            and _chosen(pod_claim)
            and pod_claim.reserved_for(member.uid)
            and named.get(pod_claim.name) not in {None, pod_claim.claim.metadata.name}
        }
        if misnamed:
            self._tasks.start(f"names of {member.uid}", self._correct_names(member, misnamed))
            return False
        for pod_claim in member.claims:
            if pod_claim.claim is None or not _chosen(pod_claim):
                continue
            owned = self._caches.lookup.claims_of(member.pod)
            for duplicate in claims.duplicates(member.pod, pod_claim.name, named.get(pod_claim.name), owned):
                self._tasks.start(f"claim {duplicate.metadata.uid}", self._writer.delete_duplicate(duplicate))
        return True

    async def _correct_names(self, member: Member, claim_names: dict[str, str]) -> None:
        log.info("pod %s: its status names another claim than the allocated one; corrected", member.pod.metadata.key)
        with contextlib.suppress(errors.Conflict, errors.NotFound):  # tried again with the pod's next change
            await self._writer.name_claims(member.pod, claim_names)

    async def _create_template(self, namespace: str, name: str) -> None:
        manifest = legacy.template_manifest(name, namespace, driver=legacy_driver(self._caches.drivers))
        try:
            created = await self._client.create(resources.RESOURCE_CLAIM_TEMPLATES, manifest)
        except errors.AlreadyExists:
            created = await self._client.get(resources.RESOURCE_CLAIM_TEMPLATES, name, namespace)
        self._caches.templates.note(created)

    def _look_for_template(self, namespace: str, name: str, now: float) -> float:
        """Reads a template that the watch has not shown: it may be behind. Returns when it is to be read again."""
        due = self._looked_at.get((namespace, name), float("-inf")) + UNSEEN_TEMPLATE_S
        if due > now:
            return due
        since, reads = self._reads.get(namespace, (now, 0))
        if now >= since + UNSEEN_TEMPLATE_S:
            since, reads = now, 0
        if reads >= READS_MAX:
            return since + UNSEEN_TEMPLATE_S
        self._reads[namespace] = since, reads + 1
        if len(self._looked_at) > LOOKED_AT_MAX:
            self._looked_at.clear()
        self._looked_at[namespace, name] = now
        self._tasks.start(f"template {namespace}/{name}", self._read_template(namespace, name))
        return now + UNSEEN_TEMPLATE_S

    async def _read_template(self, namespace: str, name: str) -> None:
        with contextlib.suppress(errors.NotFound):
            self._caches.templates.note(await self._client.get(resources.RESOURCE_CLAIM_TEMPLATES, name, namespace))

    async def _ungate(self, member: Member) -> None:
        log.info("pod %s has no claim for a managed device; its gate is removed", member.pod.metadata.key)
        await self._writer.release_pod(member.pod, None, {})

    def collect_garbage(self) -> None:
        """Clears allocations that were orphaned in the last sweep and still are."""
        orphaned = {
            claim.metadata.uid: claim
            for claim in recovery.orphaned_allocations(
                self._caches.claims.all(),
                drivers=self._caches.drivers,
                used=lambda claim: bool(self._caches.users(claim)),
            )
        }
        for uid in sorted(self._suspects & set(orphaned)):
            log.warning("ResourceClaim %s: orphaned allocation cleared", orphaned[uid].metadata.key)
            self._metrics.orphaned_claims.inc()
            self._tasks.start(f"claim {uid}", self._writer.deallocate(orphaned[uid], [], keep_allocation=False))
        self._suspects = set(orphaned)


def _chosen(pod_claim: PodClaim) -> bool:
    """Whether the entry names a template, so that its claim is one of several, and named in the pod's status."""
    return pod_claim.template is not None and pod_claim.source is None


class _Wakes(NamedTuple):
    since: float | None  # None: not yet seen by `step`
    done: int


class KubeletWakes:
    """Makes kubelet sync pods whose claims' names were put right after they had come to their node, and those that may be prepared now.

    Kubelet tries to prepare the claim that a pod's status names. Where that fails it syncs the pod again after 60 to 90 s; a change
    of the status alone does not make it look earlier, a change of an annotation does. Source: kubelet config/config.go
    checkAndUpdatePod, pod_workers.go completeWork.
    Example: the claim controller names its own claim of pod a-0 late, after a-0 was bound; kubelet cannot prepare that one. As soon
    as the status names the allocated claim again, whichever program wrote that, an annotation of a-0 is changed. The same where a
    driver refused a claim, since containers of a pod that was deleted by force had its devices, and takes that back when they have
    ended. In memory only: after a change of leader such a pod starts at kubelet's next sync.
    """

    def __init__(self, informers: Informers, writer: Writer, tasks: Tasks) -> None:
        self._pods_of = informers.pods_of
        self._writer = writer
        self._tasks = tasks
        self._due: dict[str, _Wakes] = {}  # by pod UID
        self._unsubscribe = informers.pods.subscribe(self._pod_changed), informers.claims.subscribe(self._claim_changed)

    def close(self) -> None:
        """To be called when the term ends."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def _pod_changed(self, change: Change[core.Pod]) -> None:
        old, new = change.old, change.new
        if new is None or new.status.phase != "Pending":
            self._due.pop(change.object.metadata.uid, None)
        elif old is not None and old.spec.node_name and claims.names_used(old) != claims.names_used(new):
            self._due[new.metadata.uid] = _Wakes(since=None, done=0)

    def _claim_changed(self, change: Change[resource.ResourceClaim]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or not prepare_refusals.refusal(old) or prepare_refusals.refusal(new):
            return
        for pod in self._pods_of(new).values():
            if pod.spec.node_name and pod.status.phase == "Pending":
                self._due[pod.metadata.uid] = _Wakes(since=None, done=0)

    def step(self, pod: core.Pod, now: float) -> float | None:
        """For a pod whose status names the right claims. Returns when the next step is due; None: never, or after a change."""
        wakes = self._due.get(pod.metadata.uid)
        if wakes is None:
            return None
        since = now if wakes.since is None else wakes.since
        done = wakes.done
        if now >= since + WAKE_AFTER_S[done]:
            log.info("pod %s: its claims can be prepared by now; kubelet is to sync it", pod.metadata.key)
            self._tasks.start(f"sync of {pod.metadata.uid}", self._writer.wake_kubelet(pod))
            done += 1
        if done == len(WAKE_AFTER_S):
            del self._due[pod.metadata.uid]
            return None
        self._due[pod.metadata.uid] = _Wakes(since, done)
        return since + WAKE_AFTER_S[done]
